"""Cue rules: explicit exclusions without any weights, the baseline of the trained detector."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence

from ..types import Detection, Span
from .language import language_warnings
from .spans import wanted_part

__all__ = ["RulesDetector"]

_VERB = (
    r"(?:mention(?:ing)?|includ(?:e|ing)|discuss(?:ing)?|referenc(?:e|ing)|referring to|considering|counting|"
    r"going into|touching on|talking about|describing|covering|using|involving)"
)
# Cues that are followed by the topic, the longest first.
_AFTER = [
    rf"(?:but|and|just|please do|do|,)\s+not\s+(?:{_VERB}\s+)?",
    r"don[’']t\s+(?:want|need|include|mention|give me|show me)\s+",
    rf"not\s+{_VERB}\s+",
    rf"without\s+{_VERB}\s+",
    r"excluding\s+",
    r"exclud(?:e|es)\s+",
    r"except(?:ing)?\s+(?:for\s+)?",
    r"(?:other|rather)\s+than\s+",
    r"(?:apart|aside)\s+from\s+",
    r"with\s+the\s+exception\s+of\s+",
    r"(?:leave|leaving)\s+out\s+",
    r"(?:omit|omitting|skip|skipping|minus|sans|barring)\s+",
    r"(?:anything|everything|all)\s+but\s+",
    r"neither\s+",
    r"NOT\s+",
    r"≠\s*",
]
_AT_START = [r"besides\s+", r"not\s+", r"no\s+", r"without\s+"]
_COMMA_NO = [
    r"(?:,|[-–—;(])\s*(?:with\s+)?no\s+",
    r"(?:,|[-–—;(])\s*not\s+",
    r"\b(?:but|and|with)\s+no\s+",
]
_MINUS = re.compile(r"(?<=\s)-(?:\"([^\"]+)\"|([^\W\d][\w-]*))")
_ASIDE = re.compile(
    r"(?:^|[.;,]\s+)([\w’'.-]+(?:\s+[\w’'.-]+){0,5})\s+(?:aside(?!\s+from)|excluded|excepted)\b", re.IGNORECASE
)

_CUE = re.compile(
    "|".join(
        [cue if cue.startswith("(?:,") else rf"(?:(?<=\W)|^){cue}" for cue in [*_COMMA_NO, *_AFTER]]
        + [rf"^\s*{cue}" for cue in _AT_START]
    ),
    re.IGNORECASE,
)
# "not only … but also" and its kin exclude nothing.
_NO_CUE = re.compile(
    r"\s*(?:only|just|merely|least|limited|later|less|more|fewer|all|every|always|necessarily|sure|to|be|been|being|"
    r"able|yet|also|that|because|if|when|why|how|so|a\s+problem)\b",
    re.IGNORECASE,
)
_END = re.compile(
    r"[.?!;:\n)\]–—]|\s-\s|,\s+(?:what|which|who|how|when|where|and\s+(?:how|what|why|who|when|which|are|is|do|explain)|"
    r"please|thanks|explain|show|in|for|with|especially|particularly|including|describing|covering)\b|,\s+(?=\w+ing\b)|"
    r"(?<!\s)\s+(?:please|thanks|when|which|that|who|what|how|where|because|since|while|in\s+terms\s+of)\b",
    re.IGNORECASE,
)
# A run of spaces is entered at its start alone, or a long one would be read once from each of its spaces.
_SPLIT = re.compile(r"(?:(?<!\s)\s+)?,\s*(?:(?:and|or|nor)\s+)?|(?<!\s)\s+(?:and|or|nor)\s+", re.IGNORECASE)
_LEAD = re.compile(
    r"(?:\s|[\"'“”‘’(]|\b(?:any|the|a|an|its|their|his|her|either|both|details?|information|references?|mentions?|"
    r"content|anything|about|on|of|to|by|from|in|for|also|those|ones|the\s+ones|not|no|neither)\b)*",
    re.IGNORECASE,
)
_MAX_WORDS = 14
# A query of a megabyte is cut here, not scanned with every pattern.
_MAX_CHARACTERS = 4000
_TOO_LONG = f"The query is too long to be read whole; what follows its first {_MAX_CHARACTERS} characters was not read."


class RulesDetector:
    """Detect explicit exclusions (T1, disjunctive T3) by cue words; needs no weights.

    It knows no implicit exclusion and is easily fooled by negation that excludes nothing. It stays
    as the baseline that the trained detector is measured against.
    """

    label: str | None = None

    def detect(self, queries: Sequence[str]) -> list[Detection]:
        """Detect the excluded topics of each query; see :class:`~excise_integrations.detect.Detector`."""
        return [self._detect(query) for query in queries]

    def _detect(self, query: str) -> Detection:
        spans: list[Span] = []
        taken = 0
        for start, end in sorted(self._found(query)):
            if start < taken:
                continue
            spans.append(Span(query[start:end], start, end, 1.0))
            taken = end
        return Detection(
            fired=bool(spans),
            confidence=1.0 if spans else 0.0,
            spans=tuple(spans),
            wanted=wanted_part(query, spans),
            warnings=(*((_TOO_LONG,) if query[_MAX_CHARACTERS:].strip() else ()), *language_warnings(query)),
        )

    def _found(self, query: str) -> Iterator[tuple[int, int]]:
        text = query[:_MAX_CHARACTERS]
        for match in _MINUS.finditer(text):
            group = 1 if match.group(1) else 2
            yield match.span(group)
        for match in _ASIDE.finditer(text):
            yield from _topics(text, match.start(1), match.end(1))
        cues = [match.span() for match in _CUE.finditer(text) if not _NO_CUE.match(text, match.end())]
        # A topic ends where the next cue begins, which also keeps a query made of cues from taking quadratic time.
        bounds = [*(start for start, _ in cues[1:]), len(text)]
        for (_, start), bound in zip(cues, bounds, strict=False):
            end = _END.search(text, start, bound)
            yield from _topics(text, start, end.start() if end else bound)


def _topics(text: str, start: int, end: int) -> Iterator[tuple[int, int]]:
    at = start
    bounds = [*_SPLIT.finditer(text, start, end)]
    for piece_end, next_start in [*((m.start(), m.end()) for m in bounds), (end, end)]:
        lead = _LEAD.match(text, at, piece_end)
        first = lead.end() if lead else at
        words = list(re.finditer(r"\S+", text[first:piece_end]))
        if words:
            last = first + words[min(len(words), _MAX_WORDS) - 1].end()
            stripped = text[first:last].rstrip(" ,\"'“”’")
            if any(c.isalnum() for c in stripped):
                yield first, first + len(stripped)
        at = next_start
