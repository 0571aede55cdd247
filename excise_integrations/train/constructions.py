"""Hand-written sentence frames for the detector's training data, and how a topic is put into them.

Package data: ``data/constructions.jsonl`` (constructions, paired by meaning), ``data/contexts.jsonl``
(neutral sentences that lengthen a query), ``data/topics_*.jsonl`` (subjects with their members).
Paper, section 3.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import lru_cache
from importlib import resources
from typing import Any

from ..errors import InvalidInputError

__all__ = [
    "Construction",
    "Frame",
    "Piece",
    "capitalise",
    "data_files",
    "load_constructions",
    "load_contexts",
    "load_frames",
    "read_jsonl",
    "render",
]

_SLOT = re.compile(r"\{(=?[^{}]*)\}")
# A topic like "the satiety hormone" cannot follow these words or signs, nor stand before a hyphen.
_NO_ARTICLE = re.compile(
    r"""(?:\b(?:our|my|no|non|new|other|more|enough|plenty|all|less|zero|zilch|half)\s*|[-~!"'])$""", re.IGNORECASE
)
_NOT_PLURAL = re.compile(r"(?:ss|us|is|ics)$|^(?:diabetes|herpes|rabies|series|measles|mumps|species|news)$")
_PLURAL_VERB = {
    "is": "are",
    "isn't": "aren't",
    "was": "were",
    "has": "have",
    "hasn't": "haven't",
    "needs": "need",
    "gets": "get",
    "belongs": "belong",
    "ends": "end",
    "begins": "begin",
    "fills": "fill",
    "fails": "fail",
    "runs": "run",
    "sits": "sit",
    "comes": "come",
    "bores": "bore",
    "excites": "excite",
    "stands": "stand",
}


@dataclass(frozen=True)
class Frame:
    """A subject and the topics that a query about it may exclude.

    Args:
        domain: field of knowledge, e.g. ``"tax"``.
        wanted: the subject as a noun phrase, e.g. ``"rivers in Poland"``.
        kind: ``"entity"`` when the topics are members of the subject, ``"aspect"`` when they are sides of it.
        topics: names of the topics; at least four.
        asks: clauses that may follow the subject, e.g. ``"how they compare"``; at least one.
        answer: singular noun for one topic, e.g. ``"river"``.
    """

    domain: str
    wanted: str
    kind: str
    topics: tuple[str, ...]
    asks: tuple[str, ...]
    answer: str

    def __post_init__(self) -> None:
        if self.kind not in ("entity", "aspect"):
            raise InvalidInputError(f"frame {self.wanted!r}: kind {self.kind!r} is neither 'entity' nor 'aspect'")
        if len(self.topics) < 4 or len({t.casefold() for t in self.topics}) != len(self.topics):
            raise InvalidInputError(f"frame {self.wanted!r}: needs at least four different topics, got {self.topics!r}")
        if not self.wanted.strip() or not self.asks or not all(t.strip() for t in self.topics):
            raise InvalidInputError(f"frame {self.wanted!r}: subject, topics and at least one ask must not be empty")


@dataclass(frozen=True)
class Construction:
    """One hand-written query with slots.

    Args:
        id: unique identifier.
        pair: key shared by constructions that differ minimally and mean the opposite.
        label: 1 if the topic Z is excluded, else 0.
        kind: explicit, implicit, compound (label 1); conjunction, negated_predicate, name, idiom,
            comparison, about_exclusion, background, wanted_again, plain (label 0).
        form: ``"short"`` or ``"long"``.
        register: keywords, question, request, chat, prose or voice.
        fits: frames that it suits: ``"entity"``, ``"aspect"`` or ``"any"``.
        text: the query; slots {X} {Z} {Z1} {Z2} {Z3} {Y} {Y2} {ASK} {ANSWER}, and {=words} for a fixed excluded topic.
    """

    id: str
    pair: str
    label: int
    kind: str
    form: str
    register: str
    fits: str
    text: str

    @property
    def slots(self) -> frozenset[str]:
        """Names of the slots that a frame has to fill."""
        return frozenset(s for s in _SLOT.findall(self.text) if not s.startswith("="))

    def admits(self, slot: str, topic: str) -> bool:
        """Whether a topic reads well in a slot (no article after "our", only one word in "non-…" or "…-free")."""
        for before, after in self._around(slot):
            if topic[:4].casefold() == "the " and (_NO_ARTICLE.search(before) or after.startswith("-")):
                return False
            if (before.lower().endswith(("non-", "no-")) or after.startswith("-")) and (
                " " in topic or topic.lower().startswith(("non", "no-", "anti"))
            ):
                return False
        return True

    def _around(self, slot: str) -> Iterator[tuple[str, str]]:
        mark = "{" + slot + "}"
        start = self.text.find(mark)
        while start >= 0:
            yield self.text[:start], self.text[start + len(mark) :]
            start = self.text.find(mark, start + 1)


@dataclass(frozen=True)
class Piece:
    """A stretch of a query: literal words, or what fills a slot.

    Args:
        text: the characters.
        role: slot name, ``"="`` for a fixed topic, ``""`` for literal words.
    """

    text: str
    role: str = ""

    @property
    def is_topic(self) -> bool:
        """Whether the piece fills a slot for Z."""
        return self.role.startswith(("Z", "="))


def render(construction: Construction, fill: Mapping[str, str]) -> list[Piece]:
    """Put a frame's words into a construction.

    Args:
        construction: the construction.
        fill: words per slot; every slot of the construction must be there.

    Returns:
        The pieces in order, the verb after a plural topic in the plural.

    Raises:
        InvalidInputError: a slot has no words.

    Paper, section 3.
    """
    pieces: list[Piece] = []
    for i, part in enumerate(_SLOT.split(construction.text)):
        if i % 2 == 0:
            if pieces and pieces[-1].is_topic and _is_plural(pieces[-1].text):
                part = re.sub(r"^( )([a-z']+)", lambda m: m[1] + _PLURAL_VERB.get(m[2], m[2]), part)
            if part:
                pieces.append(Piece(part))
        elif part.startswith("="):
            pieces.append(Piece(part[1:], "="))
        elif part in fill:
            words = fill[part]
            if part.startswith("Z") and words.startswith("the "):  # a topic's article is not part of its name
                pieces.append(Piece("the "))
                words = words[4:]
            pieces.append(Piece(words, part))
        else:
            raise InvalidInputError(f"construction {construction.id}: nothing given for slot {part!r}")
    return capitalise(pieces) if construction.register not in ("keywords", "chat", "voice") else pieces


def capitalise(pieces: list[Piece]) -> list[Piece]:
    """Begin every sentence with a capital letter, leaving words like "iPhone" or "pH" alone."""
    done: list[Piece] = []
    start = True
    for piece in pieces:
        text = piece.text
        word = re.match(r"[\s\"“(]*([^\W\d_][\w'’]*)", text)
        if start and word and word[1][0].islower() and word[1] == word[1].lower():
            at = word.start(1)
            text = text[:at] + text[at].upper() + text[at + 1 :]
        if text.strip(' "“('):
            start = not piece.role and re.search(r"[.?!]\s+$", text) is not None
        done.append(Piece(text, piece.role))
    return done


def _is_plural(topic: str) -> bool:
    last = topic.split()[-1]
    return last.islower() and last.isalpha() and last.endswith("s") and not _NOT_PLURAL.search(last)


def data_files(prefix: str) -> list[Any]:
    """Return the packaged JSONL files whose name starts with a prefix, by name."""
    folder = resources.files(__package__ or "excise_integrations.train").joinpath("data")
    return sorted(
        (f for f in folder.iterdir() if f.name.startswith(prefix) and f.name.endswith(".jsonl")), key=lambda f: f.name
    )


def read_jsonl(file: Any) -> list[dict[str, Any]]:
    """Read a JSON-lines file (a path or a packaged resource).

    Raises:
        InvalidInputError: a line is not a JSON object; names the file and the line.
    """
    rows: list[dict[str, Any]] = []
    for number, line in enumerate(file.read_text(encoding="utf-8").split("\n"), 1):
        if not line.strip():
            continue
        try:
            row = json.loads(line)
        except (ValueError, RecursionError) as error:
            raise InvalidInputError(f"{file.name}, line {number}: not JSON ({error})") from error
        if not isinstance(row, dict):
            raise InvalidInputError(f"{file.name}, line {number}: expected an object, got {type(row).__name__}")
        rows.append(row)
    return rows


@lru_cache(maxsize=1)
def load_constructions() -> tuple[Construction, ...]:
    """Return the packaged constructions, in file order."""
    return tuple(Construction(**row) for file in data_files("constructions") for row in read_jsonl(file))


@lru_cache(maxsize=1)
def load_contexts() -> tuple[str, ...]:
    """Return the packaged neutral sentences; none of them excludes or names a topic."""
    return tuple(row["text"] for file in data_files("contexts") for row in read_jsonl(file))


@lru_cache(maxsize=1)
def load_frames() -> tuple[Frame, ...]:
    """Return the packaged frames, by file name and line."""
    return tuple(
        Frame(r["domain"], r["wanted"], r["kind"], tuple(r["topics"]), tuple(r["asks"]), r["answer"])
        for file in data_files("topics_")
        for r in read_jsonl(file)
    )
