"""What evaluations share: progress, groups, and detections as records."""

from __future__ import annotations

import os
import platform
from collections.abc import Callable, Sequence
from typing import Any, TypeVar

from ..types import Detection
from .suites import Query

__all__ = ["Stage", "breakdown", "detection_record", "machine", "step"]

Row = TypeVar("Row")

Stage = Callable[[str, int, int], None]
"""Called with what is being done, how much of it is done, and the total."""


def step(progress: Stage | None, what: str) -> Callable[[int, int], None] | None:
    """Return a callback that reports one kind of work, or None when nobody listens."""
    if progress is None:
        return None
    return lambda done, total: progress(what, done, total)


def breakdown(
    rows: Sequence[Row],
    queries: Sequence[Query],
    keys: Sequence[str],
    summarise: Callable[[Sequence[Row]], dict[str, Any]],
) -> dict[str, Any]:
    """Summarise rows by what their queries are grouped by.

    Args:
        rows: one per query.
        queries: the query of each row.
        keys: groups, e.g. ``("tier", "form")``.
        summarise: turns the rows of one group into a record.

    Returns:
        ``{"tiers": {"T1": record, …}, "forms": {…}}``; empty where no query has such a group.
    """
    out: dict[str, Any] = {}
    for key in keys:
        groups: dict[str, list[Row]] = {}
        for row, query in zip(rows, queries, strict=True):
            if (value := query.groups.get(key)) is not None:
                groups.setdefault(value, []).append(row)
        out[f"{key}s"] = {value: summarise(groups[value]) for value in sorted(groups)}
    return out


def detection_record(detection: Detection) -> dict[str, Any]:
    """Return a detection as plain JSON types."""
    return {
        "fired": detection.fired,
        "confidence": detection.confidence,
        "spans": [
            {"text": s.text, "start": s.start, "end": s.end, "confidence": s.confidence} for s in detection.spans
        ],
    }


def machine() -> str:
    """Name the processor, its cores and threads, and the version of PyTorch: what times depend on."""
    import torch

    name = platform.processor() or platform.machine()
    try:
        with open("/proc/cpuinfo", encoding="utf-8") as handle:
            name = next((line.partition(":")[2].strip() for line in handle if line.startswith("model name")), name)
    except OSError:
        pass
    return f"{name}, {os.cpu_count()} cores, {torch.get_num_threads()} threads, torch {torch.__version__}"
