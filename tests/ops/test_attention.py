"""attention: causal softmax attention over the chunk tree and a kept prefix, times sigmoid(gate)."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings

from tests.compare import assert_same_bits, guarded, strided
from tests.ops.support import (
    ATTENTION_HEADS,
    SEQUENCES,
    Forest,
    Heads,
    assert_accurate,
    forest,
    inputs,
    padded,
    random_sequences,
    sized,
    sizes,
)
from tests.reference import ops as reference

# The exponential's 2 ulp, scores of size 5 rounded to float32 before it, a float32 sum of up to 330 terms.
FLOAT32 = 4e-6
# The weights of the values are rounded for the tensor cores, then the output and its product with the gate.
BFLOAT16 = 4.5e-3
CHUNK = 64


def _inputs(ops: Any, heads: Heads, tree: Forest, leaves: bool) -> dict[str, Any]:
    """Queries stand side by side with their gates, head by head: query | gate | query | gate."""
    count, kv_heads, dim = heads
    queries = tree.plan["leaves"] if leaves else tree.rows
    prefix = tree.plan["prefix_length"]
    return {
        "q": inputs(ops, 70, queries, count * dim, 1.5),
        "k": inputs(ops, 71, tree.rows, kv_heads * dim, 1.5),
        "v": inputs(ops, 72, tree.rows, kv_heads * dim),
        "prefix_k": inputs(ops, 73, prefix, kv_heads * dim, 1.5) if prefix else None,
        "prefix_v": inputs(ops, 74, prefix, kv_heads * dim) if prefix else None,
        "gate": inputs(ops, 75, queries, count * 2 * dim, 2.0),
    }


def _run(
    ops: Any, heads: Heads, tree: Forest, x: dict[str, Any], leaves: bool, pad: bool = False
) -> np.ndarray:
    count, kv_heads, dim = heads
    out = guarded(x["q"].shape[0], count * dim)
    ops.attention(
        tree.args, count, kv_heads, dim, x["q"], x["k"], x["v"], x["prefix_k"], x["prefix_v"],
        x["gate"][:, dim:], 2 * dim, leaves, out.out, pad=pad,
    )  # fmt: skip
    return out.check()


def _check(ops: Any, heads: Heads, tree: Forest, leaves: bool, pad: bool = False) -> None:
    x = _inputs(ops, heads, tree, leaves)
    views = {name: strided(values) if name in ("q", "k", "v") else values for name, values in x.items()}
    rows = tree.plan["leaf_row"] if leaves else np.arange(tree.rows)
    want = reference.attention(
        tree.parent, rows, *heads, x["q"], x["k"], x["v"], x["gate"][:, heads[2] :], 2 * heads[2],
        x["prefix_k"], x["prefix_v"],
    )  # fmt: skip
    assert_accurate(ops, _run(ops, heads, tree, views, leaves, pad), want, FLOAT32, BFLOAT16)


@pytest.mark.parametrize("name", SEQUENCES)
@pytest.mark.parametrize("leaves", [False, True], ids=["rows", "leaves"])
@padded()
def test_matches_float64_on_trees(ops: Any, name: str, leaves: bool, pad: bool) -> None:
    _check(ops, sizes(ops).attention, forest(SEQUENCES[name]), leaves, pad)


@sized("heads", cpu=ATTENTION_HEADS["cpu"], cuda=ATTENTION_HEADS["cuda"])
@pytest.mark.parametrize("prefix", [0, CHUNK, 2 * CHUNK])
def test_matches_float64_for_every_shape_after_a_prefix(ops: Any, heads: Heads, prefix: int) -> None:
    _check(ops, heads, forest(SEQUENCES["branches at 65"], prefix_length=prefix), False)


@padded()
def test_any_tree(ops: Any, pad: bool) -> None:
    @settings(max_examples=15, deadline=None)
    @given(random_sequences())
    def any_tree(sequences: list[list[int]]) -> None:
        tree, heads = forest(sequences), sizes(ops).small_attention
        for leaves in (False, True):
            _check(ops, heads, tree, leaves, pad)

    any_tree()


def test_large_scores_do_not_overflow(ops: Any) -> None:
    tree, heads = forest(SEQUENCES["branches at 65"]), sizes(ops).attention
    x = _inputs(ops, heads, tree, False)
    x["q"] *= 100
    assert np.isfinite(_run(ops, heads, tree, x, False)).all()


def test_a_single_token_attends_to_itself(ops: Any) -> None:
    tree, heads = forest(SEQUENCES["one token"]), sizes(ops).attention
    count, kv_heads, dim = heads
    x = _inputs(ops, heads, tree, False)
    value = np.repeat(x["v"].reshape(1, kv_heads, dim), count // kv_heads, 1)
    gate = x["gate"].reshape(1, count, 2 * dim)[:, :, dim:]
    want = (value * reference.sigmoid(gate.astype(np.float64))).reshape(1, -1)
    assert_accurate(ops, _run(ops, heads, tree, x, False), want, FLOAT32, BFLOAT16)


@pytest.mark.parametrize("name", ["branches at 63", "branches at 64", "branches of branches", "many leaves"])
@padded()
def test_a_path_alone_gives_the_bits_it_has_in_a_tree(threads: list[Any], name: str, pad: bool) -> None:
    heads, sequences = sizes(threads[0]).attention, SEQUENCES[name]
    tree = forest(sequences)
    x = _inputs(threads[0], heads, tree, False)
    want = _run(threads[0], heads, tree, x, False, pad)
    for sequence, leaf in zip(sequences, tree.plan["leaf_row"].tolist(), strict=True):
        path = reference.ancestors(tree.parent, leaf)
        part = {name: values if values is None else values[path] for name, values in x.items()}
        assert_same_bits(_run(threads[1], heads, forest([sequence]), part, False), want[path])
    assert_same_bits(_run(threads[2], heads, tree, x, False), want, "threads, without padding")
    at_leaves = x | {name: x[name][tree.plan["leaf_row"]] for name in ("q", "gate")}
    assert_same_bits(_run(threads[1], heads, tree, at_leaves, True), want[tree.plan["leaf_row"]], "leaves")


def test_keys_kept_from_a_prefix_give_the_bits_of_one_pass(ops: Any) -> None:
    heads, ids = sizes(ops).attention, SEQUENCES["one path of 200"][0]
    whole = forest([ids])
    x = _inputs(ops, heads, whole, False)
    want = _run(ops, heads, whole, x, False)
    for cut in (CHUNK, 2 * CHUNK):
        rest = {name: x[name][cut:] for name in ("q", "k", "v", "gate")}
        kept = {"prefix_k": x["k"][:cut], "prefix_v": x["v"][:cut]}
        got = _run(ops, heads, forest([ids[cut:]], prefix_length=cut), rest | kept, False)
        assert_same_bits(got, want[cut:])
