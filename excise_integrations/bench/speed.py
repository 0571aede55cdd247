"""Speed: what Excise adds to a search, as ratios to what runs beside it in the same process."""

from __future__ import annotations

import random
import statistics
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from functools import cached_property
from typing import Any

import torch

from ..encode.backbone import Backbone
from ..encode.cache import VectorCache
from ..encode.windows import split_windows
from ..errors import InvalidInputError
from ..first_stage.memory import MemoryFirstStage
from ..pipeline import Excise
from ..types import Candidate
from .rivals import Rival

__all__ = [
    "Task",
    "Timing",
    "Workload",
    "detection_rows",
    "forward_of",
    "interleave",
    "percentile",
    "rerank_rows",
    "search_rows",
    "turn_of",
]

# Given the number of the round, so that tasks which take turns see the same query.
Task = Callable[[int], object]


@dataclass(frozen=True)
class Timing:
    """How long one thing took beside a reference that ran in turn with it.

    Args:
        name: what was timed.
        reference: what it is compared with; itself for a reference.
        n: repetitions.
        p50, p95, p99: milliseconds.
        per_second: how many were done in a second of their own time.
        ratio: median of this over the median of the reference.
    """

    name: str
    reference: str
    n: int
    p50: float
    p95: float
    p99: float
    per_second: float
    ratio: float

    def record(self) -> dict[str, Any]:
        """Return plain JSON types."""
        return asdict(self)


def percentile(values: Sequence[float], share: float) -> float:
    """Return the smallest value that at least ``share`` of the values do not exceed, share in (0, 1]."""
    ranked = sorted(values)
    return ranked[min(len(ranked) - 1, max(0, -(-int(share * 1000) * len(ranked) // 1000) - 1))]


def interleave(
    tasks: Mapping[str, Task], *, repeats: int, reference: str | Mapping[str, str], warmup: int = 2, seed: int = 0
) -> list[Timing]:
    """Time tasks in turn, so that a busy spell of the machine hits all of them.

    Args:
        tasks: name → what to run.
        repeats: rounds, at least 1; a round runs every task once, in random order.
        reference: the task that the ratios are to, or one for each task.
        warmup: untimed rounds beforehand.
        seed: of the order.

    Returns:
        One timing per task, in the order given.
    """
    if repeats < 1:
        raise InvalidInputError(f"repeats={repeats} must be at least 1.")
    base = dict.fromkeys(tasks, reference) if isinstance(reference, str) else dict(reference)
    for name in base.values():
        if name not in tasks:
            raise InvalidInputError(f"reference={name!r} is none of the tasks {sorted(tasks)}.")
    for turn in range(warmup):
        for task in tasks.values():
            task(turn)
    seconds: dict[str, list[float]] = {name: [] for name in tasks}
    rng = random.Random(seed)
    order = list(tasks)
    for turn in range(repeats):
        rng.shuffle(order)
        for name in order:
            clock = time.perf_counter()
            tasks[name](turn)
            seconds[name].append(time.perf_counter() - clock)
    medians = {name: statistics.median(values) for name, values in seconds.items()}
    return [
        Timing(
            name,
            base[name],
            repeats,
            p50=1000 * percentile(values, 0.5),
            p95=1000 * percentile(values, 0.95),
            p99=1000 * percentile(values, 0.99),
            per_second=len(values) / sum(values),
            ratio=medians[name] / medians[base[name]],
        )
        for name, values in seconds.items()
    ]


def forward_of(backbone: Backbone, documents: Sequence[str], queries: Sequence[str]) -> Task:
    """Return the bare forward passes that encoding these texts takes: tokenised beforehand, nothing done after."""
    transformer: Any = backbone.encoder[0]
    windows = sorted((w for text in documents for w in split_windows(text, backbone.windows)), key=len)
    batches: list[list[str]] = [list(queries)] if queries else []
    batch: list[str] = []
    for window in windows:
        if batch and (len(batch) + 1) * max(8, len(window) // 4) > backbone.batch_tokens:
            batches.append(batch)
            batch = []
        batch.append(window)
    if batch:
        batches.append(batch)
    inputs = [
        backbone.tokenizer(texts, padding=True, truncation=True, max_length=backbone.max_tokens, return_tensors="pt")
        for texts in batches
    ]

    def run(_: int) -> None:
        with torch.inference_mode():
            for features in inputs:
                transformer.auto_model(input_ids=features["input_ids"], attention_mask=features["attention_mask"])

    return run


@dataclass(frozen=True)
class Workload:
    """What is timed: a pipeline, a collection, and queries of both kinds.

    Args:
        excise: the pipeline; the size of its shortlist is the k of the timings.
        stage: the collection.
        silent, fired: queries on which the detector stays silent and fires, at least one of each.

    Raises:
        InvalidInputError: there is no silent or no fired query, or one of them is not.
    """

    excise: Excise
    stage: MemoryFirstStage
    silent: Sequence[str]
    fired: Sequence[str]

    def __post_init__(self) -> None:
        if not self.silent or not self.fired:
            raise InvalidInputError("Timing needs at least one silent and one fired query; none was given of one kind.")
        for query, wanted in [*((q, False) for q in self.silent), *((q, True) for q in self.fired)]:
            if self.excise.detect(query).fired is not wanted:
                kind = "fired" if wanted else "silent"
                raise InvalidInputError(f"The query {query!r} was given as {kind}; it is not.")

    @cached_property
    def shortlists(self) -> dict[str, list[Candidate]]:
        """The shortlist of each fired query."""
        return {query: self.stage.search(query, self.excise.config.k) for query in self.fired}

    def search(self, queries: Sequence[str]) -> Task:
        """Return a whole search; the collection's vectors are at hand, so nothing is ever encoded but the query."""
        return lambda i: self.excise.search(turn_of(queries, i), self.stage)

    def frozen(self, queries: Sequence[str]) -> Task:
        """Return the same search without Excise."""
        return lambda i: self.stage.search(turn_of(queries, i), self.excise.config.k)

    def rerank(self, *, cold: bool) -> Task:
        """Return re-ranking after a retriever that has no vectors, with an empty or with a full cache."""
        shared = self.excise.with_config()
        shared.cache = VectorCache(1 << 34)

        def run(i: int) -> None:
            query = turn_of(self.fired, i)
            excise = shared
            if cold:
                excise = self.excise.with_config()
                excise.cache = VectorCache(self.excise.cache.max_bytes)
            # No first stage is named: candidates come from the cache, or are encoded.
            excise.rerank(query, self.shortlists[query])

        if not cold:
            for i in range(len(self.fired)):
                run(i)
        return run


def detection_rows(work: Workload, plain: Callable[[str], object], *, repeats: int) -> list[Timing]:
    """Time detection beside a plain encoding of the same query by the detector's own model."""
    tasks: dict[str, Task] = {
        "plain encoding": lambda i: plain(turn_of(work.silent, i)),
        "detect": lambda i: work.excise.detect(turn_of(work.silent, i)),
    }
    return interleave(tasks, repeats=repeats, reference="plain encoding")


def search_rows(work: Workload, *, repeats: int) -> list[Timing]:
    """Time silent queries and firings with vectors at hand, each beside the frozen search of the same queries."""
    tasks = {
        "frozen": work.frozen(work.silent),
        "silent": work.search(work.silent),
        "frozen, excluding query": work.frozen(work.fired),
        "fired, warm": work.search(work.fired),
    }
    pairs = {"silent": "frozen", "fired, warm": "frozen, excluding query"}
    return interleave(tasks, repeats=repeats, reference={name: pairs.get(name, name) for name in tasks})


def rerank_rows(work: Workload, *, repeats: int, rivals: Mapping[str, Rival] | None = None) -> list[Timing]:
    """Time re-ranking after a retriever that has no vectors, beside the bare forward passes and other re-rankers.

    Args:
        work: the workload.
        repeats: rounds.
        rivals: name → another re-ranker, called with the query and the shortlist.
    """
    excise, shortlists = work.excise, work.shortlists
    forwards = {
        query: forward_of(
            excise.encoder, [c.text for c in found], [query, *(span.text for span in excise.detect(query).spans)]
        )
        for query, found in shortlists.items()
    }
    tasks: dict[str, Task] = {
        "bare forwards": lambda i: forwards[turn_of(work.fired, i)](i),
        "fired, cold": work.rerank(cold=True),
        "fired, cached": work.rerank(cold=False),
    }
    for name, rival in (rivals or {}).items():
        tasks[name] = _rival(rival, work.fired, shortlists)
    return interleave(tasks, repeats=repeats, reference="bare forwards", warmup=1)


def _rival(rival: Rival, queries: Sequence[str], shortlists: Mapping[str, Sequence[Candidate]]) -> Task:
    def run(i: int) -> None:
        query = turn_of(queries, i)
        rival(query, shortlists[query])

    return run


def turn_of(values: Sequence[str], i: int) -> str:
    """Return the query of round ``i``."""
    return values[i % len(values)]
