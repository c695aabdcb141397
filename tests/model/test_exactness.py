"""A sequence has one answer: the same bits alone, beside others, in any order, for any number of threads."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.compare import assert_same_bits
from tests.model.support import Engines, Rows, Sequences, hidden, logits
from tests.ops.support import usable_isas
from tests.parity.tiny_models import MODELS

Ids = np.ndarray


def _candidates(name: str, shared: int, count: int) -> list[Ids]:
    """`count` sequences with exactly `shared` tokens in common, their tails 1 to 5 tokens, or 70 for some."""
    model = MODELS[name]
    stem, tails = model.token_ids(shared, 1), model.token_ids(count * 80, 2)
    out = []
    for i in range(count):
        length = 70 if i % 32 == 5 else 1 + i % 5
        tail = tails[i * 80 : i * 80 + length].copy()
        tail[0] = i  # no two tails start alike
        out.append(np.concatenate([stem, tail]))
    return out


def _alone(engines: Engines, name: str, sequences: Sequences) -> Rows:
    return np.concatenate([hidden(engines.engine(name), [s]) for s in sequences])


@pytest.mark.parametrize("shared", [0, 1, 63, 64, 65, 527, 528])
@pytest.mark.parametrize("count", [1, 2, 7, 64, 255])
def test_alone_and_in_a_tree(engines: Engines, shared: int, count: int) -> None:
    sequences = _candidates("tiny_r3", shared, count)
    together = hidden(engines.engine("tiny_r3"), sequences)
    asked = range(count) if count <= 7 else [0, 1, 5, 31, 37, 63, count // 2, count - 1]
    for i in asked:
        assert_same_bits(hidden(engines.engine("tiny_r3"), [sequences[i]])[0], together[i], f"candidate {i}")


@pytest.mark.parametrize("name", MODELS)
def test_alone_and_in_a_tree_on_every_shape(engines: Engines, name: str) -> None:
    sequences = _candidates(name, 65, 7) + _candidates(name, 130, 3)
    assert_same_bits(hidden(engines.engine(name), sequences), _alone(engines, name, sequences))


def test_t29_neighbours_of_one_and_three_tokens(engines: Engines) -> None:
    """X alone; X after a sequence of one token and after one of three: nothing leaks across a boundary."""
    model, engine = MODELS["tiny"], engines.engine("tiny")
    x = model.token_ids(65, 3)
    for score in (hidden, logits):
        alone = score(engine, [x])[0]
        for neighbour in (model.token_ids(1, 4), model.token_ids(3, 5)):
            assert_same_bits(score(engine, [neighbour, x])[1], alone)
            assert_same_bits(score(engine, [x, neighbour])[0], alone)


def test_t5_an_answer_does_not_depend_on_its_company(engines: Engines) -> None:
    """A alone, beside 5 others, and as each of 32 equal sequences of one batch."""
    model, engine = MODELS["tiny"], engines.engine("tiny")
    a = model.token_ids(90, 6)
    others = [np.concatenate([a[:40], model.token_ids(10 + i, 7 + i)]) for i in range(5)]
    alone = logits(engine, [a])[0]
    assert_same_bits(logits(engine, [*others[:3], a, *others[3:]])[3], alone)
    assert_same_bits(logits(engine, [a] * 32), np.repeat(alone[None], 32, 0))


@pytest.mark.parametrize("length", [1, 3, 90])
def test_more_sequences_than_rows(engines: Engines, length: int) -> None:
    """Repeats share all their rows: 300 answers come out of at most 90 rows."""
    engine, ids = engines.engine("tiny_r3"), MODELS["tiny_r3"].token_ids(length, 8)
    got = hidden(engine, [ids] * 300)
    assert_same_bits(got, np.repeat(hidden(engine, [ids]), 300, 0))


@pytest.mark.parametrize("state", [3, 527, 528, 4000])
def test_t20_sharing_on_and_off(engines: Engines, state: int) -> None:
    """A state and 8 questions."""
    sequences = _candidates("tiny_r3", state, 8)
    engine = engines.engine("tiny_r3")
    assert_same_bits(logits(engine, sequences, share=True), logits(engine, sequences, share=False))
    assert_same_bits(hidden(engine, sequences, share=True), hidden(engine, sequences, share=False))


@pytest.mark.parametrize("isa", usable_isas())
@pytest.mark.parametrize("name", MODELS)
def test_threads_do_not_change_a_bit(engines: Engines, name: str, isa: str) -> None:
    sequences = _candidates(name, 65, 9)
    one = hidden(engines.engine(name, threads=1, cpu_isa=isa), sequences)
    for threads in (2, 3):
        assert_same_bits(hidden(engines.engine(name, threads=threads, cpu_isa=isa), sequences), one)


def test_run_to_run(engines: Engines) -> None:
    engine, sequences = engines.engine("tiny"), _candidates("tiny", 200, 20)
    first = hidden(engine, sequences)
    hidden(engine, _candidates("tiny", 3, 5))  # another plan in between leaves nothing behind
    for _ in range(3):
        assert_same_bits(hidden(engine, sequences), first)


def test_order_of_the_sequences(engines: Engines) -> None:
    engine, sequences = engines.engine("tiny"), _candidates("tiny", 64, 12)
    rows = hidden(engine, sequences)
    order = np.random.default_rng(0).permutation(12)
    assert_same_bits(hidden(engine, [sequences[i] for i in order]), rows[order])


def test_any_tree(engines: Engines) -> None:
    """Each sequence of a batch leaves an earlier one at a random token, repeats it or ends inside it."""
    engine, ids = engines.engine("tiny_r3"), MODELS["tiny_r3"].token_ids(4000, 9)

    choice = st.tuples(st.integers(0, 9), st.integers(0, 150), st.integers(0, 90))

    @settings(max_examples=25, deadline=None)
    @given(st.lists(choice, min_size=1, max_size=7))
    def any_tree(choices: list[tuple[int, int, int]]) -> None:
        sequences: list[Ids] = []
        for number, (source, cut, tail) in enumerate(choices):
            stem = sequences[source % len(sequences)][:cut] if sequences else ids[:0]
            tokens = np.concatenate([stem, ids[100 * number : 100 * number + tail]])
            sequences.append(tokens if tokens.size else ids[:1])
        together = hidden(engine, sequences)
        for i, sequence in enumerate(sequences):
            assert_same_bits(hidden(engine, [sequence])[0], together[i], f"sequence {i}")

    any_tree()
