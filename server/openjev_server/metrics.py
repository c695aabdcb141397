"""What the server counts, in a registry of its own, as Prometheus text."""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, generate_latest
from prometheus_client.exposition import CONTENT_TYPE_PLAIN_0_0_4

from openjev.native import GRAPH_COUNTERS
from openjev_server.scheduler import CallStats

CONTENT_TYPE = CONTENT_TYPE_PLAIN_0_0_4

_SECONDS = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0)
_COUNTS = (1, 2, 4, 8, 16, 32, 64)


def _read(source: Callable[[], Mapping[str, int]], name: str) -> float:
    return float(source()[name])


class Metrics:
    """Counters of one application; two applications in a process do not share them."""

    def __init__(self, ready: Callable[[], bool]) -> None:
        self._registry = CollectorRegistry()
        registry = self._registry
        self._requests = Counter(
            "openjev_http_requests", "Answered HTTP requests.", ("route", "status"), registry=registry
        )
        self._request_seconds = Histogram(
            "openjev_request_seconds", "Time in the server of decisions.", buckets=_SECONDS, registry=registry
        )
        self._queue_seconds = Histogram(
            "openjev_queue_seconds", "Time decisions waited.", buckets=_SECONDS, registry=registry
        )
        self._engine_seconds = Histogram(
            "openjev_engine_call_seconds", "Duration of engine calls.", buckets=_SECONDS, registry=registry
        )
        self._batch = Histogram(
            "openjev_engine_call_requests", "Requests of an engine call.", buckets=_COUNTS, registry=registry
        )
        self._engine_tokens = Counter(
            "openjev_engine_tokens", "Prompt tokens given to the engine.", registry=registry
        )
        self._engine_failures = Counter(
            "openjev_engine_call_failures", "Engine calls that raised.", registry=registry
        )
        self._questions = Counter("openjev_questions", "Questions answered.", registry=registry)
        self._left = Counter(
            "openjev_clients_left", "Requests whose client left before the answer.", registry=registry
        )
        Gauge("openjev_ready", "1 when decisions are answered.", registry=registry).set_function(
            lambda: float(ready())
        )

    def watch_queue(
        self, waiting: Callable[[], int], waiting_tokens: Callable[[], int], running: Callable[[], int]
    ) -> None:
        """Adds the queue's gauges; called once, when the queue exists."""
        gauges = (
            ("openjev_queue_requests", "Requests admitted and waiting.", waiting),
            ("openjev_queue_tokens", "Prompt tokens of the requests admitted and waiting.", waiting_tokens),
            ("openjev_running_requests", "Requests of the current engine call.", running),
        )
        for name, text, read in gauges:
            Gauge(name, text, registry=self._registry).set_function(read)

    def watch_device(
        self, graphs: Callable[[], Mapping[str, int]], memory: Callable[[], Mapping[str, int]]
    ) -> None:
        """Adds the device's gauges; called once, when the model is loaded."""
        for name in GRAPH_COUNTERS:
            gauge = Gauge(f"openjev_graph_{name}", f"Recorded passes: {name}.", registry=self._registry)
            gauge.set_function(functools.partial(_read, graphs, name))
        for name in ("free", "total"):
            gauge = Gauge(
                f"openjev_device_memory_{name}_bytes", f"Device memory: {name}.", registry=self._registry
            )
            gauge.set_function(functools.partial(_read, memory, name))

    def answered(self, route: str, status: int) -> None:
        self._requests.labels(route, str(status)).inc()

    def decided(self, questions: int, total_seconds: float, queue_seconds: float) -> None:
        self._questions.inc(questions)
        self._request_seconds.observe(total_seconds)
        self._queue_seconds.observe(queue_seconds)

    def client_left(self) -> None:
        self._left.inc()

    def engine_call(self, call: CallStats) -> None:
        self._engine_seconds.observe(call.seconds)
        self._batch.observe(call.requests)
        self._engine_tokens.inc(call.tokens)
        if call.failed:
            self._engine_failures.inc()

    def text(self) -> bytes:
        return generate_latest(self._registry)
