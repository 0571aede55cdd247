"""First stages that hang, change under a query, or return a document of five megabytes."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Callable, Sequence
from typing import Any

import pytest
import torch
from pipeline_fakes import AsyncStage, Stage, VectorStage, over
from word_backbone import WordBackbone, word_excise

from excise_integrations import Candidate, Excise
from excise_integrations.encode import TokenVectors
from excise_integrations.first_stage.memory import MemoryFirstStage

QUERY = "animals that people keep as a pet, but not cats"


class HangingStage(Stage):
    """Blocks until it is let go."""

    def __init__(self, found: Any) -> None:
        super().__init__(found)
        self.go_on = threading.Event()

    def search(self, query: str, k: int, **settings: Any) -> Any:
        assert self.go_on.wait(60)
        return super().search(query, k, **settings)


class HangingAsyncStage(AsyncStage):
    async def asearch(self, query: str, k: int, **settings: Any) -> Any:
        await asyncio.sleep(3600)


@pytest.mark.parametrize("kind", [HangingStage, HangingAsyncStage])
def test_a_first_stage_that_hangs_can_be_given_up_and_hinders_nobody(animals: list[Candidate], kind: Any) -> None:
    excise, stage = word_excise(), kind(animals)

    async def ask() -> Any:
        began = time.perf_counter()
        hanging = asyncio.create_task(excise.asearch(QUERY, stage))
        others = await asyncio.gather(*(excise.asearch(QUERY, Stage(animals)) for _ in range(20)))
        with pytest.raises(asyncio.TimeoutError):
            await asyncio.wait_for(hanging, 0.1)
        assert time.perf_counter() - began < 20
        if kind is HangingStage:
            # A thread cannot be ended from outside; it ends when its first stage does.
            stage.go_on.set()
        return others

    assert all(r.detection.fired and r.error is None for r in asyncio.run(ask()))


@pytest.mark.parametrize("adapter", [False, True])
def test_a_document_of_five_megabytes(animals: list[Candidate], adapter: bool) -> None:
    huge = [
        Candidate("words", "cats and other animals " * 220_000),
        Candidate("one word", "x" * 5_000_000),
        Candidate("blanks", "a" + " " * 5_000_000 + "b"),
        Candidate("no spaces", "电动车" * 1_700_000),
        Candidate("marks", "\u202e\u200b\ufeff" * 1_700_000),
    ]
    excise = word_excise(adapter=adapter)
    result = excise.search(QUERY, Stage([*animals, *huge]))
    assert result.error is None
    assert len(result.candidates) + len(result.removed) == len(animals) + len(huge)
    assert {c.id for c in result.removed} <= {"cat", "words"}
    # What is kept of it is bounded by the window policy, not by its length.
    assert excise.cache_stats().bytes < 10_000_000


def test_the_model_reads_a_bounded_part_of_five_megabytes(excise_rules: Excise, animals: list[Candidate]) -> None:
    huge = [Candidate("one word", "x" * 5_000_000), Candidate("no spaces", "电动车" * 1_700_000)]
    began = time.process_time()
    result = over(excise_rules).search(QUERY, Stage([*animals, *huge]))
    assert time.process_time() - began < 10
    assert [c.id for c in result.removed] == ["cat"]


class Vanishing(VectorStage):
    """An index from which documents are deleted between the search and the request for their vectors."""

    def __init__(self, stage: MemoryFirstStage) -> None:
        self._stage = stage
        self.vector_space = stage.vector_space

    @property
    def fingerprint(self) -> str:  # type: ignore[override]
        return self._stage.fingerprint

    def search(self, query: str, k: int, **settings: Any) -> Any:
        found = self._stage.search(query, k, **settings)
        self._stage.delete([found[0].id, found[-1].id])
        return found

    def vectors(self, ids: Sequence[str]) -> list[TokenVectors]:
        return self._stage.vectors(ids)


def test_documents_deleted_between_search_and_re_ranking_are_judged_by_their_texts(animals: list[Candidate]) -> None:
    backbone: Any = WordBackbone()
    stage = MemoryFirstStage.from_candidates(animals, backbone=backbone)
    excise = word_excise()
    expected = excise.search(QUERY, stage)
    found = excise.search(QUERY, Vanishing(stage))
    assert len(stage) == len(animals) - 2
    assert found.verdicts == expected.verdicts


FAILURES: list[tuple[str, Callable[[], Exception]]] = [
    ("CPU", lambda: RuntimeError("DefaultCPUAllocator: can't allocate memory: you tried to allocate 1 bytes.")),
    ("GPU", lambda: torch.OutOfMemoryError("CUDA out of memory")),
    ("Python", MemoryError),
]


@pytest.mark.parametrize(("where", "failure"), FAILURES, ids=[w for w, _ in FAILURES])
def test_a_batch_that_finds_no_memory_is_halved(
    excise_rules: Excise, animals: list[Candidate], monkeypatch: pytest.MonkeyPatch, where: str, failure: Any
) -> None:
    backbone = excise_rules.backbone
    expected = over(excise_rules).rerank(QUERY, animals)
    forward, sizes = backbone._forward, []

    def tight(texts: list[str], task: Any) -> Any:
        sizes.append((task, len(texts)))
        if len(texts) > 1:
            raise failure()
        return forward(texts, task)

    monkeypatch.setattr(backbone, "_forward", tight)
    found = over(excise_rules).rerank(QUERY, animals)
    assert [c.id for c in found.removed] == [c.id for c in expected.removed]
    # The query and its topic are halved as documents are.
    assert ("query", 2) in sizes
    assert ("query", 1) in sizes
    assert ("document", 1) in sizes


def test_another_error_of_a_batch_is_not_tried_again(excise_rules: Excise, monkeypatch: pytest.MonkeyPatch) -> None:
    calls = []

    def broken(texts: list[str], task: Any) -> Any:
        calls.append(texts)
        raise RuntimeError("the model is broken")

    monkeypatch.setattr(excise_rules.backbone, "_forward", broken)
    with pytest.raises(RuntimeError, match="broken"):
        excise_rules.backbone.encode_documents(["a", "b"])
    assert len(calls) == 1
