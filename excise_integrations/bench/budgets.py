"""The report's section on document budgets: how much of a document each system reads."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ..encode.windows import LONG_CONTEXT, LONG_CONTEXT_TOKENS, SHORT_CONTEXT
from .external import MAX_TOKENS, PASSAGE_WORDS
from .markdown import interval, markdown, number, probability
from .significance import align, paired_bootstrap

if TYPE_CHECKING:
    from .results import Results

__all__ = ["document_budgets"]

_PASSAGES = "-passages"


def document_budgets(results: Results, shortened: Results) -> str:
    """Say how much of a document each system reads, and what changes when all read as much.

    Args:
        results: the rows of a run.
        shortened: those of a second run, of documents that end after so many words; may be empty.

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
    if words := _budgets(results):
        parts.append(f"In this run every system read the first {words} words of a document only.")
    changes = _passages(results)
    if changes:
        parts += ["What reading all passages changes, against the first tokens only:", changes]
    equal = _equal(results, shortened)
    if equal:
        head = f"The same with the first {_budgets(shortened)} words of a document only, for every system:"
        parts += [head, equal]
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


def _equal(results: Results, shortened: Results) -> str:
    body = []
    for system in shortened.systems:
        for suite in shortened.suites:
            cut, whole = shortened.row(system.name, suite), results.row(system.name, suite)
            if cut is None or whole is None or shortened.headline(suite) != "success@10":
                continue
            cells = []
            for metric in ("success@10", "leak"):
                _, a, b = align(cut.values(metric), whole.values(metric))
                found = paired_bootstrap(a, b)
                cells += [number(found.b), number(found.a), interval(found), probability(found.p)]
            body.append([f"`{system.name}`", suite, *cells])
    if not body:
        return ""
    columns = [c for m in ("success@10", "leak") for c in (m, f"{m}, shortened", "change [95 %]", "p")]
    return markdown(["system", "suite", *columns], body)


def _budgets(results: Results) -> str:
    words = sorted({int(b) for r in results.rows if r.queries and (b := r.head.get("budget")) is not None})
    return ", ".join(f"{b:,}" for b in words)
