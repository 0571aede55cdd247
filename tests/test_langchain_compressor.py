"""The LangChain compressor, called directly."""

from __future__ import annotations

import asyncio
import copy
import pickle
import threading
from typing import Any

import pytest
from langchain_core.callbacks import BaseCallbackHandler
from langchain_core.documents import Document
from langchain_core.runnables import Runnable, RunnableLambda

from excise_integrations import Candidate, Detection, Excise, InvalidInputError
from excise_integrations.langchain import ExciseCompressor, excluding

QUERY = "animals that people keep as pets, but not dogs"
PLAIN = "animals that people keep as pets"


class Events(BaseCallbackHandler):
    def __init__(self) -> None:
        self.seen: list[tuple[str, bool, Any]] = []

    def on_custom_event(self, name: str, data: Any, **kwargs: Any) -> None:
        self.seen.append((name, data["fired"], kwargs["run_id"]))


@pytest.fixture
def docs(animals: list[Candidate]) -> list[Document]:
    return [Document(page_content=c.text, metadata={"name": c.id}) for c in animals]


@pytest.fixture
def compressor(excise_rules: Excise) -> ExciseCompressor:
    return ExciseCompressor(excise=excise_rules)


def names(documents: Any) -> list[str]:
    return [d.metadata["name"] for d in documents]


def test_compress(compressor: ExciseCompressor, docs: list[Document]) -> None:
    before = copy.deepcopy(docs)
    found = compressor.compress_documents(docs, QUERY)
    assert isinstance(found, list)
    assert sorted(names(found)) == sorted(set(names(docs)) - {"dog"})
    assert [d.metadata["excise"]["rank"] for d in found] == list(range(1, 8))
    assert {d.id for d in found} == {None}
    assert docs == before
    assert asyncio.run(compressor.acompress_documents(docs, QUERY)) == found
    assert names(compressor.compress_documents(tuple(docs), PLAIN)) == names(docs)


def test_options(compressor: ExciseCompressor, docs: list[Document], excise_rules: Excise) -> None:
    top = ExciseCompressor(excise=excise_rules, k=2)
    assert len(top.compress_documents(docs, QUERY)) == len(asyncio.run(top.acompress_documents(docs, QUERY))) == 2
    last = ExciseCompressor(excise=excise_rules, removed="last").compress_documents(docs, QUERY)
    assert (len(last), last[-1].metadata["name"]) == (8, "dog")
    shadow = ExciseCompressor(excise=excise_rules, mode="shadow").compress_documents(docs, QUERY)
    assert names(shadow) == names(docs)
    assert shadow[1].metadata["excise"]["action"] == "removed"
    for bad in ({"k": 0}, {"top_n": 3}, {"mode": "quiet"}):
        with pytest.raises(InvalidInputError, match=next(iter(bad))):
            ExciseCompressor(excise=excise_rules, **bad)


def test_topics(compressor: ExciseCompressor, docs: list[Document]) -> None:
    bird = ["parrots and other birds"]
    expected = compressor.compress_documents(docs, PLAIN, exclude=bird)
    assert "parrot" not in names(expected)
    assert asyncio.run(compressor.acompress_documents(docs, PLAIN, exclude=bird)) == expected
    with excluding(bird):
        assert compressor.compress_documents(docs, PLAIN) == expected
        assert asyncio.run(compressor.acompress_documents(docs, PLAIN)) == expected
        assert names(compressor.compress_documents(docs, PLAIN, exclude=[])) == names(docs)
    step: Runnable[str, Any] = RunnableLambda(lambda query: compressor.compress_documents(docs, query))
    assert step.invoke(PLAIN, {"configurable": {"exclude": bird}}) == expected
    compressor.exclude = bird
    assert compressor.compress_documents(docs, PLAIN) == expected


def test_bad_input(compressor: ExciseCompressor, docs: list[Document]) -> None:
    assert compressor.compress_documents([], QUERY) == []
    assert asyncio.run(compressor.acompress_documents([], QUERY)) == []
    twice = [Document(id="a", page_content="one"), Document(id="a", page_content="two")]
    cases: list[tuple[Any, str, str]] = [
        (docs, " ", "blank"),
        (twice, QUERY, "'a' occurs twice"),
        ([Document(id="b", page_content="")], QUERY, "'b'.*no text"),
        (["text"], QUERY, "rank 1 is a str"),
    ]
    for documents, query, message in cases:
        with pytest.raises(InvalidInputError, match=message):
            compressor.compress_documents(documents, query)
        with pytest.raises(InvalidInputError, match=message):
            asyncio.run(compressor.acompress_documents(documents, query))


def test_ids_do_not_collide_with_the_missing_ones(compressor: ExciseCompressor) -> None:
    tricky = [
        Document(page_content="The cat hunts mice."),
        Document(id="excise-position:0", page_content="The dog is a pet."),
        Document(page_content="The parrot is a bird."),
    ]
    found = compressor.compress_documents(tricky, PLAIN)
    assert [d.id for d in found] == [None, "excise-position:0", None]


def test_events(compressor: ExciseCompressor, docs: list[Document]) -> None:
    events = Events()
    compressor.compress_documents(docs, QUERY, callbacks=[events])
    asyncio.run(compressor.acompress_documents(docs, PLAIN, callbacks=[events]))
    step: Runnable[str, Any] = RunnableLambda(lambda query: compressor.compress_documents(docs, query))
    step.invoke(QUERY, {"callbacks": [events]})
    assert [(name, fired) for name, fired, _ in events.seen] == [
        ("excise_detection", True),
        ("excise_detection", False),
        ("excise_detection", True),
    ]
    assert all(run_id is not None for _, _, run_id in events.seen)


def test_async_leaves_the_loop_free(docs: list[Document], excise_rules: Excise) -> None:
    started, go = threading.Event(), threading.Event()

    class Slow:
        def detect(self, queries: Any) -> list[Detection]:
            started.set()
            assert go.wait(timeout=20), "the event loop is blocked"
            return [Detection(fired=False) for _ in queries]

    slow = ExciseCompressor(excise=Excise(excise_rules.backbone, detector=Slow()))

    async def main() -> Any:
        task = asyncio.ensure_future(slow.acompress_documents(docs, PLAIN))
        while not started.is_set():
            await asyncio.sleep(0.001)
        go.set()
        return await task

    assert len(asyncio.run(main())) == 8


def test_copies(compressor: ExciseCompressor, docs: list[Document]) -> None:
    expected = compressor.compress_documents(docs, QUERY)
    for twin in (copy.deepcopy(compressor), compressor.model_copy(), pickle.loads(pickle.dumps(compressor))):
        assert names(twin.compress_documents(docs, QUERY)) == names(expected)
