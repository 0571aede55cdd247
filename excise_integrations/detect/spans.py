"""Spans in the original query: finding, joining, and what is left of the query without them."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence

from ..errors import InvalidInputError
from ..types import Detection, Span

__all__ = ["caller_detection", "locate", "wanted_part"]

# Words that hold an exclusion together and mean nothing once the topic is gone.
_CUE = (
    r"(?:but|and|or|nor|not|no|non|neither|never|without|with|except(?:ing)?|excluding|exclude[sd]?|including|"
    r"apart|aside|other|than|from|besides|beyond|minus|sans|for|any|anything|everything|details?|about|on|"
    r"mention(?:ing)?|leave|leaving|out|skip(?:ping)?|omit(?:ting)?|please|the|a|an|of|rather|instead|just|only|"
    r"is|are|covered|already|that|which|exception|s)"
)
_CUE_WORD = re.compile(_CUE, re.IGNORECASE)
_EDGE = frozenset("-–—,;:()[]\"'“”‘’.!?/≠")
_OPENING, _CLOSING = frozenset("\"'“‘«"), frozenset("\"'”’»")
_REMAINDER = re.compile(
    r"\A(?:['’]s\b|\s+(?:(?:(?:is|are)\s+)?already\s+covered|aside|excluded|excepted)\b)", re.IGNORECASE
)
_PIECE = re.compile(r"\w+|\s+|.", re.DOTALL)
_WORD = re.compile(r"\w", re.UNICODE)


def locate(query: str, topic: str) -> tuple[int, int] | None:
    """Find a topic in a query as whole words, exact case first.

    Returns:
        Character offsets of the first occurrence, or None.
    """
    before = r"(?<!\w)" if _WORD.match(topic[:1]) else ""
    after = r"(?!\w)" if _WORD.match(topic[-1:]) else ""
    pattern = before + re.escape(topic) + after
    for flags in (0, re.IGNORECASE):
        match = re.search(pattern, query, flags)
        if match:
            return match.start(), match.end()
    return None


def caller_detection(query: str, topics: Sequence[str]) -> Detection:
    """Turn topics named by the caller into a detection.

    Args:
        query: the query.
        topics: excluded topics; empty switches exclusion off.

    Returns:
        A detection with source "caller". A topic that occurs in the query gets its offsets.

    Raises:
        InvalidInputError: ``topics`` is a string, or a topic is blank or not a string.
    """
    if isinstance(topics, str):
        raise InvalidInputError(f"exclude={topics!r} is a string; give a list of topics: exclude=[{topics!r}].")
    if not isinstance(topics, Iterable):
        raise InvalidInputError(f"exclude={topics!r} is a {type(topics).__name__}; give a list of topics.")
    spans: list[Span] = []
    for topic in topics:
        if not isinstance(topic, str) or not topic.strip():
            raise InvalidInputError(f"exclude holds {topic!r}; every topic must be a non-blank string.")
        topic = topic.strip()
        at = locate(query, topic)
        span = Span(query[at[0] : at[1]], *at) if at else Span(topic)
        if span not in spans:
            spans.append(span)
    return Detection(
        fired=bool(spans), confidence=None, spans=tuple(spans), wanted=wanted_part(query, spans), source="caller"
    )


def wanted_part(query: str, spans: Sequence[Span]) -> str:
    """Return the query without the excluded spans and the cue words that lead up to them.

    Args:
        query: the query.
        spans: excluded spans; those without offsets are passed over.

    Returns:
        What is left, with single spaces; empty for a query that only excludes.
    """
    pieces: list[str] = []
    at = 0
    for span in sorted((s for s in spans if s.start is not None and s.end is not None), key=lambda s: s.start or 0):
        assert span.start is not None
        assert span.end is not None
        pieces.append(_without_tail(query[at : span.start]))
        quoted = query[span.start - 1 : span.start] in _OPENING and query[span.end : span.end + 1] in _CLOSING
        at = max(at, span.end + (1 if quoted else 0))
    rest = query[at:]
    if pieces:
        rest = _REMAINDER.sub("", rest)
    pieces.append(rest)
    text = " ".join(" ".join(pieces).split())
    text = re.sub(r"\s+([,;:.!?])", r"\1", text).strip(" ,;:-–—")
    meaningful = re.sub(rf"\b{_CUE}\b", " ", text, flags=re.IGNORECASE)
    return text if any(c.isalnum() for c in meaningful) else ""


def _without_tail(text: str) -> str:
    """Cut cue words and punctuation off the end of a text."""
    # Piece by piece from the end: one pattern anchored at the end takes quadratic time on a hostile query.
    pieces = _PIECE.findall(text)
    while pieces and (pieces[-1] in _EDGE or pieces[-1].isspace() or _CUE_WORD.fullmatch(pieces[-1])):
        pieces.pop()
    return "".join(pieces)
