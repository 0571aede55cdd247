"""Choose the fire threshold θ, fit a temperature, and test constants for noise (paper, section on constants)."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from ..errors import InvalidInputError

__all__ = ["Calibration", "NoiseTest", "Reliability", "calibrate", "fit_temperature", "noise_test", "reliability"]

DEFAULT_THRESHOLD = 0.76
GRID = (*(round(0.30 + 0.02 * i, 2) for i in range(33)), 0.95, 0.96, 0.97, 0.98, 0.99)

# Between 0.5 and 0.6 the dev splits gain no exclusion and false firing doubles.
_LEAST = 0.6


@dataclass(frozen=True)
class NoiseTest:
    """Whether a constant matters.

    Args:
        spread: the objective's largest minus its smallest value over the grid.
        noise: twice the binomial standard error of the objective.
        inert: whether the spread is below the noise; then the default is kept.
        values: objective per setting.
    """

    spread: float
    noise: float
    inert: bool
    values: dict[str, float]


@dataclass(frozen=True)
class Reliability:
    """Ten bins of stated probability against observed frequency, and their expected gap."""

    bins: tuple[tuple[float, float, int], ...]
    expected_error: float


@dataclass(frozen=True)
class Calibration:
    """What :func:`calibrate` decided, and on what grounds."""

    threshold: float
    admissible: tuple[float, ...]
    youden: NoiseTest
    false_firing: dict[str, dict[str, float]]
    reason: str

    def record(self) -> dict[str, Any]:
        """Return plain JSON types for a manifest."""
        return asdict(self)


def noise_test(values: Mapping[Any, float], samples: int) -> NoiseTest:
    """Compare an objective's spread over a grid with its own sampling error.

    Args:
        values: objective in [0, 1] (or a difference of two rates) per setting.
        samples: queries behind each value.

    Returns:
        The test; ``inert`` when spread < 2 · sqrt(p(1 − p)/n) at the best setting.
    """
    if not values or samples < 1:
        raise InvalidInputError(f"A noise test needs values and samples; got {len(values)} and {samples}.")
    best = max(values.values())
    p = min(max(best, 0.0), 1.0)
    noise = 2.0 * math.sqrt(max(p * (1 - p), 0.25 / samples) / samples)
    spread = best - min(values.values())
    return NoiseTest(spread, noise, spread < noise, {str(k): v for k, v in values.items()})


def calibrate(
    positives: Sequence[float],
    controls: Sequence[float],
    ordinary: Mapping[str, Sequence[float]],
    *,
    budgets: Mapping[str, float],
    default: float = DEFAULT_THRESHOLD,
    grid: Sequence[float] = GRID,
) -> Calibration:
    """Choose θ: admissible by false firing, then the noise test, then Youden's J.

    Args:
        positives: probabilities of queries that exclude something.
        controls: probabilities of hard queries that exclude nothing.
        ordinary: probabilities of ordinary queries, per source.
        budgets: allowed share of false firings per source.
        default: kept when it is admissible and J is flat over the admissible range.
        grid: thresholds to look at.

    Returns:
        The threshold and the grounds. When no threshold is admissible the highest is taken and the
        reason says so.
    """
    firing = {
        name: {str(t): sum(s > t for s in scores) / max(1, len(scores)) for t in grid}
        for name, scores in ordinary.items()
    }
    admissible = [t for t in grid if all(firing[name][str(t)] <= budgets[name] for name in ordinary)]
    candidates = admissible or [max(grid)]
    youden = {
        t: sum(s > t for s in positives) / max(1, len(positives)) - sum(s > t for s in controls) / max(1, len(controls))
        for t in candidates
    }
    test = noise_test(youden, max(1, min(len(positives), len(controls) or len(positives))))
    if not admissible:
        chosen, reason = max(grid), "no threshold is within the budgets of false firing; the highest was taken"
    elif test.inert and default in youden:
        chosen, reason = default, "Youden's J is flat over the admissible range; the default was kept"
    else:
        top = max(youden.values())
        # Within the budgets a missed exclusion costs more than a false firing, which the operator bounds; but
        # what is hardly likelier to exclude than not stays silent.
        plateau = [t for t in candidates if youden[t] >= top - test.noise / 2]
        chosen = next((t for t in plateau if t >= _LEAST), plateau[-1])
        reason = f"lowest of the plateau of Youden's J over the admissible range, from {_LEAST} on"
    return Calibration(chosen, tuple(admissible), test, firing, reason)


def reliability(probabilities: Sequence[float], labels: Sequence[int], *, bins: int = 10) -> Reliability:
    """Return the reliability curve.

    Args:
        probabilities: in [0, 1].
        labels: 0 or 1, one per probability.
        bins: bins of equal width.

    Returns:
        Per non-empty bin (mean probability, observed frequency, count), and the expected calibration error.
    """
    if len(probabilities) != len(labels):
        raise InvalidInputError(f"{len(probabilities)} probabilities and {len(labels)} labels were given.")
    rows: list[tuple[float, float, int]] = []
    for b in range(bins):
        at = [i for i, p in enumerate(probabilities) if min(int(p * bins), bins - 1) == b]
        if at:
            rows.append((sum(probabilities[i] for i in at) / len(at), sum(labels[i] for i in at) / len(at), len(at)))
    error = sum(abs(p - f) * n for p, f, n in rows) / max(1, len(labels))
    return Reliability(tuple(rows), error)


def fit_temperature(logits: Sequence[float], labels: Sequence[int]) -> float:
    """Return the temperature in [0.25, 8] that minimises the negative log-likelihood (golden section)."""

    def loss(log_t: float) -> float:
        t = math.exp(log_t)
        return sum(_softplus(-z / t if y else z / t) for z, y in zip(logits, labels, strict=True))

    return math.exp(_golden(loss, math.log(0.25), math.log(8.0)))


def _softplus(x: float) -> float:
    return max(x, 0.0) + math.log1p(math.exp(-abs(x)))


def _golden(f: Callable[[float], float], low: float, high: float, steps: int = 40) -> float:
    ratio = (math.sqrt(5) - 1) / 2
    a, b = high - ratio * (high - low), low + ratio * (high - low)
    fa, fb = f(a), f(b)
    for _ in range(steps):
        if fa < fb:
            high, b, fb = b, a, fa
            a = high - ratio * (high - low)
            fa = f(a)
        else:
            low, a, fa = a, b, fb
            b = low + ratio * (high - low)
            fb = f(b)
    return (low + high) / 2
