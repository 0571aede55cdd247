"""Where the time of a query goes, part by part."""

from __future__ import annotations

import contextlib
import inspect
import statistics
import time
from collections import defaultdict
from collections.abc import Callable, Iterator
from functools import wraps
from typing import Any

from .. import _ranking, _scoring, pipeline
from ..detect import lora
from ..encode import backbone as encoding
from ..encode.cache import VectorCache
from ..first_stage._packed import PackedVectors
from ..first_stage.memory import MemoryFirstStage
from .speed import Task, Workload

__all__ = ["FORWARD", "OTHER", "profile_rows"]

FORWARD = "forward of the backbone"
DETECTOR_FORWARD = "forward of the detector"
OTHER = "everything else"


class _Clock:
    """Time per part; a part's time does not hold that of the parts inside it. For one thread."""

    def __init__(self) -> None:
        self.spent: dict[str, float] = defaultdict(float)
        self._open: list[str] = []
        self._since = time.perf_counter()

    def _mark(self) -> None:
        now = time.perf_counter()
        if self._open:
            self.spent[self._open[-1]] += now - self._since
        self._since = now

    @contextlib.contextmanager
    def part(self, name: str) -> Iterator[None]:
        self._mark()
        self._open.append(name)
        try:
            yield
        finally:
            self._mark()
            self._open.pop()

    def wrap(self, name: str, function: Callable[..., Any]) -> Callable[..., Any]:
        @wraps(function)
        def timed(*args: Any, **kwargs: Any) -> Any:
            with self.part(name):
                found = function(*args, **kwargs)
                # A generator does its work when it is read.
                return iter(list(found)) if inspect.isgenerator(found) else found

        return timed


def profile_rows(work: Workload, *, repeats: int) -> dict[str, dict[str, float]]:
    """Measure the parts of silent, warm and cold queries.

    Args:
        work: the workload; its detector is the trained one.
        repeats: queries per kind; a cold kind takes a tenth, at least 3.

    Returns:
        Kind → part → mean milliseconds per query, in the order in which the parts begin; parts sum to the whole.
    """
    kinds: dict[str, tuple[Task, int]] = {
        "silent": (work.search(work.silent), repeats),
        "fired, warm": (work.search(work.fired), repeats),
        "fired, cached": (work.rerank(cold=False), repeats),
        "fired, cold": (work.rerank(cold=True), max(3, repeats // 10)),
    }
    return {kind: _profile(work, task, count) for kind, (task, count) in kinds.items()}


def _profile(work: Workload, task: Task, repeats: int) -> dict[str, float]:
    task(0)
    runs: list[dict[str, float]] = []
    for turn in range(repeats):
        clock = _Clock()
        with _timed_parts(work, clock), clock.part(OTHER):
            task(turn)
        runs.append(dict(clock.spent))
    parts = dict.fromkeys(part for run in runs for part in run)
    return {part: 1000 * statistics.fmean(run.get(part, 0.0) for run in runs) for part in parts}


@contextlib.contextmanager
def _timed_parts(work: Workload, clock: _Clock) -> Iterator[None]:
    encoder: Any = work.excise.encoder.encoder
    frozen: Any = work.stage.backbone.encoder
    detector: Any = work.excise.detector
    places: list[tuple[Any, str, str]] = [
        (PackedVectors, "score", "MaxSim over the collection"),
        (MemoryFirstStage, "search", "first stage, the rest"),
        (MemoryFirstStage, "vectors", "vectors from the first stage"),
        (type(detector), "detect", "detector, the rest"),
        (lora, "decode", "spans from token scores"),
        (encoding, "split_windows", "windows of the documents"),
        (encoding.Backbone, "_forward", "vectors from hidden states"),
        (VectorCache, "encode", "cache"),
        (_scoring, "maxsim", "MaxSim over the shortlist"),
        (_scoring, "evidence_of", "evidence"),
        (_scoring, "opening_evidence", "evidence of the openings"),
        (_scoring, "score", "masks of query and topics"),
        (_scoring, "check_candidates", "checks"),
        (_scoring, "check_shortlist", "checks"),
        (_scoring, "check_detected", "checks"),
        (_ranking, "demote", "demotion"),
        (pipeline, "active_result", "result"),
        (pipeline, "silent_result", "result"),
        *[(e, "preprocess", "tokenising") for e in _distinct(encoder, frozen)],
        *[(e[0].auto_model, "forward", FORWARD) for e in _distinct(encoder, frozen)],
    ]
    if hasattr(detector, "tagger"):
        places.append((detector.tagger.transformer, "forward", DETECTOR_FORWARD))
    with contextlib.ExitStack() as stack:
        for owner, name, part in places:
            stack.callback(_restore, owner, name, vars(owner).get(name))
            setattr(owner, name, clock.wrap(part, getattr(owner, name)))
        yield


def _restore(owner: Any, name: str, own: Any) -> None:
    # An instance's method came from its class.
    if own is None:
        delattr(owner, name)
    else:
        setattr(owner, name, own)


def _distinct(*values: Any) -> list[Any]:
    return list({id(v): v for v in values}.values())
