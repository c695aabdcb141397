"""Questions in batches of about equal length, and the scores of their candidates as one table."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import torch
import torch.nn.functional as F
from numpy.typing import NDArray
from torch import Tensor

from train.delta import CHUNK
from train.encode import Encoded

_ORDINARY = 256  # ids below are single bytes, digits among them


@dataclass(frozen=True)
class Batch:
    """Some questions with all their prompts.

    ids int64 [prompts, T], padded on the right, which no earlier token sees; last [prompts]: position of the
    last token; states [prompts]: tokens of the state; question and slot [prompts]: where the score belongs in
    the table [questions, width]; nouls bool [questions]; targets [questions]; rows: the questions' numbers.
    """

    ids: Tensor
    last: Tensor
    states: Tensor
    question: Tensor
    slot: Tensor
    width: int
    nouls: Tensor
    targets: Tensor
    rows: NDArray[np.int64]

    def table(self, scores: Tensor) -> Tensor:
        """Logits [questions, width] of scores [prompts]; a noul is [0, s]; missing candidates are -inf."""
        logits = scores.new_full((len(self.targets), self.width), float("-inf"))
        logits = logits.index_put((self.question, self.slot), scores)
        none = torch.zeros_like(logits[:, 0])
        return torch.cat([torch.where(self.nouls, none, logits[:, 0])[:, None], logits[:, 1:]], dim=1)


class Batches:
    """The encoded questions on a device."""

    def __init__(self, data: Encoded, device: torch.device) -> None:
        self.data = data
        self._device = device
        self._tokens = torch.from_numpy(data.tokens.astype(np.int32)).to(device)
        self._lengths = data.lengths
        longest = np.maximum.reduceat(self._lengths, data.first[:-1])
        self._padded = -(-longest // CHUNK) * CHUNK
        self._counts = np.diff(data.first)

    def epoch(self, tokens: int, rng: np.random.Generator | None = None) -> Iterator[Batch]:
        """Every question once, at most `tokens` padded tokens a batch unless one question is larger; shuffled
        when `rng` is given."""
        order = np.arange(self.data.questions) if rng is None else rng.permutation(self.data.questions)
        order = order[np.argsort(self._padded[order], kind="stable")]
        batches: list[NDArray[np.int64]] = []
        start = prompts = 0
        for end, row in enumerate(order):
            count = int(self._counts[row])
            # The order is by length: a batch is as long as its last question.
            if prompts and (prompts + count) * int(self._padded[row]) > tokens:
                batches.append(order[start:end])
                start, prompts = end, 0
            prompts += count
        batches.append(order[start:])
        places = np.arange(len(batches)) if rng is None else rng.permutation(len(batches))
        return (self._batch(batches[place]) for place in places)

    def _batch(self, rows: NDArray[np.int64]) -> Batch:
        data = self.data
        counts = self._counts[rows]
        question = np.repeat(np.arange(len(rows)), counts)
        position = np.arange(len(question)) - np.repeat(np.cumsum(counts) - counts, counts)
        prompts = data.first[rows][question] + position
        lengths = self._lengths[prompts]
        nouls = data.kinds[rows] == 0
        columns = torch.arange(int(self._padded[rows].max()), device=self._device)
        begins, ends = self._move(data.offsets[prompts]), self._move(lengths)
        places = (begins[:, None] + columns).clamp_(max=len(self._tokens) - 1)
        ids = torch.where(columns < ends[:, None], self._tokens[places], 0).long()
        return Batch(
            ids,
            ends - 1,
            self._move(data.states[prompts]),
            self._move(question),
            self._move(position + nouls[question]),
            max(2, int(counts.max())),
            self._move(nouls),
            self._move(data.targets[rows]),
            rows,
        )

    def _move(self, array: NDArray[np.generic]) -> Tensor:
        """From pinned memory: copies from other memory would wait for the work queued before them."""
        tensor = torch.from_numpy(np.ascontiguousarray(array))
        return (
            tensor.pin_memory().to(self._device, non_blocking=True) if self._device.type == "cuda" else tensor
        )


def with_noise(batch: Batch, rate: float, vocabulary: int) -> Tensor:
    """The batch's ids with words in states replaced by others, in each prompt a share between 0 and twice
    `rate`; digits and signs stay. Guards against learning sentences by heart; candidates of a question differ
    in their noise."""
    columns = torch.arange(batch.ids.shape[1], device=batch.ids.device)
    share = 2 * rate * torch.rand((len(batch.ids), 1), device=batch.ids.device)
    hit = torch.rand(batch.ids.shape, device=batch.ids.device) < share
    hit &= (batch.ids >= _ORDINARY) & (columns < batch.states[:, None]) & (columns >= 8)
    return torch.where(hit, torch.randint_like(batch.ids, _ORDINARY, vocabulary - 64), batch.ids)


def decision_loss(logits: Tensor, targets: Tensor, brier_weight: float) -> Tensor:
    """Mean over questions of the negative log-likelihood plus `brier_weight` times the Brier score."""
    loss = F.cross_entropy(logits, targets)
    if brier_weight:
        p = logits.softmax(dim=1)
        right = p.gather(1, targets[:, None])[:, 0]
        loss = loss + brier_weight * ((p * p).sum(dim=1) - 2 * right + 1).mean()
    return loss
