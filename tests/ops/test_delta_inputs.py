"""delta_inputs: convolution along parent rows, silu, l2 norm of q and k, beta and log decay."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings

from tests.compare import assert_rows_close, assert_same_bits, guarded, strided
from tests.ops.support import (
    DELTA_SHAPES,
    EXPONENTIALS,
    SEQUENCES,
    DeltaShape,
    Forest,
    activations,
    assert_accurate,
    forest,
    normal,
    random_sequences,
    sized,
    sizes,
)
from tests.reference import ops as reference

NAMES = ("q", "k", "v", "beta", "log_decay")
# silu near zero keeps the absolute error of the sum of four terms; the l2 norm of q and k then scales it.
TOLERANCE = 2 * EXPONENTIALS
# Beside bfloat16 activations q, k and v are rounded once, to float16: an element by at most 2^-11 of it.
ROUNDED = ("q", "k", "v")
FLOAT16 = 5e-4


def _inputs(ops: Any, shape: DeltaShape, rows: int, with_tail: bool) -> dict[str, Any]:
    key_heads, value_heads, key_dim, value_dim = shape
    channels = 2 * key_heads * key_dim + value_heads * value_dim
    return {
        "mixed": activations(ops, normal(50, rows, channels, 2.0)),
        "beta_logit": activations(ops, normal(51, rows, value_heads, 3.0)),
        "decay_logit": activations(ops, normal(52, rows, value_heads, 3.0)),
        "tail": activations(ops, normal(53, 3, channels, 2.0)) if with_tail else None,
        "conv": normal(54, 4, channels, 0.5),
        "a_log": normal(55, 1, value_heads),
        "dt_bias": normal(56, 1, value_heads),
    }


def _run(ops: Any, shape: DeltaShape, inputs: dict[str, Any], parent: np.ndarray) -> dict[str, np.ndarray]:
    key_heads, value_heads, key_dim, value_dim = shape
    keys, values = key_heads * key_dim, value_heads * value_dim
    widths = dict(zip(NAMES, (keys, keys, values, value_heads, value_heads), strict=True))
    out = {name: guarded(len(parent), width) for name, width in widths.items()}
    ops.delta_inputs(shape, *inputs.values(), parent, *(out[name].out for name in NAMES))
    return {name: part.check(name) for name, part in out.items()}


def _check(ops: Any, shape: DeltaShape, tree: Forest, with_tail: bool) -> None:
    inputs = _inputs(ops, shape, tree.rows, with_tail)
    want = reference.delta_inputs(shape, *inputs.values(), tree.parent)
    given_views = {
        k: strided(v) if k in ("mixed", "beta_logit", "decay_logit") else v for k, v in inputs.items()
    }
    got = _run(ops, shape, given_views, tree.parent)
    for name in NAMES:
        if name in ROUNDED:
            assert_accurate(ops, got[name], want[name], TOLERANCE, FLOAT16, name)
        else:
            assert_rows_close(got[name], want[name], TOLERANCE, name)


@pytest.mark.parametrize("name", SEQUENCES)
@pytest.mark.parametrize("with_tail", [False, True])
def test_matches_float64_on_trees(ops: Any, name: str, with_tail: bool) -> None:
    _check(ops, sizes(ops).delta, forest(SEQUENCES[name]), with_tail)


@sized("shape", cpu=DELTA_SHAPES["cpu"], cuda=DELTA_SHAPES["cuda"])
def test_matches_float64_for_every_shape(ops: Any, shape: DeltaShape) -> None:
    _check(ops, shape, forest(SEQUENCES["branches at 65"]), True)


def test_any_tree(ops: Any) -> None:
    @settings(max_examples=15, deadline=None)
    @given(random_sequences())
    def any_tree(sequences: list[list[int]]) -> None:
        _check(ops, sizes(ops).small_delta, forest(sequences), True)

    any_tree()


def test_logits_of_any_size_give_finite_gates(ops: Any) -> None:
    """beta in [0, 1] and log decay <= 0; softplus is linear from 20 on and e^x far below zero."""
    shape = (1, 1, *sizes(ops).delta[2:])
    logits = activations(ops, np.array([[-200, -90, -20, -1, 0, 1, 19.9, 20.1, 90, 200]]).T)
    inputs = _inputs(ops, shape, logits.size, False) | {"beta_logit": logits, "decay_logit": logits}
    parent = np.arange(-1, logits.size - 1, dtype=np.int32)
    got, want = _run(ops, shape, inputs, parent), reference.delta_inputs(shape, *inputs.values(), parent)
    for name in ("beta", "log_decay"):
        assert (np.abs(got[name] - want[name]) <= 1e-6 * np.abs(want[name]) + 1e-30).all(), name
    assert (got["beta"] >= 0).all() and (got["beta"] <= 1).all() and (got["log_decay"] <= 0).all()


def test_a_row_depends_on_its_three_ancestors_only(threads: list[Any]) -> None:
    """A path alone gives the bits it has inside a tree, with any number of threads."""
    tree, shape = forest(SEQUENCES["branches of branches"]), sizes(threads[0]).delta
    inputs = _inputs(threads[0], shape, tree.rows, True)
    want = _run(threads[0], shape, inputs, tree.parent)
    for leaf in tree.plan["leaf_row"].tolist():
        path = reference.ancestors(tree.parent, leaf)
        part = {k: v[path] if k in ("mixed", "beta_logit", "decay_logit") else v for k, v in inputs.items()}
        alone = _run(threads[1], shape, part, np.arange(-1, len(path) - 1, dtype=np.int32))
        for name in NAMES:
            assert_same_bits(alone[name], want[name][path], name)
    got = _run(threads[2], shape, inputs, tree.parent)
    for name in NAMES:
        assert_same_bits(np.ascontiguousarray(got[name]), np.ascontiguousarray(want[name]), name)
