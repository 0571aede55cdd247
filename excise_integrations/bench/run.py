"""Running systems on suites: one shared preparation, one result file per system."""

from __future__ import annotations

import hashlib
import json
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from .._assembly import override
from ..config import ExciseConfig
from ..errors import AdapterError, BackboneError, MissingExtraError
from ..pipeline import Excise
from ..types import Detection
from ..version import __version__
from .gate import ReadoutGate
from .interventions import WEIGHTS, intervene
from .metrics import Values, detection_metrics, ranking_metrics
from .prepared import Candidates, Prepared, Vectors, sample, suite_digest
from .rankers import Ranker, builtin_ranker
from .rows import QueryRow, Row, read_head, row_path, write_row
from .store import VectorStore
from .suites import Suite
from .summary import Stage, machine, step
from .systems import SYSTEMS, System
from .variants import Ranking, rank

__all__ = ["missing_need", "run_suite"]

_FORMAT = 1
_MIN_K = 100
_DETECTION_VALUES = ("fire_rate", "span_f1", "topics_found")


def run_suite(
    excise: Excise,
    suite: Suite,
    out: Path,
    *,
    systems: Sequence[System] = SYSTEMS,
    limit: int | None = 200,
    seed: int = 0,
    candidates: Candidates = "all",
    store: VectorStore | None = None,
    gate: Callable[[], ReadoutGate] | None = None,
    gate_source: str = "",
    external: Mapping[str, Callable[[], Ranker]] | None = None,
    facts: Mapping[str, Any] | None = None,
    progress: Stage | None = None,
) -> Iterator[tuple[Row, bool]]:
    """Run systems on a suite, writing a result file as each one ends.

    A system whose file is there already, made from the same data and settings, is not run again; a killed run
    goes on where it was.

    Args:
        excise: the pipeline; its settings are those that the systems vary.
        suite: the suite.
        out: folder of the result files.
        systems: which systems.
        limit: at most this many queries, drawn by ``seed``; None runs all.
        seed: of the draw.
        candidates: rank the corpus, or the judged documents of each query.
        store: where document vectors are kept between runs.
        gate: gives the trained readout gate; None skips the systems that need it.
        gate_source: what the gate is trained on, for the key.
        external: gives the ranker of systems whose method is "external", by their name; those of
            :data:`~excise_integrations.bench.systems.SYSTEMS` need not be given.
        facts: what else the files should say, e.g. the command.
        progress: see :data:`~excise_integrations.bench.summary.Stage`.

    Yields:
        Each system's row, and whether it was run now; one that was there already has no queries here.
    """
    queries = sample(suite, limit, seed)
    base = override(excise.config, {"mode": "active"})
    shared = {
        "format": _FORMAT, "version": __version__, "split": suite.split, "candidates": candidates,
        "data": suite_digest(suite), "queries": [q.id for q in queries], "backbone": excise.backbone.label,
        "dtype": str(excise.backbone.dtype), "adapter": excise.exclusion and excise.exclusion.adapter,
        "detector": _label(excise), "gate": gate_source,
    }  # fmt: skip
    known = {
        **(facts or {}),
        **{k: v for k, v in shared.items() if k != "queries"},
        "documents": len(suite.documents), "limit": limit, "seed": seed, "machine": machine(),
    }  # fmt: skip
    largest = max([_MIN_K, base.k, *(int(s.settings.get("k", 0)) for s in systems)])
    prepared = Prepared(
        excise, suite, queries, k=largest, candidates=candidates, store=store,
        saved=out / suite.name / "shortlists.json", progress=progress,
    )  # fmt: skip
    trained: ReadoutGate | None = None
    for system in systems:
        config = override(base, system.settings)
        ranker, reason = _ranker(system, external or {}, store)
        key = _key(_depends(shared, ranker), system, config)
        head = {
            "group": system.group, "title": system.title, "topics": system.topics,
            "settings": config.model_dump(mode="json"), **known,
        }  # fmt: skip
        old = read_head(row_path(out, suite.name, system.name))
        kept = old if old is not None and old.get("key") == key else None
        skipped = kept.get("skipped") if kept is not None else None
        # What could not be loaded may be there by now.
        if kept is None or (ranker is not None and skipped is not None):
            reason = reason or missing_need(system, excise, gate is not None) or _load(ranker)
        else:
            reason = skipped
        if kept is not None and reason == skipped:
            yield Row(suite.name, system.name, key, kept, skipped), False
            continue
        if reason is not None:
            row = Row(suite.name, system.name, key, head, reason)
        else:
            clock = time.perf_counter()
            if system.method == "gate" and trained is None and gate is not None:
                trained = gate()
            report = step(progress, system.name)
            rows = _measure(prepared, ranker, report) if ranker else _run(system, prepared, config, trained, report)
            seconds = {"seconds": round(time.perf_counter() - clock, 2)}
            row = Row(suite.name, system.name, key, {**head, **seconds}, None, rows)
        write_row(out, row)
        yield row, True


def missing_need(system: System, excise: Excise, gate: bool) -> str | None:
    """Say why a system cannot run on a pipeline, or None when it can."""
    if "adapter" in system.needs and excise.exclusion is None:
        return f"{excise.backbone.name!r} has no exclusion adapter; give one with --adapter."
    if "threshold" in system.needs and not hasattr(excise.detector, "with_threshold"):
        return f"The detector {_label(excise)} has no threshold; a trained one has."
    if "training" in system.needs and not gate:
        return "No training pairs were given for the readout; --train names them."
    return None


def _depends(shared: Mapping[str, Any], ranker: Ranker | None) -> dict[str, Any]:
    """Return what a system's outcomes depend on: one from outside asks neither our detector nor our adapter."""
    if ranker is None:
        return dict(shared)
    return {**shared, "detector": None, "adapter": None, "gate": "", "ranker": ranker.label}


def _ranker(
    system: System, external: Mapping[str, Callable[[], Ranker]], store: VectorStore | None
) -> tuple[Ranker | None, str | None]:
    """Return a system's ranker, where it has one, or why there is none."""
    if system.method != "external":
        return None, None
    try:
        return (external[system.name]() if system.name in external else builtin_ranker(system.name, store)), None
    except BackboneError as error:
        return None, str(error)


def _load(ranker: Ranker | None) -> str | None:
    """Load a ranker's weights, or say why they cannot be loaded."""
    try:
        if ranker is not None:
            ranker.load()
    except (AdapterError, BackboneError, MissingExtraError) as error:
        return str(error)
    return None


def _measure(prepared: Prepared, ranker: Ranker, progress: Callable[[int, int], None] | None) -> tuple[QueryRow, ...]:
    """Outcomes of a system that ranks by itself: it detects nothing and removes nothing."""
    if not prepared.queries:
        return ()
    rankings = {q.id: r for q, r in zip(prepared.queries, ranker.rank(prepared, progress), strict=True)}
    measured = ranking_metrics(rankings, prepared.suite.qrels, judged_only=prepared.candidates == "judged")
    return tuple(
        QueryRow(
            id=q.id, groups=dict(q.groups), topics=len(q.excluded),
            values={**measured[q.id], **dict.fromkeys(_DETECTION_VALUES)}, top=tuple(rankings[q.id][:10]),
        )
        for q in prepared.queries
    )  # fmt: skip


def _run(
    system: System,
    prepared: Prepared,
    config: ExciseConfig,
    gate: ReadoutGate | None,
    progress: Callable[[int, int], None] | None,
) -> tuple[QueryRow, ...]:
    queries = prepared.queries
    if not queries:
        return ()
    shortlists = prepared.shortlists
    silent = system.method == "frozen"
    found = [Detection(fired=False)] * len(queries) if silent else prepared.detections(system.topics)
    active = {i for i, d in enumerate(found) if d.fired or system.every_query}
    if system.method == "rule" and system.vectors == "encoder":
        prepared.reembed(sorted(active))
    rankings: dict[str, list[str]] = {}
    removed: dict[str, tuple[str, ...]] = {}
    for i, query in enumerate(queries):
        row = shortlists[i][: config.k]
        ranking = Ranking(tuple(range(len(row))))
        if row and i in active:
            ranking = _rank(system, prepared, i, config, gate)
        rankings[query.id] = [row[j].id for j in ranking.order]
        removed[query.id] = tuple(row[j].id for j in ranking.removed)
        if progress is not None:
            progress(i + 1, len(queries))
    qrels = prepared.suite.qrels
    measured = ranking_metrics(rankings, qrels, judged_only=prepared.candidates == "judged")
    out = []
    for query, detection in zip(queries, found, strict=True):
        values: Values = dict.fromkeys(_DETECTION_VALUES)
        if not silent:
            values = detection_metrics(detection.fired, [s.text for s in detection.spans], query.excluded)
        out.append(
            QueryRow(
                id=query.id,
                groups=dict(query.groups),
                topics=len(query.excluded),
                values={**measured[query.id], **values},
                top=tuple(rankings[query.id][:10]),
                removed=removed[query.id],
                fired=detection.fired,
            )
        )
    return tuple(out)


def _rank(system: System, prepared: Prepared, index: int, config: ExciseConfig, gate: ReadoutGate | None) -> Ranking:
    if system.method != "rule":
        return intervene(system.method, prepared, index, system.topics, config, gate=gate)
    vectors: Vectors = "encoder" if system.vectors == "encoder" else "frozen"
    return rank(
        prepared.matches(index, system.topics, vectors),
        config,
        adapted=prepared.excise.exclusion is not None and system.vectors != "unadapted",
        pool=system.pool,
        absolute=system.absolute,
    )


def _key(shared: Mapping[str, Any], system: System, config: ExciseConfig) -> str:
    facts = {**shared, "system": system.record(), "config": config.model_dump(mode="json")}
    if system.method in WEIGHTS:
        facts["weight"] = WEIGHTS[system.method]
    if "training" not in system.needs:
        facts["gate"] = ""
    return hashlib.sha256(json.dumps(facts, sort_keys=True).encode()).hexdigest()[:16]


def _label(excise: Excise) -> str:
    detector = excise.detector
    name = str(getattr(detector, "label", None) or type(detector).__name__)
    threshold = getattr(detector, "threshold", None)
    return name if threshold is None else f"{name} at {threshold}"
