"""AND, OR and NOT on candidate sets of two or three: what a safe operator leaves alone (paper, section 7.2)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from ..errors import SuiteError
from ..pipeline import Excise
from .evaluate import QueryOutcome, evaluate_suite
from .significance import paired_bootstrap
from .store import VectorStore
from .suites import Suite, bundled_suite, load_suite
from .summary import Stage

__all__ = ["LARGEST_FALL", "boolean_results", "bundled_boolean"]

#: How far AND and OR fell at most in the paper.
LARGEST_FALL = 0.067
_ORDER = ("AND", "OR", "NOT")


def bundled_boolean() -> list[Suite]:
    """Return the packaged AND and OR questions; see :func:`~excise_integrations.bench.suites.bundled_suite`."""
    return [load_suite(bundled_suite("and")), load_suite(bundled_suite("or"))]


def boolean_results(
    excise: Excise,
    suites: Sequence[Suite],
    *,
    store: VectorStore | None = None,
    progress: Stage | None = None,
    resamples: int = 10_000,
    seed: int = 0,
) -> dict[str, Any]:
    """Measure pairwise accuracy by connective, frozen and with Excise.

    Args:
        excise: the pipeline.
        suites: queries whose tier is AND, OR or NOT, each with relevant and excluded documents; only these documents
            are ranked.
        store: where document vectors are kept between runs.
        progress: see :data:`~excise_integrations.bench.summary.Stage`.
        resamples, seed: of the paired bootstrap over queries.

    Returns:
        Tier → ``n``, ``frozen``, ``excise`` (shares of queries whose relevant document comes first), ``difference``
        with its 95 % interval ``low`` and ``high`` and ``p``, and ``fire_rate``; AND, OR and NOT first.

    Raises:
        SuiteError: no query has a tier and both kinds of documents.
    """
    tiers: dict[str, list[QueryOutcome]] = {}
    for suite in suites:
        for outcome in evaluate_suite(excise, suite, candidates="judged", store=store, progress=progress).outcomes:
            tier = outcome.query.groups.get("tier")
            if tier and outcome.frozen["pairwise"] is not None:
                tiers.setdefault(tier, []).append(outcome)
    if not tiers:
        names = ", ".join(repr(s.name) for s in suites)
        raise SuiteError(f"{names}: no query has a tier, a relevant and an excluded document.")
    order = sorted(tiers, key=lambda t: (_ORDER.index(t) if t in _ORDER else len(_ORDER), t))
    return {tier: _row(tiers[tier], resamples, seed) for tier in order}


def _row(outcomes: Sequence[QueryOutcome], resamples: int, seed: int) -> dict[str, Any]:
    after = [float(o.excise["pairwise"] or 0.0) for o in outcomes]
    before = [float(o.frozen["pairwise"] or 0.0) for o in outcomes]
    found = paired_bootstrap(after, before, resamples=resamples, seed=seed).record()
    return {
        "n": found["n"],
        "frozen": found["b"],
        "excise": found["a"],
        **{key: found[key] for key in ("difference", "low", "high", "p")},
        "fire_rate": sum(o.detection.fired for o in outcomes) / len(outcomes),
    }
