"""Every operator of the engine in numpy float64, one formula a function, with no regard for speed.

Sequences form a forest: row r follows row parent[r] (-1: a root) and parents come before children. Whatever
runs along a sequence (convolution, delta rule, attention) is written as a recursion over that forest, so
nothing here knows about chunks, tiles or the order in which the engine works.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

Array = npt.NDArray[np.float64]
Index = npt.NDArray[np.int32]

TAPS = 4
L2_EPS = 1e-6


def f64(x: npt.ArrayLike) -> Array:
    return np.asarray(x, np.float64)


def from_bf16(bits: npt.NDArray[np.uint16]) -> npt.NDArray[np.float32]:
    """The float32 values of bfloat16 bit patterns."""
    return (bits.astype(np.uint32) << np.uint32(16)).view(np.float32)


def to_bf16(values: npt.ArrayLike) -> npt.NDArray[np.uint16]:
    """Bit patterns of the nearest bfloat16, ties to even. Finite input."""
    bits = np.ascontiguousarray(values, np.float32).view(np.uint32)
    return ((bits + np.uint32(0x7FFF) + ((bits >> np.uint32(16)) & np.uint32(1))) >> np.uint32(16)).astype(
        np.uint16
    )


def sigmoid(x: Array) -> Array:
    return np.exp(-np.logaddexp(0.0, -x))


def silu(x: Array) -> Array:
    return x * sigmoid(x)


def softplus(x: Array) -> Array:
    """log(1 + e^x); the engine returns x itself above 20, where the two differ by less than 2.1e-9."""
    return np.logaddexp(0.0, x)


def rms_normalized(x: Array, eps: float) -> Array:
    return f64(x / np.sqrt(np.mean(x * x, -1, keepdims=True) + eps))


def rms_norm(x: npt.ArrayLike, weight: npt.ArrayLike, eps: float) -> Array:
    """Over the last dimension; the stored weight is zero-centred."""
    return rms_normalized(f64(x), eps) * (1.0 + f64(weight))


def gated_rms_norm(x: npt.ArrayLike, z: npt.ArrayLike, weight: npt.ArrayLike, eps: float) -> Array:
    """x, z [R, Hv * dv]: norm over each head of dv = len(weight), then the weight as it is, then silu(z)."""
    w, rows = f64(weight).ravel(), np.shape(x)[0]
    heads = rms_normalized(f64(x).reshape(rows, -1, w.size), eps) * w
    return heads.reshape(rows, -1) * silu(f64(z))


def silu_mul(gate_up: npt.ArrayLike) -> Array:
    gate, up = np.split(f64(gate_up), 2, axis=-1)
    return silu(gate) * up


def matmul(x: npt.ArrayLike, weight: npt.ArrayLike) -> Array:
    """y = x W^T, W [out, in] float, or uint16 holding bfloat16 bits."""
    w = np.asarray(weight)
    return f64(x) @ f64(from_bf16(w) if w.dtype == np.uint16 else w).T


def causal_conv(
    mixed: npt.ArrayLike, parent: Index, taps: npt.ArrayLike, tail: npt.ArrayLike | None = None
) -> Array:
    """Depthwise, 4 taps along the ancestors; taps [4, channels], the last multiplies the row itself.

    `tail` [3, channels] holds the three inputs before every root, oldest first; zeros without one.
    """
    m, w = f64(mixed), f64(taps)
    before = np.zeros((TAPS - 1, m.shape[1])) if tail is None else f64(tail)
    out = np.empty_like(m)
    for row in range(m.shape[0]):
        window: list[Array] = []
        at = row
        while at >= 0 and len(window) < TAPS:
            window.append(m[at])
            at = int(parent[at])
        missing = TAPS - len(window)
        window += [before[TAPS - 2 - i] for i in range(missing)]
        out[row] = sum(w[TAPS - 1 - back] * value for back, value in enumerate(window))
    return out


def l2_normalized(x: Array) -> Array:
    return f64(x / np.sqrt(np.sum(x * x, -1, keepdims=True) + L2_EPS))


def delta_inputs(
    shape: tuple[int, int, int, int],
    mixed: npt.ArrayLike,
    beta_logit: npt.ArrayLike,
    decay_logit: npt.ArrayLike,
    tail: npt.ArrayLike | None,
    conv: npt.ArrayLike,
    a_log: npt.ArrayLike,
    dt_bias: npt.ArrayLike,
    parent: Index,
) -> dict[str, Array]:
    """q, k [R, Hk * dk], v [R, Hv * dv], beta, log_decay [R, Hv] from the merged projection."""
    key_heads, value_heads, key_dim, value_dim = shape
    rows, keys = np.shape(mixed)[0], key_heads * key_dim
    s = silu(causal_conv(mixed, parent, conv, tail))
    q = l2_normalized(s[:, :keys].reshape(rows, key_heads, key_dim)) * key_dim**-0.5
    k = l2_normalized(s[:, keys : 2 * keys].reshape(rows, key_heads, key_dim))
    return {
        "q": q.reshape(rows, keys),
        "k": k.reshape(rows, keys),
        "v": s[:, 2 * keys :].reshape(rows, value_heads * value_dim),
        "beta": sigmoid(f64(beta_logit)),
        "log_decay": -np.exp(f64(a_log).ravel()) * softplus(f64(decay_logit) + f64(dt_bias).ravel()),
    }


def delta_rule(
    shape: tuple[int, int, int, int],
    parent: Index,
    q: npt.ArrayLike,
    k: npt.ArrayLike,
    v: npt.ArrayLike,
    beta: npt.ArrayLike,
    log_decay: npt.ArrayLike,
    start: npt.ArrayLike | None = None,
) -> tuple[Array, Array]:
    """The gated delta rule, one token at a time: out [R, Hv * dv], the state after every row [R, Hv, dk, dv].

    S = e^g S';  d = beta (v - S^T k);  S += k d^T;  out = S^T q,  with S' the parent's state and value head h
    reading key head h // (Hv / Hk).
    """
    key_heads, value_heads, key_dim, value_dim = shape
    rows, repeat = np.shape(q)[0], value_heads // key_heads
    qh = np.repeat(f64(q).reshape(rows, key_heads, key_dim), repeat, 1)
    kh = np.repeat(f64(k).reshape(rows, key_heads, key_dim), repeat, 1)
    vh = f64(v).reshape(rows, value_heads, value_dim)
    b, decay = f64(beta), np.exp(f64(log_decay))
    first = np.zeros((value_heads, key_dim, value_dim)) if start is None else f64(start)
    first = first.reshape(value_heads, key_dim, value_dim)
    states = np.empty((rows, value_heads, key_dim, value_dim))
    out = np.empty((rows, value_heads, value_dim))
    for row in range(rows):
        state = (states[parent[row]] if parent[row] >= 0 else first) * decay[row][:, None, None]
        read = np.einsum("hkv,hk->hv", state, kh[row])
        update = b[row][:, None] * (vh[row] - read)
        states[row] = state + kh[row][:, :, None] * update[:, None, :]
        out[row] = np.einsum("hkv,hk->hv", states[row], qh[row])
    return out.reshape(rows, -1), states


def rope_angles(position: npt.ArrayLike, rotary_dim: int, theta: float) -> Array:
    """[rows, rotary_dim / 2]. The model defines powers, frequencies and angles as float32 numbers."""
    power = (np.float64(theta) ** (np.arange(0, rotary_dim, 2) / max(rotary_dim, 1))).astype(np.float32)
    return f64(np.asarray(position, np.float32)[:, None] * (np.float32(1) / power)[None])


def norm_rope(
    x: npt.ArrayLike,
    heads: int,
    head_stride: int,
    weight: npt.ArrayLike,
    position: npt.ArrayLike,
    head_dim: int,
    rotary_dim: int,
    theta: float,
    eps: float,
) -> Array:
    """RMS norm of every head, then rotation of its first rotary_dim dims in half-split pairs."""
    values, half = f64(x), rotary_dim // 2
    angle = rope_angles(position, rotary_dim, theta)
    cos, sin = np.cos(angle), np.sin(angle)
    out = []
    for head in range(heads):
        y = rms_norm(values[:, head * head_stride : head * head_stride + head_dim], np.ravel(weight), eps)
        low, high, rest = y[:, :half], y[:, half:rotary_dim], y[:, rotary_dim:]
        out.append(np.concatenate([low * cos - high * sin, high * cos + low * sin, rest], -1))
    return np.concatenate(out, -1)


def ancestors(parent: Index, row: int) -> list[int]:
    """The row itself and its ancestors, oldest first."""
    path: list[int] = []
    while row >= 0:
        path.append(row)
        row = int(parent[row])
    return path[::-1]


def attention(
    parent: Index,
    query_rows: npt.ArrayLike,
    heads: int,
    kv_heads: int,
    head_dim: int,
    q: npt.ArrayLike,
    k: npt.ArrayLike,
    v: npt.ArrayLike,
    gate: npt.ArrayLike,
    gate_stride: int,
    prefix_k: npt.ArrayLike | None = None,
    prefix_v: npt.ArrayLike | None = None,
) -> Array:
    """Softmax attention of query i, at row query_rows[i], over prefix and ancestors, then the gate."""
    qh, gates = f64(q), f64(gate)
    kv: dict[str, Any] = {"k": f64(k), "v": f64(v)}
    before = {"k": prefix_k, "v": prefix_v}
    out = np.empty((qh.shape[0], heads * head_dim))
    for i, row in enumerate(np.asarray(query_rows).tolist()):
        path = ancestors(parent, row)
        seen = {
            name: values[path] if before[name] is None else np.concatenate([f64(before[name]), values[path]])  # type: ignore[arg-type]
            for name, values in kv.items()
        }
        for head in range(heads):
            at = slice(head * head_dim, (head + 1) * head_dim)
            source = head // (heads // kv_heads) * head_dim
            keys, values = seen["k"][:, source : source + head_dim], seen["v"][:, source : source + head_dim]
            score = keys @ qh[i, at] * head_dim**-0.5
            weight = np.exp(score - score.max())
            opened = sigmoid(gates[i, head * gate_stride : head * gate_stride + head_dim])
            out[i, at] = weight @ values / weight.sum() * opened
    return out


def readout(hidden: npt.ArrayLike, weight: npt.ArrayLike, bias: npt.ArrayLike | None) -> Array:
    logits = f64(hidden) @ f64(weight).T
    return logits if bias is None else logits + f64(bias)
