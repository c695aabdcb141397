"""T30: which adapters are merged, and that every other one is refused by name."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from openjev._runtime import read_adapter
from openjev.errors import CheckpointError
from tests import adapters
from tests.adapters import CUA_TARGETS, OPEN_JEV_TARGETS, Floats

Tensors = dict[str, Floats]


@pytest.fixture(scope="module")
def base(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return adapters.write_base(tmp_path_factory.mktemp("base") / "base")


@pytest.fixture(scope="module")
def tensors(base: Path) -> Tensors:
    return adapters.adapter_tensors(adapters.config_of(base))


def write(folder: Path, tensors: Tensors, **changes: Any) -> str:
    config = adapters.adapter_config(8, OPEN_JEV_TARGETS, **changes)
    return str(adapters.write_adapter(folder / "adapter", tensors, config))


@pytest.mark.parametrize("inner", ["", "model.", "model.language_model.", "language_model."])
def test_the_keys_may_have_the_prefix_of_any_wrapper(
    base: Path, tensors: Tensors, tmp_path: Path, inner: str
) -> None:
    config = adapters.adapter_config(8, OPEN_JEV_TARGETS)
    folder = adapters.write_adapter(tmp_path, tensors, config, prefix=f"base_model.model.{inner}")
    found = read_adapter(str(folder), str(base))
    assert (found["rank"], found["alpha"], found["modules"]) == (8, 16.0, 3 * 2 + 4)
    assert found["targets"] == sorted(OPEN_JEV_TARGETS)
    assert found["parameters"] == sum(values.size for values in tensors.values())


def test_targets_of_cua_s1_and_a_pattern_of_targets(base: Path, tmp_path: Path) -> None:
    wanted = adapters.adapter_tensors(adapters.config_of(base), rank=16, targets=CUA_TARGETS)
    for name, targets in (("listed", CUA_TARGETS), ("pattern", r".*layers.*\.(q|k|v|o|gate|up|down)_proj")):
        config = adapters.adapter_config(16, targets)
        folder = adapters.write_adapter(tmp_path / name, wanted, config, prefix="base_model.model.model.")
        found = read_adapter(str(folder), str(base))
        assert found["targets"] == sorted(CUA_TARGETS)
        assert (found["rank"], found["alpha"], found["modules"]) == (16, 32.0, 4 + 4 * 3)


@pytest.mark.parametrize(
    "field, value",
    [
        ("use_dora", True),
        ("use_rslora", True),
        ("lora_bias", True),
        ("bias", "all"),
        ("fan_in_fan_out", True),
        ("rank_pattern", {"q_proj": 4}),
        ("alpha_pattern", {"q_proj": 4}),
        ("modules_to_save", ["lm_head"]),
        ("layers_to_transform", [0]),
        ("layer_replication", [[0, 1]]),
        ("init_lora_weights", "pissa"),
        ("peft_type", "LOHA"),
        ("target_parameters", ["x"]),
        ("a_field_of_the_future", {"on": True}),
        ("r", 0),
        ("r", "8"),
        ("lora_alpha", -1),
        ("target_modules", ["q_proj", "linear_fc1"]),
        ("target_modules", []),
        ("target_modules", None),
    ],
)
def test_a_variant_is_refused_with_its_field(
    base: Path, tensors: Tensors, tmp_path: Path, field: str, value: object
) -> None:
    folder = write(tmp_path, tensors, **{field: value})
    with pytest.raises(CheckpointError) as caught:
        read_adapter(folder, str(base))
    assert f"adapter_config.json: {field}: found" in str(caught.value)
    assert "allowed" in str(caught.value)


def first(tensors: Tensors, end: str) -> str:
    return next(name for name in tensors if name.endswith(end))


def drop(tensors: Tensors) -> str:
    name = first(tensors, "o_proj.lora_B.weight")
    del tensors[name]
    return name


def drop_module(tensors: Tensors) -> str:
    names = [name for name in tensors if "out_proj" in name][:2]
    for name in names:
        del tensors[name]
    return names[0]


def unknown(tensors: Tensors) -> str:
    tensors["layers.0.linear_attn.in_proj_q.lora_A.weight"] = np.zeros((8, 256), np.float32)
    return "layers.0.linear_attn.in_proj_q.lora_A.weight"


def vision(tensors: Tensors) -> str:
    tensors["visual.blocks.0.mlp.linear_fc1.lora_A.weight"] = np.zeros((8, 256), np.float32)
    return "visual.blocks.0.mlp.linear_fc1.lora_A.weight"


def magnitude(tensors: Tensors) -> str:
    tensors["layers.3.self_attn.q_proj.lora_magnitude_vector"] = np.ones(8, np.float32)
    return "lora_magnitude_vector"


def not_named(tensors: Tensors) -> str:
    tensors["layers.1.mlp.up_proj.lora_A.weight"] = np.zeros((8, 256), np.float32)
    return "layers.1.mlp.up_proj.lora_A.weight"


def beyond(tensors: Tensors) -> str:
    tensors["layers.4.mlp.up_proj.lora_A.weight"] = np.zeros((8, 256), np.float32)
    return "layers.4.mlp.up_proj.lora_A.weight"


def another_rank(tensors: Tensors) -> str:
    name = first(tensors, "v_proj.lora_A.weight")
    tensors[name] = tensors[name][:4]
    return name


def another_width(tensors: Tensors) -> str:
    name = first(tensors, "in_proj_qkv.lora_A.weight")
    tensors[name] = np.ascontiguousarray(tensors[name][:, :128])
    return name


def not_finite(tensors: Tensors) -> str:
    name = first(tensors, "q_proj.lora_B.weight")
    tensors[name] = tensors[name].copy()
    tensors[name][1, 2] = np.nan
    return name


@pytest.mark.parametrize(
    "change",
    [
        drop,
        drop_module,
        unknown,
        vision,
        magnitude,
        not_named,
        beyond,
        another_rank,
        another_width,
        not_finite,
    ],
)
def test_t30_a_tensor_too_many_missing_or_wrong_is_named(
    base: Path, tensors: Tensors, tmp_path: Path, change: Callable[[Tensors], str]
) -> None:
    changed = dict(tensors)
    name = change(changed)
    with pytest.raises(CheckpointError) as caught:
        read_adapter(write(tmp_path, changed), str(base))
    assert name in str(caught.value)
    assert "found" in str(caught.value) and "allowed" in str(caught.value)


def test_a_tensor_that_is_not_float32_is_refused(base: Path, tensors: Tensors, tmp_path: Path) -> None:
    folder = Path(write(tmp_path, tensors))
    file = folder / "adapter_model.safetensors"
    data = file.read_bytes()
    length = int.from_bytes(data[:8], "little")
    header = json.loads(data[8 : 8 + length])
    for entry in header.values():
        entry["dtype"], entry["shape"] = "BF16", [entry["shape"][0], 2 * entry["shape"][1]]
    text = json.dumps(header, separators=(",", ":")).encode().ljust(length)
    file.write_bytes(len(text).to_bytes(8, "little") + text + data[8 + length :])
    with pytest.raises(CheckpointError, match=r"BF16 of shape .*allowed F32 of shape"):
        read_adapter(str(folder), str(base))


def test_a_truncated_file_is_refused(base: Path, tensors: Tensors, tmp_path: Path) -> None:
    file = Path(write(tmp_path, tensors)) / "adapter_model.safetensors"
    file.write_bytes(file.read_bytes()[:-4])
    with pytest.raises(CheckpointError, match=r"adapter_model\.safetensors"):
        read_adapter(str(file.parent), str(base))
