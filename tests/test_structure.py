"""Who may use whom, as docs/structure.md says: includes, imports, and the sizes of files."""

from __future__ import annotations

import ast
import re
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent
CPP = ROOT / "cpp"
CUDA = ROOT / "cuda"

MAY_INCLUDE: dict[str, set[str]] = {
    "core": set(),
    "io": {"core"},
    "plan": {"core"},
    "backend": {"core", "plan"},
    "model": {"core", "io", "plan", "backend"},
    "engine": {"core", "io", "plan", "backend", "model"},
    "cpu": {"core", "plan", "backend"},
    "bindings": {"core", "io", "plan", "backend", "model", "engine"},
}
# The plugin reaches the rest of the project through the operator interface only. It names itself by the root.
CUDA_MAY_INCLUDE = {"cuda", "backend", "plan", "core"}
# The one factory that picks a backend by name.
EXCEPTIONS = {("backend/registry.cc", "cpu")}
MOST_LINES = 450

CPP_FILES = sorted(p for p in CPP.rglob("*") if p.suffix in {".h", ".cc"})
CUDA_FILES = sorted(p for p in CUDA.rglob("*") if p.suffix in {".h", ".cc", ".cu", ".cuh"})
PYTHON_FILES = sorted([*(ROOT / "python").rglob("*.py"), *(ROOT / "server").rglob("*.py")])
TRAIN_FILES = sorted((ROOT / "train").rglob("*.py"))


def project_includes(path: Path) -> list[str]:
    return re.findall(r'^#include "([^"]+)"', path.read_text(encoding="utf-8"), flags=re.M)


def imported_packages(path: Path) -> set[str]:
    found: set[str] = set()
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            found |= {alias.name.split(".")[0] for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module and node.level == 0:
            found.add(node.module.split(".")[0])
    return found


def test_every_native_folder_has_a_rule() -> None:
    assert {p.relative_to(CPP).parts[0] for p in CPP_FILES} == set(MAY_INCLUDE)


@pytest.mark.parametrize("path", CPP_FILES, ids=lambda p: str(p.relative_to(CPP)))
def test_native_includes_follow_the_arrows(path: Path) -> None:
    name = path.relative_to(CPP).as_posix()
    folder = name.split("/")[0]
    for include in project_includes(path):
        target = include.split("/")[0]
        assert (CPP / include).exists(), f"{name} includes {include}, which is not under cpp/"
        allowed = target == folder or target in MAY_INCLUDE[folder] or (name, target) in EXCEPTIONS
        assert allowed, f"{name} includes {include}; {folder} may use {sorted(MAY_INCLUDE[folder])}"


@pytest.mark.parametrize("path", CUDA_FILES, ids=lambda p: str(p.relative_to(ROOT)))
def test_cuda_includes_follow_the_arrows(path: Path) -> None:
    name = path.relative_to(ROOT).as_posix()
    for include in project_includes(path):
        target = include.split("/")[0]
        root = ROOT if target == "cuda" else CPP
        assert (root / include).exists(), f"{name} includes {include}, which is not under {root.name}/"
        assert target in CUDA_MAY_INCLUDE, (
            f"{name} includes {include}; cuda may use {sorted(CUDA_MAY_INCLUDE)}"
        )


@pytest.mark.parametrize("path", CPP_FILES, ids=lambda p: str(p.relative_to(CPP)))
def test_the_core_library_names_no_cuda_header(path: Path) -> None:
    assert not re.search(r"#include\s*<cu(da|blas)", path.read_text(encoding="utf-8"))


@pytest.mark.parametrize("path", PYTHON_FILES, ids=lambda p: str(p.relative_to(ROOT)))
def test_the_library_does_not_import_the_server(path: Path) -> None:
    if path.is_relative_to(ROOT / "python") and path.name not in {"cli.py", "cli_serve.py"}:
        assert "openjev_server" not in imported_packages(path)
    assert not imported_packages(path) & {"torch", "transformers", "peft", "train"}


@pytest.mark.parametrize("path", TRAIN_FILES, ids=lambda p: str(p.relative_to(ROOT)))
def test_training_uses_the_library_and_its_data_nothing(path: Path) -> None:
    forbidden = {"openjev_server", "bench", "tests"}
    if path.parent.name == "data":
        forbidden |= {"torch", "transformers", "peft", "openjev"}
    assert not imported_packages(path) & forbidden


def test_native_module_is_imported_in_one_place_only() -> None:
    users = [
        p.name
        for p in PYTHON_FILES
        if re.search(
            r"from openjev import _runtime|import openjev\._runtime|from openjev\._runtime", p.read_text()
        )
    ]
    assert users == ["native.py"]


def test_docs_structure_has_a_line_for_every_folder() -> None:
    text = (ROOT / "docs" / "structure.md").read_text(encoding="utf-8")
    for folder in MAY_INCLUDE:
        assert f"`cpp/{folder}`" in text
    for folder in ("python/openjev", "server/openjev_server", "cuda", "tests", "bench", "train"):
        assert f"`{folder}`" in text


@pytest.mark.parametrize(
    "path", [*CPP_FILES, *CUDA_FILES, *PYTHON_FILES, *TRAIN_FILES], ids=lambda p: str(p.relative_to(ROOT))
)
def test_files_stay_readable(path: Path) -> None:
    assert len(path.read_text(encoding="utf-8").splitlines()) <= MOST_LINES
