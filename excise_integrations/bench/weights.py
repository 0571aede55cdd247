"""Choosing what an intervention's penalty is multiplied by, on training queries."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch

from ..config import ExciseConfig
from .gate import ReadoutGate
from .interventions import WEIGHTS, penalised
from .metrics import mean, ranking_metrics
from .prepared import Prepared
from .variants import by_score

__all__ = ["GRID", "METHODS", "best_weights", "sweep_weights"]

GRID = (0.05, 0.1, 0.2, 0.4, 0.6, 0.8, 1.0, 1.5, 2.0, 3.0)
METHODS = ("maxsim-z", *WEIGHTS)


def sweep_weights(
    prepared: Prepared,
    config: ExciseConfig,
    *,
    gate: ReadoutGate | None = None,
    grid: Sequence[float] = GRID,
) -> dict[str, dict[str, Any]]:
    """Measure each intervention with the true topics at every weight of a grid.

    Args:
        prepared: a training split.
        config: ``k`` and ``floor`` are read.
        gate: the trained readout; without it, ``"gate"`` is left out.
        grid: weights.

    Returns:
        method → ``{"success@10": {weight: value}, "hit@10": {weight: value}}``.
    """
    out: dict[str, dict[str, Any]] = {}
    found = prepared.detections("true")
    qrels = prepared.suite.qrels
    for method in METHODS:
        if method == "gate" and gate is None:
            continue
        rankings: dict[float, dict[str, list[str]]] = {w: {} for w in grid}
        for i, query in enumerate(prepared.queries):
            row = prepared.shortlists[i][: config.k]
            if not row or not found[i].fired:
                continue
            plain = penalised(method, prepared, i, "true", config, gate=gate, weight=0.0)
            # Every penalty enters with its weight as a factor, so two points give them all.
            slope = penalised(method, prepared, i, "true", config, gate=gate, weight=1.0) - plain
            for weight in grid:
                order = by_score(torch.add(plain, slope, alpha=weight)).order
                rankings[weight][query.id] = [row[j].id for j in order]
        record: dict[str, Any] = {"success@10": {}, "hit@10": {}}
        for weight in grid:
            values = ranking_metrics(rankings[weight], qrels).values()
            for metric in ("success@10", "hit@10"):
                record[metric][str(weight)] = mean(v[metric] for v in values)
        out[method] = record
    return out


def best_weights(sweeps: Sequence[dict[str, dict[str, Any]]]) -> dict[str, float]:
    """Return each method's weight with the highest success@10, every suite counting the same.

    Args:
        sweeps: what :func:`sweep_weights` returned for each suite, on one grid.

    Returns:
        method → weight; a tie goes to the smaller weight. A method that a suite lacks is left out.
    """
    out: dict[str, float] = {}
    for method in METHODS:
        columns = [s[method]["success@10"] for s in sweeps if method in s]
        if columns and len(columns) == len(sweeps):
            means = {w: mean(c[w] for c in columns) for w in columns[0]}
            known = {float(w): round(m, 9) for w, m in means.items() if m is not None}
            if known:
                out[method] = max(known, key=lambda w: (known[w], -w))
    return out
