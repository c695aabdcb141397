"""Matrix products by algorithms that were measured on this GPU: the bits stay those of the rows alone."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from openjev._runtime import Engine
from tests.compare import assert_same_bits
from tests.gpu.support import Engines, hidden, ids, logits, needs_cuda

pytestmark = needs_cuda

MOST = 700
FEW = 256  # rows up to which buckets are multiples of 16; beyond, of 8


@pytest.fixture(scope="module")
def file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("measured") / "matmul.txt"


@pytest.fixture(scope="module")
def measured(engines: Engines, file: Path) -> Engine:
    engine = engines.fresh(tuning_file=str(file))
    engine.warm_up([MOST])
    return engine


def buckets(file: Path) -> dict[tuple[int, int], list[int]]:
    """Rows of the buckets of each weight shape."""
    out: dict[tuple[int, int], list[int]] = {}
    for line in file.read_text().splitlines():
        kind, *fields = line.split()
        if kind == "shape":
            rows = out[int(fields[0]), int(fields[1])] = []
        elif kind == "bucket":
            rows.append(int(fields[0]))
    return out


@pytest.mark.usefixtures("measured")
def test_every_weight_shape_has_every_bucket(file: Path) -> None:
    expected = [*range(16, FEW + 1, 16), *range(FEW + 8, MOST + 8, 8)]
    found = buckets(file)
    assert len(found) >= 5
    assert all(rows == expected for rows in found.values())


def test_a_prompt_beside_others_has_the_bits_that_it_has_alone(measured: Engine) -> None:
    """As many rows in all as reach every kind of bucket, and rows between buckets."""
    prompt = ids(21, 60)
    alone = hidden(measured, [prompt])[0]
    for others in [*range(1, 40, 3), *range(40, 640, 13), 639, 640]:
        together = hidden(measured, [prompt, ids(22 + others, others)])
        assert_same_bits(together[0], alone, f"beside {others} tokens")


def test_a_long_prompt_has_the_bits_of_its_kept_start_and_the_rest(measured: Engine) -> None:
    prompt = ids(23, 650)
    want = hidden(measured, [prompt])
    for kept in (64, 128, 320, 576):
        prefix = measured.keep_prefix(prompt[:kept])
        assert_same_bits(hidden(measured, [prompt[kept:]], prefix=prefix), want, f"{kept} kept")


def test_the_next_start_uses_the_file_and_gives_the_same_bits(
    engines: Engines, measured: Engine, file: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    before = file.read_bytes()
    again = engines.fresh(tuning_file=str(file))
    again.warm_up([MOST])
    assert "matmul" not in capfd.readouterr().err
    assert file.read_bytes() == before
    batch = [ids(24, 31), ids(25, 300)]
    assert_same_bits(logits(again, batch), logits(measured, batch))


@pytest.mark.usefixtures("measured")
def test_what_the_file_lacks_is_measured(engines: Engines, file: Path) -> None:
    longer = file.with_name("longer.txt")
    longer.write_bytes(file.read_bytes())
    engine = engines.fresh(tuning_file=str(longer))
    engine.warm_up([MOST + 100])
    assert all(rows[-1] == MOST + 100 for rows in buckets(longer).values())


def test_fast_mode_is_near_invariant_mode(engines: Engines, measured: Engine, file: Path) -> None:
    fast = engines.fresh(matmul_mode="fast", tuning_file=str(file.with_name("fast.txt")))
    fast.warm_up([MOST])
    batch = [ids(27, 5), ids(28, 120), ids(29, 500)]
    want, got = hidden(measured, batch), hidden(fast, batch)
    assert np.linalg.norm(got - want) <= 5e-2 * np.linalg.norm(want)
