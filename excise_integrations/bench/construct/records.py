"""What a build is made of: its settings, its records, and what it reports."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

from ...errors import InvalidInputError
from ...train.mining_files import group_judgments, query_row
from ...train.query_templates import Draft, Form, Group, Tier

__all__ = ["BenchRecord", "BuildReport", "BuildSettings", "Shape"]

Shape = Literal["disjunctive", "mixed"]
"""How a query excludes two topics: both by a cue, or one by a cue and one as already covered."""


@dataclass(frozen=True)
class BuildSettings:
    """How a suite is built.

    Args:
        count: groups of documents that a query is written for, at least 1; what the gates drop is not made up for.
        seed: the same seed, corpus and answers give the same suite.
        tiers, forms: which kinds of query, in equal shares.
        max_uses: in how many groups a document may be, at least 1; it is wanted in at most one.
        band: lowest and highest similarity of a pair; None takes the corpus' usual band.
        near_duplicate: estimated Jaccard similarity from which two documents say the same.
        attempts: how often a model is asked for one usable answer, at least 1.
        timeout: seconds that one answer may take, above 0.
        round_trip: the wanted document must be within this rank for the query, at least 1.
        bm25, maxsim: lowest share of the wanted document's score on the wanted topic that an excluded one must
            reach to be competitive, in [0, 1].
        leakage: estimated Jaccard similarity from which a text counts as part of a reference corpus.
    """

    count: int = 300
    seed: int = 0
    tiers: tuple[Tier, ...] = ("T1", "T2", "T3")
    forms: tuple[Form, ...] = ("short", "long")
    max_uses: int = 2
    band: tuple[float, float] | None = None
    near_duplicate: float = 0.5
    attempts: int = 3
    timeout: float = 60.0
    round_trip: int = 100
    bm25: float = 0.5
    maxsim: float = 0.8
    leakage: float = 0.9

    def __post_init__(self) -> None:
        for name in ("count", "max_uses", "attempts", "round_trip"):
            if getattr(self, name) < 1:
                raise InvalidInputError(f"{name}={getattr(self, name)} must be at least 1.")
        for name in ("bm25", "maxsim"):
            if not 0 <= getattr(self, name) <= 1:
                raise InvalidInputError(f"{name}={getattr(self, name)} must lie within 0 and 1.")
        if self.timeout <= 0:
            raise InvalidInputError(f"timeout={self.timeout} must be above 0.")


@dataclass(frozen=True)
class BenchRecord:
    """A query of the suite to be, with its documents.

    Args:
        id: of the query.
        draft: the query as it goes through the gates.
        group: its documents.
        shape: of a query with two topics; None for the others.
        repaired: whether a cue was put back in.
    """

    id: str
    draft: Draft
    group: Group
    shape: Shape | None = None
    repaired: bool = False

    def row(self) -> dict[str, Any]:
        """Return the line of ``queries.jsonl``."""
        row = query_row(self.id, self.draft)
        return row if self.shape is None else {**row, "shape": self.shape}

    def judgments(self) -> list[tuple[str, str, int]]:
        """Return the judgments of its documents, the wanted one first: query id, document id, score."""
        return group_judgments(self.id, self.group)


@dataclass(frozen=True)
class BuildReport:
    """What came of a build; ``build.json`` holds :attr:`facts`.

    Args:
        folder: the suite.
        kept: the records that passed every gate.
        rejected: the others with the gate that dropped each.
        facts: counts, settings and names, as plain JSON types.
    """

    folder: Path
    kept: tuple[BenchRecord, ...]
    rejected: tuple[tuple[str, BenchRecord], ...]
    facts: dict[str, Any] = field(default_factory=dict)
