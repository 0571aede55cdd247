"""Parts that fail: an error of our tree, or the frozen ranking that says so."""

from __future__ import annotations

import asyncio
import logging
from dataclasses import replace
from typing import Any

import pytest
import torch
from pipeline_fakes import AsyncStage, Encoder, Raises, Says, Stage, VectorStage, over, topic

from excise_integrations import (
    Candidate,
    Detection,
    DetectorError,
    Excise,
    ExciseError,
    FirstStageError,
    InvalidInputError,
    MissingExtraError,
    Span,
)
from excise_integrations.encode import TokenVectors

QUERY = "animals that people keep as a pet, but not cats"


def boom(*_: Any, **__: Any) -> Any:
    raise RuntimeError("the encoder is down")


def frozen(result: Any, animals: list[Candidate], reason: str) -> None:
    """The frozen ranking, and the reader is told."""
    assert all(a is b for a, b in zip(result.candidates, animals, strict=True))
    assert result.removed == ()
    assert {v.action for v in result.verdicts.values()} == {"unchanged"}
    assert reason in (result.error or "")
    assert any("No exclusion was applied" in w and reason in w for w in result.warnings)
    assert reason in result.metadata(animals[0])["error"]


# --- detectors ------------------------------------------------------------------------------------

ANSWERS: list[tuple[Any, str]] = [
    (None, "NoneType, not a Detection"),
    ({"fired": True}, "not a Detection"),
    (Detection(True), "no span"),
    (Detection(True, spans=(Span(""),)), "names no topic"),
    (Detection(True, spans=(Span("cats", 0, 4),)), "offsets 0 to 4"),
    (Detection(True, spans=(Span("cats", 43, None),)), "offsets 43 to None"),
    (Detection(True, spans=(Span("cats", -4, 47),)), "offsets -4"),
    (Detection(True, spans=(Span("cats", 43, 470),)), "offsets 43 to 470"),
]


@pytest.mark.parametrize(("answer", "reason"), ANSWERS, ids=[r for _, r in ANSWERS])
def test_answers_that_are_no_detection(
    excise_rules: Excise, animals: list[Candidate], answer: Any, reason: str
) -> None:
    detector = Says(lambda _: answer)
    with pytest.raises(DetectorError, match=r"Says\.detect") as caught:
        over(excise_rules, detector).rerank(QUERY, animals)
    assert reason in str(caught.value)
    frozen(over(excise_rules, detector, on_error="frozen").rerank(QUERY, animals), animals, reason)


@pytest.mark.parametrize("answers", [[], [Detection(False)] * 2, None, "no", iter([Detection(False)])], ids=repr)
def test_answers_of_the_wrong_number(excise_rules: Excise, animals: list[Candidate], answers: Any) -> None:
    detector = Raises()
    detector.detect = lambda _: answers  # type: ignore[method-assign]
    with pytest.raises(DetectorError, match="one Detection per query"):
        over(excise_rules, detector).rerank(QUERY, animals)
    frozen(over(excise_rules, detector, on_error="frozen").rerank(QUERY, animals), animals, "one Detection per query")


@pytest.mark.parametrize(
    ("error", "kind"),
    [
        (RuntimeError("down"), DetectorError),
        (TimeoutError("down"), DetectorError),
        (MemoryError("down"), DetectorError),
        (DetectorError("down"), DetectorError),
        (InvalidInputError("down"), InvalidInputError),
        (MissingExtraError("down", "x"), MissingExtraError),
    ],
)
def test_a_detector_that_raises(
    excise_rules: Excise, animals: list[Candidate], error: Exception, kind: type[ExciseError]
) -> None:
    with pytest.raises(kind, match="down") as caught:
        over(excise_rules, Raises(error)).rerank(QUERY, animals)
    assert caught.value is error or caught.value.__cause__ is error
    with pytest.raises(kind):
        over(excise_rules, Raises(error)).rerank_batch([QUERY], [animals])
    tolerant = over(excise_rules, Raises(error), on_error="frozen")
    frozen(tolerant.rerank(QUERY, animals), animals, "down")
    for result in tolerant.rerank_batch([QUERY, QUERY], [animals, animals]):
        frozen(result, animals, "down")
    with pytest.raises(kind):
        tolerant.detect(QUERY)


def test_in_a_batch_only_the_queries_that_fail_fall_back(excise_rules: Excise, animals: list[Candidate]) -> None:
    def sometimes(query: str) -> Detection:
        if "dogs" in query:
            raise RuntimeError("not dogs!")
        return topic("cats")(query)

    excise = over(excise_rules, Says(sometimes), on_error="frozen")
    good, bad, named = excise.rerank_batch(
        [QUERY, "pets, not dogs", QUERY], [animals] * 3, exclude=[None, None, ["dog"]]
    )
    assert [c.id for c in good.removed] == ["cat"]
    frozen(bad, animals, "not dogs!")
    assert [c.id for c in named.removed] == ["dog"]


@pytest.mark.parametrize("error", [KeyboardInterrupt(), SystemExit(1)])
def test_interrupts_pass(excise_rules: Excise, animals: list[Candidate], error: BaseException) -> None:
    with pytest.raises(type(error)):
        over(excise_rules, Raises(error), on_error="frozen").rerank(QUERY, animals)


# --- encoders -------------------------------------------------------------------------------------


@pytest.mark.parametrize("broken", ["encode_queries", "encode_documents", "token_count"])
def test_an_encoder_that_fails(excise_rules: Excise, animals: list[Candidate], broken: str) -> None:
    encoder = Encoder(excise_rules.backbone, **{broken: boom})
    with pytest.raises(ExciseError, match=r"RuntimeError: the encoder is down\. With on_error='frozen'"):
        over(excise_rules, encoder=encoder).rerank(QUERY, animals)
    result = over(excise_rules, encoder=encoder, on_error="frozen").rerank(QUERY, animals, k=8)
    frozen(result, animals, "the encoder is down")
    # What was excluded is on record, although nothing came of it.
    assert [s.text for s in result.detection.spans] == ["cats"]
    named = over(excise_rules, encoder=encoder, on_error="frozen").rerank(QUERY, animals, exclude=["dog"])
    assert named.metadata(animals[0])["source"] == "caller"


@pytest.mark.parametrize("part", ["queries", "documents"])
def test_vectors_that_are_not_numbers(excise_rules: Excise, animals: list[Candidate], part: str) -> None:
    method = f"encode_{part}"
    real = getattr(excise_rules.backbone, method)

    def spoiled(texts: Any, **settings: Any) -> list[TokenVectors]:
        return [replace(v, vectors=v.vectors * float("nan")) for v in real(texts, **settings)]

    encoder = Encoder(excise_rules.backbone, **{method: spoiled})
    with pytest.raises(ExciseError, match="not finite"):
        over(excise_rules, encoder=encoder).rerank(QUERY, animals)
    result = over(excise_rules, encoder=encoder, on_error="frozen").rerank(QUERY, animals)
    frozen(result, animals, "not finite")


def test_after_a_failure_the_next_query_is_served(excise_rules: Excise, animals: list[Candidate]) -> None:
    calls = []

    def once(texts: Any) -> list[TokenVectors]:
        calls.append(texts)
        if len(calls) == 1:
            raise torch.OutOfMemoryError("no room")
        return excise_rules.backbone.encode_documents(texts)

    excise = over(excise_rules, encoder=Encoder(excise_rules.backbone, encode_documents=once))
    with pytest.raises(ExciseError, match="no room"):
        excise.rerank(QUERY, animals)
    assert [c.id for c in excise.rerank(QUERY, animals).removed] == ["cat"]


# --- first stages -----------------------------------------------------------------------------------


@pytest.mark.parametrize("on_error", ["raise", "frozen"])
@pytest.mark.parametrize("kind", [Stage, AsyncStage])
def test_a_first_stage_that_raises(excise_rules: Excise, on_error: str, kind: type[Stage]) -> None:
    excise = excise_rules.with_config(on_error=on_error)
    broken = kind(ConnectionError("no route"))
    with pytest.raises(FirstStageError, match=rf"{kind.__name__}\.search failed: no route"):
        excise.search(QUERY, broken)
    with pytest.raises(FirstStageError, match="failed: no route"):
        asyncio.run(excise.asearch(QUERY, broken))
    ours = kind(InvalidInputError("this filter"))
    with pytest.raises(InvalidInputError, match="this filter"):
        excise.search(QUERY, ours)


def test_a_first_stage_with_too_few_vectors(excise_rules: Excise, animals: list[Candidate]) -> None:
    stage = VectorStage(animals, excise_rules.backbone, drop=1)
    with pytest.raises(FirstStageError, match="returned 7 documents for 8 ids"):
        over(excise_rules).search(QUERY, stage)
    frozen(over(excise_rules, on_error="frozen").search(QUERY, stage), animals, "7 documents for 8 ids")


def test_the_log_tells_of_a_fallback_without_the_query(
    excise_rules: Excise, animals: list[Candidate], caplog: pytest.LogCaptureFixture
) -> None:
    secret = RuntimeError(f"could not read {QUERY}")
    with caplog.at_level(logging.DEBUG, logger="excise_integrations"):
        over(excise_rules, Raises(secret), on_error="frozen").rerank(QUERY, animals)
    assert "DetectorError" in caplog.text
    assert "cats" not in caplog.text
