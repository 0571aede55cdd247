"""The search for confusable pairs: which documents make a triple, and why others do not."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from ..encode.backbone import Backbone
from ..errors import InvalidInputError
from .descriptions import Document, mentions, topic_name
from .near_duplicates import NearDuplicates
from .neighbours import Neighbours, pool_queries
from .query_templates import Draft, Form, Group, QueryWriter, Tier

__all__ = ["MinedTriple", "MiningSettings", "Search"]

_CLOSEST = 10


@dataclass(frozen=True)
class MiningSettings:
    """How pairs are chosen.

    Args:
        count: triples to mine, at least 1; fewer come out when the corpus gives fewer.
        seed: the same seed, corpus and writer give the same triples.
        tiers, forms: which kinds of query, in equal shares.
        similarity: "dense" (mean of the token vectors) or "maxsim" (dense neighbours, rescored).
        band: lowest and highest similarity of a pair; None takes the corpus' usual band.
        neighbours: how many of the nearest are looked at, at least 2.
        near_duplicate: estimated Jaccard similarity from which two documents say the same, in (0, 1].
        max_uses: in how many triples a document may be, at least 1; it is wanted in at most one.
        round_trip: the wanted document must be within this rank for the query, and every document of
            the triple for the wanted topic alone; 0 switches the check off.
    """

    count: int = 1000
    seed: int = 0
    tiers: tuple[Tier, ...] = ("T1", "T2", "T3")
    forms: tuple[Form, ...] = ("short", "long")
    similarity: Literal["dense", "maxsim"] = "dense"
    band: tuple[float, float] | None = None
    neighbours: int = 40
    near_duplicate: float = 0.5
    max_uses: int = 2
    round_trip: int = 100

    def __post_init__(self) -> None:
        for name, low in (("count", 1), ("neighbours", 2), ("max_uses", 1), ("round_trip", 0)):
            if getattr(self, name) < low:
                raise InvalidInputError(f"{name}={getattr(self, name)} must be at least {low}.")
        if not self.tiers or not self.forms:
            raise InvalidInputError(f"tiers={self.tiers!r} and forms={self.forms!r}: at least one of each is needed.")
        if self.similarity not in ("dense", "maxsim"):
            raise InvalidInputError(f"similarity={self.similarity!r} is neither 'dense' nor 'maxsim'.")


@dataclass(frozen=True)
class MinedTriple:
    """A query with its wanted document and its confusable ones.

    Args:
        draft: the query.
        group: the documents.
        similarity: of each excluded document to the wanted one.
    """

    draft: Draft
    group: Group
    similarity: tuple[float, ...]


class Search:
    """Groups, their queries, and why the others were refused.

    Args:
        documents: what may be used.
        neighbours: over the same documents in the same order.
        duplicates: knows the forbidden texts.
        settings, writer: as for :func:`~excise_integrations.train.mining.mine`.
    """

    def __init__(
        self,
        documents: Sequence[Document],
        neighbours: Neighbours,
        duplicates: NearDuplicates,
        settings: MiningSettings,
        writer: QueryWriter,
    ) -> None:
        self._documents = documents
        self._places = {document.id: place for place, document in enumerate(documents)}
        self._names = [topic_name(document) for document in documents]
        # A name that several documents have ("Definitions") tells none of them.
        self._common = {n for n, c in Counter(n.casefold() for n in self._names if n).items() if c > 1}
        self._neighbours = neighbours
        self._duplicates = duplicates
        self._settings = settings
        self._writer = writer
        self._uses: Counter[int] = Counter()
        self._kinds: Counter[tuple[Tier, Form]] = Counter()
        self.refused: Counter[str] = Counter()

    def count(self, triples: Sequence[MinedTriple]) -> None:
        """Count what was kept, so that refused drafts leave their documents and their share to others."""
        self._kinds = Counter((t.draft.tier, t.draft.form) for t in triples)
        self._uses = Counter(self._places[d.id] for t in triples for d in (t.group.wanted, *t.group.excluded))

    def batch(self, rows: Sequence[int], limit: int) -> tuple[list[MinedTriple], int]:
        """Look for at most ``limit`` triples whose wanted documents are among ``rows``.

        Returns:
            The triples, and how many of the rows were looked at.
        """
        found: list[MinedTriple] = []
        for looked, (row, near) in enumerate(zip(rows, self._neighbours.within(rows), strict=True)):
            if len(found) == limit:
                return found, looked
            triple = self._triple(row, near)
            if triple is not None:
                found.append(triple)
        return found, len(rows)

    def in_reach(self, found: Sequence[MinedTriple], backbone: Backbone) -> list[MinedTriple]:
        """Leave out triples whose documents the first stage would not find (paper: round trip and difficulty)."""
        limit = self._settings.round_trip
        if not limit or not found:
            return list(found)
        ranks = self._neighbours.ranks(
            pool_queries([t.draft.text for t in found], backbone),
            [self._places[t.group.wanted.id] for t in found],
        )
        topics = pool_queries([t.draft.wanted for t in found], backbone)
        pairs = [
            (number, self._places[document.id])
            for number, t in enumerate(found)
            for document in (t.group.wanted, *t.group.excluded)
        ]
        worst = [0] * len(found)
        for (number, _), rank in zip(
            pairs, self._neighbours.ranks(topics[[n for n, _ in pairs]], [p for _, p in pairs]), strict=True
        ):
            worst[number] = max(worst[number], rank)
        kept: list[MinedTriple] = []
        for triple, rank, topic_rank in zip(found, ranks, worst, strict=True):
            if rank > limit:
                self.refused["the wanted document is out of the query's reach"] += 1
            elif topic_rank > limit:
                self.refused["a document is out of the wanted topic's reach"] += 1
            else:
                kept.append(triple)
        return kept

    def _triple(self, row: int, near: Sequence[tuple[int, float]]) -> MinedTriple | None:
        if self._uses[row] >= self._settings.max_uses:
            return None
        wanted = self._documents[row]
        if self._duplicates.is_forbidden(wanted.full_text):
            self.refused["near-duplicate of a judged document"] += 1
            return None
        rng = random.Random(f"{self._settings.seed} {wanted.id}")
        tier, form = self._next_kind(rng)
        chosen: list[tuple[int, float]] = []
        # Any of the nearest in the band, not always its top.
        near = near[:_CLOSEST]
        for place, similarity in rng.sample(near, len(near)):
            if self._may_be_excluded(place, row, [p for p, _ in chosen]):
                chosen.append((place, similarity))
                if len(chosen) == (2 if tier == "T3" else 1):
                    break
        else:
            self.refused["too few confusable neighbours"] += 1
            return None
        group = Group(wanted, tuple(self._documents[place] for place, _ in chosen))
        draft = self._writer.write(group, tier=tier, form=form, rng=rng)
        if draft is None:
            self.refused["no query could be written"] += 1
            return None
        if any(mentions(topic, wanted.full_text) for topic in draft.excluded):
            self.refused["the wanted document names the excluded topic"] += 1
            return None
        self._kinds[tier, form] += 1
        self._uses.update([row, *(place for place, _ in chosen)])
        return MinedTriple(draft, group, tuple(similarity for _, similarity in chosen))

    def _next_kind(self, rng: random.Random) -> tuple[Tier, Form]:
        kinds = [(tier, form) for tier in self._settings.tiers for form in self._settings.forms]
        rng.shuffle(kinds)
        return min(kinds, key=lambda kind: self._kinds[kind])

    def _may_be_excluded(self, place: int, wanted: int, others: Sequence[int]) -> bool:
        name = self._names[place]
        if name is None or name.casefold() in self._common or self._uses[place] >= self._settings.max_uses:
            return False
        text = self._documents[place].full_text
        if mentions(name, self._documents[wanted].full_text) or self._duplicates.is_forbidden(text):
            return False
        if any(mentions(name, self._names[o] or "") or mentions(self._names[o] or "", name) for o in others):
            return False
        return not any(self._duplicates.same(text, self._documents[o].full_text) for o in (wanted, *others))
