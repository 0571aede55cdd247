"""Evaluation of a detector on queries without documents."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from ..detect.base import Detector
from ..types import Detection
from .metrics import DETECTION_METRICS, Values, average, detection_metrics, mean
from .suites import Query
from .summary import Stage, breakdown, detection_record

__all__ = ["evaluate_queries"]

_DETECT_BATCH = 64


def evaluate_queries(detector: Detector, queries: Sequence[Query], *, progress: Stage | None = None) -> dict[str, Any]:
    """Measure a detector on queries.

    Args:
        detector: the detector.
        queries: queries; those whose ``excluded`` is empty should not fire.
        progress: see :data:`excise_integrations.bench.summary.Stage`.

    Returns:
        ``n``, ``fire_rate``, ``span_f1``, ``topic_recall``, ``recall`` (fire rate of the queries
        that exclude something) and ``false_fire_rate`` (of the others), overall and as ``kinds``,
        ``tiers`` and ``forms``; ``queries`` holds the single detections.
    """
    detections: list[Detection] = []
    for start in range(0, len(queries), _DETECT_BATCH):
        detections.extend(detector.detect([q.text for q in queries[start : start + _DETECT_BATCH]]))
        if progress is not None:
            progress("detecting", len(detections), len(queries))
    rows = [
        (q, detection_metrics(d.fired, [s.text for s in d.spans], q.excluded))
        for q, d in zip(queries, detections, strict=True)
    ]
    return {
        **_summary(rows),
        **breakdown(rows, queries, ("kind", "tier", "form"), _summary),
        "queries": [
            {
                "id": q.id,
                "text": q.text,
                **q.groups,
                "excluded": list(q.excluded),
                **detection_record(d),
                "span_f1": values["span_f1"],
            }
            for (q, values), d in zip(rows, detections, strict=True)
        ],
    }


def _summary(rows: Sequence[tuple[Query, Values]]) -> dict[str, Any]:
    return {
        "n": len(rows),
        **average([v for _, v in rows], [len(q.excluded) for q, _ in rows], DETECTION_METRICS),
        "recall": mean(v["fire_rate"] for q, v in rows if q.excluded),
        "false_fire_rate": mean(v["fire_rate"] for q, v in rows if not q.excluded),
    }
