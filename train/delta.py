"""The gated delta rule and its convolution for training: the mathematics of Transformers' torch functions in
batched products, without a triangular solver and without a grouped convolution, both slow on a GPU.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor
from transformers.models.qwen3_5 import modeling_qwen3_5

CHUNK = 32


class UnitLowerInverse(torch.autograd.Function):
    """(I + A)^-1 of strictly lower triangular A, float32 [..., n, n], n a power of 2.

    The inverse M of the block diagonal with blocks of s grows to blocks of 2s: the new part below the
    diagonal is -M A' M, where A' is A between the halves of each block. Gradient: the strictly lower part of
    -(M^T G M^T).
    """

    @staticmethod
    def forward(ctx: Any, lower: Tensor) -> Tensor:
        size = lower.shape[-1]
        row = torch.arange(size, device=lower.device)[:, None]
        column = torch.arange(size, device=lower.device)[None, :]
        inverse = torch.eye(size, device=lower.device, dtype=lower.dtype).expand_as(lower)
        half = 1
        while half < size:
            between = (row // (2 * half) == column // (2 * half)) & (row // half > column // half)
            inverse = inverse - inverse @ (lower * between) @ inverse
            half *= 2
        ctx.save_for_backward(inverse)
        return inverse

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> Tensor:
        (inverse,) = ctx.saved_tensors
        transposed = inverse.transpose(-1, -2)
        return -(transposed @ gradient @ transposed).tril(-1)


def _normalized(x: Tensor) -> Tensor:
    return x * torch.rsqrt((x * x).sum(dim=-1, keepdim=True) + 1e-6)


def chunk_gated_delta_rule(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    g: Tensor,
    beta: Tensor,
    initial_state: Tensor | None = None,
    output_final_state: bool = False,
    **options: Any,
) -> tuple[Tensor, None]:
    """query, key [batch, T, key heads, dk], value [batch, T, heads, dv], g (float32, <= 0) and beta
    [batch, T, heads]; normalizes query and key and starts from a zero state. Returns the outputs
    [batch, T, heads, dv] in query's dtype, and no state. Raises ValueError when a state is given or wanted.
    """
    if initial_state is not None or output_final_state:
        raise ValueError("chunk_gated_delta_rule: found a recurrent state, allowed: none (use_cache=False)")
    dtype, length = query.dtype, query.shape[1]
    padding = -length % CHUNK
    # Some versions of Transformers repeat the key heads before the call, others leave it to the function.
    repeats = value.shape[2] // key.shape[2]
    if repeats > 1:
        query, key = (x.repeat_interleave(repeats, dim=2) for x in (query, key))
    with torch.autocast(query.device.type, enabled=False):
        query, key, value = (
            F.pad(x.transpose(1, 2).float(), (0, 0, 0, padding)).unflatten(2, (-1, CHUNK))
            for x in (query, key, value)
        )
        beta, g = (
            F.pad(x.transpose(1, 2).float(), (0, padding)).unflatten(2, (-1, CHUNK)) for x in (beta, g)
        )
        query, key = _normalized(query) * query.shape[-1] ** -0.5, _normalized(key)
        outputs = _chunks(query, key, value, g.cumsum(-1), beta.unsqueeze(-1))
    return outputs[:, :, :length].transpose(1, 2).to(dtype).contiguous(), None


def _chunks(query: Tensor, key: Tensor, value: Tensor, decay: Tensor, beta: Tensor) -> Tensor:
    """Section by section as in the chunked form of the rule; `decay` is the sum of g inside each chunk."""
    causal = torch.ones(CHUNK, CHUNK, dtype=torch.bool, device=query.device).tril()
    between = (decay.unsqueeze(-1) - decay.unsqueeze(-2)).masked_fill(~causal, float("-inf")).exp()
    transposed = key.transpose(-1, -2)
    inverse = UnitLowerInverse.apply(((beta * key) @ transposed * between).tril(-1))
    grown = decay.exp().unsqueeze(-1)
    values, keys = inverse @ (beta * value), inverse @ (beta * grown * key)
    within = (query @ transposed) * between
    queries = query * grown
    left = key * (decay[..., -1:] - decay).exp().unsqueeze(-1)
    last = grown[..., -1:, :]
    state = torch.zeros((*value.shape[:2], key.shape[-1], value.shape[-1]), device=key.device)
    outputs = []
    for i in range(query.shape[2]):
        corrected = values[:, :, i] - keys[:, :, i] @ state
        outputs.append(queries[:, :, i] @ state + within[:, :, i] @ corrected)
        state = state * last[:, :, i] + left[:, :, i].transpose(-1, -2) @ corrected
    return torch.cat(outputs, dim=2)


def causal_conv1d(hidden_states: Tensor, weight: Tensor, bias: Any = None, **options: Any) -> Tensor:
    """silu of the depthwise causal convolution: hidden_states [batch, channels, T], weight [channels, taps].
    Raises ValueError for a bias, which Qwen3.5 has not."""
    if bias is not None:
        raise ValueError("causal_conv1d: found a bias, allowed: None")
    taps, length = weight.shape[-1], hidden_states.shape[-1]
    padded = F.pad(hidden_states, (taps - 1, 0))
    weight = weight.to(hidden_states.dtype)
    total = sum(padded[..., tap : tap + length] * weight[:, tap, None] for tap in range(taps))
    return F.silu(total)


@contextmanager
def batched_rules() -> Iterator[None]:
    """Inside, Transformers' Qwen3.5 layers compute with the two functions of this module."""
    module: Any = modeling_qwen3_5
    names = {"torch_chunk_gated_delta_rule": chunk_gated_delta_rule, "causal_conv1d_fn": causal_conv1d}
    before = {name: getattr(module, name) for name in names}
    try:
        for name, function in names.items():
            setattr(module, name, function)
        yield
    finally:
        for name, function in before.items():
            setattr(module, name, function)
