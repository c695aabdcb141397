"""Which roundings to bfloat16 cost accuracy: the forward pass in float32 with each rounding point on or off.

    python bench/rounding_points.py [--shape 2b] [--layers 8] [--prompts 8] [--tokens 66] [--seed 1]

Seeded weights as `load_format="dummy"` makes them, random prompts, all rows of the final norm. For each set
of rounding points: relative L2 to the pass without any, as a ratio to the reference's (docs/numerics.md), the
smallest and largest ratio over the prompts, and the distance to the pass with all points of the reference.
Needs torch, no GPU: 2b takes 90 seconds and 4 GB on two cores.
"""

from __future__ import annotations

import argparse
import math
from collections.abc import Callable
from dataclasses import dataclass, replace

import torch
from torch import Tensor
from torch.nn.functional import silu, softplus

from openjev.backbone import PUBLISHED, BackboneShape

EPS = 1e-6
THETA = 1e7
VOCAB = 8192

# Results that a kernel hands to the next one through memory, and operands of the tensor cores.
STORED = frozenset(
    {"norm", "projection", "rotated", "weights", "attention", "gated attention", "delta output", "gated norm"}
    | {"silu * up", "residual"}
)
# What the reference rounds besides: results that a fused kernel holds in registers.
INNER = {
    "convolution, silu": {"convolution", "silu of convolution"},
    "beta": {"beta"},
    "gated norm": {"normalized delta", "weighted delta"},
    "q and k norm, rotation": {"head norm", "cosine", "rotation products"},
    "sigmoid of the gate": {"sigmoid"},
    "silu of gate": {"silu"},
    "update before the residual sum": {"update"},
}
REFERENCE = STORED.union(*INNER.values())
# q, k and v of the delta rule are float16 where the reference has float32.
OURS = STORED | {"delta operands in float16"}


@dataclass(frozen=True)
class Model:
    """Tensors as LAYER.NAME, and "embed" and "norm"; linear layers of one input lie in one matrix."""

    shape: BackboneShape
    tensors: dict[str, Tensor]


def bfloat16(x: Tensor) -> Tensor:
    return x.to(torch.bfloat16).float()


def seeded(shape: BackboneShape, seed: int) -> Model:
    """Uniform values with the ranges of cpp/model/seeded_weights.cc."""
    random = torch.Generator().manual_seed(seed)

    def uniform(*sizes: int, half: float, centre: float = 0.0) -> Tensor:
        return bfloat16(centre + (torch.rand(*sizes, generator=random) * 2 - 1) * half)

    def matrix(rows: int, cols: int, gain: float = 1.0) -> Tensor:
        return uniform(rows, cols, half=gain * math.sqrt(3 / cols))

    hidden, inner = shape.hidden_size, shape.intermediate_size
    keys = shape.linear_num_key_heads * shape.linear_key_head_dim
    heads, dv = shape.linear_num_value_heads, shape.linear_value_head_dim
    channels, values = 2 * keys + heads * dv, heads * dv
    queries = shape.num_attention_heads * shape.head_dim
    kv = shape.num_key_value_heads * shape.head_dim
    found = {"embed": uniform(VOCAB, hidden, half=1.0), "norm": uniform(hidden, half=0.1)}
    for i, kind in enumerate(shape.layer_types):
        layer = {
            "input_norm": uniform(hidden, half=0.1),
            "post_norm": uniform(hidden, half=0.1),
            "gate_up": matrix(2 * inner, hidden),
            "down": matrix(hidden, inner, 0.5),
        }
        if kind == "full_attention":
            layer |= {
                "qkv": matrix(2 * queries + 2 * kv, hidden),
                "o": matrix(hidden, queries, 0.5),
                "q_norm": uniform(shape.head_dim, half=0.1),
                "k_norm": uniform(shape.head_dim, half=0.1),
            }
        else:
            layer |= {
                "in": matrix(channels + values + 2 * heads, hidden, 2.0),
                "conv": uniform(shape.linear_conv_kernel_dim, channels, half=0.5),
                "a_log": uniform(heads, half=1.3, centre=1.4),
                "dt_bias": uniform(heads, half=2.0, centre=-3.0),
                "delta_norm": uniform(dv, half=0.1, centre=1.0),
                "out": matrix(hidden, values, 0.5),
            }
        found |= {f"{i}.{name}": tensor for name, tensor in layer.items()}
    return Model(shape, found)


class Pass:
    """One forward pass of `ids` [B, T] that rounds at the points of `rounded`; everything else is float32."""

    def __init__(self, model: Model, ids: Tensor, rounded: frozenset[str]) -> None:
        self._shape, self._tensors, self._rounded = model.shape, model.tensors, rounded
        self._ids = ids

    def final(self) -> Tensor:
        """The final norm of every row, [B, T, H]."""
        h = self._tensors["embed"][self._ids]
        for i, kind in enumerate(self._shape.layer_types):

            def weight(name: str, i: int = i) -> Tensor:
                return self._tensors[f"{i}.{name}"]

            x = self._norm("norm", h, weight("input_norm"))
            mixed = self._attention(x, weight) if kind == "full_attention" else self._delta(x, weight)
            h = self._round("residual", h + mixed)
            x = self._norm("norm", h, weight("post_norm"))
            gate, up = self._round("projection", x @ weight("gate_up").T).chunk(2, -1)
            product = self._round("silu * up", self._round("silu", silu(gate)) * up)
            h = self._round("residual", h + self._round("update", product @ weight("down").T))
        return self._norm("norm", h, self._tensors["norm"])

    def _round(self, point: str, x: Tensor) -> Tensor:
        return bfloat16(x) if point in self._rounded else x

    def _norm(self, point: str, x: Tensor, weight: Tensor) -> Tensor:
        return self._round(point, x * torch.rsqrt((x * x).mean(-1, keepdim=True) + EPS) * (1 + weight))

    def _attention(self, x: Tensor, weight: Callable[[str], Tensor]) -> Tensor:
        shape, (batch, tokens) = self._shape, x.shape[:2]
        heads, kv, dim = shape.num_attention_heads, shape.num_key_value_heads, shape.head_dim
        projected = self._round("projection", x @ weight("qkv").T)
        query, key, value = projected.split([2 * heads * dim, kv * dim, kv * dim], -1)
        query, gate = query.view(batch, tokens, heads, 2 * dim).chunk(2, -1)
        key, value = (part.view(batch, tokens, kv, dim) for part in (key, value))
        query = self._rotated(self._norm("head norm", query, weight("q_norm")))
        key = self._rotated(self._norm("head norm", key, weight("k_norm")))
        key, value = (part.repeat_interleave(heads // kv, 2) for part in (key, value))
        scores = torch.einsum("bihd,bjhd->bhij", query, key) / math.sqrt(dim)
        scores = scores.masked_fill(torch.ones(tokens, tokens, dtype=torch.bool).triu(1), -torch.inf)
        weights = torch.exp(scores - scores.amax(-1, keepdim=True))
        total = weights.sum(-1).transpose(1, 2)[..., None]
        mixed = torch.einsum("bhij,bjhd->bihd", self._round("weights", weights), value) / total
        mixed = self._round("attention", mixed) * self._round("sigmoid", torch.sigmoid(gate))
        mixed = self._round("gated attention", mixed).reshape(batch, tokens, heads * dim)
        return self._round("update", mixed @ weight("o").T)

    def _rotated(self, x: Tensor) -> Tensor:
        tokens, dim = x.shape[1], x.shape[-1]
        half = dim // 8  # a quarter of the dimensions turns, in pairs (f, f + half)
        frequency = 1 / THETA ** (torch.arange(half) / half)
        angle = torch.arange(tokens)[:, None] * frequency
        cosine, sine = (self._round("cosine", part)[:, None, :] for part in (angle.cos(), angle.sin()))
        a, b, rest = x.split([half, half, dim - 2 * half], -1)
        products = [a * cosine, -b * sine, b * cosine, a * sine]
        p, q, r, s = (self._round("rotation products", product) for product in products)
        return self._round("rotated", torch.cat([p + q, r + s, rest], -1))

    def _delta(self, x: Tensor, weight: Callable[[str], Tensor]) -> Tensor:
        shape, (batch, tokens) = self._shape, x.shape[:2]
        key_heads, dk = shape.linear_num_key_heads, shape.linear_key_head_dim
        heads, dv = shape.linear_num_value_heads, shape.linear_value_head_dim
        keys, values, taps = key_heads * dk, heads * dv, shape.linear_conv_kernel_dim
        projected = self._round("projection", x @ weight("in").T)
        mixed, z, b, a = projected.split([2 * keys + values, values, heads, heads], -1)
        past = torch.cat([torch.zeros(batch, taps - 1, mixed.shape[-1]), mixed], 1)
        conv = weight("conv")
        s = self._round("convolution", sum(conv[i] * past[:, i : i + tokens] for i in range(taps)))
        s = self._round("silu of convolution", silu(s))
        q, k, v = s.split([keys, keys, values], -1)
        q, k = (part.reshape(batch, tokens, key_heads, dk) for part in (q, k))
        q, k = (part * torch.rsqrt((part * part).sum(-1, keepdim=True) + EPS) for part in (q, k))
        v = v.reshape(batch, tokens, heads, dv)
        q = q / math.sqrt(dk)
        if "delta operands in float16" in self._rounded:
            q, k, v = (part.half().float() for part in (q, k, v))
        q, k = (part.repeat_interleave(heads // key_heads, 2) for part in (q, k))
        beta = self._round("beta", torch.sigmoid(b))[..., None]
        decay = torch.exp(-torch.exp(weight("a_log")) * softplus(a + weight("dt_bias")))[..., None, None]
        state = torch.zeros(batch, heads, dk, dv)
        outputs = []
        for t in range(tokens):
            state = state * decay[:, t]
            change = beta[:, t] * (v[:, t] - torch.einsum("bhkv,bhk->bhv", state, k[:, t]))
            state = state + k[:, t, :, :, None] * change[:, :, None, :]
            outputs.append(torch.einsum("bhkv,bhk->bhv", state, q[:, t]))
        o = self._round("delta output", torch.stack(outputs, 1))
        n = self._round("normalized delta", o * torch.rsqrt((o * o).mean(-1, keepdim=True) + EPS))
        n = self._round("weighted delta", weight("delta_norm") * n)
        n = self._round("gated norm", n * silu(z.reshape(batch, tokens, heads, dv)))
        return self._round("update", n.reshape(batch, tokens, values) @ weight("out").T)


def distance(got: Tensor, want: Tensor) -> float:
    return float((got - want).norm() / want.norm())


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--shape", choices=list(PUBLISHED), default="2b")
    parser.add_argument("--layers", type=int, default=8)
    parser.add_argument("--prompts", type=int, default=8)
    parser.add_argument("--tokens", type=int, default=66)
    parser.add_argument("--seed", type=int, default=1)
    args = parser.parse_args()
    full = PUBLISHED[args.shape]
    model = seeded(replace(full, layer_types=full.layer_types[: args.layers]), args.seed)
    random = torch.Generator().manual_seed(args.seed)
    ids = torch.randint(0, VOCAB, (args.prompts, args.tokens), generator=random)
    exact = Pass(model, ids, frozenset()).final()
    reference = Pass(model, ids, REFERENCE).final()
    own = distance(reference, exact)
    sets = {
        "reference": REFERENCE,
        **{f"reference without: {name}": REFERENCE - points for name, points in INNER.items()},
        "reference, residual in float32": REFERENCE - {"residual"},
        "ours with the reference's points, but the update": (REFERENCE - {"update"}) | OURS,
        "ours": OURS,
        "ours, residual in float32": OURS - {"residual"},
    }
    print(f"{args.shape} widths, {args.layers} layers, {args.prompts} prompts of {args.tokens} tokens\n")
    print("| rounding points | to float32 | ratio | least, most of a prompt | to the reference |")
    print("|---|---:|---:|---:|---:|")
    for name, points in sets.items():
        found = Pass(model, ids, points).final()
        ratios = [distance(a, c) / distance(b, c) for a, b, c in zip(found, reference, exact, strict=True)]
        print(
            f"| {name} | {distance(found, exact):.2e} | {distance(found, exact) / own:.2f} "
            f"| {min(ratios):.2f}, {max(ratios):.2f} | {distance(found, reference):.2e} |",
            flush=True,
        )


if __name__ == "__main__":
    with torch.no_grad():
        main()
