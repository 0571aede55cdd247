"""Evaluation on suites: the frozen ranking and Excise's side by side."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal

from ..detect.spans import caller_detection
from ..first_stage.memory import MemoryFirstStage
from ..pipeline import Excise
from ..types import Candidate, Detection, ExciseResult
from .metrics import METRICS, Values, average, detection_metrics, ranking_metrics
from .store import StoredCache, VectorStore
from .suites import Query, Suite
from .summary import Stage, breakdown, detection_record, step

__all__ = ["QueryOutcome", "SuiteResult", "evaluate_suite"]

_DETECT_BATCH = 64


@dataclass(frozen=True)
class QueryOutcome:
    """One query of an evaluation.

    Args:
        query: the query.
        detection: what was found to be excluded; with the true topics, those.
        frozen, excise: metric → value or None.
        frozen_top, excise_top: ids of the first ten documents.
        removed: ids of the removed documents.
    """

    query: Query
    detection: Detection
    frozen: Values
    excise: Values
    frozen_top: tuple[str, ...]
    excise_top: tuple[str, ...]
    removed: tuple[str, ...]

    def record(self) -> dict[str, Any]:
        """Return plain JSON types."""
        return {
            "id": self.query.id,
            "text": self.query.text,
            **self.query.groups,
            "excluded": list(self.query.excluded),
            **detection_record(self.detection),
            "frozen": self.frozen,
            "excise": self.excise,
            "frozen_top": list(self.frozen_top),
            "excise_top": list(self.excise_top),
            "removed": list(self.removed),
        }


@dataclass(frozen=True)
class SuiteResult:
    """Per-query outcomes of one suite."""

    name: str
    outcomes: tuple[QueryOutcome, ...]
    warnings: tuple[str, ...] = ()

    def summary(self) -> dict[str, Any]:
        """Return ``n``, ``frozen`` and ``excise``, overall, as ``tiers`` and ``forms``, and as ``found``.

        ``found`` holds the queries that fired with every topic found: what demotion does by itself.
        """
        return {
            **_summary(self.outcomes),
            "found": _summary([o for o in self.outcomes if _all_found(o)]),
            **breakdown(self.outcomes, [o.query for o in self.outcomes], ("tier", "form"), _summary),
        }


def evaluate_suite(
    excise: Excise,
    suite: Suite,
    *,
    topics: Literal["detected", "true"] = "detected",
    candidates: Literal["all", "judged"] = "all",
    limit: int | None = None,
    store: VectorStore | None = None,
    progress: Stage | None = None,
) -> SuiteResult:
    """Evaluate a pipeline on a suite; the frozen first stage is exact MaxSim over its backbone.

    Args:
        excise: the pipeline; its shortlist size is ``excise.config.k``.
        suite: the suite.
        topics: ask the detector, or take the suite's ``excluded`` as the caller's topics.
        candidates: rank the corpus, or only the documents that are judged for each query.
        limit: at most this many queries, in the suite's order.
        store: where document vectors are kept between runs.
        progress: see :data:`Stage`.

    Returns:
        Outcomes in the suite's order.
    """
    queries = suite.queries[:limit]
    if not queries:
        return SuiteResult(suite.name, (), suite.warnings)
    stage = _first_stage(excise, suite, queries, candidates, store, progress)
    detections = _detect(excise, queries, topics, progress)
    shortlists = _shortlists(stage, suite, queries, excise.config.k, candidates, progress)
    fired = [i for i, d in enumerate(detections) if d.fired]
    if store is not None:
        excise = excise.with_config()
        excise.cache = StoredCache(store)
        if excise.encoder.label != stage.vector_space:
            texts = [c.text for i in fired for c in shortlists[i]]
            store.fill(texts, excise.encoder, progress=step(progress, "re-embedding"))
    results: list[ExciseResult] = []
    for i, query in enumerate(queries):
        results.append(excise.rerank(query.text, shortlists[i], detection=detections[i], first_stage=stage))
        if progress is not None:
            progress("re-ranking", i + 1, len(queries))
    return SuiteResult(suite.name, _outcomes(suite, queries, shortlists, results, candidates), suite.warnings)


# --- steps ------------------------------------------------------------------------------


def _first_stage(
    excise: Excise,
    suite: Suite,
    queries: Sequence[Query],
    candidates: Literal["all", "judged"],
    store: VectorStore | None,
    progress: Stage | None,
) -> MemoryFirstStage:
    documents: Sequence[Candidate] = suite.documents
    if candidates == "judged":
        judged = {d for q in queries for d in suite.qrels[q.id]}
        documents = [d for d in documents if d.id in judged]
    report = step(progress, "embedding")
    if store is None:
        return MemoryFirstStage.from_candidates(documents, backbone=excise.backbone, progress=report or False)
    vectors = store.encode([d.text for d in documents], excise.backbone, progress=report)
    return MemoryFirstStage.from_candidates(documents, vectors=vectors, backbone=excise.backbone)


def _detect(
    excise: Excise, queries: Sequence[Query], topics: Literal["detected", "true"], progress: Stage | None
) -> list[Detection]:
    if topics == "true":
        return [caller_detection(q.text, q.excluded) for q in queries]
    detections: list[Detection] = []
    for start in range(0, len(queries), _DETECT_BATCH):
        detections.extend(excise.detect_batch([q.text for q in queries[start : start + _DETECT_BATCH]]))
        if progress is not None:
            progress("detecting", len(detections), len(queries))
    return detections


def _shortlists(
    stage: MemoryFirstStage,
    suite: Suite,
    queries: Sequence[Query],
    k: int,
    candidates: Literal["all", "judged"],
    progress: Stage | None,
) -> list[list[Candidate]]:
    judged = candidates == "judged"
    out: list[list[Candidate]] = []
    for start in range(0, len(queries), 32):
        batch = queries[start : start + 32]
        found = stage.search_batch([q.text for q in batch], max(1, len(stage)) if judged else k)
        if judged:
            found = [[c for c in row if c.id in suite.qrels[q.id]][:k] for q, row in zip(batch, found, strict=True)]
        out.extend(found)
        if progress is not None:
            progress("searching", len(out), len(queries))
    return out


def _outcomes(
    suite: Suite,
    queries: Sequence[Query],
    shortlists: Sequence[Sequence[Candidate]],
    results: Sequence[ExciseResult],
    candidates: Literal["all", "judged"],
) -> tuple[QueryOutcome, ...]:
    before = {q.id: [c.id for c in row] for q, row in zip(queries, shortlists, strict=True)}
    after = {q.id: [c.id for c in r.candidates] for q, r in zip(queries, results, strict=True)}
    judged_only = candidates == "judged"
    frozen = ranking_metrics(before, suite.qrels, judged_only=judged_only)
    excise = ranking_metrics(after, suite.qrels, judged_only=judged_only)
    return tuple(
        QueryOutcome(
            query=q,
            detection=r.detection,
            frozen=frozen[q.id],
            excise={
                **excise[q.id],
                **detection_metrics(r.detection.fired, [s.text for s in r.detection.spans], q.excluded),
            },
            frozen_top=tuple(before[q.id][:10]),
            excise_top=tuple(after[q.id][:10]),
            removed=tuple(c.id for c in r.removed),
        )
        for q, r in zip(queries, results, strict=True)
    )


def _all_found(outcome: QueryOutcome) -> bool:
    excluded = outcome.query.excluded
    return outcome.detection.fired and bool(excluded) and outcome.excise.get("topics_found") == len(excluded)


def _summary(outcomes: Sequence[QueryOutcome]) -> dict[str, Any]:
    topics = [len(o.query.excluded) for o in outcomes]
    return {
        "n": len(outcomes),
        "frozen": average([o.frozen for o in outcomes], topics, METRICS),
        "excise": average([o.excise for o in outcomes], topics, METRICS),
    }
