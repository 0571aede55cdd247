"""The event that LlamaIndex's instrumentation gets of every query."""

from __future__ import annotations

from typing import Any

from llama_index.core.instrumentation import get_dispatcher  # type: ignore[attr-defined]
from llama_index.core.instrumentation.events import BaseEvent

from ._telemetry import event_data
from .types import ExciseResult

__all__ = ["ExciseDetectionEvent", "announced"]

dispatcher = get_dispatcher(__name__)


class ExciseDetectionEvent(BaseEvent):
    """What a query excludes, what was done about it, and how long it took.

    A retriever sends it between ``RetrievalStartEvent`` and ``RetrievalEndEvent``, a postprocessor between
    ``ReRankStartEvent`` and ``ReRankEndEvent``.

    Args:
        query: the query as given.
        fired, confidence, spans, wanted, source: the detection, see :class:`excise_integrations.Detection`.
        shortlist: how many candidates there were.
        returned, removed, penalised: ids of candidates.
        timings: seconds per stage (``detect``, and when it fired ``encode`` and ``compare``).
        adapters, config: labels of the adapters, digest of the settings.
        shadow: whether the frozen ranking was returned although the verdicts say otherwise.
        warnings, error: for the reader of an audit.
    """

    query: str
    fired: bool
    confidence: float | None
    spans: list[dict[str, Any]]
    wanted: str
    source: str
    shortlist: int
    returned: list[str]
    removed: list[str]
    penalised: list[str]
    timings: dict[str, float]
    adapters: list[str]
    config: str
    shadow: bool
    warnings: list[str]
    error: str | None

    @classmethod
    def class_name(cls) -> str:
        """Return the name that handlers tell events apart by."""
        return "ExciseDetectionEvent"


def announced(result: ExciseResult) -> ExciseResult:
    """Send the event of a result, and return the result."""
    dispatcher.event(ExciseDetectionEvent(**event_data(result)))
    return result
