"""Speed under load: many callers at once, and many queries in one call."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass
from typing import Any

from .speed import Task, Workload, percentile, turn_of

__all__ = ["Load", "batch_rows", "caller_rows"]


@dataclass(frozen=True)
class Load:
    """How fast queries were answered under one kind of load.

    Args:
        name: what ran.
        callers: threads that asked at once.
        batch: queries per call.
        n: queries.
        p50, p95, p99: milliseconds of a call.
        per_second: queries answered per second by all callers together.
    """

    name: str
    callers: int
    batch: int
    n: int
    p50: float
    p95: float
    p99: float
    per_second: float

    def record(self) -> dict[str, Any]:
        """Return plain JSON types."""
        return asdict(self)


def caller_rows(work: Workload, *, callers: Sequence[int] = (1, 4, 16), calls: int = 48) -> list[Load]:
    """Time queries of every kind asked by several threads at once.

    Args:
        work: the workload.
        callers: numbers of threads.
        calls: queries of a silent or warm row, at least one a caller; a cold row has an eighth, likewise.
    """
    kinds: dict[str, tuple[Task, int]] = {
        "frozen": (work.frozen(work.silent), calls),
        "silent": (work.search(work.silent), calls),
        "fired, warm": (work.search(work.fired), calls),
        "fired, cold": (work.rerank(cold=True), calls // 8),
    }
    rows: list[Load] = []
    for name, (task, wanted) in kinds.items():
        task(0)
        rows.extend(_row(name, task, threads, 1, max(threads, wanted)) for threads in callers)
    return rows


def batch_rows(work: Workload, *, sizes: Sequence[int] = (1, 8, 32), calls: int = 48) -> list[Load]:
    """Time queries given many at once: detection, the frozen search, and firings with vectors at hand.

    Args:
        work: the workload.
        sizes: queries per call.
        calls: queries of a row, at least three calls.
    """
    excise, stage = work.excise, work.stage

    def rerank(queries: list[str]) -> object:
        return excise.rerank_batch(queries, [work.shortlists[q] for q in queries], first_stage=stage)

    kinds: dict[str, tuple[Callable[[list[str]], object], Sequence[str]]] = {
        "detect_batch": (excise.detect_batch, work.silent),
        "search_batch of the frozen index": (lambda queries: stage.search_batch(queries, excise.config.k), work.silent),
        "rerank_batch, warm": (rerank, work.fired),
    }
    rows: list[Load] = []
    for name, (call, queries) in kinds.items():
        for size in sizes:

            def task(
                i: int,
                size: int = size,
                call: Callable[[list[str]], object] = call,
                queries: Sequence[str] = queries,
            ) -> None:
                call([turn_of(queries, i * size + j) for j in range(size)])

            task(0)
            rows.append(_row(name, task, 1, size, max(3, calls // size)))
    return rows


def _row(name: str, task: Task, callers: int, batch: int, calls: int) -> Load:
    def timed(i: int) -> float:
        clock = time.perf_counter()
        task(i)
        return time.perf_counter() - clock

    start = time.perf_counter()
    with ThreadPoolExecutor(callers) as pool:
        values = list(pool.map(timed, range(calls)))
    taken = time.perf_counter() - start
    p50, p95, p99 = (1000 * percentile(values, share) for share in (0.5, 0.95, 0.99))
    return Load(name, callers, batch, calls * batch, p50, p95, p99, calls * batch / taken)
