"""What a result shows: removed candidates, shadow, documents, warnings."""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import pytest
from pipeline_fakes import Says, over

from excise_integrations import Candidate, Detection, Excise, Span

FIRES = "animals that people keep as a pet, but not cats"


def ids(candidates: Any) -> list[str]:
    return [c.id for c in candidates]


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
