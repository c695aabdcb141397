"""The figures of a pass, and the spread between two."""

from __future__ import annotations

import statistics
from collections.abc import Mapping, Sequence


def p95(values: Sequence[float]) -> float:
    """sorted[int(0.95 N) - 1]: the published definition, without interpolation.

    For N = 1 that index is -1: the only value.
    """
    return sorted(values)[int(0.95 * len(values)) - 1]


def figures(latencies_ms: Sequence[float], questions: Sequence[int], wall_s: float) -> dict[str, float]:
    """Of one complete pass; a decision is one answered question."""
    return {
        "mean_ms": statistics.fmean(latencies_ms),
        "p50_ms": statistics.median(latencies_ms),
        "p95_ms": p95(latencies_ms),
        "requests_per_s": len(latencies_ms) / wall_s,
        "decisions_per_s": sum(questions) / wall_s,
        "wall_s": wall_s,
    }


def relative_range(values: Sequence[float]) -> float:
    """(max - min) / mean."""
    return (max(values) - min(values)) / statistics.fmean(values)


def ranges(passes: Sequence[Mapping[str, float]]) -> dict[str, float]:
    """The relative range of each figure over the passes."""
    return {name: relative_range([one[name] for one in passes]) for name in passes[0]}
