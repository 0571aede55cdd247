"""Verify and repair, before the gates: an explicit query that lost its cue gets one back, an implicit one never."""

from __future__ import annotations

from dataclasses import replace

from ...detect.rules import RulesDetector
from .records import BenchRecord

__all__ = ["cued_topics", "has_cue", "verify_and_repair"]

_RULES = RulesDetector()


def has_cue(text: str) -> bool:
    """Whether the cue rules see an exclusion in a query."""
    return _RULES.detect([text])[0].fired


def cued_topics(record: BenchRecord) -> tuple[str, ...]:
    """Return the excluded topics of a record that the cue rules find in its query."""
    text = record.draft.text
    found = [(s.start or 0, s.end or 0) for s in _RULES.detect([text])[0].spans]
    cued = []
    for topic in record.draft.excluded:
        at = text.find(topic)
        if at >= 0 and any(start < at + len(topic) and at < end for start, end in found):
            cued.append(topic)
    return tuple(cued)


def verify_and_repair(record: BenchRecord) -> BenchRecord | None:
    """Hold a query to its tier.

    Args:
        record: as written.

    Returns:
        The record, with cues put back before the topics that lack one (T1, and T3: both topics of a disjunctive
        query, the first of a mixed one), or None when its tier cannot be had: a T2 query with a cue is dropped.
    """
    if record.draft.tier == "T2":
        return None if has_cue(record.draft.text) else record
    if _holds(record):
        return record
    missing = [topic for topic in record.draft.excluded if topic not in cued_topics(record)]
    text = record.draft.text
    for topic in missing if record.shape != "mixed" else missing[:1]:
        text = _with_cue(text, topic)
    repaired = replace(record, draft=replace(record.draft, text=text), repaired=True)
    return repaired if _holds(repaired) else None


def _holds(record: BenchRecord) -> bool:
    cued = len(cued_topics(record))
    return cued == 1 if record.shape == "mixed" else cued == len(record.draft.excluded)


def _with_cue(text: str, topic: str) -> str:
    at = text.find(topic)
    if at < 0:
        return f"{text.rstrip(' .?!')}, but not {topic}"
    before = text[:at].rstrip(" ,;")
    return f"{before}, but not {text[at:]}" if before else f"not {text}"
