"""What a detector is."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol, runtime_checkable

from ..types import Detection

__all__ = ["Detector"]


@runtime_checkable
class Detector(Protocol):
    """Says which topics a query excludes. A detector of one's own needs only :meth:`detect`."""

    def detect(self, queries: Sequence[str]) -> list[Detection]:
        """Detect the excluded topics of each query.

        Args:
            queries: non-blank queries.

        Returns:
            One detection per query, in order. Span offsets index the query as given.
        """
        ...
