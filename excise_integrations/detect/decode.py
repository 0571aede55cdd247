"""From token probabilities to spans in the original query."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

from ..types import Span

__all__ = ["TokenScores", "decode"]

#: Chosen on the dev splits. A share above the bound drops what is marked by accident beside a sure topic; this one
#: drops nothing more than the bound does.
BOUND, SHARE = 0.4, 0.4

_FILLER = (
    "a an the any some all and or nor but not no of about on to from with without in for by at as than rather other "
    "also its their his her our my your this that these those ones one information details detail mention mentions "
    "references reference content anything everything something regarding concerning please except excluding "
    "besides apart aside minus sans skip omit"
)
_TRIM_WORDS = frozenset(_FILLER.split())
_TRIM_PHRASE = re.compile(
    r"(?:any\s+)?(?:details?|information|mentions?|references?|content|anything|everything|data|facts?)\s+"
    r"(?:about|on|of|regarding|concerning|related\s+to|from)\s+",
    re.IGNORECASE,
)
_SENTENCE_END = re.compile(r"[.!?…](?=\s+\S)|[\r\n]+")
_ABBREVIATION = re.compile(
    r"\b(?:[A-Za-z]|Mr|Mrs|Ms|Dr|Lt|Col|Gen|Sgt|Capt|Sen|Rep|Gov|Rev|Mt|St|Prof|No|vs|Jr|Sr|Inc|Ltd|Co|Corp|art|sec|ch|vol|fig|e\.g|i\.e)\.\Z"
)
# A full stop at the end of a topic is the sentence's, but for these.
_OWN_DOT = re.compile(r"(?:\b(?:Jr|Sr|Inc|Ltd|Co|Corp|Bros)|\b[A-Za-z](?:\.[A-Za-z])+)\.\Z", re.IGNORECASE)
_QUOTES = "\"'“”‘’«»`"
_EDGE = ",;:()[]{}–—-" + _QUOTES
_GAP = re.compile(r"(?:[\s'’\"“”.&/–-]|\b(?:of|the|in|de|la|von|for|to|a|an|s|on|at|with)\b)*\Z", re.IGNORECASE)


@dataclass(frozen=True)
class TokenScores:
    """One token of the query.

    Args:
        start, end: character offsets in the query.
        begin: probability that it opens a topic.
        inside: probability that it belongs to a topic (``begin`` included).
        continues: whether it continues the word of the token before it.
    """

    start: int
    end: int
    begin: float
    inside: float
    continues: bool


def decode(
    query: str, tokens: Sequence[TokenScores], *, bound: float = BOUND, share: float = SHARE
) -> tuple[Span, ...]:
    """Turn token probabilities into one span per topic.

    Args:
        query: the query as given.
        tokens: its tokens in order, special tokens left out.
        bound: a word belongs to a topic when a token of it reaches this; lowered to 0.8 of the
            strongest word when none does, so that a query that fires always names something.
        share: a span stays when it has at least this share of the surest span's probability.

    Returns:
        Spans in query order, trimmed of determiners, cues and filler, none across a sentence end.
    """
    words = _words(tokens)
    if not words:
        return ()
    # Punctuation can be the likeliest token of all, and names nothing.
    top = max((w.inside for w in words if _says_something(query, w.start, w.end)), default=0.0)
    bound = min(bound, 0.8 * top)
    spans: list[Span] = []
    for start, end, confidence in _runs(query, words, bound):
        for a, b in _sentences(query, start, end):
            trimmed = _trim(query, a, b)
            if trimmed is not None:
                spans.append(Span(query[trimmed[0] : trimmed[1]], *trimmed, confidence))
    if not spans:
        # Nothing but filler was marked; a query that fires still names what it fired on.
        word = max(
            (w for w in words if _says_something(query, w.start, w.end)), key=lambda w: w.inside, default=words[0]
        )
        for a, b in _sentences(query, word.start, word.end):
            named = re.search(r"\w(?:.*\w)?", query[a:b])
            if named and word.inside > 0 and any(c.isalnum() for c in named.group()):
                at = a + named.start()
                spans.append(Span(named.group(), at, at + len(named.group()), word.inside))
                break
    surest = max((s.confidence or 0.0 for s in spans), default=0.0)
    spans = [s for s in spans if (s.confidence or 0.0) >= share * surest]
    # "not the ones on Church Street": a stray "on" is no topic beside one that is.
    return tuple([s for s in spans if not _is_filler(s)] or spans)


def _words(tokens: Sequence[TokenScores]) -> list[TokenScores]:
    words: list[TokenScores] = []
    for token in tokens:
        if token.continues and words:
            last = words[-1]
            words[-1] = TokenScores(last.start, token.end, last.begin, max(last.inside, token.inside), last.continues)
        else:
            words.append(token)
    return words


def _runs(query: str, words: Sequence[TokenScores], bound: float) -> list[tuple[int, int, float]]:
    runs: list[tuple[int, int, float]] = []
    for word in words:
        if word.inside < bound:
            continue
        if runs:
            start, end, confidence = runs[-1]
            gap = query[end : word.start]
            opens = word.begin > 0.5 * word.inside
            # A hyphen after a space is the search operator in "words -topic".
            operator = re.search(r"\s-\Z", gap) is not None
            bridged = not operator and (
                not gap.strip() or (not opens and len(gap) <= 12 and _GAP.match(gap) is not None)
            )
            # A word that opens a topic right after another topic's word starts its own span.
            if bridged and not (opens and gap.strip(" ")) and not (opens and word.begin > 0.8 and gap):
                runs[-1] = (start, word.end, max(confidence, word.inside))
                continue
        runs.append((word.start, word.end, word.inside))
    return runs


def _sentences(query: str, start: int, end: int) -> list[tuple[int, int]]:
    parts: list[tuple[int, int]] = []
    at = start
    for match in _SENTENCE_END.finditer(query, start, end):
        if match.end() >= end or _ABBREVIATION.search(query, at, match.end()):
            continue
        parts.append((at, match.start()))
        at = match.end()
    parts.append((at, end))
    return parts


def _within_brackets(query: str, start: int, end: int) -> int:
    """Return where a span ends that must not leave the brackets it stands in: "X (not Y) in Z" excludes Y alone."""
    depth = 0
    for at in range(start, end):
        if query[at] in "([":
            depth += 1
        elif query[at] in ")]":
            depth -= 1
            if depth < 0:
                return at
    return end


def _trim(query: str, start: int, end: int) -> tuple[int, int] | None:
    end = _within_brackets(query, start, end)
    while start < end:
        before = (start, end)
        while start < end and (query[start] in _EDGE or query[start].isspace()):
            start += 1
        while start < end and (query[end - 1] in _EDGE + "!?…" or query[end - 1].isspace()):
            if query[end - 1] == ")" and "(" in query[start : end - 1]:
                break
            end -= 1
        if query[start:end].endswith(".") and not _OWN_DOT.search(query, start, end):
            end -= 1
        phrase = _TRIM_PHRASE.match(query, start, end)
        if phrase:
            start = phrase.end()
        text = query[start:end]
        if re.search(r"['’]s\Z", text):
            end -= 2
        first = re.match(r"\w+(?=\s)", text)
        # A title may begin with an article; then it is quoted or capitalised inside.
        if first and first.group().lower() in _TRIM_WORDS and not _is_name(query, start, first.group()):
            start += first.end()
        last = re.search(r"(?<=\s)\w+\Z", query[start:end])
        if last and last.group().lower() in _TRIM_WORDS:
            end = start + last.start()
        if (start, end) == before:
            break
    return (start, end) if _says_something(query, start, end) else None


def _says_something(query: str, start: int, end: int) -> bool:
    return any(c.isalnum() for c in query[start:end])


def _is_filler(span: Span) -> bool:
    """Whether a span holds nothing but words that would be trimmed beside any other."""
    return all(w.lower() in _TRIM_WORDS for w in re.findall(r"\w+", span.text))


def _is_name(query: str, start: int, word: str) -> bool:
    opened = start > 0 and query[start - 1] in _QUOTES
    return opened or (word[:1].isupper() and start > 0 and query[:start].rstrip()[-1:] not in ".!?:;\n")
