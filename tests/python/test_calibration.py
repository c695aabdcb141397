"""Figures against values worked out by hand."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from openjev import calibration

LOGITS = st.lists(st.floats(-50, 50), min_size=2, max_size=12)


def rows(*probabilities: list[float]) -> list[calibration.Floats]:
    return [np.array(p) for p in probabilities]


def test_softmax_divides_by_the_temperature() -> None:
    assert calibration.softmax([0.0, math.log(3)]) == pytest.approx([0.25, 0.75])
    assert calibration.softmax([0.0, 2 * math.log(3)], 2.0) == pytest.approx([0.25, 0.75])


@settings(deadline=None)
@given(logits=LOGITS, shift=st.floats(-500, 500), temperature=st.floats(0.25, 10))
def test_softmax_sums_to_one_and_ignores_a_shift(
    logits: list[float], shift: float, temperature: float
) -> None:
    p = calibration.softmax(logits, temperature)
    assert p.sum() == pytest.approx(1)
    assert calibration.softmax([one + shift for one in logits], temperature) == pytest.approx(p, abs=1e-9)


def test_brier_is_the_squared_distance_to_the_answer() -> None:
    # 0.2^2 + 0.2^2 = 0.08 and 0.5^2 + 0.3^2 + 0.8^2 = 0.98
    assert calibration.brier(rows([0.8, 0.2], [0.5, 0.3, 0.2]), [0, 2]) == pytest.approx((0.08 + 0.98) / 2)
    assert calibration.brier(rows([1.0, 0.0]), [1]) == pytest.approx(2)
    assert calibration.brier(rows([1.0, 0.0]), [0]) == pytest.approx(0)


def test_reliability_and_calibration_error_of_five_ranges() -> None:
    # Tops 0.55 and 0.6 in (0.4, 0.6], one of two right; tops 0.9 and 0.95 in (0.8, 1], both right.
    p = rows([0.55, 0.45], [0.4, 0.6], [0.9, 0.1], [0.05, 0.95])
    bins = calibration.reliability(p, [0, 0, 0, 1], bins=5)
    assert [(part["low"], part["count"], part["accuracy"]) for part in bins] == [(0.4, 2, 0.5), (0.8, 2, 1.0)]
    assert [part["confidence"] for part in bins] == pytest.approx([0.575, 0.925])
    assert calibration.calibration_error(bins) == pytest.approx((2 * 0.075 + 2 * 0.075) / 4)


def test_score_error_is_in_levels_of_the_expected_level() -> None:
    # Expected levels 0.25 * 1 + 0.5 * 2 = 1.25 against 2, and 0 against 0.
    assert calibration.score_error(rows([0.25, 0.25, 0.5], [1.0, 0.0]), [2, 0]) == pytest.approx(0.75 / 2)


@pytest.mark.parametrize("slope", [1.0, 4.0, -6.0])
def test_temperature_makes_the_confidence_the_share_of_right_answers(slope: float) -> None:
    # All logits [0, s], three of four answered as s says: sigmoid(|s| / T) = 3/4 gives T = |s| / ln 3.
    yes = int(slope > 0)
    fitted = calibration.fit_temperature(rows(*[[0.0, slope]] * 4), [yes, yes, yes, 1 - yes])
    assert fitted == pytest.approx(abs(slope) / math.log(3), rel=1e-5)


def test_temperature_stays_in_its_range_and_takes_questions_of_any_width() -> None:
    logits = rows([3.0, 0.0], [0.0, 5.0, 1.0, 2.0])
    assert calibration.fit_temperature(logits, [0, 1]) == pytest.approx(0.25)
    assert calibration.fit_temperature(logits, [1, 0]) == pytest.approx(10.0)


def test_summary_counts_by_type_and_domain() -> None:
    logits = rows([0.0, 2.0], [2.0, 0.0, 0.0], [0.0, 0.0, 4.0], [0.0, -1.0])
    kinds, domains = ["noul", "choice", "score", "noul"], ["logs", "logs", "urgency", "tools"]
    found = calibration.summary(logits, kinds, domains, [1, 1, 2, 0], temperature=2.0)
    assert (found["questions"], found["accuracy"]) == (4, 0.75)
    assert found["noul_and_choice"] == {"questions": 3, "accuracy": pytest.approx(2 / 3)}
    assert found["by_type"]["choice"] == {"questions": 1, "accuracy": 0.0}
    assert found["by_domain"]["logs"] == {"questions": 2, "accuracy": 0.5}
    p = calibration.softmax([0.0, 0.0, 2.0])
    assert found["score_mae"] == pytest.approx(2 - (p[1] + 2 * p[2]))
    assert found["brier"]["before"] == pytest.approx(
        calibration.brier([calibration.softmax(one) for one in logits], [1, 1, 2, 0])
    )
    assert sum(part["count"] for part in found["reliability"]) == 4
