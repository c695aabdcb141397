"""The numpy float64 reference, which the operator tests trust, against what Transformers computes."""

from __future__ import annotations

import pytest

from tests.compare import assert_close, assert_rows_close
from tests.model.support import golden
from tests.parity.tiny_models import CUT, LENGTHS, MODELS, fingerprint, weights
from tests.reference.model import ReferenceModel

# Transformers computes in float32: its distance from float64 is 3e-7 to 4e-6 by row.
TOLERANCE = 1e-5


@pytest.mark.parametrize("name", MODELS)
def test_goldens_belong_to_the_seeded_models(name: str) -> None:
    _, metadata = golden(name)
    assert metadata["fingerprint"] == fingerprint(MODELS[name]), "make the goldens again (make_golden.py)"


@pytest.mark.parametrize("name", MODELS)
def test_float64_reference_agrees_with_transformers(name: str) -> None:
    model, (want, _) = MODELS[name], golden(name)
    longest = max(LENGTHS)
    stream, final = ReferenceModel(model.config, weights(model)).path(model.token_ids(longest))
    assert_rows_close(final, want[f"L{longest}.final"], TOLERANCE)
    assert_rows_close(final[CUT:], want["continued"], TOLERANCE, "continued")
    for length in LENGTHS:
        assert_close(
            stream[:, length - 1], want[f"L{length}.stream"], TOLERANCE, f"stream at length {length}"
        )
        assert_close(final[length - 1], want[f"L{length}.last"], TOLERANCE, f"length {length}")
