"""Verify and repair, before the gates: an explicit query that lost its cue gets one back, an implicit one never."""

from __future__ import annotations

import re
from dataclasses import replace

from ...detect.rules import RulesDetector
from ...train.query_llm import CUES
from ...train.query_templates import Draft
from .records import BenchRecord

__all__ = ["cued_topics", "has_cue", "in_one_breath", "verify_and_repair"]

_RULES = RulesDetector()
_JOINT = re.compile(r"(?i)[\s,\"'“”‘’]*(?:(?:and|or|nor|&)[\s\"'“”‘’]+(?:(?:from|the|a|an|any|of)\s+)*)?")
# Only after a break does "but not" fit in.
_BREAK = re.compile(
    r"(?is)(?P<before>(?:^|.*[^\s,;:–—-]))\s*(?:^|[,;:–—-])\s*(?:(?:and|or)\s+)?(?P<article>(?:the|an?|any)\s+)?$"
)


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


def in_one_breath(draft: Draft) -> bool:
    """Whether nothing but "and", "or" and the like stands between two excluded topics."""
    places = sorted((draft.text.find(topic), len(topic)) for topic in draft.excluded)
    if len(places) < 2 or places[0][0] < 0:
        return False
    between = draft.text[sum(places[0]) : places[1][0]]
    return _JOINT.fullmatch(between) is not None


def verify_and_repair(record: BenchRecord) -> BenchRecord | None:
    """Hold a query to its tier.

    Args:
        record: as written.

    Returns:
        The record, with cues put back before the topics that lack one (T1, and T3: both topics of a disjunctive
        query, the first of a mixed one), or None when its tier cannot be had: where "but not" does not fit into the
        sentence, and a T2 query that has a cue.
    """
    if record.draft.tier == "T2":
        return None if has_cue(record.draft.text) else record
    if _holds(record):
        return record
    cued = cued_topics(record)
    if record.shape == "mixed" and cued:
        return None
    missing = [topic for topic in record.draft.excluded if topic not in cued]
    text: str | None = record.draft.text
    for topic in missing if record.shape != "mixed" else missing[:1]:
        text = None if text is None else _with_cue(text, topic)
    if text is None:
        return None
    repaired = replace(record, draft=replace(record.draft, text=text), repaired=True)
    return repaired if _holds(repaired) else None


def _holds(record: BenchRecord) -> bool:
    cued = len(cued_topics(record))
    if record.shape == "mixed":
        return cued == 1
    # The rules do not know every cue, and the writer's own words are better than a second one.
    return cued == len(record.draft.excluded) or (
        _any_cue(record.draft) and (not record.shape or in_one_breath(record.draft))
    )


def _any_cue(draft: Draft) -> bool:
    rest = draft.text
    for topic in draft.excluded:
        rest = rest.replace(topic, " ")
    return CUES.search(rest) is not None


def _with_cue(text: str, topic: str) -> str | None:
    at = text.find(topic)
    if at < 0:
        return f"{text.rstrip(' .?!')}, but not {topic}"
    place = _BREAK.match(text[:at])
    if place is None:
        return None
    cue = ", but not " if place["before"] else "not "
    return f"{place['before']}{cue}{place['article'] or ''}{text[at:]}"
