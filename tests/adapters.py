"""Adapter packages and base models of any small size, written byte by byte without torch or PEFT."""

from __future__ import annotations

import hashlib
import json
import shutil
import zipfile
import zlib
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Literal

import numpy as np
import numpy.typing as npt

from openjev.backbone import BackboneShape
from openjev.safetensors_write import TensorSource, from_bf16_bits, to_bf16_bits, write_safetensors
from openjev.seeded import DType, build_checkpoint

Floats = npt.NDArray[np.float32]
Layout = Literal["original", "text"]

OPEN_JEV_TARGETS = ("in_proj_qkv", "out_proj", "q_proj", "k_proj", "v_proj", "o_proj")
CUA_TARGETS = ("q_proj", "k_proj", "v_proj", "o_proj", "gate_proj", "up_proj", "down_proj")
TEMPERATURE = 1.75


def config_of(base: Path) -> dict[str, Any]:
    config: dict[str, Any] = json.loads((base / "config.json").read_text())
    return config.get("text_config", config)


def write_base(
    folder: Path,
    *,
    layout: Layout = "text",
    dtype: DType = "BF16",
    shards: int = 1,
    tied: bool = True,
    **changes: int,
) -> Path:
    """A base model without manifest. "original": nested config, prefix, a shard of vision and MTP tensors."""
    prefix = "model.language_model." if layout == "original" else ""
    config = {**changes, "tie_word_embeddings": tied}
    build_checkpoint(folder, dtype=dtype, prefix=prefix, shards=shards, config=config)
    for name in ("decision.json", "readout.safetensors"):
        (folder / name).unlink()
    if layout == "original":
        flat = json.loads((folder / "config.json").read_text())
        nested = {
            "architectures": ["Qwen3_5ForConditionalGeneration"],
            "model_type": "qwen3_5",
            "tie_word_embeddings": tied,
            "text_config": {**flat, "mtp_num_hidden_layers": 1},
        }
        (folder / "config.json").write_text(json.dumps(nested))
        _add_unused_shard(folder, tied)
    return folder


def _add_unused_shard(folder: Path, tied: bool) -> None:
    """Vision, MTP and output-head tensors in a shard of their own, which nobody needs."""
    index_file = folder / "model.safetensors.index.json"
    single = folder / "model.safetensors"
    if single.exists():
        raise AssertionError("the original layout is made of shards")
    index = json.loads(index_file.read_text())
    names = ["model.visual.patch_embed.proj.weight", "mtp.fc.weight"] + ([] if tied else ["lm_head.weight"])
    zeros = np.zeros(64, np.uint16)
    sources = [TensorSource(name, "BF16", (8, 8), lambda: [zeros]) for name in names]
    write_safetensors(folder / "model-visual.safetensors", sources)
    index["weight_map"].update(dict.fromkeys(names, "model-visual.safetensors"))
    index_file.write_text(json.dumps(index))


def base_tensor(folder: Path, name: str) -> tuple[str, npt.NDArray[Any]]:
    """dtype and stored values (uint16 bits or float32) of a backbone tensor, by its name without prefix."""
    for file in sorted(folder.glob("*.safetensors")):
        with file.open("rb") as stream:
            length = int.from_bytes(stream.read(8), "little")
            header = json.loads(stream.read(length))
            for key, entry in header.items():
                if key in (name, f"model.language_model.{name}", f"model.{name}"):
                    begin, end = entry["data_offsets"]
                    stream.seek(8 + length + begin)
                    kind = {"BF16": np.uint16, "F32": np.float32}[entry["dtype"]]
                    values = np.frombuffer(stream.read(end - begin), kind).reshape(entry["shape"])
                    return entry["dtype"], values
    raise KeyError(name)


def modules_of(config: Mapping[str, Any], targets: Sequence[str]) -> dict[str, tuple[int, int]]:
    """The modules whose last part is a target: name -> (out, in)."""
    out = {}
    for name, shape in BackboneShape.from_config(config).tensors():
        module = name.removesuffix(".weight")
        if len(shape) == 2 and module.rsplit(".", 1)[-1] in targets:
            out[module] = (shape[0], shape[1])
    return out


def adapter_tensors(
    config: Mapping[str, Any], *, rank: int = 8, targets: Sequence[str] = OPEN_JEV_TARGETS, seed: int = 1
) -> dict[str, Floats]:
    """lora_A and lora_B by module, sized like a trained adapter's."""
    out: dict[str, Floats] = {}
    for module, (rows, cols) in modules_of(config, targets).items():
        generator = np.random.default_rng([seed, zlib.crc32(module.encode())])
        out[f"{module}.lora_A.weight"] = generator.normal(0, 0.05, (rank, cols)).astype(np.float32)
        out[f"{module}.lora_B.weight"] = generator.normal(0, 0.05, (rows, rank)).astype(np.float32)
    return out


def adapter_config(rank: int, targets: Sequence[str] | str, **changes: Any) -> dict[str, Any]:
    """As PEFT 0.21 writes it, with the fields that matter."""
    return {
        "peft_type": "LORA",
        "peft_version": "0.21.2",
        "task_type": None,
        "base_model_name_or_path": "trained/here",
        "r": rank,
        "lora_alpha": 2 * rank,
        "lora_dropout": 0.0,
        "bias": "none",
        "target_modules": targets if isinstance(targets, str) else list(targets),
        "use_dora": False,
        "use_rslora": False,
        "lora_bias": False,
        "fan_in_fan_out": False,
        "init_lora_weights": True,
        "rank_pattern": {},
        "alpha_pattern": {},
        "modules_to_save": None,
        "layers_to_transform": None,
        "loftq_config": {},
        "megatron_core": "megatron.core",
        "qalora_group_size": 16,
        **changes,
    }


def write_adapter(
    folder: Path,
    tensors: Mapping[str, Floats],
    config: Mapping[str, Any],
    *,
    prefix: str = "base_model.model.",
) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "adapter_config.json").write_text(json.dumps(config))

    def source(name: str, values: Floats) -> TensorSource:
        return TensorSource(prefix + name, "F32", values.shape, lambda: [values])

    write_safetensors(folder / "adapter_model.safetensors", [source(k, v) for k, v in tensors.items()])
    return folder


def head_pickle(hidden: int, *, storage: str = "ctorch\nFloatStorage\n", tail: bytes = b"u.") -> bytes:
    """The pickle of {"weight": [1, hidden], "bias": [1]} as torch.save writes it, in protocol 2."""

    def text(value: str) -> bytes:
        data = value.encode()
        return b"X" + len(data).to_bytes(4, "little") + data

    def number(value: int) -> bytes:
        return b"J" + value.to_bytes(4, "little")

    def tensor(key: str, size: Sequence[int], stride: Sequence[int]) -> bytes:
        count = int(np.prod(size))
        pid = b"(" + text("storage") + storage.encode() + text(key) + text("cpu") + number(count) + b"tQ"
        dims = b"(" + b"".join(map(number, size)) + b"t(" + b"".join(map(number, stride)) + b"t"
        hooks = b"ccollections\nOrderedDict\n)R"
        return b"ctorch._utils\n_rebuild_tensor_v2\n(" + pid + number(0) + dims + b"\x89" + hooks + b"tR"

    entries = text("weight") + tensor("0", (1, hidden), (hidden, 1)) + text("bias") + tensor("1", (1,), (1,))
    return b"\x80\x02}(" + entries + tail


def write_head(path: Path, weight: Floats, bias: Floats, *, pickle: bytes | None = None) -> None:
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("head/data.pkl", pickle or head_pickle(weight.shape[1]))
        archive.writestr("head/byteorder", "little")
        archive.writestr("head/data/0", weight.astype("<f4").tobytes())
        archive.writestr("head/data/1", bias.astype("<f4").tobytes())
        archive.writestr("head/version", "3\n")


def write_package(
    folder: Path,
    config: Mapping[str, Any],
    *,
    base: tuple[str, str] = ("someone/base", "b" * 40),
    name: str = "someone/Judge",
    seed: int = 1,
) -> Path:
    """An Open-Jev package for a base of this config: folder/package/{manifest.json, checkpoint/}."""
    root = folder / "package" / "checkpoint"
    tensors = adapter_tensors(config, seed=seed)
    write_adapter(root / "adapter", tensors, adapter_config(8, OPEN_JEV_TARGETS))
    generator = np.random.default_rng(seed)
    hidden = int(config["hidden_size"])
    weight = generator.normal(0, hidden**-0.5, (1, hidden)).astype(np.float32)
    write_head(root / "head.pt", weight, np.array([0.25], np.float32))
    model = {
        "model_id": base[0],
        "revision": base[1],
        "max_length": 1024,
        "lora_rank": 8,
        "method": "independent_candidate_lora_nll_brier",
    }
    (root / "model.json").write_text(json.dumps(model))
    temperature = {"temperature": TEMPERATURE, "split": "calibration", "n": 100, "ids_sha256": "0" * 64}
    (root / "temperature.json").write_text(json.dumps(temperature))
    write_package_manifest(folder, name)
    return folder


def write_package_manifest(folder: Path, name: str = "someone/Judge") -> None:
    package = folder / "package"
    files = {
        path.relative_to(package).as_posix(): {
            "bytes": path.stat().st_size,
            "sha256": hashlib.sha256(path.read_bytes()).hexdigest(),
        }
        for path in sorted((package / "checkpoint").rglob("*"))
        if path.is_file()
    }
    manifest = {"kind": "local_inference_weight_package", "model": name, "revision": "c" * 40, "files": files}
    (package / "manifest.json").write_text(json.dumps(manifest))


def write_local_model(folder: Path, **changes: Any) -> Path:
    """A folder with base/ and package/: everything that a decision model needs."""
    base = write_base(folder / "base", **changes)
    write_package(folder, config_of(base))
    return folder


def copy_of(folder: Path, to: Path) -> Path:
    shutil.copytree(folder, to)
    return to


def merged(stored: npt.NDArray[Any], a: Floats, b: Floats, scale: float) -> npt.NDArray[Any]:
    """The formula in numpy. A float64 holds a product of float32 exactly, so the sum is a fused one."""
    total = np.zeros((b.shape[0], a.shape[1]), np.float32)
    for k in range(a.shape[0]):
        product = b[:, k, None].astype(np.float64) * a[None, k].astype(np.float64)
        total = (total.astype(np.float64) + product).astype(np.float32)
    delta = total * np.float32(scale)
    if stored.dtype != np.uint16:
        return np.asarray(stored + delta, np.float32)
    return to_bf16_bits(from_bf16_bits(stored) + from_bf16_bits(to_bf16_bits(delta)))
