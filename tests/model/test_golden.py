"""The engine against Transformers in float32: last hidden state within 1e-5 relative L2."""

from __future__ import annotations

import itertools

import numpy as np
import pytest

from tests.compare import assert_close, assert_rows_close, assert_same_bits
from tests.model.support import Engines, golden, hidden, logits
from tests.ops.support import usable_isas
from tests.parity.tiny_models import CUT, LENGTHS, MODELS, PREFIXES, Storage, readout
from tests.reference import ops as reference

TOLERANCE = 1e-5


@pytest.mark.parametrize("name", MODELS)
@pytest.mark.parametrize("storage", ["BF16", "F32"])
@pytest.mark.parametrize("length", LENGTHS)
def test_last_hidden_state_of_every_length(
    engines: Engines, name: str, storage: Storage, length: int
) -> None:
    want, _ = golden(name)
    got = hidden(engines.engine(name, storage), [MODELS[name].token_ids(length)])
    assert_close(got[0], want[f"L{length}.last"], TOLERANCE)


@pytest.mark.parametrize("name", MODELS)
@pytest.mark.parametrize("isa", usable_isas())
def test_every_row_of_the_longest_sequence(engines: Engines, name: str, isa: str) -> None:
    """All prefixes of the ids as sequences of one batch: the last hidden state of each is one row."""
    longest = max(LENGTHS)
    ids, (want, _) = MODELS[name].token_ids(longest), golden(name)
    got = hidden(engines.engine(name, cpu_isa=isa), [ids[: n + 1] for n in range(longest)])
    assert_rows_close(got, want[f"L{longest}.final"], TOLERANCE)


@pytest.mark.parametrize("name", MODELS)
def test_continuation_of_a_shared_prefix_in_a_tree(engines: Engines, name: str) -> None:
    """Sequences that share 64 tokens against the rows Transformers continued from its cache of those 64."""
    ids, (want, _) = MODELS[name].token_ids(max(LENGTHS)), golden(name)
    ends = [CUT + 1, CUT + 2, 100, 128, 129, ids.size]
    got = hidden(engines.engine(name), [ids[:end] for end in ends])
    assert_rows_close(got, want["continued"][np.array(ends) - CUT - 1], TOLERANCE)


@pytest.mark.parametrize("name", MODELS)
@pytest.mark.parametrize("cut", [CUT, 2 * CUT])
def test_continuation_of_a_kept_prefix(engines: Engines, name: str, cut: int) -> None:
    """Kept keys, values, states and convolution tails give the bits of one pass, hence the goldens too."""
    engine, ids, (want, _) = engines.engine(name), MODELS[name].token_ids(max(LENGTHS)), golden(name)
    kept = engine.keep_prefix(ids[:cut])
    ends = range(cut + 1, ids.size + 1)
    got = hidden(engine, [ids[cut:end] for end in ends], prefix=kept)
    assert_rows_close(got, want["continued"][cut - CUT :], TOLERANCE)
    assert_same_bits(got, hidden(engine, [ids[:end] for end in ends]))


@pytest.mark.parametrize("name", MODELS)
def test_bfloat16_and_float32_files_of_the_same_values_give_the_same_bits(
    engines: Engines, name: str
) -> None:
    sequences = [MODELS[name].token_ids(length) for length in (5, 65)]
    want = hidden(engines.engine(name, "BF16"), sequences)
    assert_same_bits(hidden(engines.engine(name, "F32"), sequences), want)


@pytest.mark.parametrize("name", MODELS)
def test_float32_a_log_and_norm_are_rounded_to_bfloat16(engines: Engines, name: str) -> None:
    """The published Qwen3.5 files keep these two in float32; the reference rounds them when it loads."""
    sequences = [MODELS[name].token_ids(length) for length in (5, 65)]
    want = hidden(engines.engine(name), sequences)
    assert_same_bits(hidden(engines.engine(name, "published"), sequences), want)


@pytest.mark.parametrize(("prefix", "shards"), list(itertools.product(PREFIXES, (1, 3))))
def test_name_prefixes_and_shards_do_not_change_a_bit(engines: Engines, prefix: str, shards: int) -> None:
    sequences = [MODELS["tiny_r3"].token_ids(65)]
    want = hidden(engines.engine("tiny_r3"), sequences)
    assert_same_bits(hidden(engines.engine("tiny_r3", "BF16", prefix, shards), sequences), want)


@pytest.mark.parametrize("name", MODELS)
def test_logits_are_the_readout_of_the_last_hidden_state(engines: Engines, name: str) -> None:
    sequences = [MODELS[name].token_ids(length) for length in LENGTHS]
    weight, bias = readout(MODELS[name])
    rows = hidden(engines.engine(name), sequences)
    got = logits(engines.engine(name), sequences)
    assert got.shape == (len(LENGTHS), 1)
    want = reference.readout(rows, weight, bias)
    terms = np.abs(rows).astype(np.float64) @ np.abs(weight).astype(np.float64).T
    assert (np.abs(got - want) <= 1e-6 * terms).all()


def test_info_counts_what_was_loaded(engines: Engines) -> None:
    info = engines.engine("tiny").info
    config = MODELS["tiny"].config
    assert (info["layers"], info["hidden_size"], info["vocab_size"]) == (8, 128, config["vocab_size"])
    assert info["weight_dtype"] == "BF16" and engines.engine("tiny", "F32").info["weight_dtype"] == "F32"
