"""attention: causal softmax attention over the chunk tree and a kept prefix, times sigmoid(gate)."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings

from tests.compare import assert_rows_close, assert_same_bits, guarded, strided
from tests.ops.support import SEQUENCES, Forest, forest, normal, random_sequences
from tests.reference import ops as reference

Heads = tuple[int, int, int]
HEADS: list[Heads] = [(4, 2, 32), (6, 1, 32), (3, 3, 40), (2, 1, 256)]
# The exponential's 2 ulp, scores of size 5 rounded to float32 before it, a float32 sum of up to 330 terms.
TOLERANCE = 4e-6
CHUNK = 64


def _inputs(heads: Heads, tree: Forest, leaves: bool) -> dict[str, Any]:
    """Queries stand side by side with their gates, head by head: query | gate | query | gate."""
    count, kv_heads, dim = heads
    queries = tree.plan["leaves"] if leaves else tree.rows
    prefix = tree.plan["prefix_length"]
    return {
        "q": normal(70, queries, count * dim, 1.5),
        "k": normal(71, tree.rows, kv_heads * dim, 1.5),
        "v": normal(72, tree.rows, kv_heads * dim),
        "prefix_k": normal(73, prefix, kv_heads * dim, 1.5) if prefix else None,
        "prefix_v": normal(74, prefix, kv_heads * dim) if prefix else None,
        "gate": normal(75, queries, count * 2 * dim, 2.0),
    }


def _run(ops: Any, heads: Heads, tree: Forest, x: dict[str, Any], leaves: bool) -> np.ndarray:
    count, kv_heads, dim = heads
    out = guarded(x["q"].shape[0], count * dim)
    ops.attention(
        tree.args, count, kv_heads, dim, x["q"], x["k"], x["v"], x["prefix_k"], x["prefix_v"],
        x["gate"][:, dim:], 2 * dim, leaves, out.out,
    )  # fmt: skip
    return out.check()


def _check(ops: Any, heads: Heads, tree: Forest, leaves: bool) -> None:
    x = _inputs(heads, tree, leaves)
    views = {name: strided(values) if name in ("q", "k", "v") else values for name, values in x.items()}
    rows = tree.plan["leaf_row"] if leaves else np.arange(tree.rows)
    want = reference.attention(
        tree.parent, rows, *heads, x["q"], x["k"], x["v"], x["gate"][:, heads[2] :], 2 * heads[2],
        x["prefix_k"], x["prefix_v"],
    )  # fmt: skip
    assert_rows_close(_run(ops, heads, tree, views, leaves), want, TOLERANCE)


@pytest.mark.parametrize("name", SEQUENCES)
@pytest.mark.parametrize("leaves", [False, True], ids=["rows", "leaves"])
def test_matches_float64_on_trees(ops: Any, name: str, leaves: bool) -> None:
    _check(ops, (4, 2, 32), forest(SEQUENCES[name]), leaves)


@pytest.mark.parametrize("heads", HEADS)
@pytest.mark.parametrize("prefix", [0, CHUNK, 2 * CHUNK])
def test_matches_float64_for_every_shape_after_a_prefix(ops: Any, heads: Heads, prefix: int) -> None:
    _check(ops, heads, forest(SEQUENCES["branches at 65"], prefix_length=prefix), False)


def test_any_tree(ops: Any) -> None:
    @settings(max_examples=15, deadline=None)
    @given(random_sequences())
    def any_tree(sequences: list[list[int]]) -> None:
        tree = forest(sequences)
        _check(ops, (2, 1, 16), tree, False)
        _check(ops, (2, 1, 16), tree, True)

    any_tree()


def test_large_scores_do_not_overflow(ops: Any) -> None:
    tree = forest(SEQUENCES["branches at 65"])
    x = _inputs((4, 2, 32), tree, False)
    x["q"] *= 100
    assert np.isfinite(_run(ops, (4, 2, 32), tree, x, False)).all()


def test_a_single_token_attends_to_itself(ops: Any) -> None:
    tree = forest(SEQUENCES["one token"])
    x = _inputs((4, 2, 32), tree, False)
    value = np.repeat(x["v"].reshape(1, 2, 32), 2, 1)
    gate = x["gate"].reshape(1, 4, 64)[:, :, 32:]
    want = (value * reference.sigmoid(gate.astype(np.float64))).reshape(1, -1)
    assert_rows_close(_run(ops, (4, 2, 32), tree, x, False), want, TOLERANCE)


@pytest.mark.parametrize("name", ["branches at 63", "branches at 64", "branches of branches", "many leaves"])
def test_a_path_alone_gives_the_bits_it_has_in_a_tree(threads: list[Any], name: str) -> None:
    heads, sequences = (4, 2, 32), SEQUENCES[name]
    tree = forest(sequences)
    x = _inputs(heads, tree, False)
    want = _run(threads[0], heads, tree, x, False)
    for sequence, leaf in zip(sequences, tree.plan["leaf_row"].tolist(), strict=True):
        path = reference.ancestors(tree.parent, leaf)
        part = {name: values if values is None else values[path] for name, values in x.items()}
        assert_same_bits(_run(threads[1], heads, forest([sequence]), part, False), want[path])
    assert_same_bits(_run(threads[2], heads, tree, x, False), want, "threads")
    at_leaves = x | {name: x[name][tree.plan["leaf_row"]] for name in ("q", "gate")}
    assert_same_bits(_run(threads[1], heads, tree, at_leaves, True), want[tree.plan["leaf_row"]], "leaves")


def test_keys_kept_from_a_prefix_give_the_bits_of_one_pass(ops: Any) -> None:
    heads, ids = (4, 2, 32), SEQUENCES["one path of 200"][0]
    whole = forest([ids])
    x = _inputs(heads, whole, False)
    want = _run(ops, heads, whole, x, False)
    for cut in (CHUNK, 2 * CHUNK):
        rest = {name: x[name][cut:] for name in ("q", "k", "v", "gate")}
        kept = {"prefix_k": x["k"][:cut], "prefix_v": x["v"][:cut]}
        got = _run(ops, heads, forest([ids[cut:]], prefix_length=cut), rest | kept, False)
        assert_same_bits(got, want[cut:])
