"""Comparing two runs, or two systems of one run, query by query."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from ..errors import InvalidInputError, SuiteError
from .metrics import RANKING_METRICS
from .rows import Row, read_row
from .significance import RESAMPLES, align, paired_bootstrap

__all__ = ["POOLED", "Outcomes", "compare", "load_outcomes", "pooled"]

POOLED = "all suites"

Outcomes = Mapping[str, Mapping[str, Mapping[str, float | None]]]
"""suite → metric → query id → value."""


def load_outcomes(source: str) -> Outcomes:
    """Read per-query outcomes.

    Args:
        source: a result file of ``excise bench run``; a folder of them, with ``#SYSTEM`` (``#default`` when it is
            left out); or a file of ``excise evaluate --per-query``, with ``#frozen`` or ``#excise`` (the default).

    Raises:
        SuiteError: it is missing, or is none of these.
    """
    name, _, part = source.partition("#")
    path = Path(name)
    if path.is_dir():
        system = part or "default"
        files = sorted(path.glob(f"*/{system}.jsonl"))
        if not files:
            known = sorted({p.stem for p in path.glob("*/*.jsonl")})
            raise SuiteError(f"{path} has no results of {system!r}. It has: {', '.join(known) or 'none at all'}.")
        return {row.suite: _by_metric(row) for row in map(read_row, files) if row.skipped is None}
    if not path.is_file():
        raise SuiteError(f"There is no file and no folder {name!r} to compare.")
    if _is_evaluation(path):
        return _evaluation(path, part or "excise")
    row = read_row(path)
    if row.skipped is not None:
        raise SuiteError(f"{path}: the system did not run. {row.skipped}")
    return {row.suite: _by_metric(row)}


def compare(
    a: Outcomes, b: Outcomes, metrics: Sequence[str], *, resamples: int = RESAMPLES, seed: int = 0
) -> list[dict[str, Any]]:
    """Compare outcomes per suite, and pooled when several suites are in both.

    Args:
        a, b: see :func:`load_outcomes`.
        metrics: names of ranking metrics.
        resamples, seed: see :func:`~excise_integrations.bench.significance.paired_bootstrap`.

    Returns:
        One record per suite and metric that has a value in both: ``suite``, ``metric`` and the comparison.

    Raises:
        InvalidInputError: an unknown metric, or the two have no suite in common.
    """
    for metric in metrics:
        if metric not in RANKING_METRICS:
            raise InvalidInputError(f"There is no metric {metric!r}; there are {', '.join(RANKING_METRICS)}.")
    suites = [s for s in a if s in b]
    if not suites:
        raise InvalidInputError(f"No suite is in both: {', '.join(a) or 'none'} against {', '.join(b) or 'none'}.")
    records = []
    for suite in [*suites, *([POOLED] if len(suites) > 1 else [])]:
        for metric in metrics:
            chosen = suites if suite == POOLED else [suite]
            _, x, y = align(pooled(a, chosen, metric), pooled(b, chosen, metric))
            if x:
                found = paired_bootstrap(x, y, resamples=resamples, seed=seed)
                records.append({"suite": suite, "metric": metric, **found.record()})
    return records


def pooled(outcomes: Outcomes, suites: Sequence[str], metric: str) -> dict[str, float | None]:
    """Return one metric over several suites, by suite and query id."""
    return {f"{s}\0{q}": value for s in suites if s in outcomes for q, value in outcomes[s].get(metric, {}).items()}


def _by_metric(row: Row) -> dict[str, dict[str, float | None]]:
    return {metric: row.values(metric) for metric in RANKING_METRICS}


def _is_evaluation(path: Path) -> bool:
    try:
        with path.open(encoding="utf-8") as handle:
            first = json.loads(handle.readline())
    except (OSError, ValueError, RecursionError):
        return False
    return isinstance(first, dict) and {"id", "frozen", "excise"} <= set(first)


def _evaluation(path: Path, side: str) -> Outcomes:
    if side not in ("frozen", "excise"):
        raise SuiteError(f"{path} is an evaluation; it has #frozen and #excise, not #{side}.")
    out: dict[str, dict[str, dict[str, float | None]]] = {}
    for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), start=1):
        try:
            record = json.loads(line)
            values = record[side]
            suite = out.setdefault(record["suite"], {m: {} for m in RANKING_METRICS})
            for metric in RANKING_METRICS:
                suite[metric][record["id"]] = values.get(metric)
        except (ValueError, KeyError, AttributeError, TypeError) as error:
            raise SuiteError(f"{path}, line {number}: no line of an evaluation ({error!r}).") from None
    return out
