"""Speed: what Excise adds to a search, as ratios to what runs beside it in the same process."""

from __future__ import annotations

import random
import statistics
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

import torch

from ..encode.backbone import Backbone
from ..encode.cache import VectorCache
from ..encode.windows import split_windows
from ..errors import InvalidInputError
from ..first_stage.memory import MemoryFirstStage
from ..pipeline import Excise
from ..types import Candidate

__all__ = ["Timing", "forward_of", "interleave", "percentile", "speed_rows"]

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
        ratio: median of this over the median of the reference.
    """

    name: str
    reference: str
    n: int
    p50: float
    p95: float
    p99: float
    ratio: float

    def record(self) -> dict[str, Any]:
        """Return plain JSON types."""
        return asdict(self)


def percentile(values: Sequence[float], share: float) -> float:
    """Return the smallest value that at least ``share`` of the values do not exceed, share in (0, 1]."""
    ranked = sorted(values)
    return ranked[min(len(ranked) - 1, max(0, -(-int(share * 1000) * len(ranked) // 1000) - 1))]


def interleave(tasks: Mapping[str, Task], *, repeats: int, reference: str, seed: int = 0) -> list[Timing]:
    """Time tasks in turn, so that a busy spell of the machine hits all of them.

    Args:
        tasks: name → what to run; each runs twice beforehand, untimed.
        repeats: rounds, at least 1; a round runs every task once, in random order.
        reference: the task that the ratios are to.
        seed: of the order.

    Returns:
        One timing per task, in the order given.
    """
    if repeats < 1:
        raise InvalidInputError(f"repeats={repeats} must be at least 1.")
    if reference not in tasks:
        raise InvalidInputError(f"reference={reference!r} is none of the tasks {sorted(tasks)}.")
    for task in tasks.values():
        task(0)
        task(1)
    seconds: dict[str, list[float]] = {name: [] for name in tasks}
    rng = random.Random(seed)
    order = list(tasks)
    for turn in range(repeats):
        rng.shuffle(order)
        for name in order:
            clock = time.perf_counter()
            tasks[name](turn)
            seconds[name].append(time.perf_counter() - clock)
    base = statistics.median(seconds[reference])
    return [
        Timing(
            name,
            reference,
            repeats,
            p50=1000 * percentile(values, 0.5),
            p95=1000 * percentile(values, 0.95),
            p99=1000 * percentile(values, 0.99),
            ratio=statistics.median(values) / base,
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


def speed_rows(
    excise: Excise,
    stage: MemoryFirstStage,
    *,
    silent: Sequence[str],
    fired: Sequence[str],
    k: int = 100,
    repeats: int = 20,
    rivals: Mapping[str, Callable[[str, Sequence[Candidate]], object]] | None = None,
    plain: Callable[[str], object] | None = None,
) -> dict[str, list[Timing]]:
    """Time detection, silent queries, firings with a warm and with an empty cache, and what they stand beside.

    Args:
        excise: the pipeline; its shortlist size is ``k`` here.
        stage: the first stage.
        silent, fired: queries on which the detector stays silent and fires.
        k: shortlist size.
        repeats: rounds per group; cold firings take a tenth, at least 3.
        rivals: name → another re-ranker, called with the query and the shortlist.
        plain: a plain encoding of one query by the detector's own model.

    Returns:
        Timings by group: ``detection``, ``search``, ``cold``.

    Raises:
        InvalidInputError: there is no silent or no fired query, or one of them is not.
    """
    if not silent or not fired:
        raise InvalidInputError("Timing needs at least one silent and one fired query; none was given of one kind.")
    for query, wanted in [*((q, False) for q in silent), *((q, True) for q in fired)]:
        if excise.detect(query).fired is not wanted:
            raise InvalidInputError(f"The query {query!r} was given as {'fired' if wanted else 'silent'}; it is not.")
    excise = excise.with_config(k=k)
    out: dict[str, list[Timing]] = {}
    if plain is not None:
        out["detection"] = interleave(
            {
                "plain encoding": lambda i: plain(_turn(silent, i)),
                "detect": lambda i: excise.detect(_turn(silent, i)),
            },
            repeats=repeats * 5,
            reference="plain encoding",
        )
    # The warm rows hold every shortlist from the start.
    for query in fired:
        excise.search(query, stage)
    out["search"] = interleave(
        {
            "frozen": lambda i: stage.search(_turn(silent, i), k),
            "silent": lambda i: excise.search(_turn(silent, i), stage),
            "frozen, excluding query": lambda i: stage.search(_turn(fired, i), k),
            "fired, warm cache": lambda i: excise.search(_turn(fired, i), stage),
        },
        repeats=repeats,
        reference="frozen",
    )
    shortlists = {query: stage.search(query, k) for query in fired}
    cold = excise.with_config()

    def firing(i: int) -> None:
        query = _turn(fired, i)
        cold.cache = VectorCache(excise.cache.max_bytes)
        # No first stage is named: every candidate is encoded, as after any other retriever.
        cold.rerank(query, shortlists[query])

    forwards = {
        query: forward_of(excise.encoder, [c.text for c in shortlists[query]], [query, *_topics(excise, query)])
        for query in fired
    }
    tasks: dict[str, Task] = {
        "bare forwards": lambda i: forwards[_turn(fired, i)](i),
        "fired, empty cache": firing,
    }
    for name, rival in (rivals or {}).items():
        tasks[name] = _rival(rival, fired, shortlists)
    out["cold"] = interleave(tasks, repeats=max(3, repeats // 10), reference="bare forwards")
    return out


def _topics(excise: Excise, query: str) -> list[str]:
    return [span.text for span in excise.detect(query).spans]


def _rival(
    rival: Callable[[str, Sequence[Candidate]], object],
    queries: Sequence[str],
    shortlists: Mapping[str, Sequence[Candidate]],
) -> Task:
    def run(i: int) -> None:
        query = _turn(queries, i)
        rival(query, shortlists[query])

    return run


def _turn(values: Sequence[str], i: int) -> str:
    return values[i % len(values)]
