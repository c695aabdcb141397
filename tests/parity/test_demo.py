"""The bundled model, merged at load by us, against Transformers and PEFT with the adapter apart."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from tokenizers import Tokenizer
from train.data.generate import examples
from train.delta import batched_rules
from train.encode import encode
from train.evaluate import load_unmerged, question_logits

import openjev
from openjev.calibration import softmax
from openjev.demo import demo_folder

ROWS = 48
# PEFT rounds the adapter's product and each layer's output to bfloat16; we merge once and compute in float32.
LIMIT = 0.05

pytestmark = pytest.mark.filterwarnings("default")


def test_probabilities_are_those_of_the_unmerged_model() -> None:
    rows = list(examples("test", 0, ROWS))
    model, head, temperature = load_unmerged(demo_folder(), torch.device("cpu"))
    data = encode(rows, Tokenizer.from_file(str(demo_folder() / "base" / "tokenizer.json")))
    with batched_rules():
        theirs = [
            softmax(one, temperature)
            for one in question_logits(model, head, data, torch.device("cpu"), 2_048)
        ]
    ours = openjev.load("demo", device="cpu")
    assert ours.info.temperature == temperature
    requests = [{"state": made.state, "questions": {"q": made.question}} for made in rows]
    for decision, reference in zip(ours.decide_many(requests), theirs, strict=True):
        answer = decision.to_dict()["answers"]["q"]
        p = (
            [1 - answer["noul"], answer["noul"]]
            if answer["type"] == "noul"
            else [*answer["probabilities"].values()]
        )
        np.testing.assert_allclose(p, reference, rtol=0, atol=LIMIT)
        assert np.argmax(p) == np.argmax(reference) or np.ptp(np.sort(reference)[-2:]) < 2 * LIMIT
