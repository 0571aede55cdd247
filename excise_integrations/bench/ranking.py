"""What rankings by systems from outside share: the protocol, passages, and the best documents of a score."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Protocol

import torch
from torch import Tensor

from ..encode.arithmetic import default_device, resolve_dtype
from ..first_stage._packed import top
from .external import PASSAGE_WORDS
from .prepared import Prepared

__all__ = ["Progress", "Ranker", "best_documents", "choose_dtype", "passages_of"]

Progress = Callable[[int, int], None] | None


class Ranker(Protocol):
    """Ranks documents for every query of a suite."""

    label: str
    """What its outcomes depend on besides the data: a name with a hash of the weights. It is known before
    :meth:`load`, so that a row which is there already costs no model."""

    def load(self) -> None:
        """Load the weights, once.

        Raises:
            AdapterError, BackboneError: they are not there or do not fit.
            MissingExtraError: a library is not installed.
        """
        ...

    def rank(self, prepared: Prepared, progress: Progress) -> list[list[str]]:
        """Return document ids, best first, per query."""
        ...


def passages_of(texts: Sequence[str], passages: bool) -> tuple[list[str], Tensor]:
    """Return the texts, or their passages, with the index of the text that each belongs to.

    Args:
        texts: documents.
        passages: whether to cut them every :data:`~excise_integrations.bench.external.PASSAGE_WORDS` words.

    Returns:
        The texts to score, and per text the position of its document, (texts,).
    """
    out: list[str] = []
    owner: list[int] = []
    for i, text in enumerate(texts):
        words = text.split()
        parts = [text]
        if passages and len(words) > PASSAGE_WORDS:
            parts = [" ".join(words[at : at + PASSAGE_WORDS]) for at in range(0, len(words), PASSAGE_WORDS)]
        out.extend(parts)
        owner.extend([i] * len(parts))
    return out, torch.tensor(owner)


def best_documents(scores: Tensor, prepared: Prepared) -> list[list[str]]:
    """Return the ids of the best documents per query, among its candidates.

    Args:
        scores: (queries, documents of the suite).
        prepared: the suite.
    """
    ids = [d.id for d in prepared.suite.documents]
    if prepared.candidates == "judged":
        places = {d: i for i, d in enumerate(ids)}
        rows = []
        for query, row in zip(prepared.queries, scores, strict=True):
            judged = [places[d] for d in prepared.suite.qrels[query.id] if d in places]
            rows.append([ids[judged[j]] for j in top(row[torch.tensor(judged)], len(judged))] if judged else [])
        return rows
    return [[ids[i] for i in top(row, min(prepared.k, len(ids)))] for row in scores]


def choose_dtype() -> torch.dtype:
    """Return the arithmetic that our own encoders choose, so that no system is slower or coarser for it."""
    return resolve_dtype("auto", default_device())
