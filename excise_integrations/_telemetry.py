"""What observers are told of a query: OpenTelemetry spans, and the facts that the frameworks' events carry.

Nothing is imported from OpenTelemetry: an application that collects spans has loaded it, and in any other a
query costs one look into ``sys.modules``. No text of a query leaves in a span, unless the application asks for
it in the way of OpenTelemetry's own instrumentations:
``OTEL_INSTRUMENTATION_GENAI_CAPTURE_MESSAGE_CONTENT=true``.
"""

from __future__ import annotations

import functools
import inspect
import os
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, ParamSpec, TypeVar, cast

from .types import ExciseResult
from .version import __version__

__all__ = ["event_data", "traced"]

_CAPTURE = "OTEL_INSTRUMENTATION_GENAI_CAPTURE_MESSAGE_CONTENT"
_YES = {"true", "span_only", "span_and_event"}

P = ParamSpec("P")
R = TypeVar("R")


def traced(name: str) -> Callable[[Callable[P, R]], Callable[P, R]]:
    """Put a span around each call of a function, coroutine or not, that returns results.

    Args:
        name: the span's name.
    """

    def decorate(function: Callable[P, R]) -> Callable[P, R]:
        if inspect.iscoroutinefunction(function):

            @functools.wraps(function)
            async def waiting(*args: P.args, **keywords: P.kwargs) -> Any:
                trace = _opentelemetry()
                if trace is None:
                    return await function(*args, **keywords)
                with _span(trace, name) as describe:
                    return describe(await function(*args, **keywords))

            return cast("Callable[P, R]", waiting)

        @functools.wraps(function)
        def calling(*args: P.args, **keywords: P.kwargs) -> R:
            trace = _opentelemetry()
            if trace is None:
                return function(*args, **keywords)
            with _span(trace, name) as describe:
                return cast("R", describe(function(*args, **keywords)))

        return calling

    return decorate


def event_data(result: ExciseResult) -> dict[str, Any]:
    """Return what an event of a framework says about a result: plain JSON types, the query's text included."""
    detection = result.detection
    return {
        "query": result.query,
        "fired": detection.fired,
        "confidence": None if detection.confidence is None else float(detection.confidence),
        "spans": [
            {
                "text": s.text,
                "start": s.start,
                "end": s.end,
                "confidence": None if s.confidence is None else float(s.confidence),
            }
            for s in detection.spans
        ],
        "wanted": detection.wanted,
        "source": detection.source,
        "shortlist": len(result.verdicts),
        "returned": [c.id for c in result.candidates],
        "removed": [c.id for c in result.removed],
        "penalised": [v.id for v in result.verdicts.values() if v.action == "penalised"],
        "timings": dict(result.timings),
        "adapters": list(result.adapters),
        "config": result.config,
        "shadow": result.shadow,
        "warnings": list(result.warnings),
        "error": result.error,
    }


# --- OpenTelemetry ----------------------------------------------------------------------------


def _opentelemetry() -> Any:
    trace = sys.modules.get("opentelemetry.trace")
    # Another thread may be in the middle of importing it.
    return trace if hasattr(trace, "get_tracer") and hasattr(trace, "StatusCode") else None


@contextmanager
def _span(trace: Any, name: str) -> Iterator[Callable[[Any], Any]]:
    tracer = trace.get_tracer("excise_integrations", __version__)
    texts = os.environ.get(_CAPTURE, "").strip().lower() in _YES
    # The message of an exception may quote the query; its type never does.
    with tracer.start_as_current_span(name, record_exception=texts, set_status_on_exception=False) as span:

        def describe(result: Any) -> Any:
            if span.is_recording():
                span.set_attributes(_attributes(result, texts))
            return result

        try:
            yield describe
        except BaseException as error:
            span.set_attribute("error.type", type(error).__name__)
            span.set_status(trace.StatusCode.ERROR, str(error) if texts else type(error).__name__)
            raise


def _attributes(result: Any, texts: bool) -> dict[str, Any]:
    if not isinstance(result, ExciseResult):
        return {
            "excise.queries": len(result),
            "excise.fired": sum(r.detection.fired for r in result),
            "excise.removed": sum(len(r.removed) for r in result),
        }
    facts = event_data(result)
    found: dict[str, Any] = {
        f"excise.{name}": facts[name] for name in ("fired", "confidence", "source", "shadow", "config", "adapters")
    }
    found |= {f"excise.{name}": len(facts[name]) for name in ("spans", "returned", "removed", "penalised", "warnings")}
    found["excise.shortlist"] = facts["shortlist"]
    found |= {f"excise.seconds.{stage}": seconds for stage, seconds in result.timings.items()}
    if result.error is not None:
        # "DetectorError: …": what follows the type may quote the query.
        found["error.type"] = result.error.partition(":")[0]
    if texts:
        found["gen_ai.retrieval.query.text"] = result.query
        found["excise.topics"] = [s["text"] for s in facts["spans"]]
    return {name: value for name, value in found.items() if value is not None}
