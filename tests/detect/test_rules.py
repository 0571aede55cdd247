"""The cue rules: explicit exclusions are found, other negation is left alone."""

from __future__ import annotations

import time

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from excise_integrations.detect import Detector, RulesDetector

RULES = RulesDetector()

EXPLICIT = [
    ("electric cars, but not Tesla", ["Tesla"], "electric cars"),
    ("headphones under 100 euros, just not Bose", ["Bose"], "headphones under 100 euros"),
    ("soup recipes with leek and no cream", ["cream"], "soup recipes with leek"),
    ("museums in Rome, not the Vatican", ["Vatican"], "museums in Rome"),
    ("birds, no parrots", ["parrots"], "birds"),
    ("films without mentioning Batman", ["Batman"], "films"),
    ("films not mentioning Batman", ["Batman"], "films"),
    ("I like rail travel, don't include trams", ["trams"], None),
    ("electric cars excluding hybrids", ["hybrids"], "electric cars"),
    ("everything about whales except for orcas", ["orcas"], "everything about whales"),
    ("painters other than Monet; show dates", ["Monet"], "painters; show dates"),
    ("painters rather than sculptors", ["sculptors"], "painters"),
    ("rivers in Peru apart from the Amazon, please", ["Amazon"], None),
    ("rivers in Peru aside from the Amazon", ["Amazon"], "rivers in Peru"),
    ("cities with the exception of Paris", ["Paris"], "cities"),
    ("tax guide, leave out VAT", ["VAT"], None),
    ("tax guide minus VAT", ["VAT"], "tax guide"),
    ("tax guide, skip VAT", ["VAT"], "tax guide"),
    ("any pet but hamsters; anything but hamsters", ["hamsters"], None),
    ("laptops NOT Apple", ["Apple"], "laptops"),
    ("laptops ≠ Apple", ["Apple"], "laptops"),
    ("Monet aside, which painters liked water?", ["Monet"], "which painters liked water?"),
    ("pizza but not ananas, what should I order?", ["ananas"], "pizza, what should I order?"),
    ("deploy -staging", ["staging"], "deploy"),
    ('warfarin -aspirin -"grapefruit juice"', ["aspirin", "grapefruit juice"], "warfarin"),
    ("cars, neither Audi nor BMW", ["Audi", "BMW"], "cars"),
    ("holidays with no flights, cruises or trains", ["flights", "cruises", "trains"], "holidays"),
    ("everything on pets except cats and dogs", ["cats", "dogs"], "everything on pets"),
    ("novels excluding crime but not mentioning war", ["crime", "war"], "novels"),
    ("not football", ["football"], ""),
    ("pets\r\nbut not cats\r\nand cheap ones", ["cats"], "pets and cheap ones"),
]


@pytest.mark.parametrize(("query", "topics", "wanted"), EXPLICIT, ids=[q for q, _, _ in EXPLICIT])
def test_explicit_exclusions(query: str, topics: list[str], wanted: str | None) -> None:
    (found,) = RULES.detect([query])
    assert [span.text for span in found.spans] == topics
    assert found.fired
    assert found.confidence == 1.0
    assert found.source == "detector"
    assert wanted is None or found.wanted == wanted
    assert all(query[s.start : s.end] == s.text for s in found.spans)


@pytest.mark.parametrize(
    "query",
    [
        "electric cars and hybrids",
        "hotels near Church Street",
        "not only cats but also dogs",
        "reports due no later than May",
        "ships of not more than 30 m",
        "why can't penguins fly",
        "countries without a coastline",
        "temperature of -5 degrees",
        "state-of-the-art half-life models",
        "the film about no man's land",
        "minuscule notebooks",
    ],
)
def test_other_negation_is_left_alone(query: str) -> None:
    (found,) = RULES.detect([query])
    assert not found.fired
    assert (found.spans, found.confidence, found.wanted) == ((), 0.0, query)


def test_a_topic_ends_with_its_sentence() -> None:
    (found,) = RULES.detect(["Which birds live here? I do not mean, but not parrots. Tell me about owls."])
    assert [s.text for s in found.spans][-1] == "parrots"


def test_queries_are_answered_in_order_and_it_is_a_detector() -> None:
    assert isinstance(RULES, Detector)
    assert RULES.detect([]) == []
    found = RULES.detect(["cats but not dogs", "cats", "dogs but not cats"])
    assert [[s.text for s in d.spans] for d in found] == [["dogs"], [], ["cats"]]


@settings(max_examples=200, deadline=None)
@given(st.lists(st.one_of(st.sampled_from([", ", "not ", "but ", "no ", "-", '"', "\r\n", "aside"]), st.text())))
def test_offsets_index_any_query(parts: list[str]) -> None:
    query = "".join(parts)
    (found,) = RULES.detect([query])
    last = 0
    for span in found.spans:
        assert span.start is not None
        assert span.end is not None
        assert last <= span.start < span.end
        assert query[span.start : span.end] == span.text
        assert span.text.strip()
        last = span.end
    assert found.fired == bool(found.spans)


@pytest.mark.parametrize(
    "query",
    [
        ", no x" * 170_000,
        "neither a nor b and " * 50_000,
        "but not cats " + " " * 1_000_000,
        "x" + " " * 1_000_000 + "but not cats",
        "but " * 990 + "zebra, not cats",
        "a" * 1_000_000,
    ],
    ids=["cues", "splits", "spaces after", "spaces before", "cue words", "one word"],
)
def test_a_hostile_query_of_a_megabyte_takes_little_more_than_its_beginning(query: str) -> None:
    def seconds(text: str) -> float:
        began = time.process_time()
        RULES.detect([text])
        return time.process_time() - began

    plain = ("cats and dogs, " * 70_000)[: len(query)]
    RULES.detect([plain])
    usual = min(seconds(plain) for _ in range(3))
    # Patterns that were quadratic in the spaces took seven times as long.
    assert min(seconds(query) for _ in range(3)) < 4 * usual
