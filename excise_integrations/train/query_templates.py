"""Mined queries out of hand-written constructions: the wanted topic from a description, the excluded from titles."""

from __future__ import annotations

import random
import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal, Protocol

from .constructions import Construction, Piece, capitalise, load_constructions, load_contexts, render
from .descriptions import Document, Vocabulary, content_words, describe, is_common_name, mentions, topic_name
from .surface import apply_style, draw_style, join

__all__ = ["Draft", "Form", "Group", "QueryWriter", "TemplateWriter", "Tier"]

Tier = Literal["T1", "T2", "T3"]
Form = Literal["short", "long"]

_KINDS: dict[Tier, str] = {"T1": "explicit", "T2": "implicit", "T3": "compound"}
_ASKS = ("how they compare", "what is known about them", "where to start reading", "which sources are reliable")
SHORT_MAX, LONG_MIN, LONG_MAX = 18, 20, 60
# Constructions that want a plural noun phrase, which a name or a list of words is not.
_PLURAL_ONLY = re.compile(
    r"(?i)\b(?:other|which|what|further|remaining|more|different|fresh|these|those|all|any|list|some|one of|few|each|"
    r"compare|many|several|new|another|among)\b[^{}]{0,12}\{X\}|\{X\}[^{}]{0,6}\b(?:are|have|do|can|remain|exist)\b"
)
_ATTEMPTS = 12


@dataclass(frozen=True)
class Group:
    """A wanted document and the confusable ones that a query shall exclude.

    Args:
        wanted: the gold.
        excluded: one document per excluded topic, at least one.
    """

    wanted: Document
    excluded: tuple[Document, ...]


@dataclass(frozen=True)
class Draft:
    """A query for a group.

    Args:
        text: the query.
        tier: T1 (explicit cue), T2 (no cue), T3 (two topics).
        form: short or long.
        wanted: what is asked for.
        excluded: exact substrings of ``text``, one per excluded document, in their order.
    """

    text: str
    tier: Tier
    form: Form
    wanted: str
    excluded: tuple[str, ...]


class QueryWriter(Protocol):
    """What turns a group into a query."""

    def write(self, group: Group, *, tier: Tier, form: Form, rng: random.Random) -> Draft | None:
        """Return a query, or None when this group gives none."""
        ...


class TemplateWriter:
    """Write queries without a language model, from the detector's hand-written constructions.

    The wanted topic is what the first sentence of the wanted document says, best as far as the
    others share it, its name if that is a common one, or words that all of them share; the
    excluded topics are names.

    Args:
        vocabulary: how rare the corpus' words are.
    """

    def __init__(self, vocabulary: Vocabulary) -> None:
        self._vocabulary = vocabulary
        self._constructions: dict[tuple[str, str], list[Construction]] = {}
        for construction in load_constructions():
            slots = construction.slots
            if construction.label and "X" in slots and slots <= {"X", "Z", "Z1", "Z2", "ASK"}:
                self._constructions.setdefault((construction.kind, construction.form), []).append(construction)

    def write(self, group: Group, *, tier: Tier, form: Form, rng: random.Random) -> Draft | None:
        """Return a query, or None when the group's documents have no names or descriptions that serve."""
        names = [topic_name(document) for document in group.excluded]
        if not all(names):
            return None
        topics = [name for name in names if name]
        for _ in range(_ATTEMPTS):
            found = self._wanted(group, topics, form, rng)
            if found is None:
                return None
            wanted, is_plural = found
            draft = self._draft(wanted, topics, is_plural, tier, form, rng)
            if draft is not None:
                return draft
        return None

    def _wanted(self, group: Group, topics: Sequence[str], form: Form, rng: random.Random) -> tuple[str, bool] | None:
        taken = {word for topic in topics for word in content_words(topic)}
        options: list[tuple[str, bool]] = []
        weights: list[float] = []
        others = [document.full_text for document in group.excluded]
        longest = 8 if form == "short" else 13
        shared = describe(group.wanted, max_words=longest, shared_with=others)
        own = describe(group.wanted, max_words=longest)
        for described, weight in ((shared, 0.5), (own, 0.25)):
            if described and not taken & set(content_words(described)):
                options.append((described, True))
                weights.append(weight)
        name = topic_name(group.wanted)
        apart = name and not any(mentions(topic, name) or mentions(name, topic) for topic in topics)
        if name and apart and is_common_name(name):
            options.append((name, False))
            weights.append(0.25)
        texts = [group.wanted.full_text, *others]
        words = self._vocabulary.shared_words(texts, without=taken, count=rng.choice((3, 4)))
        if len(words) >= 2:
            options.append((" ".join(words), False))
            weights.append(0.12)
        return rng.choices(options, weights)[0] if options else None

    def _draft(
        self, wanted: str, topics: Sequence[str], is_plural: bool, tier: Tier, form: Form, rng: random.Random
    ) -> Draft | None:
        core: Form = "long" if form == "long" and rng.random() < 0.5 else "short"
        slots = ["Z"] if len(topics) == 1 else [f"Z{i}" for i in range(1, len(topics) + 1)]
        fitting = [
            c
            for c in self._constructions.get((_KINDS[tier], core), [])
            if {s for s in c.slots if s.startswith("Z")} == set(slots)
            and (is_plural or (c.fits == "any" and not _PLURAL_ONLY.search(c.text)))
            and all(c.admits(slot, topic) for slot, topic in zip(slots, topics, strict=True))
        ]
        if not fitting:
            return None
        construction = rng.choice(fitting)
        # A construction may name its topics in another order than the documents'.
        fill = {"X": wanted, "ASK": rng.choice(_ASKS), **dict(zip(slots, topics, strict=True))}
        pieces = render(construction, fill)
        if form == "long":
            pieces = _lengthen(pieces, construction, rng)
        pieces = apply_style(pieces, draw_style(rng, [pieces]))
        text, spans = join(pieces)
        count = len(text.split())
        if not (count <= SHORT_MAX if form == "short" else LONG_MIN <= count <= LONG_MAX):
            return None
        order = [piece.role for piece in pieces if piece.is_topic]
        by_slot = {role: text[a:b] for role, (a, b) in zip(order, spans, strict=True)}
        if sorted(by_slot) != sorted(slots):
            return None
        return Draft(text, tier, form, wanted, tuple(by_slot[slot] for slot in slots))


def _lengthen(pieces: list[Piece], construction: Construction, rng: random.Random) -> list[Piece]:
    words = len(join(pieces)[0].split())
    before: list[str] = []
    after: list[str] = []
    for context in rng.sample(load_contexts(), 4):
        if words >= LONG_MIN + 2:
            break
        (before if rng.random() < 0.45 else after).append(context)
        words += len(context.split())
    if not before and not after:
        return pieces
    stop = "" if re.search(r"[.?!…][\"”)]?$", pieces[-1].text) else "."
    body = [*pieces, Piece(stop + (" " + " ".join(after) if after else ""))]
    if before:
        body = capitalise(body) if construction.register != "chat" else body
        body = [Piece(" ".join(before) + " "), *body]
    return [piece for piece in body if piece.text]
