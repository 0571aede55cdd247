"""What is measured of a ranking and of a detection.

Every metric is a number per query, or None where it has no value; :func:`average` takes the mean
over the queries that have one.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from ..errors import MissingExtraError

__all__ = [
    "DETECTION_METRICS",
    "METRICS",
    "RANKING_METRICS",
    "average",
    "detection_metrics",
    "mean",
    "pairwise",
    "ranking_metrics",
    "token_f1",
    "topics_found",
]

RANKING_METRICS = ("success@10", "hit@10", "leak", "leak_docs", "xndcg@10", "ndcg@10", "recall@100", "pairwise")
DETECTION_METRICS = ("fire_rate", "span_f1", "topic_recall")
METRICS = RANKING_METRICS + DETECTION_METRICS

Values = dict[str, float | None]
_CUTOFF = 10
_ARTICLES = {"a", "an", "the"}
_WORD = re.compile(r"\w+")


# --- rankings ---------------------------------------------------------------------------


def ranking_metrics(
    rankings: Mapping[str, Sequence[str]], qrels: Mapping[str, Mapping[str, int]], *, judged_only: bool = False
) -> dict[str, Values]:
    """Measure rankings.

    - ``hit@10``: a relevant document is in the top ten.
    - ``success@10``: and no excluded document is. None for a query without excluded documents.
    - ``leak``: an excluded document is in the top ten; ``leak_docs``: the share of the query's
      excluded documents that are. None for a query without excluded documents.
    - ``ndcg@10``, ``recall@100``: as trec_eval has them; excluded documents gain nothing.
    - ``xndcg@10``: Σ (rel - excluded) / log2(rank + 1) over the ideal DCG.
    - ``pairwise``: see :func:`pairwise`; None unless ``judged_only``.

    Args:
        rankings: query id → document ids, best first.
        qrels: query id → document id → score; ≥ 1 is relevant, below 0 excluded.
        judged_only: whether the rankings hold judged documents only.

    Returns:
        query id → metric → value.

    Raises:
        MissingExtraError: ir-measures is not installed.
    """
    try:
        import ir_measures
        from ir_measures import R, nDCG
    except ImportError:
        raise MissingExtraError("ir-measures", "bench") from None

    relevant = {q: {d: s for d, s in qrels[q].items() if s >= 1} for q in rankings}
    # Descending scores of our own: trec_eval would break ties by document id.
    run = {q: {d: float(len(ranking) - i) for i, d in enumerate(ranking)} for q, ranking in rankings.items()}
    measures: dict[str, Values] = {q: {} for q in rankings}
    names = {nDCG @ _CUTOFF: "ndcg@10", R @ 100: "recall@100"}
    judgeable = {q: judged for q, judged in relevant.items() if judged}
    if judgeable:
        for metric in ir_measures.iter_calc(list(names), judgeable, run):
            if metric.query_id in judgeable:
                measures[metric.query_id][names[metric.measure]] = float(metric.value)
    out: dict[str, Values] = {}
    for q, ranking in rankings.items():
        excluded = {d for d, s in qrels[q].items() if s < 0}
        top = ranking[:_CUTOFF]
        hit = any(d in relevant[q] for d in top) if relevant[q] else None
        leaked = sum(d in excluded for d in top)
        clean: Values = dict.fromkeys(RANKING_METRICS)
        clean.update(measures[q])
        if hit is not None:
            clean["hit@10"] = float(hit)
            clean["xndcg@10"] = _xndcg(top, relevant[q], excluded)
        if excluded:
            clean["leak"] = float(leaked > 0)
            clean["leak_docs"] = leaked / len(excluded)
            clean["success@10"] = None if hit is None else float(hit and not leaked)
        if judged_only:
            clean["pairwise"] = pairwise(ranking, relevant[q], excluded)
        out[q] = clean
    return out


def _xndcg(top: Sequence[str], relevant: Mapping[str, int], excluded: set[str]) -> float:
    gains = [relevant.get(d, 0) - (d in excluded) for d in top]
    ideal = sorted(relevant.values(), reverse=True)[:_CUTOFF]
    return _dcg(gains) / _dcg(ideal)


def _dcg(gains: Iterable[float]) -> float:
    return sum(gain / math.log2(rank + 1) for rank, gain in enumerate(gains, start=1))


def pairwise(ranking: Sequence[str], relevant: Iterable[str], excluded: Iterable[str]) -> float | None:
    """Say whether the best relevant document outranks every excluded one (1.0 or 0.0).

    A document that is not in the ranking is below all that are. None when the query has no
    relevant or no excluded document.
    """
    place = {d: i for i, d in enumerate(ranking)}
    good = [place.get(d, len(ranking)) for d in relevant]
    bad = [place.get(d, len(ranking)) for d in excluded]
    return float(min(good) < min(bad)) if good and bad else None


# --- detections -------------------------------------------------------------------------


def words(texts: Iterable[str]) -> set[str]:
    """Return the lower-cased words of texts without articles (with them when there is nothing else)."""
    found = {w for text in texts for w in _WORD.findall(text.lower())}
    return found - _ARTICLES or found


def token_f1(found: Iterable[str], wanted: Iterable[str]) -> float:
    """Return the F1 of the words of ``found`` against those of ``wanted``; 0 when they share none."""
    a, b = words(found), words(wanted)
    shared = len(a & b)
    return 2 * shared / (len(a) + len(b)) if shared else 0.0


def topics_found(spans: Sequence[str], excluded: Sequence[str]) -> int:
    """Count the excluded strings that have a span of their own.

    A span can stand for a topic when their token F1 is at least 0.5, and for one topic only. The
    count is that of the largest possible assignment.
    """
    options = [[s for s, span in enumerate(spans) if token_f1([span], [topic]) >= 0.5] for topic in excluded]
    owner: dict[int, int] = {}

    def assign(topic: int, tried: set[int]) -> bool:
        for span in options[topic]:
            if span not in tried:
                tried.add(span)
                if span not in owner or assign(owner[span], tried):
                    owner[span] = topic
                    return True
        return False

    return sum(assign(topic, set()) for topic in range(len(excluded)))


def detection_metrics(fired: bool, spans: Sequence[str], excluded: Sequence[str]) -> Values:
    """Measure one detection.

    Args:
        fired: whether the query was found to exclude something.
        spans: the topics found; what a silent detection holds does not count.
        excluded: the topics that the query excludes.

    Returns:
        ``fire_rate``, ``span_f1`` (None when ``excluded`` is empty), and ``topics_found``, the
        count behind ``topic_recall``.
    """
    spans = spans if fired else []
    return {
        "fire_rate": float(fired),
        "span_f1": token_f1(spans, excluded) if excluded else None,
        "topics_found": float(topics_found(spans, excluded)) if excluded else None,
    }


# --- averages ---------------------------------------------------------------------------


def average(rows: Sequence[Values], topics: Sequence[int], names: Sequence[str] = METRICS) -> dict[str, Any]:
    """Average per-query values.

    Args:
        rows: one mapping per query.
        topics: how many excluded topics each query has.
        names: the metrics to return.

    Returns:
        metric → mean over the queries that have a value, or None. ``topic_recall`` is the share of
        all excluded topics.
    """
    out: dict[str, Any] = {}
    for name in names:
        if name == "topic_recall":
            found = [(v, n) for row, n in zip(rows, topics, strict=True) if (v := row.get("topics_found")) is not None]
            total = sum(n for _, n in found)
            out[name] = sum(v for v, _ in found) / total if total else None
        else:
            out[name] = mean(row.get(name) for row in rows)
    return out


def mean(values: Iterable[float | None]) -> float | None:
    """Return the mean of the values that are there, or None when there are none."""
    present = [v for v in values if v is not None]
    return sum(present) / len(present) if present else None
