"""Exclusion inversion by the length of the exclusion (paper, Proposition 1 and appendix A.1)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from ..encode.backbone import Backbone
from ..encode.maxsim import maxsim
from ..errors import SuiteError
from ..evidence import content_mask
from .figures import draw_figure
from .metrics import mean
from .store import VectorStore
from .suites import Suite

__all__ = ["Pair", "draw_inversion", "inversion_pairs", "inversion_summary"]

_BINS = ((1, 1), (2, 2), (3, 4), (5, 8), (9, 1000))


@dataclass(frozen=True)
class Pair:
    """A query with one excluded and its best wanted document.

    Args:
        query: the query's id.
        length: content tokens of the excluded topics, |q_Z|.
        margin: S(q, excluded) − S(q, wanted) of the frozen MaxSim, a sum over the query's tokens; above 0 the
            ranking is inverted.
    """

    query: str
    length: int
    margin: float


def inversion_pairs(suite: Suite, backbone: Backbone, *, store: VectorStore | None = None) -> list[Pair]:
    """Compare the excluded with the wanted document of every query that records its topics.

    Args:
        suite: the suite; only its judged documents are encoded.
        backbone: the frozen backbone.
        store: where document vectors are kept between runs.

    Returns:
        One pair per query, of its highest-scoring excluded and wanted document.

    Raises:
        SuiteError: no query has topics, a wanted and an excluded document.
    """
    texts = {d.id: d.text for d in suite.documents}
    pairs = []
    for query in suite.queries:
        judged = {d: s for d, s in suite.qrels[query.id].items() if d in texts}
        wanted = [d for d, s in judged.items() if s >= 1]
        excluded = [d for d, s in judged.items() if s < 0]
        if not (query.excluded and wanted and excluded):
            continue
        parts = [texts[d] for d in (*wanted, *excluded)]
        vectors = store.encode(parts, backbone) if store is not None else backbone.encode_documents(parts)
        encoded = backbone.encode_queries([query.text, *query.excluded])
        scores = maxsim(encoded[0].vectors, vectors)
        length = sum(sum(content_mask(t, special=backbone.special_tokens)) for t in encoded[1:])
        margin = float(scores[len(wanted) :].max() - scores[: len(wanted)].max())
        pairs.append(Pair(query.id, length, margin))
    if not pairs:
        raise SuiteError(f"{suite.name!r} has no query with a topic, a wanted and an excluded document.")
    return pairs


def inversion_summary(pairs: Sequence[Pair], *, resamples: int = 10_000, seed: int = 0) -> dict[str, Any]:
    """Summarise margins by length, and how fast they grow with it.

    Args:
        pairs: of any suites.
        resamples: of the bootstrap over queries.
        seed: of the resampling.

    Returns:
        ``n``, ``inverted`` (share of margins above 0), ``slope`` (margin per content token of the exclusion, least
        squares) with its 95 % interval ``low`` and ``high`` (None where all lengths are equal), and ``bins`` of
        ``from``, ``to``, ``n``, ``inverted`` and the mean ``margin``.
    """
    lengths = np.asarray([p.length for p in pairs], dtype=np.float64)
    margins = np.asarray([p.margin for p in pairs], dtype=np.float64)
    random = np.random.default_rng(seed)
    slopes = []
    for _ in range(resamples if len(set(lengths.tolist())) > 1 else 0):
        drawn = random.integers(0, len(pairs), size=len(pairs))
        x = lengths[drawn] - lengths[drawn].mean()
        if (x != 0).any():
            slopes.append(float(x @ margins[drawn] / (x @ x)))
    x = lengths - lengths.mean()
    low, high = np.quantile(slopes, [0.025, 0.975]) if slopes else (None, None)
    bins = []
    for first, last in _BINS:
        inside = [p for p in pairs if first <= p.length <= last]
        if inside:
            bins.append(
                {
                    "from": first, "to": max(p.length for p in inside), "n": len(inside),
                    "inverted": mean(float(p.margin > 0) for p in inside), "margin": mean(p.margin for p in inside),
                }
            )  # fmt: skip
    return {
        "n": len(pairs),
        "inverted": mean(float(p.margin > 0) for p in pairs),
        "slope": float(x @ margins / (x @ x)) if slopes else None,
        "low": None if low is None else float(low),
        "high": None if high is None else float(high),
        "bins": bins,
    }


def draw_inversion(pairs: Mapping[str, Sequence[Pair]], folder: Path) -> Path | None:
    """Draw the margin of every query against the length of its exclusion, with the fitted line, as PNG and SVG.

    Args:
        pairs: suite → its pairs.
        folder: where ``inversion.png`` and ``inversion.svg`` go.

    Raises:
        MissingExtraError: matplotlib is not installed.
    """

    def draw(axes: Any) -> bool:
        for name, part in pairs.items():
            axes.scatter([p.length for p in part], [p.margin for p in part], s=10, alpha=0.6, label=name)
        every = [p for part in pairs.values() for p in part]
        x = np.asarray([p.length for p in every], dtype=np.float64)
        if len(set(x.tolist())) > 1:
            slope, start = np.polyfit(x, [p.margin for p in every], 1)
            ends = np.asarray([x.min(), x.max()])
            axes.plot(ends, start + slope * ends, color="black", linewidth=1)
        axes.axhline(0.0, color="grey", linewidth=0.5)
        axes.set_xlabel("content tokens of the exclusion")
        axes.set_ylabel("S(q, excluded) − S(q, wanted)")
        axes.legend(fontsize=7)
        return bool(every)

    return draw_figure(folder, "inversion", draw)
