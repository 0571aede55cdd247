"""One immutable state of an in-memory collection."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import torch
from torch import Tensor

from ..errors import InvalidInputError
from ..types import Candidate
from ._packed import PackedVectors

__all__ = ["Snapshot", "check_documents", "check_lists", "check_search"]


@dataclass(frozen=True)
class Snapshot:
    """Documents and their vectors. A change makes a new one, so searches need no lock."""

    candidates: tuple[Candidate, ...]
    packed: PackedVectors

    @cached_property
    def positions(self) -> dict[str, int]:
        """Position of each id."""
        return {c.id: i for i, c in enumerate(self.candidates)}

    def lookup(self, ids: Sequence[str]) -> list[int]:
        """Return the position of each id.

        Raises:
            InvalidInputError: an id that is not here.
        """
        if isinstance(ids, str):
            raise InvalidInputError("ids is one string; give a list of ids.")
        for i in ids:
            if i not in self.positions:
                raise InvalidInputError(f"No document has the id {i!r}; the collection has {len(self.candidates)}.")
        return [self.positions[i] for i in ids]

    def matching(self, filter: Mapping[str, Any] | None) -> Tensor | None:
        """Return which documents carry this metadata, or None when all do."""
        if filter is None:
            return None
        if not isinstance(filter, Mapping):
            raise InvalidInputError(f"filter={filter!r} is not a mapping of metadata keys to values.")
        if not filter:
            return None
        wanted = list(filter.items())
        return torch.tensor(
            [all(k in c.metadata and c.metadata[k] == v for k, v in wanted) for c in self.candidates],
            dtype=torch.bool,
        )

    def without(self, ids: Sequence[str]) -> Snapshot:
        """Return the state without these documents."""
        mask = torch.ones(len(self.candidates), dtype=torch.bool)
        mask[self.lookup(ids)] = False
        kept = tuple(c for c, keep in zip(self.candidates, mask.tolist(), strict=True) if keep)
        return Snapshot(kept, self.packed.keep(mask))

    def refuse_duplicates(self, new: Sequence[Candidate]) -> None:
        """Raise :class:`InvalidInputError` when an id is taken, here or within ``new``."""
        seen: set[str] = set()
        for c in new:
            if c.id in seen or c.id in self.positions:
                raise InvalidInputError(f"The id {c.id!r} is used twice; ids must be unique within a collection.")
            seen.add(c.id)


def check_lists(
    texts: Sequence[str], ids: Sequence[str] | None, metadatas: Sequence[Mapping[str, Any]] | None
) -> list[str]:
    """Return the texts as a list.

    Raises:
        InvalidInputError: they are one string, or the ids or the metadata are not one per text.
    """
    if isinstance(texts, str):
        raise InvalidInputError("texts is one string; give a list of texts.")
    texts = list(texts)
    for name, other in (("ids", ids), ("metadatas", metadatas)):
        if other is not None and len(other) != len(texts):
            raise InvalidInputError(f"There are {len(texts)} texts but {len(other)} {name}; give one per text.")
    return texts


def check_documents(new: Sequence[Candidate]) -> None:
    """Raise :class:`InvalidInputError` for an id that is no string or a text that is blank."""
    for position, c in enumerate(new):
        if not isinstance(c.id, str):
            raise InvalidInputError(f"The id {c.id!r} is not a string; give str ids.")
        if not isinstance(c.text, str) or not c.text.strip():
            raise InvalidInputError(
                f"The text of document {c.id!r} (number {position}) is blank; leave it out or give it a text."
            )


def check_search(queries: Sequence[str], k: int) -> None:
    """Raise :class:`InvalidInputError` for a blank query or a ``k`` that is no positive whole number."""
    if isinstance(queries, str):
        raise InvalidInputError("queries is one string; give a list of queries.")
    for query in queries:
        if not isinstance(query, str) or not query.strip():
            raise InvalidInputError(f"The query {query!r} is blank; give it some words.")
    if isinstance(k, bool) or not isinstance(k, int) or k < 1:
        raise InvalidInputError(f"k={k!r} is not a whole number of at least 1.")
