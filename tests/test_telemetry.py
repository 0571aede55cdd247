"""OpenTelemetry spans, the frameworks' events, and the one logger."""

from __future__ import annotations

import asyncio
import importlib
import inspect
import json
import logging
import pkgutil
import subprocess
import sys
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
from opentelemetry import trace
from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from pipeline_fakes import AsyncStage, Raises, Stage, over

import excise_integrations
from excise_integrations import Candidate, DetectorError, Excise, FirstStageError, InvalidInputError

QUERY = "animals that people keep as pets, but not dogs"
PLAIN = "animals that people keep as pets"
CAPTURE = "OTEL_INSTRUMENTATION_GENAI_CAPTURE_MESSAGE_CONTENT"


class Spans:
    """What an application has collected."""

    def __init__(self) -> None:
        self.exporter = InMemorySpanExporter()
        self.provider = TracerProvider()
        self.provider.add_span_processor(SimpleSpanProcessor(self.exporter))

    def take(self) -> list[ReadableSpan]:
        found = list(self.exporter.get_finished_spans())
        self.exporter.clear()
        return found


@pytest.fixture
def spans(monkeypatch: pytest.MonkeyPatch) -> Iterator[Spans]:
    collected = Spans()
    # The global provider can be set only once in a process.
    monkeypatch.setattr(trace, "get_tracer", collected.provider.get_tracer)
    monkeypatch.delenv(CAPTURE, raising=False)
    yield collected
    collected.provider.shutdown()


def attributes(span: ReadableSpan) -> dict[str, Any]:
    return dict(span.attributes or {})


# --- spans ----------------------------------------------------------------------------------------


def test_a_rerank_is_a_span_with_detection_and_timings(
    spans: Spans, excise_rules: Excise, animals: list[Candidate]
) -> None:
    result = excise_rules.rerank(QUERY, animals, k=3)
    (span,) = spans.take()
    assert span.name == "excise.rerank"
    assert span.instrumentation_scope is not None
    assert span.instrumentation_scope.name == "excise_integrations"
    assert span.instrumentation_scope.version == excise_integrations.__version__
    assert span.status.is_unset
    found = attributes(span)
    assert found["excise.fired"] is True
    assert found["excise.confidence"] == pytest.approx(result.detection.confidence)
    assert found["excise.source"] == "detector"
    counts = {name: found[f"excise.{name}"] for name in ("spans", "shortlist", "returned", "removed", "warnings")}
    assert counts == {"spans": 1, "shortlist": 8, "returned": 3, "removed": 1, "warnings": len(result.warnings)}
    assert found["excise.penalised"] == sum(v.action == "penalised" for v in result.verdicts.values())
    assert found["excise.config"] == excise_rules.config.digest()
    assert {k: v for k, v in found.items() if ".seconds." in k} == {
        f"excise.seconds.{stage}": result.timings[stage] for stage in ("detect", "encode", "compare")
    }
    assert span.end_time is not None
    assert span.start_time is not None
    assert sum(result.timings.values()) <= (span.end_time - span.start_time) / 1e9
    excise_rules.rerank(PLAIN, animals)
    silent = attributes(spans.take()[0])
    assert (silent["excise.fired"], silent["excise.removed"]) == (False, 0)
    assert "excise.seconds.encode" not in silent


def test_spans_nest_on_every_way_in(spans: Spans, excise_rules: Excise, animals: list[Candidate]) -> None:
    def shape(work: Any) -> list[tuple[str, str | None]]:
        with spans.provider.get_tracer("application").start_as_current_span("application"):
            asyncio.run(work()) if inspect.iscoroutinefunction(work) else work()
        found = spans.take()
        names = {s.context.span_id: s.name for s in found if s.context is not None}
        return [(s.name, names.get(s.parent.span_id) if s.parent else None) for s in found]

    async def waiting() -> None:
        await excise_rules.asearch(QUERY, Stage(animals))

    async def asynchronous() -> None:
        await excise_rules.asearch(QUERY, AsyncStage(animals))

    async def ranking() -> None:
        await excise_rules.arerank(QUERY, animals)

    top = ("application", None)
    searched = [("excise.rerank", "excise.search"), ("excise.search", "application"), top]
    assert shape(lambda: excise_rules.search(QUERY, Stage(animals))) == searched
    assert shape(waiting) == searched
    assert shape(asynchronous) == searched
    assert shape(ranking) == [("excise.rerank", "application"), top]
    batch = [("excise.rerank", "excise.rerank_batch")] * 2 + [("excise.rerank_batch", "application"), top]
    assert shape(lambda: excise_rules.rerank_batch([QUERY, PLAIN], [animals, animals])) == batch


def test_a_batch_is_summed_up(spans: Spans, excise_rules: Excise, animals: list[Candidate]) -> None:
    excise_rules.rerank_batch([QUERY, PLAIN, QUERY], [animals] * 3)
    assert attributes(spans.take()[-1]) == {"excise.queries": 3, "excise.fired": 2, "excise.removed": 2}


def told(spans: list[ReadableSpan]) -> str:
    return "".join(s.to_json() for s in spans)


def test_no_text_leaves_unless_it_is_asked_for(
    spans: Spans, excise_rules: Excise, animals: list[Candidate], monkeypatch: pytest.MonkeyPatch
) -> None:
    leaky = over(excise_rules, Raises(DetectorError(f"no idea what {QUERY!r} means")))

    def work() -> str:
        excise_rules.search(QUERY, Stage(animals))
        excise_rules.rerank(PLAIN, animals, exclude=["dogs"])
        leaky.with_config(on_error="frozen").rerank(QUERY, animals)
        for call in (lambda: leaky.rerank(QUERY, animals), lambda: leaky.search(QUERY, Stage(ValueError(QUERY)))):
            with pytest.raises((DetectorError, FirstStageError)):
                call()
        return told(spans.take())

    for value in ("", "false", "no_content"):
        monkeypatch.setenv(CAPTURE, value)
        text = work()
        assert "keep" not in text
        assert "dogs" not in text
    for value in ("true", "SPAN_ONLY"):
        monkeypatch.setenv(CAPTURE, value)
        text = work()
        assert f'"gen_ai.retrieval.query.text": {json.dumps(QUERY)}' in text
        assert "no idea what" in text
        assert "dogs" in text


def test_failures_have_a_type(spans: Spans, excise_rules: Excise, animals: list[Candidate]) -> None:
    with pytest.raises(FirstStageError):
        excise_rules.search(QUERY, Stage(RuntimeError("down")))
    with pytest.raises(FirstStageError):
        asyncio.run(excise_rules.asearch(QUERY, AsyncStage(RuntimeError("down"))))
    with pytest.raises(InvalidInputError):
        excise_rules.rerank(" ", animals)
    found = spans.take()
    assert [attributes(s)["error.type"] for s in found] == ["FirstStageError", "FirstStageError", "InvalidInputError"]
    assert [(s.status.status_code, s.status.description) for s in found] == [
        (trace.StatusCode.ERROR, attributes(s)["error.type"]) for s in found
    ]
    over(excise_rules, Raises(), on_error="frozen").rerank(QUERY, animals)
    (fallen,) = spans.take()
    assert attributes(fallen)["error.type"] == "DetectorError"
    assert fallen.status.is_unset


def test_threads_have_spans_of_their_own(spans: Spans, excise_rules: Excise, animals: list[Candidate]) -> None:
    with ThreadPoolExecutor(8) as pool:
        list(pool.map(lambda query: excise_rules.rerank(query, animals), [QUERY, PLAIN] * 16))
    found = spans.take()
    assert [s.parent for s in found] == [None] * 32
    assert sum(attributes(s)["excise.fired"] is True for s in found) == 16


def test_nothing_is_imported_and_methods_stay_what_they_were() -> None:
    code = (
        "import sys; from excise_integrations._telemetry import traced\n"
        "assert traced('x')(lambda a: a + 1)(1) == 2\n"
        "print([m for m in sys.modules if m.startswith('opentelemetry')])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"
    assert list(inspect.signature(Excise.rerank).parameters)[:3] == ["self", "query", "candidates"]
    assert (Excise.search.__doc__ or "").startswith("Take a shortlist")
    assert inspect.iscoroutinefunction(Excise.asearch)


def test_without_opentelemetry_results_are_the_same(
    excise_rules: Excise, animals: list[Candidate], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delitem(sys.modules, "opentelemetry.trace")
    assert [c.id for c in excise_rules.search(QUERY, Stage(animals)).removed] == ["dog"]
    assert [c.id for c in asyncio.run(excise_rules.asearch(QUERY, AsyncStage(animals))).removed] == ["dog"]
    # Another thread is in the middle of importing it.
    monkeypatch.setitem(sys.modules, "opentelemetry.trace", type(sys)("opentelemetry.trace"))
    assert [c.id for c in excise_rules.search(QUERY, Stage(animals)).removed] == ["dog"]


# --- LlamaIndex -----------------------------------------------------------------------------------


@pytest.fixture
def events() -> Iterator[list[Any]]:
    from llama_index.core.instrumentation import get_dispatcher
    from llama_index.core.instrumentation.event_handlers import BaseEventHandler

    seen: list[Any] = []

    class Handler(BaseEventHandler):
        @classmethod
        def class_name(cls) -> str:
            return "Handler"

        def handle(self, event: Any, **_: Any) -> None:
            seen.append(event)

    root, handler = get_dispatcher(), Handler()
    root.add_event_handler(handler)
    yield seen
    root.event_handlers.remove(handler)


def test_llama_index_hears_of_every_query(events: list[Any], excise_rules: Excise, animals: list[Candidate]) -> None:
    from llama_index.core.schema import NodeWithScore, TextNode

    from excise_integrations.llama_index import ExciseDetectionEvent, ExcisePostprocessor, ExciseRetriever

    retriever = ExciseRetriever(first_stage=Stage(animals), excise=excise_rules, similarity_top_k=3)
    found = retriever.retrieve(QUERY)
    assert [e.class_name() for e in events] == ["RetrievalStartEvent", "ExciseDetectionEvent", "RetrievalEndEvent"]
    event = events[1]
    assert isinstance(event, ExciseDetectionEvent)
    assert event.span_id is not None
    assert (event.query, event.fired, event.source, event.shortlist) == (QUERY, True, "detector", 8)
    assert [s["text"] for s in event.spans] == ["dogs"]
    assert event.removed == ["dog"]
    assert event.returned == [n.node.node_id for n in found]
    assert set(event.timings) == {"detect", "encode", "compare"}
    assert json.loads(event.model_dump_json())["query"] == QUERY
    events.clear()
    asyncio.run(retriever.aretrieve(PLAIN))
    assert [e.fired for e in events if isinstance(e, ExciseDetectionEvent)] == [False]
    events.clear()
    nodes = [NodeWithScore(node=TextNode(id_=c.id, text=c.text), score=c.score) for c in animals]
    ExcisePostprocessor(excise=excise_rules).postprocess_nodes(nodes, query_str=QUERY)
    assert [e.class_name() for e in events] == ["ReRankStartEvent", "ExciseDetectionEvent", "ReRankEndEvent"]
    assert events[1].removed == ["dog"]


# --- logging --------------------------------------------------------------------------------------


def test_everything_is_said_under_one_logger() -> None:
    for module in pkgutil.walk_packages(excise_integrations.__path__, "excise_integrations."):
        if ".bench" not in module.name and ".train" not in module.name:
            importlib.import_module(module.name)
    named = {name for name in logging.Logger.manager.loggerDict if name.startswith("excise")}
    assert named == {"excise_integrations"}
