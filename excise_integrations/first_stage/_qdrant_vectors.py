"""Token vectors of a Qdrant collection, fetched once."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, cast

from ..encode.backbone import Backbone
from ..encode.cache import VectorCache
from ..encode.maxsim import TokenVectors
from ._qdrant_collection import Collection

__all__ = ["FrozenVectors"]


class FrozenVectors:
    """Hand out documents' vectors, from memory where they have been fetched before.

    A shortlist's vectors are megabytes, and as JSON some ten times that. What changes in the collection is
    noticed: each writing of a document has a mark, and with the ids the marks are asked for.

    Args:
        collection: the collection.
        backbone: whose vectors they are.
        max_bytes: budget in memory.
    """

    def __init__(self, collection: Collection, backbone: Backbone, max_bytes: int) -> None:
        self.collection = collection
        self.backbone = backbone
        self.cache = VectorCache(max_bytes)

    def get(self, ids: Sequence[str]) -> list[TokenVectors]:
        """Return the vectors of these documents, in order.

        Raises:
            InvalidInputError: an id that is not in the collection.
        """
        marks = self.collection.marks(ids)
        by_mark = {f"{marks[i]} {i}": i for i in ids}
        stored = cast("Backbone", _Stored(self.collection, self.backbone, by_mark))
        return self.cache.encode([f"{marks[i]} {i}" for i in ids], stored)


class _Stored:
    """Looks like a backbone to the cache: it "encodes" a mark by fetching the document's vectors."""

    def __init__(self, collection: Collection, backbone: Backbone, by_mark: dict[str, str]) -> None:
        self._collection = collection
        self._backbone = backbone
        self._by_mark = by_mark

    def __getattr__(self, name: str) -> Any:
        return getattr(self._backbone, name)

    def encode_documents(self, marks: Sequence[str]) -> list[TokenVectors]:
        ids = [self._by_mark[mark] for mark in marks]
        found = self._collection.vectors(ids, self._backbone.dtype, self._backbone.device)
        return [found[i] for i in ids]
