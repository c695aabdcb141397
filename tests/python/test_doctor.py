"""`openjev doctor` finds what must work, says why the rest does not, and its exit code follows."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import pytest

from openjev import cli, doctor, native
from openjev.doctor import Finding


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("OPENJEV_CACHE", str(tmp_path))
    return tmp_path


def report(capsys: pytest.CaptureFixture[str]) -> tuple[int, list[str]]:
    code = cli.main(["doctor"], {})
    return code, capsys.readouterr().out.splitlines()


def line_of(lines: list[str], name: str) -> str:
    (found,) = [line for line in lines if line[4:].startswith(name)]
    return found


def test_here_everything_that_must_work_does(capsys: pytest.CaptureFixture[str]) -> None:
    code, lines = report(capsys)
    assert code == 0
    assert line_of(lines, "openjev").split()[1] == doctor.version()
    assert sys.executable in line_of(lines, "python")
    assert line_of(lines, "device cpu").startswith("ok")
    assert line_of(lines, "demo").startswith("ok")
    assert "answered 3 questions" in line_of(lines, "demo")
    assert lines[-1] == "everything that must work does"


class _Runtime:
    def __init__(self, *backends: tuple[str, bool, str]) -> None:
        self._backends = list(backends)

    def backends(self) -> list[tuple[str, bool, str]]:
        return self._backends


def test_a_gpu_that_is_not_there_is_said_and_no_fault(monkeypatch: pytest.MonkeyPatch) -> None:
    found = _Runtime(("cpu", True, "avx512"), ("cuda", False, "no driver: libcuda.so.1 is missing"))
    monkeypatch.setattr(doctor, "runtime", lambda: found)
    assert doctor._backends() == [
        Finding("device cpu", "avx512", ok=True),
        Finding("device cuda", "not usable: no driver: libcuda.so.1 is missing", ok=None),
    ]


def test_a_cpu_that_cannot_run_it_is_a_fault(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(doctor, "runtime", lambda: _Runtime(("cpu", False, "needs AVX2")))
    assert doctor._backends() == [Finding("device cpu", "not usable: needs AVX2", ok=False)]


def test_t17_without_a_native_library_doctor_and_the_other_commands_say_so_in_a_sentence(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setitem(sys.modules, "openjev._runtime", None)  # makes its import fail
    monkeypatch.delattr("openjev._runtime", raising=False)
    with pytest.raises(ImportError) as caught:
        native.runtime()
    code, lines = report(capsys)
    assert code == 1
    assert line_of(lines, "native") == f"!!  native            {caught.value}"
    assert line_of(lines, "demo").startswith("!!")
    assert lines[-1] == "2 of the above must work and does not"

    assert cli.main(["decide", "--state", "x", "--noul", "?"], {}) == 1
    assert capsys.readouterr().err == f"openjev: error: {caught.value}\n"


def test_a_self_test_with_an_impossible_answer_is_a_fault(monkeypatch: pytest.MonkeyPatch) -> None:
    class Decision:
        def to_dict(self) -> dict[str, Any]:
            return {"answers": {"team": {"type": "choice", "probabilities": {"a": 0.5, "b": float("nan")}}}}

    class Model:
        def decide(self, *_: Any) -> Decision:
            return Decision()

    monkeypatch.setattr("openjev.model.load", lambda *_, **__: Model())
    (finding,) = doctor._self_test()
    assert finding.ok is False
    assert "team: found probabilities" in finding.text


def test_a_missing_package_says_what_it_is_for_and_how_to_get_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(doctor, "_installed", lambda _: None)
    for finding in doctor._packages():
        assert finding.ok is None
        assert "not installed; for " in finding.text and "pip install 'openjev[" in finding.text
