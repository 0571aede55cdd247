"""From token probabilities to one span per topic."""

from __future__ import annotations

import re
import time

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from excise_integrations.detect.decode import TokenScores, decode


def tokens_of(query: str, *marked: str, begins: bool = True, strong: float = 0.9) -> list[TokenScores]:
    """Word tokens of a query; the words of each marked string belong to a topic, its first opens one."""
    opened: set[int] = set()
    inside: set[int] = set()
    for text in marked:
        at = query.index(text)
        places = [at + m.start() for m in re.finditer(r"\w+|[^\w\s]", text)]
        inside.update(places)
        opened.add(places[0])
    out = []
    for match in re.finditer(r"\w+|[^\w\s]", query):
        at = match.start()
        begin = strong if begins and at in opened else 0.02
        out.append(TokenScores(at, match.end(), begin, strong if at in inside else 0.02, continues=False))
    return out


def texts(query: str, *marked: str, begins: bool = True) -> list[str]:
    spans = decode(query, tokens_of(query, *marked, begins=begins))
    assert all(query[s.start : s.end] == s.text for s in spans)
    assert [s.start for s in spans] == sorted(s.start or 0 for s in spans)
    return [s.text for s in spans]


@pytest.mark.parametrize(
    ("query", "marked", "topics"),
    [
        ("cars, but not Tesla", ["Tesla"], ["Tesla"]),
        ("cars, neither Audi nor BMW", ["Audi", "BMW"], ["Audi", "BMW"]),
        ("cars, no Audi, BMW or Fiat", ["Audi", "BMW", "Fiat"], ["Audi", "BMW", "Fiat"]),
        # Two topics side by side stay two.
        ("pets, not cats dogs", ["cats", "dogs"], ["cats", "dogs"]),
        # A topic of several words is one span, small words within included.
        ("films, not The Lord of the Rings please", ["The Lord of the Rings"], ["The Lord of the Rings"]),
        ("wars, without the battle of Hastings", ["the battle of Hastings"], ["battle of Hastings"]),
        # Determiners, cues and filler go.
        ("whales, leave out any details about orcas", ["any details about orcas"], ["orcas"]),
        ("whales without information on the orcas", ["information on the orcas"], ["orcas"]),
        ("whales, not the orcas or", ["not the orcas or"], ["orcas"]),
        # A title keeps its article.
        ("bands but not The Who, please", ["The Who"], ["The Who"]),
        ('albums but not "The Wall"', ["The Wall"], ["The Wall"]),
        # Quotes, brackets and the sentence's own punctuation stay outside.
        ('albums but not "Abbey Road".', ['"Abbey Road".'], ["Abbey Road"]),
        ("cars (not Tesla)!", ["(not Tesla)!"], ["Tesla"]),
        ("electric cars but not Tesla.", ["Tesla."], ["Tesla"]),
        ("is there a bank besides Barclays?", ["Barclays?"], ["Barclays"]),
        # Full stops of the topic's own stay.
        ("films not by Warner Bros.", ["Warner Bros."], ["Warner Bros."]),
        ("laws not of the U.S.", ["U.S."], ["U.S."]),
        ("phones not by Apple Inc.", ["Apple Inc."], ["Apple Inc."]),
        ("dishes but not McDonald's", ["McDonald's"], ["McDonald"]),
        ("languages but not C++", ["C++"], ["C++"]),
        # A single filler word that is all there is stays.
        ("prepositions but not about", ["about"], ["about"]),
    ],
)
def test_one_clean_span_per_topic(query: str, marked: list[str], topics: list[str]) -> None:
    assert texts(query, *marked) == topics


@pytest.mark.parametrize(
    "query",
    [
        "cars but not Tesla. Rivian is fine",
        "cars but not Tesla! Rivian is fine",
        "cars but not Tesla\r\nRivian is fine",
        "cars but not Tesla\nRivian is fine",
        "cars but not Tesla… Rivian is fine",
    ],
)
def test_no_span_crosses_a_sentence_end(query: str) -> None:
    marked = query[query.index("Tesla") : query.index(" is fine")]
    assert texts(query, marked) == ["Tesla", "Rivian"]


def test_an_abbreviation_ends_no_sentence() -> None:
    assert texts("trials except Dr. Strange cases", "Dr. Strange") == ["Dr. Strange"]


def test_a_gap_of_small_words_is_bridged_only_within_a_topic() -> None:
    query = "not Bank of England rates"
    gapped = [t for t in tokens_of(query, "Bank", "England")]
    joined = [TokenScores(t.start, t.end, 0.02 if query[t.start : t.end] == "England" else t.begin, t.inside, False)
              for t in gapped]  # fmt: skip
    assert [s.text for s in decode(query, joined)] == ["Bank of England"]
    assert [s.text for s in decode(query, gapped)] == ["Bank", "England"]


def test_word_pieces_belong_to_their_word() -> None:
    query = "cars but not Volkswagen"
    at = query.index("Volkswagen")
    pieces = [
        TokenScores(0, 4, 0.0, 0.0, False),
        TokenScores(at, at + 4, 0.1, 0.2, False),
        TokenScores(at + 4, at + 10, 0.0, 0.9, True),
    ]
    (span,) = decode(query, pieces)
    assert (span.text, span.confidence) == ("Volkswagen", 0.9)


def test_a_query_that_fires_always_names_something() -> None:
    query = "cars but not Tesla"
    weak = [TokenScores(t.start, t.end, 0.0, 0.04 if query[t.start] == "T" else 0.01, False) for t in tokens_of(query)]
    assert [s.text for s in decode(query, weak)] == ["Tesla"]


def test_punctuation_names_nothing_even_when_it_is_likeliest() -> None:
    query = "cars - not Tesla"
    tokens = tokens_of(query, "Tesla", strong=0.3)
    dash = [TokenScores(t.start, t.end, 0.9, 0.99, False) if query[t.start] == "-" else t for t in tokens]
    assert [s.text for s in decode(query, dash)] == ["Tesla"]


def test_confidence_is_the_strongest_word_s() -> None:
    query = "not Abbey Road"
    rows = [(0, 3, 0.0, 0.0), (4, 9, 0.9, 0.7), (10, 14, 0.0, 0.8)]
    tokens = [TokenScores(*row, continues=False) for row in rows]
    (span,) = decode(query, tokens)
    assert (span.text, span.confidence) == ("Abbey Road", 0.8)


def test_nothing_comes_of_nothing() -> None:
    assert decode("", []) == ()
    assert decode("?!", [TokenScores(0, 1, 0.9, 0.9, False), TokenScores(1, 2, 0.9, 0.9, False)]) == ()


@settings(max_examples=200, deadline=None)
@given(st.data())
def test_spans_index_any_query_in_order(data: st.DataObject) -> None:
    words = ["the ", "any details about ", "not ", "\U0001f415", "é", "\ud800"]
    alphabet = st.sampled_from([*"ab.,'\"!- \n\r\u00a0…’", *words])
    query = data.draw(st.lists(alphabet, max_size=25).map("".join))
    probability = st.floats(0, 1)
    tokens = [
        TokenScores(m.start(), m.end(), data.draw(probability), data.draw(probability), data.draw(st.booleans()))
        for m in re.finditer(r"\w+|[^\w\s]", query)
    ]
    last = 0
    for span in decode(query, tokens):
        assert span.start is not None
        assert span.end is not None
        assert last <= span.start < span.end <= len(query)
        assert query[span.start : span.end] == span.text == span.text.strip()
        assert any(c.isalnum() for c in span.text)
        assert not re.search(r"[\r\n]", span.text)
        last = span.end
    if any(query[t.start].isalnum() and t.inside > 0 for t in tokens) and not any(t.continues for t in tokens):
        assert last > 0


def test_a_megabyte_between_two_words_takes_linear_time() -> None:
    query = "cats" + " " * 1_000_000 + "dogs" + ". " * 300_000 + "end"
    tokens = [
        TokenScores(0, 4, 0.0, 0.9, False),
        TokenScores(1_000_004, 1_000_008, 0.0, 0.9, False),
        TokenScores(len(query) - 3, len(query), 0.0, 0.9, False),
    ]
    began = time.process_time()
    spans = decode(query, tokens)
    assert time.process_time() - began < 2.0
    assert spans[-1].text == "end"


def test_a_topic_in_brackets_ends_with_them() -> None:
    query = "ethics of Kant (excluding Critique of Pure Reason) in our time"
    assert texts(query, "Critique of Pure Reason) in our time") == ["Critique of Pure Reason"]
    assert texts("films but not Pinocchio (1940) please", "Pinocchio (1940)") == ["Pinocchio (1940)"]


def test_what_is_marked_faintly_beside_a_sure_topic_is_none() -> None:
    query = "rivers except the Ob, that reach the Arctic Ocean"
    tokens = tokens_of(query, "Ob", strong=0.99)
    faint = {t.start: t for t in tokens_of(query, "Ocean", strong=0.55) if t.inside > 0.5}
    tokens = [faint.get(t.start, t) for t in tokens]
    assert [s.text for s in decode(query, tokens, share=0.6)] == ["Ob"]
    assert [s.text for s in decode(query, tokens)] == ["Ob", "Ocean"]
