"""delta_rule: the chunked rule over a chunk tree against the token-by-token recursion in float64."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings

from tests.compare import assert_close, assert_same_bits, guarded, strided
from tests.ops.support import (
    DELTA_SHAPES,
    SEQUENCES,
    VOCAB,
    DeltaShape,
    Forest,
    activations,
    forest,
    normal,
    padded,
    random_sequences,
    sized,
    sizes,
    tolerance,
)
from tests.reference import ops as reference

# Chunked against recurrent, both in float32, differ by about 5e-7 over 200 tokens; the triangular solve of a
# chunk and the cumulative decays (a float32 sum of up to 64 terms, exponentiated) add to that.
FLOAT32 = 3e-6
# Operands of the tensor cores are rounded to float16: keys, queries, values, the inverse of a chunk's
# triangle, corrected values, the state as it is read; outputs to bfloat16, which alone is 1.7e-3. Sums and
# the state are float32: no error grows with length.
BFLOAT16, BFLOAT16_STATE = 3e-3, 1e-3
CHUNK = 64


def _unit(x: np.ndarray, heads: int) -> np.ndarray:
    parts = x.reshape(x.shape[0], heads, -1)
    return (parts / np.linalg.norm(parts, axis=-1, keepdims=True)).reshape(x.shape).astype(np.float32)


def _inputs(ops: Any, shape: DeltaShape, rows: int, rate: float = 0.3) -> dict[str, np.ndarray]:
    """Unit keys, queries scaled by dk^-1/2; keys share a direction, as after silu, so updates interact."""
    key_heads, value_heads, key_dim, value_dim = shape
    keys = key_heads * key_dim
    random = np.random.default_rng([rows, *shape])
    decay = -rate * random.exponential(1.0, (rows, value_heads)) * np.linspace(0.01, 3.0, value_heads)
    return {
        "q": activations(ops, _unit(normal(60, rows, keys) + 0.5, key_heads) * np.float32(key_dim**-0.5)),
        "k": activations(ops, _unit(normal(61, rows, keys) + 0.5, key_heads)),
        "v": activations(ops, normal(62, rows, value_heads * value_dim)),
        "beta": random.uniform(0.02, 0.98, (rows, value_heads)).astype(np.float32),
        "log_decay": decay.astype(np.float32),
    }


def _state(shape: DeltaShape) -> np.ndarray:
    _, value_heads, key_dim, value_dim = shape
    return normal(63, 1, value_heads * key_dim * value_dim, 0.3)


def _run(
    ops: Any,
    shape: DeltaShape,
    tree: Forest,
    inputs: dict[str, np.ndarray],
    start: np.ndarray | None,
    pad: bool = False,
) -> tuple[np.ndarray, np.ndarray]:
    _, value_heads, key_dim, value_dim = shape
    out = guarded(tree.rows, value_heads * value_dim)
    states = guarded(tree.plan["states"], value_heads * key_dim * value_dim)
    ops.delta_rule(shape, tree.args, *inputs.values(), start, states.out, out.out, pad=pad)
    return out.check("out"), states.check("states")


def _end_rows(tree: Forest) -> dict[int, int]:
    """State slot -> the row after which it is taken."""
    plan, rows = tree.plan, {}
    for first, count, _, slot in plan["segments"].tolist():
        last = first + count - 1
        if slot >= 0:
            rows[slot] = int(plan["chunk_rows"][last][plan["chunk_length"][last] - 1])
    return rows


def _check(
    ops: Any,
    shape: DeltaShape,
    tree: Forest,
    start: np.ndarray | None,
    rate: float = 0.3,
    float32: float = FLOAT32,
    pad: bool = False,
) -> None:
    inputs = _inputs(ops, shape, tree.rows, rate)
    out, states = _run(ops, shape, tree, {k: strided(v) for k, v in inputs.items()}, start, pad)
    want, after = reference.delta_rule(shape, tree.parent, **inputs, start=start)
    assert_close(out, want, tolerance(ops, float32, BFLOAT16), "out")
    ends = _end_rows(tree)
    assert sorted(ends) == list(range(tree.plan["states"]))
    for slot, row in ends.items():
        allowed = tolerance(ops, float32, BFLOAT16_STATE)
        assert_close(states[slot], after[row].ravel(), allowed, f"state {slot}")


@pytest.mark.parametrize("name", SEQUENCES)
@padded()
def test_matches_the_recursion_on_trees(ops: Any, name: str, pad: bool) -> None:
    _check(ops, sizes(ops).delta, forest(SEQUENCES[name]), None, pad=pad)


@sized("shape", cpu=DELTA_SHAPES["cpu"], cuda=DELTA_SHAPES["cuda"])
@pytest.mark.parametrize("prefix", [0, CHUNK, 2 * CHUNK])
def test_matches_the_recursion_for_every_shape_after_a_prefix(
    ops: Any, shape: DeltaShape, prefix: int
) -> None:
    tree = forest(SEQUENCES["branches at 65"], prefix_length=prefix)
    _check(ops, shape, tree, _state(shape) if prefix else None)


@pytest.mark.parametrize(("rate", "float32"), [(0.0, FLOAT32), (1e-4, FLOAT32), (1.0, FLOAT32), (30.0, 1e-5)])
def test_any_rate_of_decay(ops: Any, rate: float, float32: float) -> None:
    """At 30 a chunk decays by e^-1000s: exp underflows to zero, and nothing becomes infinite or NaN.

    Sums of decays of that size are rounded by 1e-4; the few differences of them that are near 0 inherit it.
    """
    tree, shape = forest(SEQUENCES["one path of 200"]), sizes(ops).delta
    _check(ops, shape, tree, _state(shape), rate, float32)


def test_the_last_state_is_kept_on_request(ops: Any) -> None:
    tree = forest([SEQUENCES["one path of 200"][0][: 2 * CHUNK]], keep_end_state=True)
    assert tree.plan["states"] == 1
    _check(ops, sizes(ops).delta, tree, None)


@padded()
def test_any_tree(ops: Any, pad: bool) -> None:
    @settings(max_examples=15, deadline=None)
    @given(random_sequences())
    def any_tree(sequences: list[list[int]]) -> None:
        _check(ops, sizes(ops).small_delta, forest(sequences), None, pad=pad)

    any_tree()


@pytest.mark.parametrize("name", ["branches at 63", "branches at 64", "branches of branches", "many leaves"])
@padded()
def test_a_path_alone_gives_the_bits_it_has_in_a_tree(threads: list[Any], name: str, pad: bool) -> None:
    shape, sequences = sizes(threads[0]).delta, SEQUENCES[name]
    tree = forest(sequences)
    inputs = _inputs(threads[0], shape, tree.rows)
    want, states = _run(threads[0], shape, tree, inputs, None, pad)
    for sequence, leaf in zip(sequences, tree.plan["leaf_row"].tolist(), strict=True):
        path = reference.ancestors(tree.parent, leaf)
        alone, _ = _run(threads[1], shape, forest([sequence]), {k: v[path] for k, v in inputs.items()}, None)
        assert_same_bits(alone, want[path])
    again, states_again = _run(threads[2], shape, tree, inputs, None)
    assert_same_bits(again, want, "threads, without padding")
    assert_same_bits(states_again, states, "states")


def test_a_path_cut_at_a_multiple_of_64_continues_with_the_same_bits(ops: Any) -> None:
    shape, ids = sizes(ops).delta, SEQUENCES["one path of 200"][0]
    inputs = _inputs(ops, shape, len(ids))
    whole, _ = _run(ops, shape, forest([ids]), inputs, None)
    for cut in (CHUNK, 2 * CHUNK):
        head, state = _run(
            ops, shape, forest([ids[:cut]], keep_end_state=True), _part(inputs, slice(cut)), None
        )
        rest = forest([ids[cut:]], prefix_length=cut)
        tail, _ = _run(ops, shape, rest, _part(inputs, slice(cut, None)), np.ascontiguousarray(state))
        assert_same_bits(np.concatenate([head, tail]), whole)


def test_a_long_path_has_the_bits_of_its_halves_alone_and_in_a_tree(ops: Any) -> None:
    """On CUDA the scan of so many chunks and heads runs beside their products, that of a half does not."""
    shape = DELTA_SHAPES["cuda"][-1] if ops.device == "cuda" else sizes(ops).small_delta
    random = np.random.default_rng(7)
    stem = random.integers(0, VOCAB, 1472).tolist()
    sequences = [[*stem, i, *random.integers(0, VOCAB, tail).tolist()] for i, tail in enumerate((65, 3))]
    tree = forest(sequences)
    inputs = _inputs(ops, shape, tree.rows)
    out, _ = _run(ops, shape, tree, inputs, None)
    again, _ = _run(ops, shape, tree, inputs, None)
    assert_same_bits(again, out, "run to run")
    for sequence, leaf in zip(sequences, tree.plan["leaf_row"].tolist(), strict=True):
        path = reference.ancestors(tree.parent, leaf)
        own = {name: values[path] for name, values in inputs.items()}
        alone, _ = _run(ops, shape, forest([sequence]), own, None)
        assert_same_bits(alone, out[path], "alone")
        cut = 12 * CHUNK
        head, state = _run(
            ops, shape, forest([sequence[:cut]], keep_end_state=True), _part(own, slice(cut)), None
        )
        rest = forest([sequence[cut:]], prefix_length=cut)
        tail_out, _ = _run(ops, shape, rest, _part(own, slice(cut, None)), np.ascontiguousarray(state))
        assert_same_bits(np.concatenate([head, tail_out]), alone, "halves")


def _part(inputs: dict[str, np.ndarray], rows: slice) -> dict[str, np.ndarray]:
    return {name: values[rows] for name, values in inputs.items()}
