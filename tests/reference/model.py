"""The Qwen3.5 text backbone in numpy float64 on top of reference.ops: hidden rows of any forest of tokens."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from tests.reference import ops
from tests.reference.ops import Array, Index


@dataclass(frozen=True)
class ReferenceModel:
    """`config` as in config.json (flat form); `weights` by name without the backbone prefix."""

    config: Mapping[str, Any]
    weights: Mapping[str, npt.NDArray[np.float32]]

    def path(self, tokens: npt.ArrayLike) -> tuple[Array, Array]:
        """One sequence; see `forest`."""
        count = np.size(np.asarray(tokens))
        return self.forest(tokens, np.arange(-1, count - 1, dtype=np.int32))

    def forest(self, tokens: npt.ArrayLike, parent: Index) -> tuple[Array, Array]:
        """Residual stream [layers + 1, R, H], after embedding and each layer, and final-norm rows [R, H]."""
        position = np.array([len(ops.ancestors(parent, row)) - 1 for row in range(len(parent))], np.int32)
        h = ops.f64(self.weights["embed_tokens.weight"])[np.asarray(tokens)]
        stream = [h]
        for layer, kind in enumerate(self.config["layer_types"]):
            prefix = f"layers.{layer}."
            x = self._norm(h, prefix + "input_layernorm.weight")
            if kind == "full_attention":
                h = h + self._full(x, prefix + "self_attn.", parent, position)
            else:
                h = h + self._linear(x, prefix + "linear_attn.", parent)
            x = self._norm(h, prefix + "post_attention_layernorm.weight")
            h = h + self._mlp(x, prefix + "mlp.")
            stream.append(h)
        return np.stack(stream), self._norm(h, "norm.weight")

    def _norm(self, x: Array, name: str) -> Array:
        return ops.rms_norm(x, self.weights[name], self.config["rms_norm_eps"])

    def _project(self, x: Array, name: str) -> Array:
        return ops.matmul(x, self.weights[name])

    def _mlp(self, x: Array, prefix: str) -> Array:
        parts = [self._project(x, f"{prefix}{part}_proj.weight") for part in ("gate", "up")]
        return self._project(ops.silu_mul(np.concatenate(parts, -1)), prefix + "down_proj.weight")

    def _linear(self, x: Array, prefix: str, parent: Index) -> Array:
        c, w = self.config, self.weights
        shape = (
            c["linear_num_key_heads"],
            c["linear_num_value_heads"],
            c["linear_key_head_dim"],
            c["linear_value_head_dim"],
        )
        inputs = ops.delta_inputs(
            shape,
            self._project(x, prefix + "in_proj_qkv.weight"),
            self._project(x, prefix + "in_proj_b.weight"),
            self._project(x, prefix + "in_proj_a.weight"),
            None,
            w[prefix + "conv1d.weight"][:, 0].T,
            w[prefix + "A_log"],
            w[prefix + "dt_bias"],
            parent,
        )
        out, _ = ops.delta_rule(shape, parent, **inputs)
        z = self._project(x, prefix + "in_proj_z.weight")
        gated = ops.gated_rms_norm(out, z, w[prefix + "norm.weight"], c["rms_norm_eps"])
        return self._project(gated, prefix + "out_proj.weight")

    def _full(self, x: Array, prefix: str, parent: Index, position: Index) -> Array:
        c, w = self.config, self.weights
        heads, kv_heads, dim = c["num_attention_heads"], c["num_key_value_heads"], c["head_dim"]
        rope = c["rope_parameters"]
        rotary = int(dim * rope["partial_rotary_factor"])
        shape = (dim, rotary, rope["rope_theta"], c["rms_norm_eps"])
        query_gate = self._project(x, prefix + "q_proj.weight")  # per head: query | gate
        keys = self._project(x, prefix + "k_proj.weight")
        q = ops.norm_rope(query_gate, heads, 2 * dim, w[prefix + "q_norm.weight"], position, *shape)
        k = ops.norm_rope(keys, kv_heads, dim, w[prefix + "k_norm.weight"], position, *shape)
        v = self._project(x, prefix + "v_proj.weight")
        rows = np.arange(len(parent))
        out = ops.attention(parent, rows, heads, kv_heads, dim, q, k, v, query_gate[:, dim:], 2 * dim)
        return self._project(out, prefix + "o_proj.weight")
