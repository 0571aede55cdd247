"""Topics named by the caller, and what is left of a query without its topics."""

from __future__ import annotations

import time
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from excise_integrations import InvalidInputError, Span
from excise_integrations.detect.spans import caller_detection, locate, wanted_part


def spans_of(query: str, *topics: str) -> list[Span]:
    return [Span(t, query.index(t), query.index(t) + len(t)) for t in topics]


@pytest.mark.parametrize(
    ("query", "topic", "found"),
    [
        ("electric cars, but not Tesla", "Tesla", "Tesla"),
        ("electric cars, but not tesla", "Tesla", "tesla"),
        ("Tesla or tesla", "tesla", "tesla"),
        ("scattered cats", "cat", None),
        ("cats", "cat", None),
        ("C++, not C", "C", "C"),
        ("Java, not C++", "C++", "C++"),
        ("a.b or axb", "a.b", "a.b"),
        ("axb", "a.b", None),
        ("café, not CAFÉ au lait", "café au lait", "CAFÉ au lait"),
        ("all but 🐕", "🐕", "🐕"),
        ("", "Tesla", None),
    ],
)
def test_locate_finds_whole_words_exact_case_first(query: str, topic: str, found: str | None) -> None:
    at = locate(query, topic)
    assert (None if at is None else query[at[0] : at[1]]) == found
    if topic == "tesla":
        assert at == (9, 14)


def test_a_topic_of_the_caller_s_has_offsets_only_where_it_stands() -> None:
    query = "electric cars, but not tesla"
    found = caller_detection(query, [" Tesla ", "Rivian"])
    assert found.fired
    assert (found.source, found.confidence) == ("caller", None)
    assert found.spans == (Span("tesla", 23, 28), Span("Rivian"))
    assert found.wanted == "electric cars"


def test_a_topic_given_twice_is_one_topic() -> None:
    assert len(caller_detection("cars, not Tesla", ["Tesla", "tesla", "Tesla"]).spans) == 1
    assert len(caller_detection("cars", ["Tesla", "Tesla"]).spans) == 1


def test_an_empty_list_switches_off() -> None:
    found = caller_detection("cars, not Tesla", [])
    assert (found.fired, found.spans, found.source, found.wanted) == (False, (), "caller", "cars, not Tesla")


@pytest.mark.parametrize("topics", ["Tesla", [""], ["  "], ["Tesla", None], [3], [b"Tesla"], 5, b"Tesla"])
def test_topics_that_cannot_be_used_are_refused(topics: Any) -> None:
    with pytest.raises(InvalidInputError, match="exclude"):
        caller_detection("cars", topics)


def test_a_string_is_answered_with_the_list_to_give() -> None:
    with pytest.raises(InvalidInputError, match=r"exclude=\['Tesla'\]"):
        caller_detection("cars", "Tesla")


@pytest.mark.parametrize(
    ("query", "topics", "wanted"),
    [
        ("electric cars, but not Tesla", ["Tesla"], "electric cars"),
        ("cars, neither Audi nor BMW", ["Audi", "BMW"], "cars"),
        ("not football", ["football"], ""),
        ("Tesla's rivals", ["Tesla"], "rivals"),
        ("With Tesla already covered, which cars are quick?", ["Tesla"], "which cars are quick?"),
        ("anything but jazz", ["jazz"], ""),
        ('warfarin -"grapefruit juice"', ["grapefruit juice"], "warfarin"),
        ("cats   and\tdogs \n without hamsters , please", ["hamsters"], "cats and dogs, please"),
        ("not_football", ["football"], "not_"),
        ("Tesla", [], "Tesla"),
    ],
)
def test_wanted_part(query: str, topics: list[str], wanted: str) -> None:
    assert wanted_part(query, spans_of(query, *topics)) == wanted


def test_spans_without_offsets_are_passed_over() -> None:
    assert wanted_part("electric cars", [Span("Tesla")]) == "electric cars"


@settings(max_examples=200, deadline=None)
@given(st.text(max_size=60), st.lists(st.tuples(st.integers(0, 60), st.integers(0, 60)), max_size=4))
def test_wanted_part_takes_any_text_and_any_overlap(query: str, cuts: list[tuple[int, int]]) -> None:
    spans = [Span(query[a:b], a, b) for a, b in cuts if a < b <= len(query)]
    wanted = wanted_part(query, spans)
    assert wanted == wanted.strip()
    assert len(wanted) <= len(query) + len(spans)
    assert set(wanted) <= set(query) | {" "}


@pytest.mark.parametrize("filler", [" ", "but ", "-", ", ", "no,no "])
def test_a_hostile_query_of_a_megabyte_takes_linear_time(filler: str) -> None:
    query = filler * (1_000_000 // len(filler)) + "zebra " + filler * 1000 + "x not cats"
    began = time.process_time()
    found = caller_detection(query, ["cats"])
    assert time.process_time() - began < 5.0
    assert found.wanted.endswith("x")
