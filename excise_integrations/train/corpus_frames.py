"""Frames out of a user's own corpus, so that the detector also trains on the topics it will meet.

Works on documents that open like an encyclopedia's: "The Warta is a river in Poland". Paper, section 3.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterable, Mapping

from ..errors import InvalidInputError
from .constructions import Frame

__all__ = ["frames_from_corpus"]

_CLASS = re.compile(
    r"\b(?:is|was|are|were) (?:an?|the|one of the) (?P<noun>[^\W\d][\w\- ]{2,40}?)"
    r"(?: (?:in|of|by|from|that|which|who|for|on|at|to|with|about|near|used|found|located|directed|published)\b|[,.;(])"
)
_ASKS = ("how they compare", "what is known about them", "where to start reading", "which sources are reliable")


def frames_from_corpus(
    documents: Iterable[Mapping[str, str]], *, domain: str = "corpus", per_frame: int = 6
) -> list[Frame]:
    """Group the titles of a corpus into frames by what their first sentence says they are.

    Args:
        documents: mappings with ``title`` and ``text`` (a BEIR corpus); others are passed over.
        domain: domain of the frames.
        per_frame: most topics of a frame, at least 4; larger groups give several frames.

    Returns:
        Frames in order of their subject; empty when no four titles share a class.

    Raises:
        InvalidInputError: per_frame is below 4.

    Paper, section 3.
    """
    if per_frame < 4:
        raise InvalidInputError(f"per_frame must be at least 4, got {per_frame}")
    groups: dict[str, dict[str, str]] = defaultdict(dict)
    for document in documents:
        title = re.sub(r"\s*\([^)]*\)\s*$", "", document.get("title") or "").strip()
        found = _CLASS.search((document.get("text") or "")[:300])
        if not found or not 0 < len(title.split()) <= 6 or re.search(r"[{}]", title):
            continue
        noun = " ".join(found["noun"].split()[-2:])
        if noun.split()[-1].casefold() not in title.casefold():
            groups[noun].setdefault(title.casefold(), title)
    frames = []
    for noun in sorted(groups):
        titles = list(groups[noun].values())
        for at in range(0, len(titles), per_frame):
            topics = tuple(titles[at : at + per_frame])
            if len(topics) >= 4:
                frames.append(Frame(domain, _plural(noun), "entity", topics, _ASKS, noun.split()[-1]))
    return frames


def _plural(noun: str) -> str:
    if re.search(r"(?:s|x|z|ch|sh)$", noun):
        return noun + "es" if not noun.endswith("s") or noun.endswith("ss") else noun
    return noun[:-1] + "ies" if re.search(r"[^aeiou]y$", noun) else noun + "s"
