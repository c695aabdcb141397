"""config.json: every published size is read, and whatever the forward pass does not compute is refused."""

from __future__ import annotations

import json
import re
from typing import Any

import pytest

from openjev._runtime import testing
from openjev.errors import CheckpointError
from tests.io.checkpoint_files import CONFIG

PATTERN = ["linear", "linear", "linear", "full"]
ABSENT = object()

# hidden, intermediate, layers, query heads, key/value heads, linear value heads, tied
PUBLISHED = {
    "0.8B": (1024, 3584, 24, 8, 2, 16, True),
    "2B": (2048, 6144, 24, 8, 2, 16, True),
    "4B": (2560, 9216, 32, 16, 4, 32, True),
    "9B": (4096, 12288, 32, 16, 4, 32, False),
    "27B": (5120, 17408, 64, 24, 4, 48, False),
}


def changed(changes: dict[str, Any], base: dict[str, Any] = CONFIG) -> dict[str, Any]:
    """`base` with fields replaced; "a.b" names a field of the object a, ABSENT removes one."""
    out: dict[str, Any] = json.loads(json.dumps(base))
    for path, value in changes.items():
        *parents, name = path.split(".")
        target = out
        for parent in parents:
            target = target[parent]
        if value is ABSENT:
            target.pop(name, None)
        else:
            target[name] = value
    return out


def parse(config: object) -> dict[str, Any]:
    result: dict[str, Any] = testing.parse_config(config if isinstance(config, str) else json.dumps(config))
    return result


def test_reads_the_flat_form() -> None:
    assert parse(CONFIG) == {
        "vocab_size": 512,
        "hidden_size": 128,
        "intermediate_size": 192,
        "max_position_embeddings": 4096,
        "heads": 4,
        "kv_heads": 2,
        "head_dim": 32,
        "rotary_dim": 8,
        "rope_theta": 1e7,
        "rms_norm_eps": pytest.approx(1e-6, rel=1e-7),
        "delta": (2, 4, 32, 16),
        "tied_embeddings": True,
        "layers": PATTERN * 2,
    }


def test_reads_the_nested_form_of_the_original_repositories() -> None:
    original = {
        "model_type": "qwen3_5",
        "architectures": ["Qwen3_5ForConditionalGeneration"],
        "text_config": CONFIG,
        "vision_config": {"model_type": "qwen3_5", "hidden_size": 7, "quantization_config": None},
        "tie_word_embeddings": False,
    }
    assert parse(original) == parse(CONFIG)
    untyped = changed({"model_type": ABSENT})
    assert parse({**original, "text_config": untyped}) == parse(CONFIG)


@pytest.mark.parametrize("size", PUBLISHED)
def test_reads_every_published_geometry(size: str) -> None:
    hidden, intermediate, layers, heads, kv_heads, value_heads, tied = PUBLISHED[size]
    text = changed(
        {
            "hidden_size": hidden,
            "intermediate_size": intermediate,
            "num_hidden_layers": layers,
            "num_attention_heads": heads,
            "num_key_value_heads": kv_heads,
            "head_dim": 256,
            "linear_num_key_heads": 16,
            "linear_num_value_heads": value_heads,
            "linear_key_head_dim": 128,
            "linear_value_head_dim": 128,
            "vocab_size": 248320,
            "max_position_embeddings": 262144,
            "tie_word_embeddings": tied,
            "full_attention_interval": 4,
            "mamba_ssm_dtype": "float32",
            "output_gate_type": "swish",
            "eos_token_id": 248044,
            "layer_types": (["linear_attention"] * 3 + ["full_attention"]) * (layers // 4),
        }
    )
    found = parse({"model_type": "qwen3_5", "text_config": text})
    assert found["layers"] == PATTERN * (layers // 4)
    assert found["delta"] == (16, value_heads, 128, 128)
    assert (found["rotary_dim"], found["head_dim"], found["hidden_size"]) == (64, 256, hidden)
    assert (found["heads"], found["kv_heads"], found["tied_embeddings"]) == (heads, kv_heads, tied)


@pytest.mark.parametrize(
    ("changes", "layers"),
    [
        ({}, PATTERN * 2),
        ({"layer_types": None}, PATTERN * 2),
        ({"full_attention_interval": 2}, ["linear", "full"] * 4),
        ({"full_attention_interval": 1}, ["full"] * 8),
        ({"full_attention_interval": 9}, ["linear"] * 8),
        ({"layer_types": ["full_attention"] * 8, "full_attention_interval": 4}, ["full"] * 8),
    ],
)
def test_layer_kinds_are_given_or_follow_the_interval(changes: dict[str, Any], layers: list[str]) -> None:
    assert parse(changed(changes))["layers"] == layers


@pytest.mark.parametrize(
    ("changes", "rotary_dim"),
    [
        ({}, 8),
        ({"rope_parameters.partial_rotary_factor": ABSENT}, 8),  # the default is 0.25
        ({"rope_parameters.partial_rotary_factor": ABSENT, "partial_rotary_factor": 0.5}, 16),
        ({"rope_parameters.partial_rotary_factor": 0.5, "partial_rotary_factor": 0.5}, 16),
        ({"rope_parameters.partial_rotary_factor": 1.0}, 32),
        ({"rope_parameters.partial_rotary_factor": 1}, 32),
        ({"rope_parameters": None, "rope_theta": 1e7}, 8),
    ],
)
def test_rotary_dimensions(changes: dict[str, Any], rotary_dim: int) -> None:
    assert parse(changed(changes))["rotary_dim"] == rotary_dim


def test_rope_theta_may_stand_beside_or_inside_rope_parameters() -> None:
    assert parse(changed({"rope_parameters.rope_theta": ABSENT, "rope_theta": 5e5}))["rope_theta"] == 5e5
    assert parse(changed({"rope_parameters.rope_theta": 10000}))["rope_theta"] == 1e4


OPTIONAL = {"hidden_act", "attention_bias", "attn_output_gate", "tie_word_embeddings"}
REQUIRED = sorted(
    CONFIG.keys() - OPTIONAL - {"rope_parameters"}
)  # rope_theta may stand beside rope_parameters


@pytest.mark.parametrize("name", sorted(OPTIONAL))
def test_an_optional_field_may_be_missing(name: str) -> None:
    assert parse(changed({name: ABSENT})) == parse(changed({name: None}))


@pytest.mark.parametrize("name", REQUIRED)
def test_a_missing_field_is_refused(name: str) -> None:
    with pytest.raises(CheckpointError, match=rf"^config\.json: {name}: found no such field, allowed "):
        parse(changed({name: ABSENT}))
    with pytest.raises(CheckpointError, match=rf"^config\.json: {name}: found null, allowed "):
        parse(changed({name: None}))


SIZES = [
    "vocab_size",
    "hidden_size",
    "intermediate_size",
    "num_hidden_layers",
    "num_attention_heads",
    "num_key_value_heads",
    "head_dim",
    "linear_num_key_heads",
    "linear_num_value_heads",
    "linear_key_head_dim",
    "linear_value_head_dim",
    "linear_conv_kernel_dim",
    "max_position_embeddings",
]


@pytest.mark.parametrize("value", [0, -1, 4.0, "4", True, [4], 2**31, 2**63, 2**64])
@pytest.mark.parametrize("name", SIZES)
def test_a_size_that_is_no_plausible_positive_integer_is_refused(name: str, value: object) -> None:
    with pytest.raises(CheckpointError, match=rf"^config\.json: {name}: found .+, allowed an? "):
        parse(changed({name: value}))


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"model_type": "llama"}, 'model_type: found "llama", allowed "qwen3_5" or "qwen3_5_text"'),
        (
            {"model_type": "qwen3_5_moe"},
            'model_type: found "qwen3_5_moe", a mixture of experts, allowed "qwen3_5" or "qwen3_5_text"',
        ),
        (
            {"model_type": "qwen3_5_moe_text"},
            'model_type: found "qwen3_5_moe_text", a mixture of experts, allowed "qwen3_5" or "qwen3_5_text"',
        ),
        ({"model_type": 5}, "model_type: found 5, allowed a string"),
        ({"num_experts": 64}, "num_experts: found 64, allowed no such field"),
        ({"hidden_act": "gelu"}, 'hidden_act: found "gelu", allowed "silu"'),
        ({"attention_bias": True}, "attention_bias: found true, allowed false"),
        ({"attention_bias": "no"}, 'attention_bias: found "no", allowed true or false'),
        ({"attn_output_gate": False}, "attn_output_gate: found false, allowed true"),
        ({"output_gate_type": "sigmoid"}, 'output_gate_type: found "sigmoid", allowed "swish"'),
        ({"linear_conv_kernel_dim": 3}, "linear_conv_kernel_dim: found 3, allowed an integer from 4 to 4"),
        ({"tie_word_embeddings": 1}, "tie_word_embeddings: found 1, allowed true or false"),
        (
            {"quantization_config": {"quant_method": "fp8"}},
            "quantization_config: found an object of 1 fields, allowed no such field",
        ),
        (
            {"num_attention_heads": 5},
            "num_attention_heads: found 5, allowed a multiple of num_key_value_heads, 2",
        ),
        (
            {"linear_num_value_heads": 3},
            "linear_num_value_heads: found 3, allowed a multiple of linear_num_key_heads, 2",
        ),
        ({"head_dim": 40}, "head_dim: found 40, allowed a multiple of 16 from 16 to 256"),
        ({"head_dim": 272}, "head_dim: found 272, allowed a multiple of 16 from 16 to 256"),
        ({"linear_key_head_dim": 8}, "linear_key_head_dim: found 8, allowed a multiple of 16"),
        ({"linear_value_head_dim": 512}, "linear_value_head_dim: found 512, allowed a multiple of 16"),
        ({"rms_norm_eps": 0}, "rms_norm_eps: found 0, allowed a number greater than 0 and at most 1"),
        ({"rms_norm_eps": "1e-6"}, 'rms_norm_eps: found "1e-6", allowed a number greater than 0'),
        (
            {"rope_parameters.rope_type": "yarn"},
            'rope_parameters.rope_type: found "yarn", allowed "default"',
        ),
        ({"rope_scaling": {"type": "linear"}}, 'rope_scaling.type: found "linear", allowed "default"'),
        ({"rope_parameters": 1}, "rope_parameters: found 1, allowed an object"),
        ({"rope_parameters.rope_theta": ABSENT}, "rope_theta: found no such field, allowed a number"),
        ({"rope_parameters.rope_theta": -1}, "rope_parameters.rope_theta: found -1, allowed a number"),
        ({"rope_parameters.rope_theta": 1e13}, "rope_parameters.rope_theta: found 10000000000000.0, allowed"),
        (
            {"rope_theta": 1e4},
            "rope_theta: found 10000.0, allowed 10000000.0, as in rope_parameters",
        ),
        (
            {"partial_rotary_factor": 0.5},
            "partial_rotary_factor: found 0.5, allowed 0.25, as in rope_parameters",
        ),
        ({"rope_parameters.partial_rotary_factor": 1.5}, "rope_parameters.partial_rotary_factor: found 1.5,"),
        (
            {"rope_parameters.partial_rotary_factor": 0.1},
            "partial_rotary_factor: found 3 rotary dimensions of head_dim 32, allowed a positive even number",
        ),
        (
            {"rope_parameters.partial_rotary_factor": 0.01},
            "partial_rotary_factor: found 0 rotary dimensions of head_dim 32, allowed a positive even number",
        ),
        (
            {"layer_types": ["linear_attention"] * 7},
            "layer_types: found a list of 7 elements, allowed 8, as num_hidden_layers says",
        ),
        ({"layer_types": "full_attention"}, 'layer_types: found "full_attention", allowed a list'),
        (
            {"layer_types": ["linear_attention"] * 7 + ["sliding_attention"]},
            'layer_types[7]: found "sliding_attention", allowed "linear_attention" or "full_attention"',
        ),
        (
            {"layer_types": [None] * 8},
            'layer_types[0]: found null, allowed "linear_attention" or "full_attention"',
        ),
        ({"full_attention_interval": 0}, "full_attention_interval: found 0, allowed an integer from 1 to"),
    ],
)
def test_what_the_forward_pass_does_not_compute_is_refused(changes: dict[str, Any], message: str) -> None:
    with pytest.raises(CheckpointError, match="^" + re.escape(f"config.json: {message}")):
        parse(changed(changes))


def test_refusals_name_the_nested_field() -> None:
    nested = {"model_type": "qwen3_5", "text_config": changed({"hidden_act": "gelu"})}
    with pytest.raises(CheckpointError, match=r'^config\.json: text_config\.hidden_act: found "gelu"'):
        parse(nested)
    with pytest.raises(CheckpointError, match=r"^config\.json: text_config\.model_type: found \"qwen3_5_moe"):
        parse({"model_type": "qwen3_5", "text_config": changed({"model_type": "qwen3_5_moe_text"})})
    with pytest.raises(CheckpointError, match=r"^config\.json: quantization_config: found an object"):
        parse({"model_type": "qwen3_5", "text_config": CONFIG, "quantization_config": {"bits": 8}})


@pytest.mark.parametrize(
    "text",
    [
        "",
        "{",
        "nul",
        "[]",
        "1",
        '{"model_type": NaN}',
        '{"a": 1, "a": 2}',
        "{}\0{}",
        '{"x": 1e999}',
        "[" * 9999,
    ],
)
def test_a_file_that_is_no_json_object_is_refused(text: str) -> None:
    with pytest.raises(CheckpointError, match=r"^config\.json: (JSON|field \"a\"): found .*, allowed "):
        parse(text)
