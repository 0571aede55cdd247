"""Rules on words: BM25 of a topic, and where a document names it."""

from __future__ import annotations

import math
import re
from collections.abc import Collection, Sequence
from typing import Any, Literal

import numpy as np
import numpy.typing as npt

from ..errors import MissingExtraError
from ..evidence import STOP_WORDS

__all__ = ["LexicalIndex", "content_words", "positional"]

_WORD = re.compile(r"\w+")


def content_words(text: str) -> list[str]:
    """Return the lower-cased words of a text without stop words, or all of them when nothing else is there."""
    found = _WORD.findall(text.lower())
    return [w for w in found if w not in STOP_WORDS] or found


class LexicalIndex:
    """BM25 over a corpus.

    Args:
        texts: the documents.

    Raises:
        MissingExtraError: bm25s is not installed.
    """

    def __init__(self, texts: Sequence[str]) -> None:
        try:
            import bm25s  # type: ignore[import-untyped]
        except ImportError:
            raise MissingExtraError("bm25s", "bench") from None
        documents = [_WORD.findall(text.lower()) for text in texts]
        self._bm25: Any = bm25s.BM25()
        self._bm25.index(documents, show_progress=False)
        self._documents = len(documents)
        self._counts: dict[str, int] = {}
        for words in documents:
            for word in set(words):
                self._counts[word] = self._counts.get(word, 0) + 1

    def idf(self, word: str) -> float:
        """Return the inverse document frequency of a word, as BM25 has it; positive."""
        count = self._counts.get(word, 0)
        return math.log(1.0 + (self._documents - count + 0.5) / (count + 0.5))

    def share(self, topic: str) -> npt.NDArray[np.float64]:
        """Return each document's BM25 for a topic as a share of the corpus's highest, in [0, 1]."""
        scores = self.scores(content_words(topic))
        return scores / max(float(scores.max()), 1e-9)

    def scores(self, words: Sequence[str]) -> npt.NDArray[np.float64]:
        """Return each document's BM25 for words, of which unknown ones count nothing."""
        known = [w for w in words if w in self._counts]
        if not known:
            return np.zeros(self._documents)
        return np.asarray(self._bm25.get_scores(known), dtype=np.float64)


def positional(
    text: str,
    topic: Sequence[str],
    wanted: Collection[str],
    index: LexicalIndex,
    *,
    reading: Literal["early", "often"],
    decay: float,
) -> float:
    """Say how committed a text is to a topic, by where it names it.

    Every occurrence of a topic's word counts by ``exp(-decay · d)``, ``d`` being the distance in words to the
    nearest wanted word (the text's length when it has none).

    Args:
        text: the document.
        topic: the topic's content words.
        wanted: the query's wanted content words.
        index: for the words' weights.
        reading: ``"early"`` takes each word's first occurrence, less the later it comes; ``"often"`` adds all
            occurrences up, less and less.
        decay: per word of distance.

    Returns:
        The mean over the topic's words, weighted by inverse document frequency, in [0, 1].
    """
    words = _WORD.findall(text.lower())
    places: dict[str, list[int]] = {z: [] for z in topic}
    near: list[int] = []
    for at, word in enumerate(words):
        if word in places:
            places[word].append(at)
        elif word in wanted:
            near.append(at)
    anchors = np.asarray(near)
    total = found = 0.0
    for word, spots in places.items():
        weight = index.idf(word)
        total += weight
        if not spots:
            continue
        closeness = [
            math.exp(-decay * (float(np.abs(anchors - at).min()) if len(anchors) else len(words))) for at in spots
        ]
        if reading == "early":
            found += weight * closeness[0] * (1.0 - spots[0] / len(words))
        else:
            found += weight * sum(closeness) / (sum(closeness) + 1.0)
    return found / total if total else 0.0
