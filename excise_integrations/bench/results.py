"""The rows of a run as a table: systems by suites, and comparisons between them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Literal

from .compare import pooled
from .rows import QueryRow, Row
from .significance import Comparison, align, paired_bootstrap
from .systems import GROUPS, SYSTEMS, System

__all__ = ["REFERENCE", "Among", "Results"]

REFERENCE = "default"
Among = Literal["all", "exclusions", "ordinary"]


@dataclass(frozen=True)
class Results:
    """The rows of a run.

    Args:
        rows: as :func:`~excise_integrations.bench.rows.read_folder` returns them.
    """

    rows: tuple[Row, ...]

    @cached_property
    def suites(self) -> list[str]:
        """Names of the suites that hold queries, those with excluded documents first."""
        names = dict.fromkeys(r.suite for r in self.rows if r.queries)
        order = {"success@10": 0, "pairwise": 1, "ndcg@10": 2}
        return sorted(names, key=lambda s: (order[self.headline(s)], s))

    @cached_property
    def _table(self) -> dict[tuple[str, str], Row]:
        return {(r.system, r.suite): r for r in self.rows if r.queries}

    @cached_property
    def systems(self) -> list[System]:
        """The systems that ran, in the order of the report; those from outside come last in their group."""
        known = [s for s in SYSTEMS if self.has(s.name)]
        names = {s.name for s in SYSTEMS}
        heads = {r.system: r.head for r in self.rows if r.queries and r.system not in names}
        outside = [
            System(name, head["group"], head["title"], method="external", vectors="frozen")
            for name, head in heads.items()
            if head.get("group") in GROUPS
        ]
        return [*known, *outside]

    def row(self, system: str, suite: str) -> Row | None:
        """Return the outcomes of a system on a suite, or None."""
        return self._table.get((system, suite))

    def has(self, system: str) -> bool:
        """Say whether a system ran on any suite."""
        return any(name == system for name, _ in self._table)

    def headline(self, suite: str) -> str:
        """Return what a suite is read by: pairwise, success@10, or nDCG@10 where nothing is excluded."""
        rows = [r for r in self.rows if r.suite == suite and r.queries]
        if any(r.head.get("candidates") == "judged" for r in rows):
            return "pairwise"
        return (
            "success@10" if any(q.values.get("success@10") is not None for r in rows for q in r.queries) else "ndcg@10"
        )

    def queries(self, system: str) -> list[QueryRow]:
        """Return a system's outcomes over all suites whose candidates are the corpus."""
        rows = (self.row(system, s) for s in self.suites if self.headline(s) != "pairwise")
        return [q for r in rows if r is not None for q in r.queries]

    def against(
        self, system: str, suites: Sequence[str], metric: str, other: str = REFERENCE, *, among: Among = "all"
    ) -> Comparison:
        """Compare a system with another, Excise by default, on the queries that both have.

        Args:
            system, other: names; the difference is ``system`` minus ``other``.
            suites: pooled where they are several; one that either did not run on is left out.
            metric: what is compared.
            among: all queries, those with excluded documents, or those that exclude nothing.
        """
        outcomes = [
            {s: {metric: _values(r, metric, among)} for s in suites if (r := self.row(name, s)) is not None}
            for name in (system, other)
        ]
        _, a, b = align(*(pooled(o, suites, metric) for o in outcomes))
        return paired_bootstrap(a, b)


def _values(row: Row, metric: str, among: Among) -> dict[str, float | None]:
    def counts(query: QueryRow) -> bool:
        return query.ordinary if among == "ordinary" else among == "all" or query.values.get("leak") is not None

    return {q.id: q.values.get(metric) for q in row.queries if counts(q)}
