"""Texts cut into marked and unmarked pieces, for every form of the report."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from typing import Any

__all__ = ["Segment", "excerpt", "query_segments"]

_WORD = re.compile(r"\w+")
Segment = tuple[str, str]
"""What a piece is ("" for nothing in particular) and its text."""


def query_segments(record: dict[str, Any]) -> list[Segment]:
    """Cut the query into "excluded", "wanted" and other pieces."""
    query: str = record["query"]
    labels = [""] * len(query)
    for span in record["detection"]["spans"]:
        if span["start"] is not None:
            for i in range(span["start"], min(span["end"], len(query))):
                labels[i] = "excluded"
    for start, end in _wanted(query, labels, record["detection"]["wanted"]):
        labels[start:end] = ["wanted"] * (end - start)
    return _runs(query, labels)


def _wanted(query: str, labels: Sequence[str], wanted: str) -> list[tuple[int, int]]:
    """Where the wanted words stand; none when they cannot all be found in order."""
    words = _WORD.findall(wanted)
    found: list[tuple[int, int]] = []
    last = -1
    for match in _WORD.finditer(query):
        if len(found) == len(words):
            break
        if labels[match.start()] or match.group() != words[len(found)]:
            continue
        # Neighbouring words become one piece, with the blank between them.
        between = query[last : match.start()] if last >= 0 else ""
        join = bool(between) and not _WORD.search(between) and "excluded" not in labels[last : match.start()]
        found.append((last if join else match.start(), match.end()))
        last = match.end()
    return found if len(found) == len(words) else []


def excerpt(candidate: dict[str, Any], limit: int) -> list[Segment]:
    """Cut the part of a candidate's text that decided into "best", "near" and other pieces.

    Args:
        candidate: a candidate of a report's record, with its text.
        limit: characters at most.

    Returns:
        The deciding window, or the beginning of the text where nobody looked for one; an ellipsis
        stands where the text goes on.
    """
    text: str = candidate["text"] or ""
    found = candidate["highlight"]
    words = found["words"] if found else []
    start, end = (found["start"], found["end"]) if found else (0, len(text))
    if end - start > limit:
        # Keep the best matches in sight.
        first = min((w["start"] for w in words if w["best"]), default=start)
        start = max(start, min(first - limit // 4, end - limit))
        end = start + limit
    labels = [""] * (end - start)
    for word in words:
        a, b = max(word["start"], start) - start, min(word["end"], end) - start
        if a < b:
            labels[a:b] = ["best" if word["best"] else "near"] * (b - a)
    segments = _runs(text[start:end], labels)
    return [*_ellipsis(start > 0), *segments, *_ellipsis(end < len(text))]


def _ellipsis(cut: bool) -> Iterable[Segment]:
    return [("", " … ")] if cut else []


def _runs(text: str, labels: Sequence[str]) -> list[Segment]:
    out: list[Segment] = []
    start = 0
    for i in range(1, len(text) + 1):
        if i == len(text) or labels[i] != labels[start]:
            out.append((labels[start], text[start:i]))
            start = i
    return out
