"""One Excise among threads, tasks, copies and processes."""

from __future__ import annotations

import asyncio
import copy
import multiprocessing
import pickle
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
from pipeline_fakes import AsyncStage, Encoder, Says, Stage, over, topic

from excise_integrations import Candidate, Detection, Excise, ExciseResult, InvalidInputError

QUERIES = [
    "animals that people keep as a pet, but not cats",
    "animals that people keep as a pet",
    "pets, not dogs and not parrots",
    "small animals without hamsters",
    "riding animals",
    "pets, no rabbits",
]


def seen(result: ExciseResult) -> tuple[Any, ...]:
    """What must not depend on who else is asking."""
    return (
        [c.id for c in result.candidates],
        [c.id for c in result.removed],
        result.detection,
        [(v.id, v.action, v.rank, v.span) for v in result.verdicts.values()],
        result.warnings,
        result.error,
    )


def scores(result: ExciseResult) -> list[float]:
    return [v.score or 0.0 for v in result.verdicts.values()]


# --- threads --------------------------------------------------------------------------------------


@pytest.mark.parametrize("warm", [False, True], ids=["cold", "warm"])
def test_sixteen_threads_get_what_one_gets(excise_rules: Excise, animals: list[Candidate], warm: bool) -> None:
    serial = {q: over(excise_rules).rerank(q, animals) for q in QUERIES}
    shared = over(excise_rules)
    if warm:
        shared.cache.encode([c.text for c in animals], shared.encoder)
    jobs = QUERIES * 12
    barrier = threading.Barrier(16)

    def ask(at: int) -> ExciseResult:
        if at < 16:
            barrier.wait(30)
        return shared.rerank(jobs[at], animals)

    with ThreadPoolExecutor(16) as pool:
        found = list(pool.map(ask, range(len(jobs))))
    for query, result in zip(jobs, found, strict=True):
        assert seen(result) == seen(serial[query])
        assert scores(result) == pytest.approx(scores(serial[query]), abs=1e-2)
    again = {q: shared.rerank(q, animals) for q in QUERIES}
    if warm:
        assert all(scores(r) == scores(again[q]) for q, r in zip(jobs, found, strict=True))
    assert shared.cache_stats().misses == len(animals)


def test_threads_that_fail_leave_the_others_alone(excise_rules: Excise, animals: list[Candidate]) -> None:
    shared = over(excise_rules)

    def ask(at: int) -> Any:
        try:
            return seen(shared.rerank(QUERIES[0], animals, k=0 if at % 3 == 0 else None))
        except InvalidInputError:
            return "refused"

    with ThreadPoolExecutor(8) as pool:
        found = list(pool.map(ask, range(24)))
    assert [f == "refused" for f in found] == [at % 3 == 0 for at in range(24)]
    assert len({str(f) for f in found}) == 2


# --- the event loop -------------------------------------------------------------------------------


def slow(query: str) -> Detection:
    time.sleep(0.4)
    return topic("cats")(query)


async def ticks_while(work: Any) -> tuple[Any, int]:
    count = 0

    async def tick() -> None:
        nonlocal count
        while True:
            await asyncio.sleep(0.01)
            count += 1

    ticking = asyncio.create_task(tick())
    result = await work
    ticking.cancel()
    return result, count


def test_the_loop_runs_on_while_excise_works(excise_rules: Excise, animals: list[Candidate]) -> None:
    excise = over(excise_rules, Says(slow))
    loop_thread = threading.get_ident()
    stage = Stage(animals)
    for work in (
        lambda: excise.arerank(QUERIES[0], animals, k=3),
        lambda: excise.asearch(QUERIES[0], stage, k=3),
        lambda: excise.asearch(QUERIES[0], AsyncStage(animals), k=3),
    ):
        result, count = asyncio.run(ticks_while(work()))
        assert seen(result) == seen(excise_rules.rerank(QUERIES[0], animals, k=3, detection=result.detection))
        assert count >= 5
    # A first stage that only blocks is taken off the loop; one with a search of its own stays on it.
    assert loop_thread not in stage.threads
    own = AsyncStage(animals)
    asyncio.run(excise.asearch(QUERIES[0], own, filter={"a": 1}))
    assert own.threads == {loop_thread}
    assert own.asked == [(QUERIES[0], 100, {"a": 1})]


def test_many_tasks_get_what_one_gets(excise_rules: Excise, animals: list[Candidate]) -> None:
    shared = over(excise_rules)
    serial = {q: seen(shared.rerank(q, animals)) for q in QUERIES}

    async def ask() -> list[ExciseResult]:
        return await asyncio.gather(*(shared.arerank(q, animals) for q in QUERIES * 10))

    found = asyncio.run(ask())
    assert [seen(r) for r in found] == [serial[q] for q in QUERIES * 10]


def test_a_cancelled_task_holds_nothing_back(excise_rules: Excise, animals: list[Candidate]) -> None:
    started, go_on = threading.Event(), threading.Event()

    def stuck(texts: Any) -> Any:
        started.set()
        assert go_on.wait(30)
        return excise_rules.backbone.encode_documents(texts)

    excise = over(excise_rules, encoder=Encoder(excise_rules.backbone, encode_documents=stuck))

    async def cancel() -> None:
        task = asyncio.create_task(excise.arerank(QUERIES[0], animals))
        while not started.is_set():
            await asyncio.sleep(0.01)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        # Others are served meanwhile.
        assert (await excise.arerank(QUERIES[1], animals)).error is None
        go_on.set()

    asyncio.run(cancel())
    assert [c.id for c in excise.rerank(QUERIES[0], animals).removed] == ["cat"]


# --- copies ---------------------------------------------------------------------------------------


def parts(excise: Excise) -> list[Any]:
    return [excise.backbone, excise.detector, excise.exclusion, excise.cache]


def test_other_settings_share_every_heavy_part(excise_rules: Excise) -> None:
    other = excise_rules.with_config(cap=1, mode="shadow")
    assert (other.config.cap, other.config.mode) == (1, "shadow")
    assert (excise_rules.config.cap, excise_rules.config.mode) == (3, "active")
    assert all(a is b for a, b in zip(parts(other), parts(excise_rules), strict=True))
    assert other.with_config(mode="active").config.cap == 1
    assert excise_rules.config.digest() != other.config.digest()


@pytest.mark.parametrize("duplicate", [copy.copy, copy.deepcopy])
def test_copies_share_every_heavy_part(excise_rules: Excise, duplicate: Any) -> None:
    twin = duplicate(excise_rules)
    assert twin is not excise_rules
    assert twin.config == excise_rules.config
    assert all(a is b for a, b in zip(parts(twin), parts(excise_rules), strict=True))
    # Inside another object too, as frameworks do it.
    assert duplicate({"excise": excise_rules})["excise"].cache is excise_rules.cache


def test_it_survives_pickling(excise_rules: Excise, animals: list[Candidate]) -> None:
    original = excise_rules.with_config(cap=1)
    recipe = pickle.dumps(original)
    # It is a recipe, not the weights.
    assert len(recipe) < 10_000
    twin = pickle.loads(recipe)
    assert twin.config == original.config
    assert twin.cache is not original.cache
    assert seen(twin.rerank(QUERIES[0], animals)) == seen(original.rerank(QUERIES[0], animals))


def test_one_made_of_parts_survives_pickling(excise_rules: Excise, animals: list[Candidate]) -> None:
    original = Excise(excise_rules.backbone, detector=excise_rules.detector, cache_bytes=12345)
    twin = pickle.loads(pickle.dumps(original))
    assert twin.cache.max_bytes == 12345
    assert seen(twin.rerank(QUERIES[0], animals)) == seen(original.rerank(QUERIES[0], animals))


def _in_a_child(excise: Excise, animals: list[Candidate], answers: Any) -> None:
    answers.put([seen(excise.rerank(q, animals)) for q in QUERIES[:3]])


@pytest.mark.skipif("fork" not in multiprocessing.get_all_start_methods(), reason="needs fork")
@pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning")
def test_it_works_in_a_forked_process(excise_rules: Excise, animals: list[Candidate]) -> None:
    expected = [seen(excise_rules.rerank(q, animals)) for q in QUERIES[:3]]
    context = multiprocessing.get_context("fork")
    answers = context.Queue()
    child = context.Process(target=_in_a_child, args=(excise_rules, animals, answers))
    child.start()
    try:
        assert answers.get(timeout=120) == expected
    finally:
        child.join(30)
        child.kill()
    assert child.exitcode == 0


def test_warming_up_runs_every_model_once(excise_rules: Excise) -> None:
    detector, encoder = Says(topic("this")), Encoder(excise_rules.backbone)
    over(excise_rules, detector, encoder).warmup()
    assert len(detector.asked) == len(encoder.documents) == 1
