"""`openjev serve NAME`: pulled from a hub on loopback, merged while it loads, served."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests import adapters, known
from tests.hub import Hub, serve_hub
from tests.server.process import server_process

REQUEST = {
    "model": known.CHECKPOINT_ID,
    "state": "My parcel is late.",
    "questions": {"late": {"type": "noul", "instructions": "Is it late?"}},
}


@pytest.fixture
def a_hub() -> Iterator[Hub]:
    with serve_hub() as served:
        yield served


def serve(a_hub: Hub, folder: Path, name: str) -> tuple[list[str], dict[str, str]]:
    """Command line and environment of a server of the small checkpoint, with an empty cache."""
    row = known.publish(a_hub, folder / "published")
    file = folder / "row.json"
    file.write_text(known.to_json(row))
    environ = {
        "HF_ENDPOINT": a_hub.endpoint,
        "HF_HOME": str(folder / "hf"),
        "OPENJEV_CACHE": str(folder / "openjev"),
    }
    command = [sys.executable, "-m", "tests.known", str(file), "serve"]
    return [*command, "--port", "0", "--device", "cpu", name], environ


@pytest.mark.parametrize("name", [known.NAME, known.CHECKPOINT_ID])
def test_a_name_is_pulled_merged_and_served(a_hub: Hub, tmp_path: Path, name: str) -> None:
    command, environ = serve(a_hub, tmp_path, name)
    a_hub.repos[known.BASE_ID].delay = 0.2
    with server_process(command, environ) as server:
        assert server.health()[0] == 503
        server.wait_for(f"ready: {known.NAME} on cpu")
        status, body = server.decide(REQUEST)
        assert status == 200, body
        said = body["x_openjev"]
        assert said["temperature"] == adapters.TEMPERATURE
        assert said["base"] == {"id": known.BASE_ID, "revision": known.BASE_REVISION}
        assert said["checkpoint"] == {"id": known.CHECKPOINT_ID, "revision": known.CHECKPOINT_REVISION}
        assert 0 < body["answers"]["late"]["noul"] < 1


def test_a_wrong_download_ends_the_server_with_its_reason(a_hub: Hub, tmp_path: Path) -> None:
    command, environ = serve(a_hub, tmp_path, known.NAME)
    repo = a_hub.repos[known.BASE_ID]
    shard = "model-00001-of-00003.safetensors"
    repo.replaced[shard] = repo.files[shard][:-1] + b"\x01"
    with server_process(command, environ) as server:
        assert server.exit_code() == 1
        assert shard in server.stderr and "removed from the cache" in server.stderr
