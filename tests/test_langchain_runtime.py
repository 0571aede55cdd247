"""The LangChain retriever at work: async, events, topics named from outside, copies."""

from __future__ import annotations

import asyncio
import copy
import json
import pickle
import threading
from collections.abc import Mapping, Sequence
from typing import Any

import pytest
from langchain_core.callbacks import AsyncCallbackHandler, BaseCallbackHandler
from langchain_core.documents import Document
from langchain_core.runnables import ConfigurableField

from excise_integrations import Candidate, Detection, Excise, InvalidInputError
from excise_integrations.langchain import ExciseRetriever, excluding

QUERY = "animals that people keep as pets, but not dogs"
PLAIN = "animals that people keep as pets"


class Stage:
    fingerprint = "fixed"

    def __init__(self, candidates: Sequence[Candidate]) -> None:
        self.candidates = list(candidates)

    def search(self, query: str, k: int, *, filter: Mapping[str, Any] | None = None) -> list[Candidate]:
        return self.candidates[:k]


class Events(BaseCallbackHandler):
    raise_error = True

    def __init__(self) -> None:
        self.seen: list[tuple[str, Any]] = []
        self.runs: list[Any] = []

    def on_retriever_start(self, serialized: Any, query: str, *, run_id: Any, **kwargs: Any) -> None:
        self.runs.append(run_id)

    def on_custom_event(self, name: str, data: Any, *, run_id: Any, **kwargs: Any) -> None:
        # The event belongs to the run that it tells of.
        assert run_id == self.runs[-1]
        self.seen.append((name, data))


class Slow:
    """A detector that waits for somebody else, who can come only if the event loop is free."""

    def __init__(self) -> None:
        self.started, self.go = threading.Event(), threading.Event()

    def detect(self, queries: Sequence[str]) -> list[Detection]:
        self.started.set()
        assert self.go.wait(timeout=20), "the event loop is blocked"
        return [Detection(fired=False) for _ in queries]


@pytest.fixture
def retriever(animals: list[Candidate], excise_rules: Excise) -> ExciseRetriever:
    return ExciseRetriever(first_stage=Stage(animals), excise=excise_rules, k=5)


def ids(documents: Sequence[Document]) -> list[str | None]:
    return [d.id for d in documents]


# --- asynchronous ------------------------------------------------------------------------------


def test_async_returns_the_same(retriever: ExciseRetriever) -> None:
    calls: list[dict[str, Any]] = [{}, {"k": 2}, {"exclude": ["parrots"]}, {"exclude": []}]
    for arguments in calls:
        assert asyncio.run(retriever.ainvoke(QUERY, **arguments)) == retriever.invoke(QUERY, **arguments)
    both = [retriever.invoke(QUERY), retriever.invoke(PLAIN)]
    assert retriever.batch([QUERY, PLAIN]) == both
    assert asyncio.run(retriever.abatch([QUERY, PLAIN])) == both


def test_async_leaves_the_loop_free(animals: list[Candidate], excise_rules: Excise) -> None:
    detector = Slow()
    slow = ExciseRetriever(first_stage=Stage(animals), excise=Excise(excise_rules.backbone, detector=detector))

    async def main() -> list[Document]:
        task = asyncio.ensure_future(slow.ainvoke(PLAIN))
        while not detector.started.is_set():
            await asyncio.sleep(0.001)
        detector.go.set()
        return await task

    assert len(asyncio.run(main())) == 8


# --- events ------------------------------------------------------------------------------------


def test_every_call_sends_the_detection(retriever: ExciseRetriever) -> None:
    events = Events()
    retriever.invoke(QUERY, {"callbacks": [events]})
    retriever.invoke(PLAIN, {"callbacks": [events]})
    asyncio.run(retriever.ainvoke(QUERY, {"callbacks": [events]}))
    assert [name for name, _ in events.seen] == ["excise_detection"] * 3
    fired, silent, again = (data for _, data in events.seen)
    assert {**fired, "timings": None} == {**again, "timings": None}
    assert json.loads(json.dumps(fired)) == fired
    assert fired["removed"] == ["dog"]
    assert "dog" not in fired["returned"]
    assert set(fired["timings"]) == {"detect", "encode", "compare"}
    assert all(seconds >= 0 for seconds in fired["timings"].values())
    assert set(silent["timings"]) == {"detect"}
    assert (fired["query"], fired["fired"], fired["source"]) == (QUERY, True, "detector")
    assert [s["text"] for s in fired["spans"]] == ["dogs"]
    assert (silent["fired"], silent["spans"]) == (False, [])


def test_event_reaches_asynchronous_handlers_and_event_streams(retriever: ExciseRetriever) -> None:
    class Handler(AsyncCallbackHandler):
        def __init__(self) -> None:
            self.names: list[str] = []

        async def on_custom_event(self, name: str, data: Any, **kwargs: Any) -> None:
            self.names.append(name)

    handler = Handler()

    async def main() -> list[str]:
        await retriever.ainvoke(QUERY, {"callbacks": [handler]})
        stream = retriever.astream_events(QUERY, version="v2")
        return [event["name"] async for event in stream if event["event"] == "on_custom_event"]

    assert asyncio.run(main()) == ["excise_detection"]
    assert handler.names == ["excise_detection"]


# --- naming topics from outside ------------------------------------------------------------------


def test_precedence_of_topics(retriever: ExciseRetriever) -> None:
    def topics(config: Any = None, **arguments: Any) -> list[str]:
        found = retriever.invoke(QUERY, config, **arguments)
        assert asyncio.run(retriever.ainvoke(QUERY, config, **arguments)) == found
        return [span["text"] for span in found[0].metadata["excise"]["spans"]]

    config = {"configurable": {"exclude": ["horses"]}}
    assert topics() == ["dogs"]
    retriever.exclude = ["rabbits"]
    assert topics() == ["rabbits"]
    with excluding(["cats"]):
        assert topics() == ["cats"]
        with excluding([]):
            assert topics() == []
        with excluding(None):
            assert topics() == ["rabbits"]
        assert topics(config) == ["horses"]
        assert topics(config, exclude=["hamsters"]) == ["hamsters"]
        assert [s.text for s in retriever.explain(QUERY).detection.spans] == ["cats"]
    assert topics() == ["rabbits"]
    retriever.exclude = []
    assert topics() == []


def test_excluding_checks_its_topics_and_ends_on_errors(retriever: ExciseRetriever) -> None:
    for bad in ("dogs", [" "], [None]):
        with pytest.raises(InvalidInputError, match="exclude"), excluding(bad):  # type: ignore[arg-type]
            pytest.fail("entered")
    with pytest.raises(KeyError), excluding(["cats"]):
        raise KeyError
    assert retriever.invoke(PLAIN)[0].metadata["excise"]["fired"] is False


def test_excluding_stays_in_its_own_task(retriever: ExciseRetriever) -> None:
    async def ask(topic: str) -> list[str]:
        with excluding([topic]):
            await asyncio.sleep(0.01)
            found = await retriever.ainvoke(PLAIN)
        return [span["text"] for span in found[0].metadata["excise"]["spans"]]

    async def main() -> list[list[str]]:
        return list(await asyncio.gather(ask("dogs"), ask("cats")))

    assert asyncio.run(main()) == [["dogs"], ["cats"]]


# --- copies --------------------------------------------------------------------------------------


def test_copies_share_the_pipeline_and_answer_alike(retriever: ExciseRetriever) -> None:
    expected = ids(retriever.invoke(QUERY))
    for twin in (retriever.model_copy(), copy.deepcopy(retriever), copy.copy(retriever)):
        assert twin.excise.backbone is retriever.excise.backbone
        assert ids(twin.invoke(QUERY)) == expected


def test_configurable_fields(retriever: ExciseRetriever) -> None:
    tuned = retriever.configurable_fields(
        k=ConfigurableField(id="k"), mode=ConfigurableField(id="mode"), exclude=ConfigurableField(id="exclude")
    )
    assert len(tuned.invoke(QUERY, {"configurable": {"k": 2}})) == 2
    shadow = tuned.invoke(QUERY, {"configurable": {"mode": "shadow"}})
    assert shadow[1].metadata["excise"]["action"] == "removed"
    assert "parrot" not in ids(tuned.invoke(QUERY, {"configurable": {"exclude": ["parrots and other birds"]}}))
    with pytest.raises(InvalidInputError, match="k=0"):
        tuned.invoke(QUERY, {"configurable": {"k": 0}})
    assert len(retriever.invoke(QUERY)) == 5


def test_pickle(retriever: ExciseRetriever) -> None:
    twin = pickle.loads(pickle.dumps(retriever))
    assert (twin.k, ids(twin.invoke(QUERY))) == (5, ids(retriever.invoke(QUERY)))
