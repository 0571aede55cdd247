"""The report's section on systems from outside: Excise against each of them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from .markdown import interval, markdown, number, probability

if TYPE_CHECKING:
    from .results import Results
    from .systems import System

__all__ = ["against_outside"]

COLUMNS: Mapping[str, bool] = {"success@10": True, "hit@10": True, "leak": False, "leak_docs": False, "xndcg@10": True}
"""The exclusion columns, and whether more is better."""


def against_outside(results: Results) -> str:
    """Compare Excise with every system from outside, per suite and pooled, column by column.

    Args:
        results: the rows of a run, ``default`` among them.

    Returns:
        Markdown; empty without such a system, or without ``default``.
    """
    systems = [s for s in results.systems if s.group in ("rivals", "controls")]
    suites = [s for s in results.suites if results.headline(s) == "success@10"]
    if not systems or not suites or not results.has("default"):
        return ""
    places = [([s], s) for s in suites] + ([(suites, "pooled")] if len(suites) > 1 else [])
    parts = []
    for chosen, place in places:
        head = ["system", "queries", *(c for m in COLUMNS for c in (m, "p")), "ordinary nDCG@10 against frozen"]
        body = [line for s in systems if (line := _line(results, s.name, chosen))]
        if body:
            parts += [f"### {place[:1].upper()}{place[1:]}", markdown(head, body)]
    if not parts:
        return ""
    note = (
        "Each system minus Excise [95 %], on the queries with excluded documents that both ran (paired bootstrap): "
        "above zero is better than Excise in success@10, hit@10 and xnDCG@10, below zero in leak and leak_docs. The "
        "last column is each system's nDCG@10 minus the frozen ranking's on queries that exclude nothing; Excise's "
        "own is under No harm."
    )
    return "\n\n".join([note, *parts, "### Where Excise is not the best row", _not_best(results, systems, places)])


def _line(results: Results, system: str, suites: Sequence[str]) -> list[str]:
    found = {m: results.against(system, suites, m, among="exclusions") for m in COLUMNS}
    count = found["leak"].n
    if not count:
        return []
    cells = [cell for f in found.values() for cell in (interval(f), probability(f.p))]
    harm = results.against(system, suites, "ndcg@10", "frozen", among="ordinary")
    return [f"`{system}`", str(count), *cells, interval(harm)]


def _not_best(results: Results, systems: Sequence[System], places: Sequence[tuple[list[str], str]]) -> str:
    body = []
    for suites, place in places:
        for metric, more in COLUMNS.items():
            for system in systems:
                found = results.against(system.name, suites, metric, among="exclusions")
                if found.difference is None or (found.difference > 0) != more or found.difference == 0:
                    continue
                hits = results.against(system.name, suites, "hit@10", among="exclusions")
                values = [number(found.a), number(found.b), interval(found), probability(found.p)]
                body.append([place, metric, f"`{system.name}`", *values, number(hits.a), number(hits.b)])
    if not body:
        return "Excise is the best row in every exclusion column, per suite and pooled."
    head = ["suite", "column", "system", "its value", "Excise", "difference [95 %]", "p", "its hit@10", "Excise hit@10"]
    return "hit@10 stands beside it, since a system that finds little leaks little.\n\n" + markdown(head, body)
