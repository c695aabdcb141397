"""Many requests through one model: rows put together into engine calls, and each answered or told why not."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeVar

from openjev.errors import OpenJevError
from openjev.score_rows import Row

if TYPE_CHECKING:
    from openjev.model import DecisionModel, Prepared

ItemT = TypeVar("ItemT")

# Bad rows cost nothing: without this a file of them would be one batch.
_MOST_ROWS = 1024


@dataclass
class _Work:
    """A row of the input: `prepared` when it can be answered, else `error`."""

    row: Row
    prepared: Prepared | None = None
    error: str = ""

    @property
    def cost(self) -> int:
        """Token rows that the engine computes for it, at most."""
        return 0 if self.prepared is None else self.prepared.rows


def score_rows(
    model: DecisionModel, rows: Iterable[Row], batch_tokens: int
) -> Iterator[list[tuple[Row, dict[str, Any]]]]:
    """Every row with its answer, in order, one list an engine call.

    An answer is {"line", "id", "model", "answers", "usage", ...} or, for a row that cannot be answered,
    {"line", "id", "error"}. It does not depend on the other rows.
    """
    work = (_prepare(model, row) for row in rows)
    for batch in batches(work, lambda one: one.cost, batch_tokens):
        yield [(one.row, answer) for one, answer in zip(batch, _answers(model, batch), strict=True)]


def batches(items: Iterable[ItemT], cost: Callable[[ItemT], int], budget: int) -> Iterator[list[ItemT]]:
    """Runs of items that cost at most `budget` together; an item that costs more is a batch of its own."""
    batch: list[ItemT] = []
    spent = 0
    for item in items:
        price = cost(item)
        if batch and (spent + price > budget or len(batch) == _MOST_ROWS):
            yield batch
            batch, spent = [], 0
        batch.append(item)
        spent += price
    if batch:
        yield batch


def _prepare(model: DecisionModel, row: Row) -> _Work:
    if row.error:
        return _Work(row, error=row.error)
    try:
        return _Work(row, model.prepare(row.request))
    except OpenJevError as error:
        return _Work(row, error=str(error))


def _answers(model: DecisionModel, batch: Sequence[_Work]) -> list[dict[str, Any]]:
    """One engine call for the batch; when it fails, one for each row, so that no row spoils the others."""
    good = [one.prepared for one in batch if one.prepared is not None]
    try:
        logits = iter(model.execute(good) if good else [])
    except OpenJevError as error:
        if len(batch) > 1:
            return [answer for one in batch for answer in _answers(model, [one])]
        batch[0].prepared, batch[0].error = None, str(error)
        logits = iter([])
    answers = []
    for one in batch:
        answer: dict[str, Any] = {"line": one.row.line, "id": one.row.identity}
        if one.prepared is None:
            answer["error"] = one.error
        else:
            answer.update(model.finish(one.prepared, next(logits)).to_dict())
        answers.append(answer)
    return answers
