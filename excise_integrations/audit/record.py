"""A result as plain JSON types, with the reasons: what every form of the report is made from."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from datetime import datetime, timezone
from typing import TYPE_CHECKING, Any

from ..types import Candidate, Detection, ExciseResult, Verdict
from ..version import __version__
from .reasons import Reasons

if TYPE_CHECKING:
    from ..config import ExciseConfig
    from .highlight import Highlight

__all__ = ["SCHEMA", "detection_record", "plain", "result_record", "timestamp", "verdict_record"]

SCHEMA = "excise-report/1"
_MAX_DEPTH = 6
_MAX_ITEMS = 200
_MAX_CHARS = 2000


def timestamp(moment: datetime | None = None) -> str:
    """Return a moment (default: now) as ISO 8601 in UTC with milliseconds, e.g. ``2026-01-31T12:00:00.000Z``."""
    moment = moment or datetime.now(timezone.utc)
    return moment.astimezone(timezone.utc).isoformat(timespec="milliseconds").replace("+00:00", "Z")


def plain_text(text: str) -> str:
    """Replace lone surrogates, which no UTF-8 file can hold, one character each, so that offsets stay."""
    return text.encode("utf-8", "replace").decode("utf-8")


def plain(value: Any, depth: int = 0) -> Any:
    """Turn any value into JSON types.

    Numbers that are not finite become None. Objects of other types become their text. What is nested deeper than
    six levels, longer than 200 items, or (for other types' texts) than 2,000 characters is cut.
    """
    if value is None or isinstance(value, bool):
        return value
    if isinstance(value, str):
        return plain_text(str(value))
    if isinstance(value, int):
        return int(value)
    if isinstance(value, float):
        return float(value) if math.isfinite(value) else None
    if depth >= _MAX_DEPTH:
        return "…"
    if isinstance(value, Mapping):
        return {plain_text(str(key)): plain(item, depth + 1) for key, item in list(value.items())[:_MAX_ITEMS]}
    if isinstance(value, (list, tuple)):
        return [plain(item, depth + 1) for item in value[:_MAX_ITEMS]]
    try:
        text = str(value)
    except Exception:
        # An object of the caller's whose text cannot be made must not cost the report.
        text = f"({type(value).__name__})"
    return plain_text(text[:_MAX_CHARS])


def detection_record(detection: Detection) -> dict[str, Any]:
    """Return a detection as JSON types."""
    return {
        "fired": detection.fired,
        "confidence": plain(detection.confidence),
        "source": detection.source,
        "wanted": plain_text(detection.wanted),
        "spans": [
            {"text": plain_text(s.text), "start": s.start, "end": s.end, "confidence": plain(s.confidence)}
            for s in detection.spans
        ],
    }


def verdict_record(verdict: Verdict) -> dict[str, Any]:
    """Return a verdict as JSON types."""
    return {
        "id": plain_text(verdict.id),
        "action": verdict.action,
        "rank": verdict.rank,
        "first_stage_rank": verdict.first_stage_rank,
        "first_stage_score": plain(verdict.first_stage_score),
        "score": plain(verdict.score),
        "evidence": plain(verdict.evidence),
        "topic_evidence": [plain(e) for e in verdict.topic_evidence],
        "span": verdict.span,
        "cut": plain(verdict.cut),
        "penalty": plain(verdict.penalty),
        "opening": plain(verdict.opening),
    }


def result_record(
    result: ExciseResult,
    *,
    created: str,
    config: ExciseConfig | None = None,
    backbone: str | None = None,
    highlights: Mapping[str, Highlight] | None = None,
) -> dict[str, Any]:
    """Return everything the report says.

    Args:
        result: the result.
        created: when the report was made.
        config: the settings, to be listed and to be precise about in the reasons.
        backbone: label of the encoder.
        highlights: per candidate id, the words that matched its deciding topic; None when nobody looked.
    """
    reasons = Reasons(result, config)
    texts = {c.id: c for c in (*result.candidates, *result.removed)}
    returned = {c.id for c in result.candidates}
    candidates = []
    for verdict in sorted(result.verdicts.values(), key=lambda v: v.first_stage_rank):
        found = (highlights or {}).get(verdict.id)
        candidates.append(
            {
                **verdict_record(verdict),
                "move": None if verdict.rank is None else verdict.first_stage_rank - verdict.rank,
                "returned": verdict.id in returned,
                "reason": reasons.of(verdict),
                **_content(texts.get(verdict.id)),
                "highlight": found.to_dict() if found is not None else None,
            }
        )
    return {
        "schema": SCHEMA,
        "created": created,
        "version": __version__,
        "query": plain_text(result.query),
        "summary": [plain_text(s) for s in reasons.summary()],
        "detection": detection_record(result.detection),
        "topics": _topics(result),
        "candidates": candidates,
        "removed": [plain_text(c.id) for c in result.removed],
        "warnings": [plain_text(w) for w in result.warnings],
        "error": plain(result.error),
        "shadow": result.shadow,
        "highlighted": highlights is not None,
        "floor": plain(result.floor),
        "backbone": backbone,
        "adapters": list(result.adapters),
        "config": {"digest": result.config, "settings": config.model_dump(mode="json") if config else None},
        "timings": {str(k): plain(v) for k, v in result.timings.items()},
    }


def _content(candidate: Candidate | None) -> dict[str, Any]:
    # What was ranked below k left no text in the result.
    if candidate is None:
        return {"text": None, "metadata": None}
    return {"text": plain_text(candidate.text), "metadata": plain(candidate.metadata)}


def _topics(result: ExciseResult) -> list[dict[str, Any]]:
    verdicts: Sequence[Verdict] = list(result.verdicts.values())
    out = []
    for index, span in enumerate(detection_record(result.detection)["spans"]):
        decided = [v for v in verdicts if v.span == index]
        evidence = [v.topic_evidence[index] for v in verdicts if index < len(v.topic_evidence)]
        out.append(
            {
                **span,
                "strongest": plain(max(evidence)) if evidence else None,
                "cut": next((plain(v.cut) for v in decided if v.cut is not None), None),
                "removed": sum(v.action == "removed" for v in decided),
                "lowered": sum(v.penalty > 0 and v.action != "removed" for v in decided),
            }
        )
    return out
