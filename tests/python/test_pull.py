"""Pulling from a hub on loopback: what is fetched, what is checked, and what is never used."""

from __future__ import annotations

import json
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace

import pytest

import openjev
from openjev import checkpoints, hub, pull
from openjev.checkpoints import KnownCheckpoint
from openjev.errors import CheckpointError
from openjev.sources import AdaptedBase, locate
from tests import adapters, known
from tests.hub import Hub, serve_hub

ADAPTER = "package/checkpoint/adapter/adapter_model.safetensors"
SHARD = "model-00002-of-00003.safetensors"
NEEDED_OF_BASE = {
    "config.json",
    "tokenizer.json",
    "model.safetensors.index.json",
    *(f"model-0000{n}-of-00003.safetensors" for n in (1, 2, 3)),
}
NEEDED_OF_PACKAGE = {
    f"package/checkpoint/{name}"
    for name in (
        "model.json",
        "temperature.json",
        "head.pt",
        "adapter/adapter_config.json",
        "adapter/adapter_model.safetensors",
    )
} | {"package/manifest.json"}


@pytest.fixture
def a_hub(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Hub]:
    """The hub, and this process set to use it with an empty cache, as HF_ENDPOINT and HF_HOME would."""
    from huggingface_hub import constants, file_download
    from huggingface_hub.utils import _http

    with serve_hub() as served:
        monkeypatch.setattr(constants, "ENDPOINT", served.endpoint)
        template = served.endpoint + "/{repo_id}/resolve/{revision}/{filename}"
        monkeypatch.setattr(constants, "HUGGINGFACE_CO_URL_TEMPLATE", template)
        monkeypatch.setattr(constants, "DOWNLOAD_CHUNK_SIZE", 1 << 16)
        monkeypatch.setattr(constants, "HF_HUB_CACHE", str(tmp_path / "hf" / "hub"))
        monkeypatch.setattr(constants, "HF_HUB_DISABLE_XET", True)
        monkeypatch.setattr(constants, "HF_TOKEN_PATH", str(tmp_path / "hf" / "token"))
        for module in (_http, file_download):  # no pauses between their attempts
            monkeypatch.setattr(module, "time", SimpleNamespace(sleep=lambda seconds: None, time=time.time))
        monkeypatch.setenv("OPENJEV_CACHE", str(tmp_path / "openjev"))
        yield served


@pytest.fixture
def row(a_hub: Hub, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> KnownCheckpoint:
    found = known.publish(a_hub, tmp_path / "published")
    monkeypatch.setattr(checkpoints, "CHECKPOINTS", (found,))
    return found


def refused(row: KnownCheckpoint) -> str:
    with pytest.raises(CheckpointError) as caught:
        pull.pull(row)
    return str(caught.value)


def test_a_pull_fetches_what_is_needed_and_nothing_twice(a_hub: Hub, row: KnownCheckpoint) -> None:
    source = pull.pull(row)
    assert source.package.row is row
    assert sorted(a_hub.downloads()) == sorted(NEEDED_OF_BASE | NEEDED_OF_PACKAGE)
    assert "model-visual.safetensors" in a_hub.repos[known.BASE_ID].files
    a_hub.requests.clear()
    again = pull.pull(row)
    assert (again.base, again.package.root) == (source.base, source.package.root)
    assert a_hub.requests == []


@pytest.mark.parametrize("name", [known.NAME, known.CHECKPOINT_ID, known.NAME.upper()])
def test_a_model_is_loaded_by_name_and_answers_like_its_folder(
    row: KnownCheckpoint, name: str, tmp_path: Path
) -> None:
    source = locate(name)
    assert isinstance(source, AdaptedBase)
    asked = {"late": openjev.Noul("Is it late?")}
    by_name = openjev.load(name, device="cpu").decide("Hi", asked).to_dict()
    local = tmp_path / "local"
    local.mkdir()
    (local / "base").symlink_to(tmp_path / "published" / "base")
    (local / "package").symlink_to(tmp_path / "published" / "repo" / "package")
    by_folder = openjev.load(local, device="cpu").decide("Hi", asked).to_dict()
    assert by_name == by_folder
    assert by_name["model"] == known.NAME
    assert by_name["x_openjev"]["base"] == {"id": row.base_id, "revision": row.base_revision}
    assert by_name["x_openjev"]["temperature"] == adapters.TEMPERATURE


def test_a_package_folder_takes_its_base_from_the_cache(
    a_hub: Hub, row: KnownCheckpoint, tmp_path: Path
) -> None:
    source = locate(tmp_path / "published" / "repo")
    assert isinstance(source, AdaptedBase)
    assert source.base == pull.pull_base(row.base_id, row.base_revision, download=False)
    assert not any(known.CHECKPOINT_ID in path for _, path, _ in a_hub.requests)


def test_an_interrupted_download_goes_on_where_it_stopped(a_hub: Hub, row: KnownCheckpoint) -> None:
    repo = a_hub.repos[known.BASE_ID]
    size = len(repo.files[SHARD])
    repo.cut[SHARD] = size // 2
    source = pull.pull(row)
    ranges = [asked for verb, path, asked in a_hub.requests if verb == "GET" and path.endswith(SHARD)]
    assert len(ranges) == 2 and ranges[0] == "" and ranges[1].startswith("bytes=")
    assert a_hub.sent[SHARD] <= size + (1 << 20)
    assert (source.base / SHARD).read_bytes() == repo.files[SHARD]


def test_a_pull_that_failed_goes_on_where_it_stopped(a_hub: Hub, row: KnownCheckpoint) -> None:
    """Half of a shard, then nothing but broken connections; later the hub is well again."""
    repo = a_hub.repos[known.BASE_ID]
    size = len(repo.files[SHARD])
    repo.cut[SHARD] = size // 2
    repo.cut_always.add(SHARD)
    assert SHARD in refused(row)
    assert hub.Repository(row.base_id, row.base_revision, download=False).find(SHARD) is None
    repo.cut_always.clear()
    repo.cut.clear()
    a_hub.requests.clear()
    assert (pull.pull(row).base / SHARD).read_bytes() == repo.files[SHARD]
    assert SHARD in a_hub.downloads()


@pytest.mark.parametrize("name", ["config.json", "tokenizer.json", SHARD])
def test_bytes_that_are_not_what_the_hub_says_are_refused_and_never_used(
    a_hub: Hub, row: KnownCheckpoint, name: str
) -> None:
    repo = a_hub.repos[known.BASE_ID]
    wrong = bytearray(repo.files[name])
    wrong[-1] ^= 1
    repo.replaced[name] = bytes(wrong)
    text = refused(row)
    for fact in (known.BASE_ID, name, "hash", "removed from the cache"):
        assert fact in text
    assert hub.Repository(row.base_id, row.base_revision, download=False).find(name) is None
    del repo.replaced[name]
    assert (pull.pull(row).base / name).read_bytes() == repo.files[name]


def test_a_file_that_changed_in_the_cache_is_refused(row: KnownCheckpoint) -> None:
    blob = (pull.pull(row).base / SHARD).resolve()
    data = bytearray(blob.read_bytes())
    data[-1] ^= 1
    blob.chmod(0o644)
    blob.write_bytes(bytes(data))
    assert SHARD in refused(row)
    assert not blob.exists()


@pytest.mark.parametrize("name", [ADAPTER, "package/checkpoint/head.pt"])
def test_a_file_that_is_not_the_published_one_is_refused_whatever_the_hub_says(
    a_hub: Hub, row: KnownCheckpoint, name: str
) -> None:
    """The hub itself may serve another file under the pinned revision: its own hash then agrees."""
    repo = a_hub.repos[known.CHECKPOINT_ID]
    repo.files[name] = repo.files[name][:-1] + b"\x01"
    text = refused(row)
    for fact in (known.CHECKPOINT_ID, name, "SHA-256", row.hashes[name.rsplit("/", 1)[-1]]):
        assert fact in text
    assert hub.Repository(row.checkpoint_id, row.checkpoint_revision, download=False).find(name) is None


def test_a_file_that_the_packages_manifest_gives_another_hash_is_refused(
    a_hub: Hub, row: KnownCheckpoint
) -> None:
    repo = a_hub.repos[known.CHECKPOINT_ID]
    name = "package/checkpoint/temperature.json"
    repo.files[name] = repo.files[name].replace(b"1.75", b"1.76")
    text = refused(row)
    assert "temperature.json" in text and "SHA-256" in text


@pytest.mark.parametrize(
    "repo, name, said",
    [
        (known.BASE_ID, SHARD, "found no such file in the repository"),
        (known.BASE_ID, "tokenizer.json", "found no such file in the repository"),
        (known.CHECKPOINT_ID, "package/checkpoint/head.pt", "found no such file in the repository"),
    ],
)
def test_a_missing_file_is_named(a_hub: Hub, row: KnownCheckpoint, repo: str, name: str, said: str) -> None:
    del a_hub.repos[repo].files[name]
    text = refused(row)
    for fact in (repo, name, said):
        assert fact in text


@pytest.mark.parametrize(
    "status, code, said",
    [
        (404, "RepoNotFound", "found no such repository, or it needs a login"),
        (401, "RepoNotFound", "found no such repository, or it needs a login"),
        (404, "RevisionNotFound", "found no such revision"),
        (403, "GatedRepo", "the repository is gated"),
        (500, "", "cannot be downloaded"),
    ],
)
def test_what_the_hub_refuses_is_one_sentence(
    a_hub: Hub, row: KnownCheckpoint, status: int, code: str, said: str
) -> None:
    a_hub.repos[known.BASE_ID].status["*"] = (status, code)
    text = refused(row)
    assert said in text and known.BASE_ID in text and "\n" not in text


def test_a_slow_hub_is_waited_for(a_hub: Hub, row: KnownCheckpoint) -> None:
    for repo in a_hub.repos.values():
        repo.delay = 0.05
    assert pull.pull(row).package.row is row


def test_without_download_only_the_cache_is_asked(a_hub: Hub, row: KnownCheckpoint) -> None:
    with pytest.raises(CheckpointError, match="in the cache"):
        locate(known.NAME, download=False)
    assert a_hub.requests == []
    pull.pull(row)
    a_hub.repos.clear()
    a_hub.requests.clear()
    assert isinstance(locate(known.NAME, download=False), AdaptedBase)
    assert a_hub.requests == []


def test_shards_are_chosen_by_their_tensors(tmp_path: Path) -> None:
    index = tmp_path / "model.safetensors.index.json"
    weight_map = {
        "model.language_model.embed_tokens.weight": "a.safetensors",
        "model.language_model.norm.weight": "c.safetensors",
        "model.visual.x": "c.safetensors",
        "model.visual.y": "b.safetensors",
        "mtp.z": "d.safetensors",
        "lm_head.weight": "e.safetensors",
    }
    index.write_text(json.dumps({"weight_map": weight_map}))
    assert pull.needed_shards(index) == ["a.safetensors", "c.safetensors"]
    for wrong in ({"x": "../a.safetensors"}, {"x": 1}, []):
        index.write_text(json.dumps({"weight_map": wrong}))
        with pytest.raises(CheckpointError, match="weight_map"):
            pull.needed_shards(index)


def command(
    row: KnownCheckpoint, folder: Path, *argv: str, **environ: str
) -> subprocess.CompletedProcess[str]:
    """`openjev ARGV` in a process, with the small checkpoint in its table."""
    file = folder / "row.json"
    file.write_text(known.to_json(row))
    return subprocess.run(
        [sys.executable, "-m", "tests.known", str(file), *argv],
        env={"PATH": "/usr/bin:/bin", "HOME": str(folder), "OPENJEV_DEVICE": "cpu", **environ},
        capture_output=True,
        text=True,
        timeout=120,
    )


def test_the_commands_as_one_types_them(tmp_path: Path) -> None:
    """pull, info, verify, export and decide, with HF_ENDPOINT and HF_HOME; then offline."""
    with serve_hub() as served:
        row = known.publish(served, tmp_path / "published")
        online = {"HF_ENDPOINT": served.endpoint, "HF_HOME": str(tmp_path / "hf")}
        pulled = command(row, tmp_path, "pull", known.NAME, **online)
        assert pulled.returncode == 0, pulled.stderr
        assert f"{known.BASE_REVISION}\n" in pulled.stdout and str(tmp_path / "hf") in pulled.stdout
    offline = {**online, "HF_HUB_OFFLINE": "1"}
    facts = command(row, tmp_path, "info", known.NAME, "--json", **offline)
    assert facts.returncode == 0, facts.stderr
    assert json.loads(facts.stdout)["base"] == f"{known.BASE_ID} @ {known.BASE_REVISION}"
    checked = command(row, tmp_path, "verify", known.NAME, **offline)
    assert checked.returncode == 0, checked.stderr
    assert "published hashes of open-jev-tiny" in checked.stdout and "finite numbers" in checked.stdout
    out = str(tmp_path / "merged")
    exported = command(
        row, tmp_path, "export", known.BASE_ID, known.CHECKPOINT_ID, out, "--compat", **offline
    )
    assert exported.returncode == 0, exported.stderr
    assert exported.stdout == out + "\n"
    ask = ("decide", "--state", "Hi", "--noul", "Is it late?", "--model")
    answers = [command(row, tmp_path, *ask, model, **offline) for model in (known.NAME, out)]
    assert [done.returncode for done in answers] == [0, 0], answers
    first, second = (json.loads(done.stdout) for done in answers)
    assert first["answers"] == second["answers"]
    assert first["x_openjev"]["temperature"] == adapters.TEMPERATURE


def test_offline_without_a_cache_is_one_line_and_code_1(tmp_path: Path) -> None:
    with serve_hub() as served:
        row = known.publish(served, tmp_path / "published")
        environ = {"HF_ENDPOINT": served.endpoint, "HF_HOME": str(tmp_path / "hf"), "HF_HUB_OFFLINE": "1"}
        done = command(row, tmp_path, "pull", known.NAME, **environ)
        assert served.requests == []
    assert done.returncode == 1
    assert "offline" in done.stderr.splitlines()[-1] and "Traceback" not in done.stderr
