"""The report's sections on systems from outside: Excise against each of them, and how much of a document each reads."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from ..encode.windows import LONG_CONTEXT, LONG_CONTEXT_TOKENS, SHORT_CONTEXT
from .external import MAX_TOKENS, PASSAGE_WORDS
from .markdown import interval, markdown, number, probability

if TYPE_CHECKING:
    from .report import Results
    from .systems import System

__all__ = ["against_outside", "document_budgets"]

COLUMNS: Mapping[str, bool] = {"success@10": True, "hit@10": True, "leak": False, "leak_docs": False, "xndcg@10": True}
"""The exclusion columns, and whether more is better."""
_PASSAGES = "-passages"


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


def document_budgets(results: Results) -> str:
    """Say how much of a document each system reads, and what leak changes when it reads all of it.

    Args:
        results: the rows of a run.

    Returns:
        Markdown. Systems called ``NAME`` and ``NAME-passages`` are one model, over the start of a document and over
        all its passages.
    """
    tokens = f"{LONG_CONTEXT_TOKENS:,} tokens"
    body = [
        [name, f"{policy.words} words", f"{policy.max_words:,} words", "best window"]
        for name, policy in (
            (f"late interaction, context below {tokens}", SHORT_CONTEXT),
            (f"late interaction, context of {tokens} or more", LONG_CONTEXT),
        )
    ]
    body += [
        ["dense and cross-encoder", "–", f"{MAX_TOKENS} tokens, or the model's limit", "–"],
        [
            "dense and cross-encoder over passages", f"{PASSAGE_WORDS} words, {MAX_TOKENS} tokens", "none",
            "best passage",
        ],
        ["BM25", "–", "none", "–"],
    ]  # fmt: skip
    parts = [markdown(["what reads", "window", "cap", "a document's score"], body)]
    shortened = sorted({int(b) for r in results.rows if r.queries and (b := r.head.get("budget")) is not None})
    if shortened:
        words = ", ".join(f"{b:,}" for b in shortened)
        parts.append(f"In this run every system read the first {words} words of a document only.")
    changes = _passages(results)
    if changes:
        parts += ["What reading all passages changes, against the first tokens only:", changes]
    return "\n\n".join(parts)


def _passages(results: Results) -> str:
    suites = [s for s in results.suites if results.headline(s) == "success@10"]
    names = [s.name for s in results.systems]
    body = []
    for name in names:
        whole = name + _PASSAGES
        if whole not in names:
            continue
        both = [s for s in suites if results.row(name, s) and results.row(whole, s)]
        for chosen, place in [([s], s) for s in both] + ([(both, "pooled")] if len(both) > 1 else []):
            leak = results.against(whole, chosen, "leak", name)
            success = results.against(whole, chosen, "success@10", name)
            body.append(
                [
                    f"`{name}`", place, str(leak.n), number(leak.b), number(leak.a), interval(leak),
                    probability(leak.p), interval(success),
                ]
            )  # fmt: skip
    if not body:
        return ""
    head = [
        "system", "suite", "queries", "leak, first tokens", "leak, passages",
        "change [95 %]", "p", "change of success@10 [95 %]",
    ]  # fmt: skip
    return markdown(head, body)
