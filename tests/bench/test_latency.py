"""The figures of a pass are those that were published with: p95 without interpolation."""

from __future__ import annotations

import math

import pytest
from bench.harness.latency import figures, p95, ranges, relative_range
from hypothesis import given, settings
from hypothesis import strategies as st

LATENCIES = st.lists(st.floats(0.01, 1e5), min_size=1, max_size=200)


def test_p95_of_74_is_the_70th_smallest() -> None:
    assert p95([float(n) for n in range(74, 0, -1)]) == 70


@pytest.mark.parametrize(("count", "place"), [(2, 1), (20, 19), (32, 30), (64, 60), (100, 95)])
def test_p95_takes_the_published_place(count: int, place: int) -> None:
    assert p95([float(n) for n in range(1, count + 1)]) == place


def test_p95_of_one_value_is_that_value() -> None:
    assert p95([3.5]) == 3.5


@settings(deadline=None)
@given(LATENCIES)
def test_p95_is_a_measured_value_with_at_least_a_twentieth_above_or_at_it(values: list[float]) -> None:
    found = p95(values)
    assert found in values
    assert sum(value >= found for value in values) >= len(values) / 20


@settings(deadline=None)
@given(LATENCIES, st.floats(0.001, 1e4))
def test_figures_follow_from_latencies_and_wall(values: list[float], wall: float) -> None:
    found = figures(values, [3] * len(values), wall)
    assert math.isclose(found["requests_per_s"] * wall, len(values))
    assert math.isclose(found["decisions_per_s"], 3 * found["requests_per_s"])
    assert min(values) * (1 - 1e-9) <= found["mean_ms"] <= max(values) * (1 + 1e-9)
    assert min(values) <= found["p50_ms"] <= max(values)


def test_the_range_is_relative_to_the_mean() -> None:
    assert relative_range([9.0, 11.0]) == pytest.approx(0.2)
    assert relative_range([5.0, 5.0]) == 0
    assert ranges([{"mean_ms": 9.0}, {"mean_ms": 11.0}]) == {"mean_ms": pytest.approx(0.2)}
