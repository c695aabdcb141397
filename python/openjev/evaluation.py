"""A model on labelled rows: its figures, the gates it has to pass, and how it compares with a reference.

A row is {"id", "domain", "state", "question", "label"}: one question as on the wire, and a label that is true
or false of a noul, an option's name of a choice, a level's position of a score.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeGuard

import numpy as np

from openjev.calibration import Floats, softmax, summary
from openjev.cli_input import InputError, decode, opened, parse_json, read_file
from openjev.contract import Choice, Noul, Question, Score, parse_request
from openjev.errors import BadRequestError
from openjev.json_value import kind, quote
from openjev.progress import progress_bar
from openjev.score_rows import Selection, Table
from openjev.scoring import batches

if TYPE_CHECKING:
    from openjev.model import DecisionModel, Prepared

LEAST_ACCURACY = 0.85
LEAST_DOMAIN_ACCURACY = 0.70
MOST_CALIBRATION_ERROR = 0.06
MOST_SCORE_ERROR = 0.6


@dataclass
class Scored:
    """Questions with their right answers and the model's logits, in the order of the rows.

    `logits[i]` float64, one for each outcome in the order of the wire; of a noul [0, z], no before yes.
    `targets[i]` is the position of the right one.
    """

    temperature: float
    ids: list[str] = field(default_factory=list)
    domains: list[str] = field(default_factory=list)
    kinds: list[str] = field(default_factory=list)
    outcomes: list[list[str]] = field(default_factory=list)
    targets: list[int] = field(default_factory=list)
    logits: list[Floats] = field(default_factory=list)

    def figures(self) -> dict[str, Any]:
        """calibration.summary of all rows."""
        return summary(self.logits, self.kinds, self.domains, self.targets, self.temperature)


@dataclass(frozen=True)
class Gate:
    """A figure and what it has to reach: at least `limit`, or at most when `upper`."""

    name: str
    found: float
    limit: float
    upper: bool = False

    @property
    def missed_by(self) -> float:
        """How much is missing; 0 or less when the gate is passed."""
        return self.found - self.limit if self.upper else self.limit - self.found

    @property
    def passed(self) -> bool:
        return self.missed_by <= 0


def score_labelled(model: DecisionModel, name: str, batch_tokens: int) -> Scored:
    """Asks `model` every row of the JSON Lines file `name`.

    Raises InputError: the model has no scalar readout, there is no row, or a row is wrong or too long.
    """
    if model.info.temperature is None:
        raise InputError(f"model: found the readout {model.info.readout}, allowed: scalar")
    found = Scored(model.info.temperature)
    with opened(name, "rb") as file, progress_bar(Path(name).stat().st_size, "scoring", unit="B") as advance:
        rows = _labelled(Table(file, name, "jsonl", Selection()), model, found)
        for batch in batches(rows, lambda one: one[0].rows, batch_tokens):
            for logits, (prepared, nbytes) in zip(
                model.execute([one for one, _ in batch]), batch, strict=True
            ):
                column = logits[:, 0].astype(np.float64)
                noul = isinstance(prepared.request.questions["q"], Noul)
                found.logits.append(np.array([0.0, column[0]]) if noul else column)
                advance(nbytes)
    if not found.logits:
        raise InputError(f"{name}: found no row, allowed: at least one")
    return found


def _labelled(table: Table, model: DecisionModel, found: Scored) -> Iterator[tuple[Prepared, int]]:
    """Each row as a request and its size in bytes; what is known of it joins `found`."""
    for row in table:
        where = f"{table.name}: line {row.line}"
        if row.error:
            raise InputError(f"{where}: {row.error}")
        if not isinstance(row.request, dict) or "question" not in row.request or "label" not in row.request:
            raise InputError(f'{where}: allowed: an object with "domain", "state", "question" and "label"')
        fields = row.request
        try:
            request = parse_request({"state": fields.get("state"), "questions": {"q": fields["question"]}})
            prepared = model.prepare(request)
        except BadRequestError as error:
            raise InputError(f"{where}: {error}") from None
        question = request.questions["q"]
        outcomes, target = _right_outcome(question, fields["label"], where)
        found.ids.append(str(row.identity))
        found.domains.append(str(fields.get("domain")))
        found.kinds.append(type(question).__name__.lower())
        found.outcomes.append(outcomes)
        found.targets.append(target)
        yield prepared, row.nbytes


def _right_outcome(question: Question, label: Any, where: str) -> tuple[list[str], int]:
    """The names of the outcomes, and which one the label means."""
    if isinstance(question, Score):
        names = [str(level) for level in range(len(question.levels))]
        if isinstance(label, int) and not isinstance(label, bool) and 0 <= label < len(names):
            return names, label
        allowed = f"a level from 0 to {len(names) - 1}"
    elif isinstance(question, Choice):
        names = list(question.options)
        if label in names:
            return names, names.index(label)
        allowed = "the name of an option"
    else:
        if isinstance(label, bool):
            return ["no", "yes"], int(label)
        allowed = "true or false"
    raise InputError(f"{where}: label: found {quote(label)}, allowed: {allowed}")


def gates(figures: Mapping[str, Any]) -> list[Gate]:
    """What a trained demonstration model has to reach; a gate without questions is left out."""
    found = []
    if figures["noul_and_choice"]["questions"]:
        accuracy = figures["noul_and_choice"]["accuracy"]
        found.append(Gate("accuracy of noul and choice", accuracy, LEAST_ACCURACY))
    worst = min(figures["by_domain"], key=lambda name: figures["by_domain"][name]["accuracy"])
    accuracy = figures["by_domain"][worst]["accuracy"]
    found.append(Gate(f"accuracy of the worst domain ({worst})", accuracy, LEAST_DOMAIN_ACCURACY))
    error = figures["ece"]["after"]
    found.append(Gate("expected calibration error", error, MOST_CALIBRATION_ERROR, upper=True))
    if figures["score_mae"] is not None:
        found.append(Gate("mean error of scores, levels", figures["score_mae"], MOST_SCORE_ERROR, upper=True))
    return found


@dataclass(frozen=True)
class Reference:
    """The same rows by another implementation: logits as in `Scored`, and its temperature."""

    name: str
    temperature: float
    logits: Sequence[Floats]

    def check_rows(self, scored: Scored) -> None:
        """Raises InputError when the rows are not those that were scored."""
        if len(self.logits) != len(scored.logits):
            found, allowed = len(self.logits), len(scored.logits)
            raise InputError(f"{self.name}: logits: found {found} rows, allowed: {allowed} as scored here")
        for i, (theirs, ours) in enumerate(zip(self.logits, scored.logits, strict=True)):
            if len(theirs) != len(ours):
                raise InputError(
                    f"{self.name}: logits[{i}]: found {len(theirs)} numbers, allowed: {len(ours)}, "
                    f"one for each outcome of {scored.ids[i]}"
                )


def read_reference(name: str) -> Reference:
    """From {"temperature": T, "logits": [[...], ...]}. Raises InputError for anything else."""
    found = parse_json(decode(read_file(name), name), name)
    if not isinstance(found, dict):
        raise InputError(f'{name}: found {kind(found)}, allowed: an object of "temperature" and "logits"')
    temperature, logits = found.get("temperature"), found.get("logits")
    if not _is_number(temperature) or not temperature > 0:
        raise InputError(f"{name}: temperature: found {temperature!r}, allowed: a number greater than 0")
    if not isinstance(logits, list):
        raise InputError(f"{name}: logits: found {kind(logits)}, allowed: an array of arrays")
    for i, one in enumerate(logits):
        if not isinstance(one, list) or not all(map(_is_number, one)):
            raise InputError(f"{name}: logits[{i}]: allowed: an array of numbers")
    return Reference(name, float(temperature), [np.array(one, np.float64) for one in logits])


def _is_number(value: Any) -> TypeGuard[float]:
    return isinstance(value, int | float) and not isinstance(value, bool)


def compare(scored: Scored, reference: Reference) -> dict[str, Any]:
    """Where the decisions differ, and the largest difference of a probability and its row.

    Raises InputError when the reference is of other rows.
    """
    reference.check_rows(scored)
    flips, largest, place = [], -1.0, 0
    for i, (ours, theirs) in enumerate(zip(scored.logits, reference.logits, strict=True)):
        p, q = softmax(ours, scored.temperature), softmax(theirs, reference.temperature)
        difference = float(np.abs(p - q).max())
        if difference > largest:
            largest, place = difference, i
        here, there = int(p.argmax()), int(q.argmax())
        if here != there:
            names = scored.outcomes[i]
            flips.append(
                {
                    "id": scored.ids[i],
                    "domain": scored.domains[i],
                    "here": {"decision": names[here], "probability": float(p[here])},
                    "reference": {"decision": names[there], "probability": float(q[there])},
                    "right": names[scored.targets[i]],
                }
            )
    return {
        "questions": len(scored.logits),
        "temperature": reference.temperature,
        "flips": flips,
        "max_probability_difference": largest,
        "max_probability_difference_at": scored.ids[place],
    }


def write_report(path: Path, report: Mapping[str, Any]) -> None:
    """The report as JSON. Raises InputError when the file cannot be opened."""
    with opened(path, "wb") as file:
        file.write((json.dumps(report, indent=2, ensure_ascii=False) + "\n").encode())
