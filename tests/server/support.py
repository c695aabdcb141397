"""A server over a model whose engine is a deterministic stand-in: real tokenization, no weights."""

from __future__ import annotations

import asyncio
import contextlib
import json
import threading
import zlib
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import aiohttp
import numpy as np
from aiohttp import web
from aiohttp.test_utils import TestClient, TestServer
from numpy.typing import NDArray
from tokenizers import Tokenizer as HFTokenizer

from openjev.model import DecisionModel
from openjev.native import GRAPH_COUNTERS
from openjev.settings import Settings
from openjev.tokens import Tokenizer
from openjev_server.app import GATE_KEY, HOST_KEY, build_app
from openjev_server.lifecycle import ModelHost
from openjev_server.protocol import Runner

NAMES = ("fake-1b", "fake", "jev-latest")
MAX_LENGTH = 2048
JSON = {"Content-Type": "application/json"}


class FakeEngine:
    """Logits are a hash of each prompt's tokens.

    Calls can be held, and prompts that hold `poison` make one fail.

    `prompts` lists the texts of each call, so that a test can say what did and what did not reach the engine.
    """

    def __init__(
        self, folder: Path, *, held: bool = False, poison: str = "", error: Exception | None = None
    ) -> None:
        self._text = HFTokenizer.from_file(str(folder / "tokenizer.json"))
        self._gate = threading.Semaphore(0)
        self._entered = threading.Semaphore(0)
        self._held = held
        self._poison = poison
        self._error = error or RuntimeError("the engine failed on a secret text")
        self.prompts: list[list[str]] = []

    @property
    def info(self) -> Mapping[str, Any]:
        return {
            "device": "cpu",
            "device_detail": "stand-in",
            "threads": 1,
            "weight_dtype": "F32",
            "weight_bytes": 0,
            "parameters": 0,
            "layers": 0,
            "hidden_size": 1,
            "vocab_size": self._text.get_vocab_size(),
            "max_position_embeddings": 4096,
            "format": "qwen35-decision/1",
            "base": {"id": "test/base", "revision": "b" * 40},
            "checkpoint": {"id": "test/fake-1b", "revision": "c" * 40},
            "readout": "scalar",
            "outputs": 1,
            "temperature": 2.0,
            "token_ids": [],
            "prompt_prefix": "<|im_start|>user\n",
            "prompt_suffix": "<|im_end|>\n<|im_start|>assistant\n<think>\n\n</think>\n\n",
            "strip": True,
            "max_length": MAX_LENGTH,
        }

    def score(
        self, tokens: NDArray[np.int32], offsets: NDArray[np.int64], share: bool = True
    ) -> NDArray[np.float32]:
        rows = np.split(tokens, offsets[1:-1])
        texts = [self._text.decode(row.tolist(), skip_special_tokens=False) for row in rows]
        self.prompts.append(texts)
        self._entered.release()
        if self._held:
            assert self._gate.acquire(timeout=20)
        if self._poison and any(self._poison in text for text in texts):
            raise self._error
        hashes = [zlib.crc32(row.tobytes()) for row in rows]
        return np.array([[value / 2**29 - 4] for value in hashes], np.float32)

    def stats(self) -> Mapping[str, Any]:
        return {"calls": len(self.prompts)}

    def warm_up(
        self, lengths: Sequence[int] = (), progress: Callable[[int, int, str], None] | None = None
    ) -> None:
        pass

    def record_missed(self) -> bool:
        return False

    def graph_stats(self) -> Mapping[str, int]:
        return dict.fromkeys(GRAPH_COUNTERS, 0)

    def memory(self) -> Mapping[str, int]:
        return dict.fromkeys(("free", "total"), 0)

    def hold(self) -> None:
        """From the next call on, each waits for `release`."""
        self.prompts.clear()
        while self._entered.acquire(blocking=False):
            pass
        self._held = True

    def release(self, calls: int = 1000) -> None:
        self._gate.release(calls)

    async def entered(self) -> None:
        """Returns when a further call has begun."""
        assert await asyncio.to_thread(self._entered.acquire, True, 20)

    def reached(self, text: str) -> bool:
        """Whether any prompt with `text` was given to the engine."""
        return any(text in prompt for call in self.prompts for prompt in call)


class JsonTestServer(TestServer):
    """Serves as `run` does; aiohttp's own test server would unpack bodies itself."""

    async def _make_runner(self, **kwargs: Any) -> web.BaseRunner:
        return Runner(self.app, shutdown_timeout=1)


class Service:
    """One running server, as its test sees it."""

    def __init__(self, client: TestClient[web.Request, web.Application], engine: FakeEngine) -> None:
        self.client = client
        self.engine = engine
        assert isinstance(client.server, TestServer)
        self._app = client.server.app
        self._session = client.session  # the test client itself would keep every response until its end

    @property
    def host(self) -> ModelHost:
        return self._app[HOST_KEY]

    @property
    def port(self) -> int:
        port = self.client.port
        assert port is not None
        return port

    async def quiet(self) -> None:
        """Returns when the server has noticed that every request is over."""
        await self._app[GATE_KEY].wait_until_quiet()

    @contextlib.asynccontextmanager
    async def own_connections(self) -> AsyncIterator[None]:
        """Requests inside have connections of their own, which are gone on both sides afterwards."""
        kept, others = self._session, self._connections()
        async with aiohttp.ClientSession(connector=aiohttp.TCPConnector(limit=0)) as self._session:
            try:
                yield
            finally:
                self._session = kept
        for _ in range(2000):
            if self._connections() <= others:
                return
            await asyncio.sleep(0.01)
        raise AssertionError("connections stayed open for 20 seconds after their client had closed them")

    def _connections(self) -> int:
        assert isinstance(self.client.server, TestServer)
        runner = self.client.server.runner
        assert runner is not None and runner.server is not None
        return len(runner.server.connections)

    async def post(self, body: Any, path: str = "/v1/systemone", **headers: str) -> Answer:
        """Posts an object as JSON, or bytes as they are; `_` in header names stands for `-`."""
        data = body if isinstance(body, bytes) else json.dumps(body).encode()
        fields = JSON | {name.replace("_", "-"): value for name, value in headers.items()}
        return await self.call("POST", path, data, fields)

    async def get(self, path: str, **headers: str) -> Answer:
        return await self.call("GET", path, None, {name.replace("_", "-"): v for name, v in headers.items()})

    async def call(self, method: str, path: str, data: Any, headers: Mapping[str, str]) -> Answer:
        url = self.client.make_url(path)
        async with self._session.request(method, url, data=data, headers=headers) as response:
            return Answer(response, await response.read())

    async def raw(self, sent: bytes, *, timeout: float = 10) -> bytes:
        """Sends bytes as they are and reads until the server closes, or `timeout`."""
        reader, writer = await asyncio.open_connection("127.0.0.1", self.port)
        try:
            writer.write(sent)
            await writer.drain()
            return await asyncio.wait_for(reader.read(), timeout)
        finally:
            writer.close()


class Answer:
    """A response, checked for what holds for all of them."""

    def __init__(self, response: aiohttp.ClientResponse, body: bytes) -> None:
        self.status = response.status
        self.headers = response.headers
        self.body = body
        assert self.headers["x-typesafe-request-id"]
        assert self.headers["Cache-Control"] == "no-store"
        assert self.headers["X-Content-Type-Options"] == "nosniff"

    @property
    def json(self) -> Any:
        assert self.headers["Content-Type"] == "application/json"
        return json.loads(self.body)

    @property
    def error(self) -> dict[str, Any]:
        """The object shape of `detail`."""
        detail = self.json["detail"]
        assert set(detail) == {"error_type", "message"}
        assert detail["message"]
        return dict(detail)

    @property
    def issues(self) -> list[dict[str, Any]]:
        """The list shape of `detail`."""
        assert self.status == 422
        detail = self.json["detail"]
        assert detail
        for entry in detail:
            assert set(entry) <= {"loc", "msg", "type", "input", "ctx"}
            assert entry["loc"][0] == "body"
            assert entry["msg"] and entry["type"]
        return list(detail)


class Servers:
    """Makes running servers; the tokenizer is built once."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def engine(self, **how: Any) -> FakeEngine:
        return FakeEngine(self.folder, **how)

    def model(self, engine: FakeEngine, **how: Any) -> DecisionModel:
        return DecisionModel(engine, Tokenizer(self.folder), names=NAMES, **how)

    @contextlib.asynccontextmanager
    async def running(
        self,
        settings: Settings | None = None,
        engine: FakeEngine | None = None,
        load: Callable[[], DecisionModel] | None = None,
        *,
        ready: bool = True,
    ) -> AsyncIterator[Service]:
        engine = engine or self.engine()
        settings = settings or Settings()

        def make() -> DecisionModel:
            return self.model(engine, accept_any_model=settings.accept_any_model)

        app = build_app(settings, load or make)
        unlimited = aiohttp.TCPConnector(limit=0)
        async with TestClient(JsonTestServer(app), connector=unlimited) as client:
            service = Service(client, engine)
            if ready:
                await asyncio.wait_for(service.host.settled.wait(), 20)
                assert service.host.phase == "ready", service.host.reason
            try:
                yield service
            finally:
                engine.release()

    def run(
        self, test: Callable[[Service], Awaitable[None]], settings: Settings | None = None, **how: Any
    ) -> None:
        """Runs `test` against a server of its own."""

        async def main() -> None:
            async with self.running(settings, **how) as service:
                await test(service)

        asyncio.run(main())


def noul(text: str = "Is it late?") -> dict[str, Any]:
    return {"type": "noul", "instructions": text}


def choice(*names: str, text: str = "Which?") -> dict[str, Any]:
    return {"type": "choice", "instructions": text, "criteria": dict.fromkeys(names)}


def score(*levels: Any, text: str = "How much?") -> dict[str, Any]:
    return {"type": "score", "instructions": text, "criteria": list(levels)}


def ask(state: Any = "Hi", **questions: Any) -> dict[str, Any]:
    """A request; one noul when no question is given."""
    return {"model": "jev-latest", "state": state, "questions": questions or {"q": noul()}}


THREE = ask(
    "The parcel is three days late.",
    late=noul(),
    team=choice("billing", "shipping", "support"),
    mood=score("calm", "annoyed", "angry"),
)


def nested(depth: int) -> bytes:
    """A request whose state is `depth` arrays deep."""
    return (
        b'{"questions":{"q":{"type":"noul","instructions":"x"}},"state":' + b"[" * depth + b"]" * depth + b"}"
    )


def first_argmax(values: Sequence[float]) -> int:
    return max(range(len(values)), key=lambda i: (values[i], -i))
