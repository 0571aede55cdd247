"""What a first stage is."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Protocol, runtime_checkable

from ..encode.maxsim import TokenVectors
from ..types import Candidate

__all__ = ["AsyncFirstStage", "BatchFirstStage", "FirstStage", "VectorFirstStage"]


@runtime_checkable
class FirstStage(Protocol):
    """Whatever returns the shortlist. A first stage of one's own needs only this."""

    @property
    def fingerprint(self) -> str:
        """A string that changes whenever the index does."""
        ...

    def search(self, query: str, k: int, *, filter: Mapping[str, Any] | None = None) -> list[Candidate]:
        """Return the frozen top ``k``, best first.

        Args:
            query: the query.
            k: at least 1; fewer candidates come back when the index is smaller.
            filter: metadata that every candidate must carry, key by key equal.
        """
        ...


@runtime_checkable
class BatchFirstStage(FirstStage, Protocol):
    """A first stage that searches many queries at once."""

    def search_batch(
        self, queries: Sequence[str], k: int, *, filter: Mapping[str, Any] | None = None
    ) -> list[list[Candidate]]:
        """Return one list per query, as :meth:`FirstStage.search` would."""
        ...


@runtime_checkable
class AsyncFirstStage(FirstStage, Protocol):
    """A first stage with an asynchronous search of its own."""

    async def asearch(self, query: str, k: int, *, filter: Mapping[str, Any] | None = None) -> list[Candidate]:
        """Return what :meth:`FirstStage.search` would, without blocking the loop."""
        ...


@runtime_checkable
class VectorFirstStage(FirstStage, Protocol):
    """A first stage that can hand out the frozen vectors of its documents."""

    @property
    def vector_space(self) -> str:
        """Label of the encoder that made the vectors (:attr:`excise_integrations.encode.Backbone.label`)."""
        ...

    def vectors(self, ids: Sequence[str]) -> list[TokenVectors]:
        """Return the frozen vectors of these documents, in order."""
        ...
