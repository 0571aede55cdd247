"""How long a firing takes by how much of its shortlist the cache holds."""

from __future__ import annotations

import copy
import random
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from ..encode.backbone import Backbone
from ..encode.cache import VectorCache
from ..errors import InvalidInputError
from .speed import Workload, percentile, turn_of

__all__ = ["SHARES", "HitRate", "hit_rate_rows"]

SHARES = (0.0, 0.25, 0.5, 0.75, 0.9, 1.0)
_ROOM = 1 << 34


@dataclass(frozen=True)
class HitRate:
    """How long firings took at one hit rate.

    Args:
        hit_rate: share of the candidates that the cache held, as the cache counted it.
        n: firings.
        p50, p95: milliseconds.
    """

    hit_rate: float
    n: int
    p50: float
    p95: float

    def record(self) -> dict[str, Any]:
        """Return plain JSON types."""
        return asdict(self)


def hit_rate_rows(
    work: Workload,
    *,
    shares: Sequence[float] = SHARES,
    repeats: int = 10,
    seed: int = 0,
    progress: Callable[[int, int], None] | None = None,
) -> list[HitRate]:
    """Time re-ranking after a retriever that has no vectors, with a part of each shortlist in the cache.

    Args:
        work: the pipeline and its queries; see :class:`~excise_integrations.bench.speed.Workload`.
        shares: of the shortlist, how much is in the cache, each in [0, 1].
        repeats: firings per share, at least 1; the shares take turns, in random order.
        seed: of the order, and of which candidates are in the cache.
        progress: called with the rounds done and the total.

    Returns:
        One row per share, in their order.

    Raises:
        InvalidInputError: a share or ``repeats`` is out of range.
    """
    if repeats < 1 or not shares or min(shares) < 0.0 or max(shares) > 1.0:
        raise InvalidInputError(f"repeats={repeats} must be at least 1, and shares={list(shares)} lie in [0, 1].")
    rng = random.Random(seed)
    known = VectorCache(_ROOM)
    encoder = work.excise.encoder
    # Once through, so that what a cache is filled with below costs no forward pass, and the machine is warm.
    for query in work.fired:
        _firing(work, query, known)
    replay = _replay(encoder, known)
    seconds: dict[float, list[float]] = {share: [] for share in shares}
    hits: dict[float, list[float]] = {share: [] for share in shares}
    for turn in range(repeats):
        query = turn_of(work.fired, turn)
        texts = [c.text for c in work.shortlists[query]]
        for share in rng.sample(list(seconds), len(seconds)):
            cache = VectorCache(_ROOM)
            cache.encode(rng.sample(texts, round(share * len(texts))), replay)
            before = cache.stats()
            seconds[share].append(_firing(work, query, cache))
            after = cache.stats()
            hit, missed = after.hits - before.hits, after.misses - before.misses
            hits[share].append(hit / max(1, hit + missed))
        if progress is not None:
            progress(turn + 1, repeats)
    return [
        HitRate(
            sum(hits[share]) / repeats,
            repeats,
            1000 * percentile(seconds[share], 0.5),
            1000 * percentile(seconds[share], 0.95),
        )
        for share in seconds
    ]


def _firing(work: Workload, query: str, cache: VectorCache) -> float:
    """Re-rank the shortlist of a query, and return the seconds."""
    excise = work.excise.with_config()
    excise.cache = cache
    clock = time.perf_counter()
    # No first stage is named: candidates come from the cache, or are encoded.
    excise.rerank(query, work.shortlists[query])
    return time.perf_counter() - clock


def _replay(encoder: Backbone, known: VectorCache) -> Backbone:
    """Return an encoder that a cache takes for the other one, and that gives what another cache holds."""
    twin = copy.copy(encoder)

    def encode_documents(texts: Sequence[str], **_: object) -> Any:
        return known.encode(texts, encoder)

    twin.encode_documents = encode_documents  # type: ignore[method-assign]
    return twin
