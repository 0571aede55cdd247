"""Which words matched the topic: with the real encoder."""

from __future__ import annotations

import copy
import pickle

import pytest

from excise_integrations import Candidate, Excise, ExciseResult
from excise_integrations.audit import Report
from excise_integrations.encode.windows import WindowPolicy

QUERY = "animals kept as pets, but not the domestic cat"


def marked(entry: dict, *, best: bool) -> list[str]:
    return [entry["text"][w["start"] : w["end"]] for w in entry["highlight"]["words"] if w["best"] is best]


def candidates_of(result: ExciseResult, excise: Excise) -> dict[str, dict]:
    return {c["id"]: c for c in Report(result, excise.encoder).to_dict()["candidates"]}


@pytest.fixture(scope="module")
def entries(excise_rules: Excise) -> dict[str, dict]:
    shortlist = [
        Candidate("cat", "People keep it as a pet: the domestic cat is a small carnivorous mammal that hunts mice."),
        Candidate("twice", "Le chat — 🐈 Œuvre.\r\nThe domestic cat purrs.\r\nThe domestic cat sleeps all day long."),
        Candidate("dog", "The dog is a descendant of the wolf; dogs are kept as pets."),
        Candidate("horse", "Horses are large hoofed mammals that were bred for riding and work on farms."),
        Candidate("parrot", "Parrots are colourful birds with curved beaks; some imitate human speech."),
        Candidate("odd", "\ud800 ??? !!! \u0000 cat"),
    ]
    return candidates_of(excise_rules.rerank(QUERY, shortlist), excise_rules)


def test_the_topics_words_are_the_best_matches(entries: dict[str, dict]) -> None:
    assert marked(entries["cat"], best=True) == ["domestic", "cat"]
    assert {"mice", "mammal", "People"}.isdisjoint(marked(entries["cat"], best=False))
    assert entries["odd"]["text"].endswith(marked(entries["odd"], best=True)[-1])


def test_later_mentions_are_marked_too_and_offsets_hold(entries: dict[str, dict]) -> None:
    twice = entries["twice"]
    assert set(marked(twice, best=True) + marked(twice, best=False)) >= {"domestic", "cat"}
    assert sum(word == "cat" for word in marked(twice, best=True) + marked(twice, best=False)) == 2


def test_the_evidence_is_the_verdicts(entries: dict[str, dict]) -> None:
    for entry in entries.values():
        found = entry["highlight"]
        assert found["consistent"]
        assert found["evidence"] == pytest.approx(entry["evidence"], abs=0.02)
        assert 0 <= found["start"] < found["end"] <= len(entry["text"])
        assert all(found["start"] <= w["start"] < w["end"] <= found["end"] for w in found["words"])


def test_the_deciding_window_is_shown(excise_rules: Excise) -> None:
    backbone = copy.copy(excise_rules.encoder)
    backbone.windows = WindowPolicy(8, 100)
    text = (
        "Horses are large hoofed mammals bred for riding. The domestic cat is kept as a pet by people. "
        "Parrots are colourful birds with curved beaks."
    )
    shortlist = [Candidate("a", text), Candidate("b", "Goldfish live in indoor aquariums.")]
    result = excise_rules.rerank(QUERY, shortlist, exclude=["domestic cat"])
    found = Report(result, backbone).to_dict()["candidates"][0]["highlight"]
    assert (found["window"], found["windows"]) == (2, 4)
    assert text[found["start"] : found["end"]] == "The domestic cat is kept as a pet"
    source = Report(result, backbone).to_html()
    assert "Shown is the part that decided, 2 of 4." in source
    assert '<mark class="best">domestic</mark> <mark class="best">cat</mark>' in source


def test_marks_of_another_text_are_named(excise_rules: Excise, animals: list[Candidate]) -> None:
    result = excise_rules.rerank(QUERY, animals)
    verdicts = {i: copy.copy(v) for i, v in result.verdicts.items()}
    for verdict in verdicts.values():
        object.__setattr__(verdict, "topic_evidence", (verdict.topic_evidence[0] - 0.1,))
    object.__setattr__(result, "verdicts", verdicts)
    report = Report(result, excise_rules.encoder)
    assert not report.to_dict()["candidates"][0]["highlight"]["consistent"]
    assert "Computed anew, the evidence is" in report.to_html()


def test_a_passage_whose_document_decided_says_so(excise_rules: Excise) -> None:
    document = {"document_id": "felines"}
    shortlist = [
        Candidate("a", "The domestic cat is a small mammal that people keep as a pet.", metadata=document),
        Candidate("b", "Tickets to the museum are sold at the door until five.", metadata=document),
        Candidate("c", "Goldfish live in indoor aquariums."),
    ]
    result = excise_rules.with_config(unit="document").rerank(QUERY, shortlist)
    report = Report(result, excise_rules.encoder)
    by_id = {c["id"]: c for c in report.to_dict()["candidates"]}
    assert [(by_id[i]["highlight"]["shared"], by_id[i]["highlight"]["consistent"]) for i in "abc"] == [
        (False, True), (True, True), (False, True),
    ]  # fmt: skip
    assert "another passage of its document decided" in report.to_html()


def test_tokens_that_cannot_be_traced_leave_the_report_without_marks(
    excise_rules: Excise, animals: list[Candidate], monkeypatch: pytest.MonkeyPatch
) -> None:
    result = excise_rules.rerank(QUERY, animals)
    monkeypatch.setattr(type(excise_rules.encoder.tokenizer), "is_fast", False)
    report = Report(result, excise_rules.encoder)
    assert all(c["highlight"] is None for c in report.to_dict()["candidates"])
    assert '<mark class="best"' not in report.to_html()


def test_a_silent_query_costs_no_encoding(excise_rules: Excise, animals: list[Candidate]) -> None:
    class Never:
        label = "never"

    result = excise_rules.rerank("animals kept as pets", animals)
    assert Report(result, Never()).to_dict()["candidates"][0]["highlight"] is None  # type: ignore[arg-type]


def test_without_an_encoder_nothing_is_marked(excise_rules: Excise, animals: list[Candidate]) -> None:
    result = pickle.loads(pickle.dumps(excise_rules.rerank(QUERY, animals)))
    data = result.report().to_dict()
    assert not data["highlighted"]
    assert data["backbone"] is None
    assert all(c["highlight"] is None for c in data["candidates"])
