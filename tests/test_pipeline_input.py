"""Input that cannot be used: an error of our tree that names it, whatever ``on_error`` says."""

from __future__ import annotations

import asyncio
import math
from collections.abc import Callable
from typing import Any

import pytest
from pipeline_fakes import Stage, over

from excise_integrations import Candidate, Detection, Excise, FirstStageError, InvalidInputError, Span

QUERY = "animals that people keep as a pet, but not cats"


@pytest.fixture(params=["raise", "frozen"])
def excise(request: pytest.FixtureRequest, excise_rules: Excise) -> Excise:
    return excise_rules.with_config(on_error=request.param)


def refused(call: Callable[[], Any], *named: str) -> None:
    with pytest.raises(InvalidInputError) as caught:
        call()
    assert isinstance(caught.value, ValueError)
    assert all(name in str(caught.value) for name in named), str(caught.value)


@pytest.mark.parametrize(
    ("query", "named"),
    [("", "''"), ("   ", "blank"), ("\n\t", "blank"), ("\u00a0\u2003", "blank"), (None, "NoneType"), (3, "3"),
     (b"cats", "bytes"), (["cats"], "list")],
)  # fmt: skip
def test_queries(excise: Excise, animals: list[Candidate], query: Any, named: str) -> None:
    refused(lambda: excise.rerank(query, animals), "query", named)
    refused(lambda: excise.detect(query), "query", named)
    refused(lambda: excise.search(query, Stage(animals)), "query", named)
    refused(lambda: excise.rerank_batch([QUERY, query], [animals, animals]), "query", named)
    refused(lambda: asyncio.run(excise.arerank(query, animals)), "query", named)


@pytest.mark.parametrize("queries", ["cats", b"cats", None, 5])
def test_lists_of_queries(excise: Excise, queries: Any) -> None:
    refused(lambda: excise.detect_batch(queries), "list of strings")
    refused(lambda: excise.rerank_batch(queries, []), "list of strings")


@pytest.mark.parametrize("k", [0, -1, 2.5, "3", True, math.nan])
def test_k(excise: Excise, animals: list[Candidate], k: Any) -> None:
    refused(lambda: excise.rerank(QUERY, animals, k=k), f"k={k!r}")
    refused(lambda: excise.search(QUERY, Stage(animals), k=k), f"k={k!r}")
    refused(lambda: excise.rerank_batch([QUERY], [animals], k=k), f"k={k!r}")


CANDIDATES: list[tuple[Any, str]] = [
    (None, "NoneType"),
    (5, "int"),
    ("text", "not a Candidate"),
    ([{"id": "a", "text": "b"}], "rank 1 is a dict"),
    ([Candidate("a", "x"), Candidate("b", "y"), Candidate("a", "z")], "'a' occurs twice"),
    ([Candidate("a", "x"), Candidate("b", "")], "'b' at rank 2 has no text"),
    ([Candidate("a", " \n")], "'a' at rank 1 has no text"),
    ([Candidate("a", None)], "has no text"),  # type: ignore[arg-type]
    ([Candidate(7, "x")], "id 7"),  # type: ignore[arg-type]
    ([Candidate(None, "x")], "id None"),  # type: ignore[arg-type]
    ([Candidate("a", "x", math.nan)], "score nan"),
    ([Candidate("a", "x", -math.inf)], "score -inf"),
    ([Candidate("a", "x", "3")], "score '3'"),  # type: ignore[arg-type]
]


@pytest.mark.parametrize(("candidates", "named"), CANDIDATES, ids=[n for _, n in CANDIDATES])
def test_candidates(excise: Excise, candidates: Any, named: str) -> None:
    for query in (QUERY, "a silent query"):
        refused(lambda q=query: excise.rerank(q, candidates), named)  # type: ignore[misc]


@pytest.mark.parametrize("exclude", ["cats", ["cats", ""], ["cats", None], [3], 5, b"cats"])
def test_exclude(excise: Excise, animals: list[Candidate], exclude: Any) -> None:
    refused(lambda: excise.rerank(QUERY, animals, exclude=exclude), "exclude")
    refused(lambda: excise.search(QUERY, Stage(animals), exclude=exclude), "exclude")


@pytest.mark.parametrize(
    "detection",
    [{"fired": True}, Detection(True), Detection(True, spans=(Span(" "),)), Detection(True, spans=("cats",))],  # type: ignore[arg-type]
    ids=["a dict", "no span", "a blank topic", "a string"],
)
def test_detection(excise: Excise, animals: list[Candidate], detection: Any) -> None:
    refused(lambda: excise.rerank(QUERY, animals, detection=detection), "detection")


def test_lists_of_different_lengths(excise: Excise, animals: list[Candidate]) -> None:
    refused(lambda: excise.rerank_batch([QUERY], []), "1 queries, 0 shortlists")
    refused(lambda: excise.rerank_batch([QUERY], [animals], exclude=[]), "0 exclusions")
    refused(lambda: excise.rerank_batch([QUERY], [animals], exclude=["cats"]), "exclude='cats' is a string")


@pytest.mark.parametrize("settings", [{"cap": -1}, {"colour": "red"}, {"floor": 3}, {"unit": "chapter"}])
def test_settings(excise: Excise, settings: dict[str, Any]) -> None:
    refused(lambda: excise.with_config(**settings), next(iter(settings)))
    refused(lambda: Excise.from_pretrained("minilm", detector="rules", **settings), next(iter(settings)))


def test_parts(excise: Excise) -> None:
    refused(lambda: Excise(excise.backbone, detector=object()), "no method detect")  # type: ignore[arg-type]
    refused(lambda: Excise(excise.backbone, detector=excise.detector, cache_bytes=-1), "-1")
    refused(lambda: Excise.from_pretrained("minilm", threads=0), "threads=0")


@pytest.mark.parametrize(
    "found",
    [None, "text", 5, iter([]), [None], [Candidate("a", "x"), None], [Candidate("a", "x"), Candidate("a", "y")],
     [Candidate("a", "x", math.nan)], [Candidate("a", "")]],
    ids=repr,
)  # fmt: skip
def test_shortlists_of_a_first_stage(excise: Excise, found: Any) -> None:
    with pytest.raises(FirstStageError, match=r"Stage\.search returned a"):
        excise.search(QUERY, Stage(found))


def test_good_input_of_other_kinds_is_taken(excise: Excise, animals: list[Candidate]) -> None:
    import numpy as np

    expected = excise.rerank(QUERY, animals)
    for candidates in (tuple(animals), iter(animals), {c.id: c for c in animals}.values()):
        assert excise.rerank(QUERY, candidates).candidates == expected.candidates  # type: ignore[arg-type]
    scored = [Candidate(c.id, c.text, np.float32(1.5)) for c in animals]  # type: ignore[arg-type]
    assert len(excise.rerank(QUERY, scored).candidates) == 7
    assert excise.rerank(QUERY, animals, exclude=("cats",)).removed == expected.removed  # type: ignore[arg-type]
    assert over(excise).rerank(QUERY, [Candidate("", "no id is an id too")]).candidates


@pytest.mark.parametrize(
    "text",
    ["x" * 1_000_000, "x " * 100_000, "\ud800", "\x00", "🐕", "<script>alert(1)</script>", "'; DROP TABLE docs; --"],
    ids=["one word", "words", "surrogate", "null", "emoji", "html", "sql"],
)
def test_any_text_is_ranked(excise: Excise, animals: list[Candidate], text: str) -> None:
    result = excise.rerank(f"{text} but not cats", [*animals[:4], Candidate("odd", text)], exclude=["cats"])
    assert result.error is None
    assert [c.id for c in result.removed] == ["cat"]
    short = excise.rerank(f"{text[:1000]} but not cats", animals)
    assert [c.id for c in short.removed] == ["cat"]
