"""Host time of one batch plan on one core, as a Markdown table in milliseconds: `python bench/plan.py`."""

from __future__ import annotations

import argparse
import statistics

import numpy as np
from numpy.typing import NDArray

from openjev._runtime import testing

VOCAB_SIZE = 248_320


def workload(sequences: int, shared: int, own: int) -> tuple[NDArray[np.int32], NDArray[np.int64]]:
    """Sequences of `shared` common tokens, then own/2 to 3 own/2 random ones each (seeded)."""
    rng = np.random.default_rng(0)
    head = rng.integers(0, VOCAB_SIZE, shared)
    lengths = rng.integers(max(1, own // 2), 3 * own // 2 + 1, sequences)
    tails = [rng.integers(0, VOCAB_SIZE, length) for length in lengths]
    tokens = np.concatenate([part for tail in tails for part in (head, tail)])
    offsets = np.concatenate([[0], np.cumsum(shared + lengths)])
    return tokens.astype(np.int32), offsets.astype(np.int64)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--sequences", type=int, default=255)
    parser.add_argument("--shared", type=int, default=4096, help="tokens common to all sequences")
    parser.add_argument("--own", type=int, default=20, help="mean number of tokens a sequence has alone")
    parser.add_argument("--repeat", type=int, default=100)
    args = parser.parse_args()

    tokens, offsets = workload(args.sequences, args.shared, args.own)
    plan = testing.plan(tokens, offsets, VOCAB_SIZE)
    times = [1e3 * seconds for seconds in testing.time_plan(tokens, offsets, VOCAB_SIZE, args.repeat)]
    print("| sequences | shared | tokens | rows | chunks | n | median ms | min ms |")
    print("| ---: | ---: | ---: | ---: | ---: | ---: | ---: | ---: |")
    print(
        f"| {args.sequences} | {args.shared} | {plan['total_tokens']} | {plan['rows']} | {plan['chunks']} "
        f"| {len(times)} | {statistics.median(times):.3f} | {min(times):.3f} |"
    )


if __name__ == "__main__":
    main()
