"""The batch plan against its reference (tests/reference/plan.py) and the comments of cpp/plan/plan_view.h."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from openjev._runtime import testing
from openjev.errors import BadRequestError, LimitError
from tests.reference.plan import CHUNK, build_plan

VOCAB_SIZE = 1000
SHARED_LENGTHS = [0, 1, 63, 64, 65, 127, 128, 527, 528]
Sequences = Sequence[Sequence[int]]


def pack(sequences: Sequences) -> tuple[np.ndarray, np.ndarray]:
    tokens = np.array([token for sequence in sequences for token in sequence], np.int32)
    return tokens, np.cumsum([0, *map(len, sequences)], dtype=np.int64)


def make_plan(sequences: Sequences, vocab_size: int = VOCAB_SIZE, **options: Any) -> dict[str, Any]:
    plan: dict[str, Any] = testing.plan(*pack(sequences), vocab_size, **options)
    return plan


def candidates(shared: int, count: int, seed: int = 0) -> list[list[int]]:
    """`count` sequences: `shared` common tokens, then 1 to 40 own ones over a small alphabet."""
    rng = np.random.default_rng([shared, count, seed])
    head = rng.integers(0, VOCAB_SIZE, shared).tolist()
    return [head + rng.integers(0, 30, rng.integers(1, 41)).tolist() for _ in range(count)]


@st.composite
def trees(draw: st.DrawFn) -> list[list[int]]:
    """Sequences that branch off one another anywhere, duplicates and prefixes of one another among them."""
    near_boundary = st.sampled_from([1, 2, 62, 63, 64, 65, 126, 127, 128, 129, 192])
    fresh = st.tuples(near_boundary | st.integers(1, 200), st.integers(0, 3))
    sequences: list[list[int]] = []
    for _ in range(draw(st.integers(1, 10))):
        base = draw(st.sampled_from(sequences)) if sequences else []
        kept = base[: draw(near_boundary | st.integers(0, len(base)))]
        length, token = draw(fresh) if not kept or draw(st.booleans()) else (0, 0)
        sequences.append(kept + [token] * length)
    return draw(st.permutations(sequences))


def assert_matches_reference(plan: dict[str, Any], sequences: Sequences, share: bool = True) -> None:
    expected = build_plan(sequences, share)
    prefix = plan["prefix_length"]
    assert plan["total_tokens"] == sum(map(len, sequences))
    assert (plan["rows"], plan["chunks"], plan["leaves"]) == (
        len(expected.token),
        len(expected.chunk_rows),
        len(sequences),
    )
    assert plan["token"].tolist() == expected.token
    assert plan["position"].tolist() == [prefix + depth for depth in expected.depth]
    assert plan["parent_row"].tolist() == expected.parent_row
    assert plan["leaf_row"].tolist() == expected.leaf_row
    assert plan["leaf_position"].tolist() == [prefix + len(sequence) - 1 for sequence in sequences]
    assert plan["chunk_rows"].tolist() == [rows + [-1] * (CHUNK - len(rows)) for rows in expected.chunk_rows]
    assert plan["chunk_length"].tolist() == [len(rows) for rows in expected.chunk_rows]
    assert plan["chunk_parent"].tolist() == expected.chunk_parent
    owned = [[expected.owner[row] == chunk for row in rows] for chunk, rows in enumerate(expected.chunk_rows)]
    assert plan["chunk_owned"].tolist() == [flags.index(True) for flags in owned]
    found = [tuple(range(first, first + count)) for first, count, _, _ in plan["segments"].tolist()]
    assert found == [segment.chunks for segment in expected.segments]
    levels = [segment.level for segment in expected.segments]
    assert plan["level_begin"].tolist() == [levels.index(level) for level in range(max(levels) + 1)] + [
        len(levels)
    ]
    end_state = dict(zip(found, plan["segments"][:, 3].tolist(), strict=True))
    for (_, _, start, _), segment in zip(plan["segments"].tolist(), expected.segments, strict=True):
        assert start == (end_state[segment.parent] if segment.parent else -1)


def assert_rows_spell_the_sequences(plan: dict[str, Any], sequences: Sequences) -> None:
    token, parent = plan["token"].tolist(), plan["parent_row"].tolist()
    for sequence, row in zip(sequences, plan["leaf_row"].tolist(), strict=True):
        spelled = []
        while row >= 0:
            spelled.append(token[row])
            row = parent[row]
        assert spelled[::-1] == list(sequence)


def assert_chunks_are_paths(plan: dict[str, Any]) -> None:
    """Each chunk starts at a multiple of 64, follows parent rows and continues a full, earlier chunk."""
    parent_row, position = plan["parent_row"], plan["position"]
    for chunk in range(plan["chunks"]):
        length, parent = plan["chunk_length"][chunk], plan["chunk_parent"][chunk]
        rows = plan["chunk_rows"][chunk, :length]
        assert np.all(plan["chunk_rows"][chunk, length:] == -1)
        assert np.array_equal(position[rows] % CHUNK, np.arange(length))
        assert np.array_equal(parent_row[rows[1:]], rows[:-1])
        if parent < 0:
            assert parent_row[rows[0]] == -1
        else:
            assert parent < chunk and plan["chunk_length"][parent] == CHUNK
            assert parent_row[rows[0]] == plan["chunk_rows"][parent, -1]


def assert_tiles_cover(plan: dict[str, Any]) -> None:
    """Row tiles are the owned rows of the chunks, each row once; a leaf tile is its row's owned place."""
    owned_rows: dict[int, tuple[int, int]] = {}
    for chunk, offset, count, query in plan["row_tiles"].tolist():
        assert offset == plan["chunk_owned"][chunk] and offset + count == plan["chunk_length"][chunk]
        rows = plan["chunk_rows"][chunk, offset : offset + count].tolist()
        assert rows == list(range(query, query + count))
        for row in rows:
            assert row not in owned_rows
            owned_rows[row] = (chunk, offset + row - query)
    assert sorted(owned_rows) == list(range(plan["rows"]))
    for chunk in range(plan["chunks"]):
        for row in plan["chunk_rows"][chunk, : plan["chunk_owned"][chunk]].tolist():
            assert owned_rows[row][0] < chunk
    assert plan["leaf_tiles"].tolist() == [
        [*owned_rows[row], 1, leaf] for leaf, row in enumerate(plan["leaf_row"].tolist())
    ]


def assert_segments_partition(plan: dict[str, Any], keep_end_state: bool = False) -> None:
    """Each chunk in one maximal unbranched segment, a level below its parent; slots only where read."""
    parent = plan["chunk_parent"].tolist()
    children = np.bincount([p for p in parent if p >= 0], minlength=plan["chunks"])
    level = np.repeat(np.arange(len(plan["level_begin"]) - 1), np.diff(plan["level_begin"]))
    segment_of = np.full(plan["chunks"], -1)
    for index, (first, count, _, _) in enumerate(plan["segments"].tolist()):
        assert count >= 1 and np.all(segment_of[first : first + count] == -1)
        segment_of[first : first + count] = index
    assert np.all(segment_of >= 0)
    slots = []
    for index, (first, count, start, end) in enumerate(plan["segments"].tolist()):
        assert parent[first + 1 : first + count] == list(range(first, first + count - 1))
        assert np.all(children[first : first + count - 1] == 1)
        last = first + count - 1
        assert children[last] != 1
        assert (end >= 0) == (children[last] > 1 or keep_end_state)
        slots += [end] if end >= 0 else []
        if parent[first] < 0:
            assert start == -1 and level[index] == 0
        else:
            above = segment_of[parent[first]]
            assert level[index] == level[above] + 1
            assert start == plan["segments"][above, 3] >= 0
    assert sorted(slots) == list(range(plan["states"]))


def assert_valid(plan: dict[str, Any], sequences: Sequences, share: bool = True) -> None:
    assert_matches_reference(plan, sequences, share)
    assert_rows_spell_the_sequences(plan, sequences)
    assert_chunks_are_paths(plan)
    assert_tiles_cover(plan)
    assert_segments_partition(plan)


@settings(deadline=None, max_examples=300)
@given(trees(), st.sampled_from([0, 64, 128]), st.booleans())
def test_any_tree(sequences: list[list[int]], prefix_length: int, share: bool) -> None:
    plan = make_plan(sequences, prefix_length=prefix_length, share=share)
    assert_valid(plan, sequences, share)


@settings(deadline=None, max_examples=300)
@given(st.lists(st.lists(st.integers(0, 1), min_size=1, max_size=9), min_size=1, max_size=30))
def test_any_short_sequences(sequences: list[list[int]]) -> None:
    assert_valid(make_plan(sequences), sequences)


@settings(deadline=None, max_examples=100)
@given(trees())
def test_rows_are_the_distinct_prefixes(sequences: list[list[int]]) -> None:
    prefixes = {tuple(sequence[: end + 1]) for sequence in sequences for end in range(len(sequence))}
    assert make_plan(sequences)["rows"] == len(prefixes)


@pytest.mark.parametrize("count", [1, 2, 3, 17, 255])
@pytest.mark.parametrize("shared", SHARED_LENGTHS)
def test_candidates_with_a_shared_context(shared: int, count: int) -> None:
    sequences = candidates(shared, count)
    assert_valid(make_plan(sequences), sequences)


@pytest.mark.parametrize("prefix_length", [64, 128])
@pytest.mark.parametrize("shared", SHARED_LENGTHS)
def test_a_prefix_moves_positions_and_nothing_else(shared: int, prefix_length: int) -> None:
    sequences = candidates(shared, 5)
    alone, after = make_plan(sequences), make_plan(sequences, prefix_length=prefix_length)
    assert after.pop("prefix_length") == prefix_length and alone.pop("prefix_length") == 0
    for name in ("position", "leaf_position"):
        assert np.array_equal(after.pop(name), alone.pop(name) + prefix_length)
    for name, value in alone.items():
        assert np.array_equal(after[name], value), name


@pytest.mark.parametrize("length", [1, 63, 64, 65, 200])
def test_duplicates_share_every_row(length: int) -> None:
    sequence = list(range(length))
    plan = make_plan([sequence] * 3)
    assert_valid(plan, [sequence] * 3)
    assert plan["rows"] == length
    assert plan["leaf_row"].tolist() == [length - 1] * 3


@pytest.mark.parametrize("order", [[0, 1, 2], [2, 1, 0], [1, 2, 0]])
def test_a_prefix_of_another_sequence_needs_no_chunk_of_its_own(order: list[int]) -> None:
    lengths = [70, 64, 100]
    sequences = [list(range(lengths[i])) for i in order]
    plan = make_plan(sequences)
    assert_valid(plan, sequences)
    assert plan["chunk_length"].tolist() == [64, 36]
    assert plan["segments"].tolist() == [[0, 2, -1, -1]]
    assert plan["leaf_row"].tolist() == [lengths[i] - 1 for i in order]


def test_a_branch_inside_a_chunk_repeats_its_rows_and_owns_only_its_own() -> None:
    head = [1] * 70
    plan = make_plan([[*head, 2, 3], [*head, 4], [*head[:66], 5]])
    assert plan["rows"] == 74
    assert plan["chunk_rows"][1, :8].tolist() == list(range(64, 72))
    assert plan["chunk_rows"][2, :7].tolist() == [*range(64, 70), 72]
    assert plan["chunk_rows"][3, :3].tolist() == [64, 65, 73]
    assert plan["chunk_owned"].tolist() == [0, 0, 6, 2]
    assert plan["segments"].tolist() == [[0, 1, -1, 0], [1, 1, 0, -1], [2, 1, 0, -1], [3, 1, 0, -1]]
    assert plan["level_begin"].tolist() == [0, 1, 4]
    assert plan["leaf_tiles"].tolist() == [[1, 7, 1, 0], [2, 6, 1, 1], [3, 2, 1, 2]]


def test_siblings_keep_the_order_of_first_appearance() -> None:
    plan = make_plan([[7, 9, 1], [7, 3], [2], [7, 9, 0]])
    assert plan["token"].tolist() == [7, 9, 1, 0, 3, 2]
    assert plan["leaf_row"].tolist() == [2, 4, 5, 3]


def test_three_levels_context_questions_candidates() -> None:
    context = [1] * 128
    sequences = [[*context, *[2 + question] * 64, 10 + i] for question in range(2) for i in range(3)]
    plan = make_plan(sequences)
    assert_valid(plan, sequences)
    assert np.diff(plan["level_begin"]).tolist() == [1, 2, 6]
    assert plan["states"] == 3


def test_without_sharing_no_two_sequences_share_a_row() -> None:
    sequences = [[1, 2, 3], [1, 2, 3], [1, 2]]
    plan = make_plan(sequences, share=False)
    assert_valid(plan, sequences, share=False)
    assert plan["parent_row"].tolist() == [-1, 0, 1, -1, 3, 4, -1, 6]
    assert plan["leaf_row"].tolist() == [2, 5, 7]


def test_a_deep_tree_needs_no_deep_recursion() -> None:
    chain = [0] * 20_000
    plan = make_plan([[*chain[:length], 1] for length in range(0, 20_000, 50)])
    assert plan["rows"] == 19_950 + 400
    assert_chunks_are_paths(plan)
    assert_tiles_cover(plan)
    assert_segments_partition(plan)


@pytest.mark.parametrize("length", [64, 128, 640])
def test_keep_end_state_stores_the_only_segments_state(length: int) -> None:
    plan = make_plan([[5] * length], keep_end_state=True)
    assert plan["segments"].tolist() == [[0, length // CHUNK, -1, 0]]
    assert plan["states"] == 1
    assert_segments_partition(plan, keep_end_state=True)


@pytest.mark.parametrize(
    ("tokens", "offsets", "message"),
    [
        ([], [], r"offsets: found 0 entries, allowed are 2 or more"),
        ([], [0], r"offsets: found 1 entries, allowed are 2 or more"),
        ([1, 2], [1, 2], r"offsets\[0\]: found 1, allowed is 0"),
        ([1, 2], [0, 1, 1, 2], r"offsets\[2\]: found 1, allowed are more than 1, the start of sequence 1"),
        ([1, 2], [0, 2, 1, 2], r"offsets\[2\]: found 1, allowed are more than 2"),
        ([1, 2], [0, -(2**63), 2**63 - 1], r"offsets\[1\]: found -9223372036854775808"),
        ([1, 2], [0, 1], r"offsets\[1\]: found 1, allowed is the number of tokens, 2"),
        ([1, 2], [0, 3], r"offsets\[1\]: found 3, allowed is the number of tokens, 2"),
        ([1, 2, 1, -1], [0, 2, 4], r"sequence 1, token 1: id -1, allowed are 0 to 999"),
        ([1, 2, 1, 2, 1000], [0, 2, 5], r"sequence 1, token 2: id 1000, allowed are 0 to 999"),
    ],
)
def test_refuses_bad_sequences(tokens: list[int], offsets: list[int], message: str) -> None:
    with pytest.raises(BadRequestError, match=message):
        testing.plan(np.array(tokens, np.int32), np.array(offsets, np.int64), VOCAB_SIZE)


@pytest.mark.parametrize(
    ("sequences", "options", "message"),
    [
        ([[1]], {"prefix_length": 63}, "prefix_length: found 63, allowed are multiples of 64"),
        ([[1]], {"prefix_length": -64}, "prefix_length: found -64, allowed are multiples of 64"),
        ([[1]], {"max_length": -1}, "max_length: found -1, allowed are 0"),
        ([[1]], {"vocab_size": 0}, "sequence 0, token 0: id 1"),
        ([[1] * 64] * 2, {"keep_end_state": True}, "keep_end_state: found 2 sequences, allowed is 1"),
        ([[1] * 65], {"keep_end_state": True}, "found 65 tokens, allowed are multiples of 64"),
    ],
)
def test_refuses_bad_options(sequences: Sequences, options: dict[str, Any], message: str) -> None:
    with pytest.raises(BadRequestError, match=message):
        make_plan(sequences, **options)


@pytest.mark.parametrize(
    ("lengths", "options", "message"),
    [
        ([5, 6], {"max_length": 5}, r"sequence 1: found 6 tokens \(0 of them the prefix\), allowed are 5"),
        (
            [5, 6],
            {"max_length": 69, "prefix_length": 64},
            r"sequence 1: found 70 tokens \(64 of them the prefix\), allowed are 69",
        ),
        # Positions are int32.
        ([64], {"prefix_length": 2**31 - 64}, "sequence 0: found 2147483648 tokens"),
    ],
)
def test_refuses_sequences_over_a_limit(lengths: list[int], options: dict[str, Any], message: str) -> None:
    with pytest.raises(LimitError, match=message):
        make_plan([[1] * length for length in lengths], **options)


def test_takes_sequences_at_the_limits() -> None:
    plan = make_plan([[1] * 6, [1] * 5], max_length=70, prefix_length=64)
    assert plan["position"].tolist() == list(range(64, 70))
    assert make_plan([[0] * 63], prefix_length=2**31 - 64)["position"][-1] == 2**31 - 2
    assert make_plan([[0, VOCAB_SIZE - 1]])["rows"] == 2


def test_the_first_bad_token_is_named_even_where_sequences_share() -> None:
    with pytest.raises(BadRequestError, match="sequence 2, token 3: id 2000"):
        make_plan([[1, 2, 3], [1, 2], [1, 2, 3, 2000], [1, 2, 3, 2000]])


def test_a_plan_does_not_depend_on_the_values_of_equal_structure() -> None:
    plan, renamed = make_plan([[1, 2], [1, 3]]), make_plan([[9, 8], [9, 7]])
    names = set(plan) - {"token"}
    assert all(np.array_equal(plan[name], renamed[name]) for name in names)


@pytest.mark.parametrize(
    ("tokens", "offsets"),
    [
        (np.zeros(4, np.int64), np.array([0, 4])),
        (np.zeros(4, np.float32), np.array([0, 4])),
        (np.zeros(4, np.int32), np.array([0, 4], np.int32)),
    ],
)
def test_other_dtypes_are_not_converted_silently(tokens: np.ndarray, offsets: np.ndarray) -> None:
    with pytest.raises(TypeError):
        testing.plan(tokens, offsets, VOCAB_SIZE)


def test_two_dimensional_tokens_are_refused() -> None:
    with pytest.raises(BadRequestError, match="tokens: found 2 dimensions, allowed is 1"):
        testing.plan(np.zeros((2, 2), np.int32), np.array([0, 4]), VOCAB_SIZE)


def test_time_plan_measures_every_repetition() -> None:
    seconds = testing.time_plan(*pack([[1, 2], [1, 3]]), VOCAB_SIZE, 5)
    assert len(seconds) == 5 and all(value > 0 for value in seconds)
