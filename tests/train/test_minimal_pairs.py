"""Training data of the detector: balance, exact spans, no leaks, and nothing that gives the label away."""

from __future__ import annotations

import json
import re
from collections import Counter, defaultdict
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from excise_integrations.errors import InvalidInputError
from excise_integrations.train.constructions import (
    Construction,
    Piece,
    load_constructions,
    load_contexts,
    load_frames,
    render,
)
from excise_integrations.train.examples import SURFACE_WORDS
from excise_integrations.train.minimal_pairs import (
    Example,
    Frame,
    digest,
    frames_from_corpus,
    generate,
    load_natural,
    split,
    surface_word_balance,
)
from excise_integrations.train.surface import Style, apply_style, join

RIVERS = Frame(
    "geography",
    "rivers in Poland",
    "entity",
    ("Warta", "Noteć", "San", "the longest one", "Bug"),
    ("which are navigable", "how clean they are"),
    "river",
)


@pytest.fixture(scope="module")
def examples() -> list[Example]:
    return generate(4000, seed=0)


def by_pair(examples: list[Example]) -> dict[str, list[Example]]:
    pairs: dict[str, list[Example]] = defaultdict(list)
    for e in examples:
        pairs[e.pair].append(e)
    return pairs


# --- constructions ---------------------------------------------------------------------------------


def test_there_are_enough_constructions_of_every_kind() -> None:
    kinds = Counter((c.label, c.kind) for c in load_constructions())
    assert kinds[1, "explicit"] >= 140
    assert kinds[1, "implicit"] >= 160
    assert kinds[1, "compound"] >= 60
    assert sum(n for (label, _), n in kinds.items() if label == 0) >= 300
    negatives = {k for label, k in kinds if label == 0}
    assert negatives == {
        "conjunction",
        "negated_predicate",
        "name",
        "idiom",
        "comparison",
        "about_exclusion",
        "background",
        "wanted_again",
        "plain",
    }
    assert sum(c.label == 0 and not c.slots for c in load_constructions()) >= 150, "fixed negative texts"


def test_every_construction_has_a_partner_of_the_other_label_in_its_form() -> None:
    groups: dict[str, set[tuple[int, str, str, str]]] = defaultdict(set)
    for c in load_constructions():
        groups[c.pair].add((c.label, c.form, c.register, c.fits))
    for pair, members in groups.items():
        assert {m[0] for m in members} == {0, 1}, pair
        assert len({m[1:] for m in members}) == 1, pair


def test_constructions_have_known_slots_and_no_duplicates() -> None:
    known = {"X", "Z", "Z1", "Z2", "Z3", "Y", "Y2", "ASK", "ANSWER"}
    texts = Counter(c.text for c in load_constructions())
    assert max(texts.values()) == 1
    assert len({c.id for c in load_constructions()}) == len(texts)
    for c in load_constructions():
        assert c.slots <= known, c
        if c.label:
            assert "{Z" in c.text or "{=" in c.text, c


def test_frames_and_contexts_are_there() -> None:
    assert len(load_frames()) >= 500
    assert len(set(load_contexts())) == len(load_contexts()) >= 60


def test_a_verb_after_a_plural_topic_is_plural() -> None:
    c = Construction("k", "p", 1, "explicit", "short", "request", "any", "{X}, {Z} is off the table")
    plural = join(render(c, {"X": "side effects", "Z": "night sweats"}))[0]
    assert plural == "Side effects, night sweats are off the table"
    assert join(render(c, {"X": "side effects", "Z": "Paris"}))[0] == "Side effects, Paris is off the table"
    with pytest.raises(InvalidInputError, match="'X'"):
        render(c, {"Z": "Paris"})


# --- generate --------------------------------------------------------------------------------------


@settings(max_examples=25, deadline=None)
@given(n=st.integers(0, 90), seed=st.integers(0, 10_000))
def test_the_grid_is_balanced_exactly_and_pairs_share_everything_but_the_meaning(n: int, seed: int) -> None:
    made = generate(n, seed=seed)
    assert len(made) == n - n % 4
    assert set(Counter((e.form, e.label) for e in made).values()) <= {n // 4}
    for pair, members in by_pair(made).items():
        assert sorted(m.label for m in members) == [0, 1], pair
        a, b = members
        assert (a.form, a.domain, a.topics) == (b.form, b.domain, b.topics)
        assert a.text != b.text


def test_the_default_set_is_balanced(examples: list[Example]) -> None:
    assert Counter((e.form, e.label) for e in examples) == {(f, y): 1000 for f in ("short", "long") for y in (0, 1)}


def test_forms_differ_in_length(examples: list[Example]) -> None:
    assert all(len(e.text.split()) <= 18 for e in examples if e.form == "short")
    assert all(20 <= len(e.text.split()) <= 75 for e in examples if e.form == "long")


def test_length_does_not_tell_the_label(examples: list[Example]) -> None:
    for form in ("short", "long"):
        mean = [sum(len(e.text.split()) for e in examples if e.form == form and e.label == y) / 1000 for y in (0, 1)]
        assert abs(mean[0] - mean[1]) < 0.06 * max(mean)


def test_the_same_seed_gives_the_same_set(examples: list[Example]) -> None:
    assert generate(4000, seed=0) == examples
    assert generate(400, seed=1) != generate(400, seed=2)


@settings(max_examples=15, deadline=None)
@given(seed=st.integers(0, 10_000))
def test_spans_are_verbatim_and_bound_whole_topics(seed: int) -> None:
    for e in generate(80, seed=seed):
        assert (e.label == 1) == bool(e.spans) == bool(e.excluded)
        assert tuple(e.text[a:b] for a, b in e.spans) == e.excluded
        assert list(e.spans) == sorted(e.spans)
        assert all(b <= x for (_, b), (x, _) in zip(e.spans, e.spans[1:], strict=False))
        for topic in e.excluded:
            assert topic == topic.strip()
    for e in generate(80, seed=seed, augment=False):
        assert not any(topic.startswith("the ") for topic in e.excluded)


def test_without_augmentation_the_excluded_words_are_the_frames_topics() -> None:
    names = {t.casefold().removeprefix("the ") for t in RIVERS.topics}
    made = [e for e in generate(800, topics=[RIVERS], augment=False) if e.label and e.domain == "geography"]
    assert len(made) > 300
    assert {t.casefold() for e in made for t in e.excluded} == names


def test_kinds_follow_the_mix() -> None:
    assert {e.kind for e in generate(200, mix={"implicit": 1.0}) if e.label} == {"implicit"}
    for e in generate(400, mix={"compound": 1}):
        assert not e.label or len(e.excluded) >= 1
    kinds = Counter(e.kind for e in generate(4000) if e.label)
    assert kinds["implicit"] > kinds["explicit"] > 400
    assert kinds["compound"] > 400


def test_domains_select_frames() -> None:
    domain = load_frames()[0].domain
    assert {e.domain for e in generate(200, domains=[domain])} == {domain, "fixed"}


def test_bad_arguments_are_refused() -> None:
    with pytest.raises(InvalidInputError, match="-1"):
        generate(-1)
    with pytest.raises(InvalidInputError, match="nowhere"):
        generate(4, domains=["nowhere"])
    for mix in ({}, {"implicit": 0.0}, {"implicit": -1.0}, {"unheard": 1.0}):
        with pytest.raises(InvalidInputError, match="mix"):
            generate(4, mix=mix)
    with pytest.raises(InvalidInputError, match="four"):
        Frame("d", "x", "entity", ("a", "b", "c"), ("how",), "thing")
    with pytest.raises(InvalidInputError, match="kind"):
        Frame("d", "x", "thing", ("a", "b", "c", "d"), ("how",), "thing")
    assert generate(3) == []


# --- nothing tells the label -----------------------------------------------------------------------


@pytest.mark.parametrize("seed", [0, 1, 2, 3])
def test_no_frequent_word_tells_the_label(seed: int) -> None:
    made = generate(4000, seed=seed)
    lopsided = {
        word: counts
        for word, counts in surface_word_balance(made).items()
        if sum(counts) >= 0.01 * len(made) and max(counts) > 0.75 * sum(counts)
    }
    assert lopsided == {}


def test_tempting_words_occur_under_both_labels(examples: list[Example]) -> None:
    counts = surface_word_balance(examples, SURFACE_WORDS)
    assert set(counts) == set(SURFACE_WORDS)
    for word in ("not", "no", "without", "except", "already", "but", "done", "other", "can't"):
        assert min(counts[word]) >= 10, (word, counts[word])


def test_surface_word_balance_counts_texts_not_occurrences() -> None:
    made = [
        Example("not A, not B", 1, ("A",), ((4, 5),), "explicit", "short", "p", "d"),
        Example("Why not A?", 0, (), (), "plain", "short", "p", "d"),
    ]
    assert surface_word_balance(made, ["NOT", "why", "can't"]) == {"not": (1, 1), "why": (1, 0), "can't": (0, 0)}
    assert surface_word_balance(made)["b"] == (0, 1)


# --- looks -----------------------------------------------------------------------------------------


@settings(max_examples=60, deadline=None)
@given(
    topic=st.text(min_size=1, max_size=20).filter(lambda t: t.strip() == t),
    case=st.sampled_from(["keep", "lower", "upper"]),
    quotes=st.sampled_from(["", '""', "«»"]),
    bare=st.booleans(),
    dash=st.booleans(),
)
def test_spans_survive_any_style(topic: str, case: str, quotes: str, bare: bool, dash: bool) -> None:
    pieces = [Piece("Rivers; lakes, "), Piece(topic, "Z"), Piece(" read already.")]
    text, spans = join(apply_style(pieces, Style(case, quotes, bare, dash, ("lakes", "laeks"))))
    expected = {"keep": topic, "lower": topic.lower(), "upper": topic.upper()}[case]
    ((a, b),) = spans
    assert text[a:b] == re.sub(r"\blakes\b", "laeks", expected) or "lakes" in topic
    assert "laeks" in text.lower()


def test_quotes_stay_outside_the_span() -> None:
    text, ((a, b),) = join(apply_style([Piece("not "), Piece("Bug", "Z")], Style(quotes="“”")))
    assert text == "not “Bug”"
    assert text[a:b] == "Bug"


def test_both_members_look_alike() -> None:
    upper = [e for e in generate(8000, seed=5) if e.text.isupper()]
    assert upper
    assert all(sum(e.pair == f.pair for f in upper) == 2 for e in upper)


# --- split and digest ------------------------------------------------------------------------------


@settings(max_examples=10, deadline=None)
@given(held_out=st.floats(0.05, 0.6), seed=st.integers(0, 1000))
def test_no_pair_subject_or_topic_crosses_the_split(held_out: float, seed: int) -> None:
    made = generate(1200, seed=7)
    train, held = split(made, held_out=held_out, seed=seed)
    assert sorted(map(repr, train + held)) == sorted(map(repr, made))
    assert not {t for e in train for t in e.topics} & {t for e in held for t in e.topics}
    assert not {e.pair for e in train} & {e.pair for e in held}
    assert abs(len(held) - held_out * len(made)) <= 0.05 * len(made)
    assert split(made, held_out=held_out, seed=seed) == (train, held)


@pytest.mark.parametrize("held_out", [0.0, 1.0, -0.1, 1.5])
def test_a_share_outside_zero_and_one_is_refused(held_out: float) -> None:
    with pytest.raises(InvalidInputError, match="held_out"):
        split([], held_out=held_out)


def test_digest_is_of_the_set() -> None:
    made = generate(40)
    assert digest(made) == digest(reversed(made)) == digest(generate(40))
    assert digest(made) != digest(made[1:])
    assert re.fullmatch(r"[0-9a-f]{64}", digest([]))


# --- natural pairs and corpora ---------------------------------------------------------------------


def write(path: Path, *rows: dict[str, object]) -> Path:
    path.write_text("".join(json.dumps(r) + "\n" for r in rows), encoding="utf-8")
    return path


def row(**changes: object) -> dict[str, object]:
    base = {"pair": "a-1", "label": 1, "text": "fishing, not San", "excluded": ["San"], "kind": "explicit"}
    return {**base, "form": "short", "register": "keywords", **changes}


def test_natural_pairs_are_read_with_exact_spans(tmp_path: Path) -> None:
    file = write(
        tmp_path / "natural_rivers.jsonl",
        row(text="Sandy fishing spots, San and upper San excluded", excluded=["San", "upper San"]),
        row(label=0, excluded=[], text="fishing, San as well", kind="plain"),
    )
    for source in (file, str(file), tmp_path):
        first, second = load_natural(source)
        assert first.excluded == ("San", "upper San")
        assert first.spans == ((21, 24), (29, 38))
        assert first.domain == "rivers"
        assert second.spans == ()


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"excluded": ["Warta"]}, "Warta"),
        ({"label": 0}, "contradicts"),
        ({"excluded": []}, "contradicts"),
        ({"label": 2}, "unknown"),
        ({"form": "medium"}, "unknown"),
    ],
)
def test_a_bad_natural_line_is_named(tmp_path: Path, changes: dict[str, object], message: str) -> None:
    with pytest.raises(InvalidInputError, match=message) as caught:
        load_natural(write(tmp_path / "natural_x.jsonl", row(**changes)))
    assert "natural_x.jsonl, pair 'a-1'" in str(caught.value)


def test_missing_fields_files_and_json_are_named(tmp_path: Path) -> None:
    with pytest.raises(InvalidInputError, match="missing"):
        load_natural(write(tmp_path / "natural_x.jsonl", {"pair": "a", "label": 0}))
    with pytest.raises(InvalidInputError, match="nowhere"):
        load_natural(tmp_path / "nowhere.jsonl")
    broken = tmp_path / "broken.jsonl"
    broken.write_text("{}\n{", encoding="utf-8")
    with pytest.raises(InvalidInputError, match=r"missing|line 2"):
        load_natural(broken)


def test_the_packaged_natural_pairs_load() -> None:
    natural = load_natural()
    for e in natural:
        assert tuple(e.text[a:b] for a, b in e.spans) == e.excluded


def test_frames_from_a_corpus() -> None:
    corpus = [{"title": t, "text": f"The {t} is a river in Poland, {i} km long."} for i, t in enumerate("ABCDEFG")]
    corpus += [{"title": "Kraków", "text": "Kraków is a city in Poland."}, {"title": "", "text": ""}, {}]
    (frame,) = frames_from_corpus(corpus, domain="mine")
    assert (frame.domain, frame.wanted, frame.answer) == ("mine", "rivers", "river")
    assert frame.topics == tuple("ABCDEF")
    assert len(generate(40, topics=[frame])) == 40
    with pytest.raises(InvalidInputError, match="3"):
        frames_from_corpus(corpus, per_frame=3)
