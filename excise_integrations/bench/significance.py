"""Whether two systems differ: the paired bootstrap over per-query outcomes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from ..errors import InvalidInputError

__all__ = ["Comparison", "align", "paired_bootstrap"]

RESAMPLES = 10_000
_BLOCK = 1 << 21  # resampled values held at once


@dataclass(frozen=True)
class Comparison:
    """A against B on the queries that both have a value for.

    Args:
        n: how many queries that is.
        a, b: means over them; None when there are none.
        difference: ``a - b``.
        low, high: bounds of the confidence interval of the difference.
        p: two-sided; the probability of a resampled difference on the other side of zero, doubled.
    """

    n: int
    a: float | None
    b: float | None
    difference: float | None
    low: float | None
    high: float | None
    p: float | None

    def record(self) -> dict[str, Any]:
        """Return plain JSON types."""
        return dict(self.__dict__)


def align(a: Mapping[str, float | None], b: Mapping[str, float | None]) -> tuple[list[str], list[float], list[float]]:
    """Pair two systems' outcomes by query id.

    Args:
        a, b: query id → value, or None where a query has none.

    Returns:
        The ids that have a value in both, in the order of ``a``, and the values of each.
    """
    pairs = [(q, x, y) for q, x in a.items() if x is not None and (y := b.get(q)) is not None]
    return [q for q, _, _ in pairs], [x for _, x, _ in pairs], [y for _, _, y in pairs]


def paired_bootstrap(
    a: Sequence[float],
    b: Sequence[float],
    *,
    resamples: int = RESAMPLES,
    confidence: float = 0.95,
    seed: int = 0,
) -> Comparison:
    """Resample queries with replacement and look at how the mean difference varies.

    Args:
        a, b: one value per query each, of the same queries in the same order.
        resamples: how many resamples, at least 1.
        confidence: of the interval, between 0 and 1.
        seed: of the resampling; the same seed gives the same numbers.

    Returns:
        The comparison. ``p`` is at least ``2 / (resamples + 1)``: a resampling cannot tell less.

    Raises:
        InvalidInputError: the lists differ in length, or ``resamples`` or ``confidence`` is out of range.
    """
    if len(a) != len(b):
        raise InvalidInputError(f"a has {len(a)} values and b {len(b)}; a paired test needs one of each per query.")
    if resamples < 1 or not 0.0 < confidence < 1.0:
        raise InvalidInputError(
            f"resamples={resamples} must be at least 1 and confidence={confidence} between 0 and 1."
        )
    n = len(a)
    if n == 0:
        return Comparison(0, None, None, None, None, None, None)
    first, second = np.asarray(a, dtype=np.float64), np.asarray(b, dtype=np.float64)
    differences = first - second
    random = np.random.default_rng(seed)
    block = max(1, _BLOCK // n)
    means = np.concatenate(
        [
            differences[random.integers(0, n, size=(min(block, resamples - start), n))].mean(axis=1)
            for start in range(0, resamples, block)
        ]
    )
    # A sum of thirds that cancel is not exactly zero.
    means[np.abs(means) < 1e-12] = 0.0
    tail = (1.0 - confidence) / 2.0
    low, high = np.quantile(means, [tail, 1.0 - tail])
    rarer = min(int((means <= 0.0).sum()), int((means >= 0.0).sum()))
    return Comparison(
        n=n,
        a=float(first.mean()),
        b=float(second.mean()),
        difference=float(differences.mean()),
        low=float(low),
        high=float(high),
        p=min(1.0, 2.0 * (rarer + 1) / (resamples + 1)),
    )
