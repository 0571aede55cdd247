"""Excise from query to result: silent, caller's topics, detected topics, searches."""

from __future__ import annotations

import json
from itertools import pairwise
from typing import Any

import pytest
from pipeline_fakes import Encoder, Raises, Says, Stage, VectorStage, over, topic

from excise_integrations import Candidate, Detection, Excise, Span

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


# --- how the result is shown ------------------------------------------------------------------------


def test_removed_candidates_can_stay_at_the_end(excise_rules: Excise, animals: list[Candidate]) -> None:
    dropped = excise_rules.rerank("pets, not dogs and not parrots", animals)
    result = excise_rules.with_config(removed="last").rerank("pets, not dogs and not parrots", animals)
    assert result.candidates[:6] == dropped.candidates
    assert set(ids(result.candidates[6:])) == set(ids(result.removed)) == {"dog", "parrot"}
    assert [result.verdicts[c.id].rank for c in result.candidates] == list(range(1, 9))
    scores = [result.score(c) or 0.0 for c in result.candidates]
    assert all(a > b for a, b in pairwise(scores))
    assert result.metadata(result.candidates[-1])["action"] == "removed"


def test_shadow_returns_the_frozen_ranking_with_the_verdicts(excise_rules: Excise, animals: list[Candidate]) -> None:
    active = excise_rules.rerank(FIRES, animals)
    result = excise_rules.with_config(mode="shadow").rerank(FIRES, animals, k=5)
    assert all(a is b for a, b in zip(result.candidates, animals[:5], strict=True))
    assert result.shadow
    assert not active.shadow
    assert result.verdicts == active.verdicts
    assert ids(result.removed) == ["cat"]


def passages() -> list[Candidate]:
    texts = [
        ("d1", "The domestic cat is a small carnivore."),
        ("d2", "Parrots imitate human speech."),
        ("d1", "It was founded in the nineteenth century by a merchant."),
        ("d3", "The goldfish is a freshwater fish."),
        ("d4", "Horses are bred for riding and racing."),
        (None, "Tortoises are slow reptiles."),
        (5, "Hamsters carry food in their cheeks."),
    ]
    return [
        Candidate(f"p{i}", text, metadata={} if document is None else {"document_id": document})
        for i, (document, text) in enumerate(texts)
    ]


def test_a_removed_passage_takes_its_document_along(excise_rules: Excise) -> None:
    by_passage = excise_rules.rerank("pets, but not cats", passages())
    assert ids(by_passage.removed) == ["p0"]
    result = excise_rules.with_config(unit="document").rerank("pets, but not cats", passages())
    assert ids(result.removed) == ["p0", "p2"]
    # The document's evidence is its best passage's, and its passages share the verdict.
    best, sibling = result.verdicts["p0"], result.verdicts["p2"]
    assert sibling.evidence == best.evidence == by_passage.verdicts["p0"].evidence
    assert (sibling.cut, sibling.penalty, sibling.action) == (best.cut, best.penalty, "removed")
    assert sibling.topic_evidence == best.topic_evidence
    assert len(result.candidates) == 5


def test_documents_and_not_passages_are_counted_for_the_small_shortlist(excise_rules: Excise) -> None:
    few = passages()[:4]
    assert excise_rules.rerank("pets, but not cats", few).removed
    result = excise_rules.with_config(unit="document").rerank("pets, but not cats", few)
    assert result.removed == ()
    assert any("3 documents; below 4 none is removed" in w for w in result.warnings)
    # There the penalty alone must decide: scores are means over the query's tokens, as for three passages.
    assert all((v.score or 0.0) <= 1.0 for v in result.verdicts.values())
    assert all((v.score or 9.0) <= 1.0 for v in excise_rules.rerank("pets, but not cats", few[:3]).verdicts.values())


# --- warnings ---------------------------------------------------------------------------------------


def warned(result: Any, text: str) -> bool:
    return any(text in w for w in result.warnings)


def test_warnings_say_what_a_reader_should_know(excise_rules: Excise, animals: list[Candidate]) -> None:
    assert warned(excise_rules.rerank(FIRES, animals[:3]), "3 passages; below 4 none is removed")
    assert not warned(excise_rules.rerank(FIRES, animals[:4]), "below 4")
    assert warned(excise_rules.rerank(FIRES, animals, k=9), "8 candidates, fewer than the 9 asked for")
    assert not warned(excise_rules.rerank(FIRES, animals, k=8), "fewer than")
    assert warned(excise_rules.rerank("not cats", animals), "only says what is not wanted")
    assert not warned(excise_rules.rerank(FIRES, animals), "only says what is not wanted")
    assert warned(excise_rules.rerank(FIRES, []), "The shortlist is empty")
    hard = excise_rules.with_config(soft_penalty=False).rerank(FIRES, animals[:3])
    assert warned(hard, "only a topic's strongest match is removed")
    assert ids(hard.removed) == ["cat"]


def test_a_long_query_is_scored_by_its_beginning_and_says_so(excise_rules: Excise, animals: list[Candidate]) -> None:
    result = excise_rules.rerank("pets " * 600, animals, exclude=["cats"])
    assert warned(result, "more than the 512 tokens")
    assert ids(result.removed) == ["cat"]


def test_frozen_vectors_are_named_as_such(excise_rules: Excise, animals: list[Candidate]) -> None:
    frozen = over(excise_rules)
    assert warned(frozen.rerank(FIRES, animals), "No exclusion adapter for 'minilm'")


def test_a_detector_s_own_warnings_are_kept_and_wanted_may_be_empty(
    excise_rules: Excise, animals: list[Candidate]
) -> None:
    found = Detection(True, 0.9, (Span("cats", 10, 14, 0.9),), warnings=("I am new here.",))
    result = over(excise_rules, Says(lambda _: found)).rerank("pets, not cats", animals)
    assert warned(result, "I am new here.")
    assert not warned(result, "only says what is not wanted")


@pytest.mark.parametrize("name", ["🍕", "🍕 🍔"])
def test_a_topic_that_the_backbone_cannot_read_is_reported(
    excise_rules: Excise, animals: list[Candidate], name: str
) -> None:
    result = excise_rules.rerank("pets", animals, exclude=[name, "cats"])
    assert warned(result, f"cannot read the excluded topic '{name}'")
    assert ids(result.removed) == ["cat"]
    pooled = excise_rules.with_config(demotion="paper").rerank("pets", animals, exclude=[name])
    assert pooled.removed == ()
    assert {v.action for v in pooled.verdicts.values()} == {"reranked"}


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
