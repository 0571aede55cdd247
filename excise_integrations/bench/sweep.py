"""Sweeps of the operator's constants, each beside the noise of what it is judged by (paper, section on constants)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from ..config import ExciseConfig
from ..errors import InvalidInputError
from ..train.calibrate import NoiseTest, noise_test
from .metrics import average, ranking_metrics
from .prepared import Prepared
from .systems import Topics
from .variants import rank

__all__ = ["GRIDS", "LOST_HITS", "Sweep", "grid_of", "sweep"]

_METRICS = ("success@10", "hit@10", "leak")
LOST_HITS = 0.01
"""How much of hit@10 a scale may cost; success alone would run to the top of any grid."""

_SHARED: dict[str, tuple[float, ...]] = {
    "floor": (0.0, 0.2, 0.35, 0.5, 0.65, 0.8),
    "cut_width": (0.0, 0.25, 0.5, 1.0, 1.5, 2.0),
    "penalty_scale": (0.0, 0.5, 0.97, 2.0, 4.0, 8.0),
    "cap": (0, 1, 2, 3, 5),
}
GRIDS: dict[str, dict[str, tuple[float, ...]]] = {
    "paper": {**_SHARED, "removal_fraction": (0.5, 0.6, 0.7, 0.8, 0.9, 0.95)},
    "per_topic": {
        **_SHARED,
        "topic_fraction": (0.81, 0.84, 0.87, 0.9, 0.93, 0.96),
        "opening_weight": (0.0, 0.25, 0.5, 0.75, 1.0),
        "opening_gate": (0.65, 0.7, 0.75, 0.8, 0.85),
        "opening_crowd": (3, 5, 10, 20, 100),
        "dominance": (0.05, 0.1, 0.15, 0.2, 0.3),
        "dominance_slope": (0.0, 0.15, 0.3, 0.5, 0.8),
        "dominance_words": (0, 3, 5, 7),
        "dominance_limit": (0.9, 0.95, 0.98, 1.1),
    },
}
"""The values of each constant of a rule that are tried; the configured one is added."""


@dataclass(frozen=True)
class Sweep:
    """One constant over its grid, the others as configured.

    Args:
        name: field of :class:`~excise_integrations.ExciseConfig`.
        configured: the value it has.
        values: value → mean ``success@10``, ``hit@10`` and ``leak``.
        test: whether success@10 moves by more than its own noise.
        exercised: queries whose ranking some value of the grid changes.
        bounded: the largest value that loses at most :data:`LOST_HITS` of the smallest value's hit@10.
    """

    name: str
    configured: float
    values: Mapping[float, Mapping[str, float]]
    test: NoiseTest
    exercised: int
    bounded: float

    def record(self) -> dict[str, Any]:
        """Return plain JSON types."""
        return {**asdict(self), "values": {str(k): dict(v) for k, v in self.values.items()}}


def grid_of(config: ExciseConfig, name: str) -> tuple[float, ...]:
    """Return the values to try of a constant, ascending, the configured one among them.

    Raises:
        InvalidInputError: the rule has no such constant.
    """
    grids = GRIDS[config.demotion]
    if name not in grids:
        raise InvalidInputError(f"demotion={config.demotion!r} has no grid for {name!r}; choose from {sorted(grids)}.")
    configured = getattr(config, name)
    return tuple(sorted({*grids[name], *([configured] if configured is not None else [])}))


def sweep(
    prepared: Prepared, config: ExciseConfig, names: Sequence[str] | None = None, *, topics: Topics = "true"
) -> list[Sweep]:
    """Measure a suite's queries at every value of each constant, one constant at a time.

    Args:
        prepared: the suite; never a test split.
        config: what the constants are where they are not swept.
        names: constants; all of the rule's by default.
        topics: the suite's topics, so that detection does not blur the rule, or detected ones.

    Returns:
        One sweep per constant.

    Raises:
        InvalidInputError: an unknown constant, or no query that has a topic and an excluded document.
    """
    chosen = list(names) if names is not None else list(GRIDS[config.demotion])
    grids = {name: grid_of(config, name) for name in chosen}
    qrels = prepared.suite.qrels
    detections = prepared.detections(topics)
    rows = [
        i
        for i, query in enumerate(prepared.queries)
        if detections[i].fired and any(score < 0 for score in qrels[query.id].values())
    ]
    if not rows:
        raise InvalidInputError(f"Suite {prepared.suite.name!r} has no query with a topic and an excluded document.")
    prepared.reembed(rows)
    adapted = prepared.excise.exclusion is not None

    def rankings(setting: ExciseConfig) -> dict[str, list[str]]:
        found = {}
        for i in rows:
            order = rank(prepared.matches(i, topics, "encoder"), setting, adapted=adapted).order
            found[prepared.queries[i].id] = [prepared.shortlists[i][j].id for j in order]
        return found

    out = []
    for name, grid in grids.items():
        runs = {value: rankings(config.model_copy(update={name: value})) for value in grid}
        measured = {value: list(ranking_metrics(run, qrels).values()) for value, run in runs.items()}
        values = {value: average(found, [0] * len(found), _METRICS) for value, found in measured.items()}
        first = runs[grid[0]]
        exercised = sum(any(run[q] != first[q] for run in runs.values()) for q in first)
        kept = [v for v in grid if values[v]["hit@10"] >= values[grid[0]]["hit@10"] - LOST_HITS]
        test = noise_test({v: s["success@10"] for v, s in values.items()}, len(rows))
        out.append(Sweep(name, getattr(config, name), values, test, exercised, kept[-1]))
    return out
