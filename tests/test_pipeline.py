"""Excise from query to result: silent, caller's topics, detected topics, searches."""

from __future__ import annotations

import json
from typing import Any

import pytest
import torch
from pipeline_fakes import Encoder, Raises, Says, Stage, VectorStage, over, topic

from excise_integrations import Candidate, Detection, Excise, Span
from excise_integrations.encode import maxsim

FIRES = "animals that people keep as a pet, but not cats"
SILENT = "animals that people keep as a pet"


def ids(candidates: Any) -> list[str]:
    return [c.id for c in candidates]


# --- silent -------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("query", "settings"),
    [
        (SILENT, {}),
        (FIRES, {"exclude": []}),
        (FIRES, {"detection": Detection(False)}),
        (FIRES, {"exclude": [], "detection": Detection(True, 0.9, (Span("cats"),))}),
    ],
    ids=["silent", "switched off", "silent before", "switched off wins"],
)
def test_silence_is_the_shortlist_itself(
    excise_rules: Excise, animals: list[Candidate], query: str, settings: dict[str, Any]
) -> None:
    # No model may run: an encoder that works is not needed.
    silent = over(excise_rules, encoder=Encoder(excise_rules.backbone, encode_queries=None, encode_documents=None))
    result = silent.rerank(query, animals, **settings)
    assert len(result.candidates) == len(animals)
    assert all(a is b for a, b in zip(result.candidates, animals, strict=True))
    assert result.removed == ()
    assert result.warnings == ()
    assert result.error is None
    assert list(result.verdicts) == ids(animals)
    for rank, candidate in enumerate(animals, start=1):
        verdict = result.verdicts[candidate.id]
        assert (verdict.action, verdict.rank, verdict.first_stage_rank) == ("unchanged", rank, rank)
        assert verdict.score == verdict.first_stage_score == candidate.score
        assert (verdict.evidence, verdict.span, verdict.cut, verdict.penalty) == (None, None, None, 0.0)
        audit = result.metadata(candidate)
        assert audit["fired"] is False
        assert json.loads(json.dumps(audit)) == audit


def test_silence_with_k_is_the_head_of_the_shortlist(excise_rules: Excise, animals: list[Candidate]) -> None:
    result = excise_rules.rerank(SILENT, animals, k=3)
    assert all(a is b for a, b in zip(result.candidates, animals[:3], strict=True))
    assert len(result.verdicts) == 8


# --- firing -------------------------------------------------------------------------------------


def test_a_detected_topic_is_removed_and_every_candidate_has_a_verdict(
    excise_rules: Excise, animals: list[Candidate]
) -> None:
    result = excise_rules.rerank(FIRES, animals)
    assert ids(result.removed) == ["cat"]
    assert "cat" not in ids(result.candidates)
    assert len(result.candidates) == 7
    assert list(result.verdicts) == ids(animals)
    cat = result.verdicts["cat"]
    assert (cat.action, cat.rank, cat.first_stage_rank, cat.span) == ("removed", None, 1, 0)
    assert cat.evidence is not None
    assert cat.cut is not None
    assert cat.penalty == pytest.approx(0.97 * (cat.evidence - cat.cut), abs=1e-6)
    assert [result.verdicts[i].rank for i in ids(result.candidates)] == list(range(1, 8))
    scores = [result.score(c) or 0.0 for c in result.candidates]
    assert scores == sorted(scores, reverse=True)
    assert [v.action for v in result.verdicts.values()].count("protected") == 1
    assert all(c in animals for c in result.candidates)
    audit = result.metadata(animals[0])
    assert audit["spans"] == [{"text": "cats", "start": 43, "end": 47, "confidence": 1.0}]
    assert json.loads(json.dumps(audit)) == audit


def test_k_cuts_the_returned_list_only(excise_rules: Excise, animals: list[Candidate]) -> None:
    whole = excise_rules.rerank(FIRES, animals)
    head = excise_rules.rerank(FIRES, animals, k=2)
    assert head.candidates == whole.candidates[:2]
    assert head.verdicts == whole.verdicts
    assert head.removed == whole.removed


def test_the_caller_s_topics_win_and_the_detector_is_not_asked(excise_rules: Excise, animals: list[Candidate]) -> None:
    excise = over(excise_rules, Raises())
    given = Detection(True, 0.9, (Span("parrots"),))
    result = excise.rerank(FIRES, animals, exclude=["dog", "Tesla"], detection=given)
    assert ids(result.removed) == ["dog"]
    assert result.detection.source == "caller"
    assert result.detection.spans == (Span("dog"), Span("Tesla"))
    assert (result.verdicts["dog"].span, result.metadata(animals[0])["source"]) == (0, "caller")


def test_a_detection_made_before_is_used(excise_rules: Excise, animals: list[Candidate]) -> None:
    excise = over(excise_rules, Raises())
    found = excise_rules.detect("which pets, except for parrots?")
    # Its offsets index another wording of the query.
    result = excise.rerank("Pets?", animals, detection=found)
    assert ids(result.removed) == ["parrot"]
    assert result.detection is found


def test_each_of_several_topics_removes_its_own(excise_rules: Excise, animals: list[Candidate]) -> None:
    result = excise_rules.rerank("pets, not dogs and not parrots", animals)
    assert set(ids(result.removed)) == {"dog", "parrot"}
    assert (result.verdicts["dog"].span, result.verdicts["parrot"].span) == (0, 1)
    assert all(len(v.topic_evidence) == 2 for v in result.verdicts.values())


def test_words_that_are_wanted_too_are_no_evidence_of_the_topic(excise_rules: Excise, animals: list[Candidate]) -> None:
    frozen = over(excise_rules)
    result = frozen.rerank("small pets, but not small rodents", animals)
    assert result.detection.spans[0].text == "small rodents"
    (named,) = frozen.backbone.encode_queries(["small rodents"])
    own = [v for v, t in zip(named.vectors, named.tokens, strict=True) if t in ("rodents", "rodent", "##s")]
    expected = maxsim(torch.stack(own), frozen.backbone.encode_documents([c.text for c in animals])) / len(own)
    evidence = [v.evidence for v in result.verdicts.values()]
    assert evidence == pytest.approx(expected.tolist(), abs=1e-2)


def test_the_paper_s_rule_has_one_evidence(excise_rules: Excise, animals: list[Candidate]) -> None:
    result = excise_rules.with_config(demotion="paper").rerank("pets, not dogs and not parrots", animals)
    for verdict in result.verdicts.values():
        assert verdict.evidence == pytest.approx(sum(verdict.topic_evidence) / 2, abs=1e-5)
        assert verdict.cut == result.verdicts["dog"].cut


def test_changed_text_is_never_judged_by_old_vectors(excise_rules: Excise, animals: list[Candidate]) -> None:
    first = excise_rules.rerank(FIRES, animals)
    swapped = [Candidate(a.id, b.text, a.score) for a, b in zip(animals, animals[1:] + animals[:1], strict=True)]
    second = excise_rules.rerank(FIRES, swapped)
    assert ids(first.removed) == ["cat"]
    assert ids(second.removed) == ["horse"]


# --- batches and searches ---------------------------------------------------------------------------


def test_a_batch_is_what_single_calls_return(excise_rules: Excise, animals: list[Candidate]) -> None:
    queries = [FIRES, SILENT, "pets, not dogs", FIRES, FIRES]
    lists = [animals, animals, animals[::-1], animals[2:], []]
    exclude = [None, None, None, ["parrot"], []]
    counting = over(excise_rules, Says(lambda q: excise_rules.detect(q)))
    batch = counting.rerank_batch(queries, lists, k=5, exclude=exclude)
    assert counting.detector.asked == queries[:3]
    for query, shortlist, topics, found in zip(queries, lists, exclude, batch, strict=True):
        alone = excise_rules.rerank(query, shortlist, k=5, exclude=topics)
        assert found.candidates == alone.candidates
        assert found.removed == alone.removed
        assert found.detection == alone.detection
        assert {i: v.action for i, v in found.verdicts.items()} == {i: v.action for i, v in alone.verdicts.items()}
        assert found.warnings == alone.warnings
    assert excise_rules.rerank_batch([], []) == []


def test_a_batch_encodes_a_shared_document_once(excise_rules: Excise, animals: list[Candidate]) -> None:
    encoder = Encoder(excise_rules.backbone)
    over(excise_rules, encoder=encoder).rerank_batch([FIRES, "pets, not dogs"], [animals, animals])
    assert sorted(encoder.documents) == sorted(c.text for c in animals)


def test_search_takes_the_shortlist_and_returns_k(excise_rules: Excise, animals: list[Candidate]) -> None:
    stage = Stage(animals)
    result = excise_rules.search(FIRES, stage, k=3, filter={"kind": "animal"})
    assert stage.asked == [(FIRES, 100, {"kind": "animal"})]
    assert len(result.candidates) == 3
    assert ids(result.removed) == ["cat"]
    small = excise_rules.with_config(k=2)
    assert small.shortlist_size(5) == 5 + small.config.total_cap
    assert small.with_config(removed="last").shortlist_size(5) == 5
    assert small.with_config(demotion="paper").shortlist_size(5) == 8
    assert small.shortlist_size(None) == 2
    assert excise_rules.shortlist_size(5) == 100
    assert len(small.search(FIRES, Stage(animals), k=2).candidates) == 2


def test_frozen_vectors_of_the_first_stage_are_used(excise_rules: Excise, animals: list[Candidate]) -> None:
    encoder = Encoder(excise_rules.backbone)
    stage = VectorStage(animals, excise_rules.backbone)
    result = over(excise_rules, encoder=encoder).search(FIRES, stage)
    assert encoder.documents == []
    assert stage.handed == ids(animals)
    assert ids(result.removed) == ["cat"]
    stage.vector_space = "another space"
    over(excise_rules, encoder=encoder).search(FIRES, stage)
    assert len(encoder.documents) == 8


def test_detectors_of_one_s_own_need_nothing_but_detect(excise_rules: Excise, animals: list[Candidate]) -> None:
    excise = over(excise_rules, Says(topic("hamsters")))
    assert ids(excise.rerank("quiet pets without hamsters", animals).removed) == ["hamster"]
    assert excise.rerank("quiet pets", animals).detection.fired is False
    assert excise.detect_batch([]) == []
    assert [d.fired for d in excise.detect_batch(["hamsters", "cats"])] == [True, False]
