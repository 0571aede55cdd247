"""Metrics against values worked out by hand."""

from __future__ import annotations

import math

import pytest

from excise_integrations.bench.metrics import (
    METRICS,
    average,
    detection_metrics,
    pairwise,
    ranking_metrics,
    token_f1,
    topics_found,
)


def one(ranking: list[str], qrels: dict[str, int], *, judged_only: bool = False) -> dict[str, float | None]:
    return ranking_metrics({"q": ranking}, {"q": qrels}, judged_only=judged_only)["q"]


FILLER = [f"x{i}" for i in range(200)]


def test_gold_first_and_nothing_leaked() -> None:
    got = one(["gold", *FILLER], {"gold": 1, "bad": -1})
    assert got == {
        "success@10": 1.0,
        "hit@10": 1.0,
        "leak": 0.0,
        "leak_docs": 0.0,
        "xndcg@10": 1.0,
        "ndcg@10": 1.0,
        "recall@100": 1.0,
        "pairwise": None,
    }


def test_a_leak_spoils_success_but_not_the_hit() -> None:
    got = one(["bad", "gold", *FILLER], {"gold": 1, "bad": -1, "worse": -1})
    assert (got["hit@10"], got["success@10"], got["leak"], got["leak_docs"]) == (1.0, 0.0, 1.0, 0.5)
    assert got["ndcg@10"] == pytest.approx(1 / math.log2(3))
    assert got["xndcg@10"] == pytest.approx(1 / math.log2(3) - 1)


@pytest.mark.parametrize(("rank", "hit", "recall"), [(10, 1.0, 1.0), (11, 0.0, 1.0), (100, 0.0, 1.0), (101, 0.0, 0.0)])
def test_cutoffs(rank: int, hit: float, recall: float) -> None:
    got = one([*FILLER[: rank - 1], "gold", *FILLER[rank:]], {"gold": 1, "bad": -1})
    assert (got["hit@10"], got["success@10"], got["recall@100"]) == (hit, hit, recall)
    leaked = one([*FILLER[: rank - 1], "bad", *FILLER[rank:]], {"gold": 1, "bad": -1})
    assert leaked["leak"] == hit


def test_graded_judgments_gain_linearly() -> None:
    got = one(["b", "a", "c"], {"a": 3, "b": 1, "c": 0, "d": 2})
    dcg = 1 + 3 / math.log2(3)
    ideal = 3 + 2 / math.log2(3) + 1 / 2
    assert got["ndcg@10"] == pytest.approx(dcg / ideal)
    assert got["xndcg@10"] == pytest.approx(dcg / ideal)
    assert got["recall@100"] == pytest.approx(2 / 3)


def test_a_document_judged_zero_is_neither_relevant_nor_excluded() -> None:
    got = one(["zero"], {"gold": 1, "zero": 0})
    assert (got["hit@10"], got["ndcg@10"], got["leak"], got["recall@100"]) == (0.0, 0.0, None, 0.0)


def test_without_excluded_documents_success_and_leak_have_no_value() -> None:
    got = one(["gold"], {"gold": 1})
    assert (got["success@10"], got["leak"], got["leak_docs"], got["hit@10"]) == (None, None, None, 1.0)


def test_without_relevant_documents_only_the_leak_has_a_value() -> None:
    got = one(["bad"], {"bad": -1})
    assert (got["success@10"], got["hit@10"], got["ndcg@10"], got["recall@100"]) == (None, None, None, None)
    assert (got["leak"], got["leak_docs"]) == (1.0, 1.0)


def test_the_ranking_counts_not_the_ids() -> None:
    # trec_eval breaks ties by document id.
    assert one(["a", "z"], {"a": 1})["ndcg@10"] == 1.0
    assert one(["z", "a"], {"z": 1})["ndcg@10"] == 1.0


def test_an_empty_ranking_scores_nothing() -> None:
    got = one([], {"gold": 1, "bad": -1})
    assert (got["hit@10"], got["ndcg@10"], got["recall@100"], got["success@10"], got["leak"]) == (0, 0, 0, 0, 0)


def test_pairwise() -> None:
    assert pairwise(["g", "b"], ["g"], ["b"]) == 1.0
    assert pairwise(["b", "g"], ["g"], ["b"]) == 0.0
    assert pairwise(["g"], ["g"], ["b"]) == 1.0
    assert pairwise(["b"], ["g"], ["b"]) == 0.0
    assert pairwise([], ["g"], ["b"]) == 0.0
    assert pairwise(["b1", "g", "b2"], ["g"], ["b1", "b2"]) == 0.0
    assert pairwise(["g"], ["g"], []) is None
    assert pairwise(["b"], [], ["b"]) is None
    assert one(["g", "b"], {"g": 1, "b": -1}, judged_only=True)["pairwise"] == 1.0


def test_token_f1() -> None:
    assert token_f1(["the Ob River"], ["Ob river"]) == 1.0
    assert token_f1(["Ob"], ["Ob river"]) == pytest.approx(2 / 3)
    assert token_f1(["solar energy", "wind energy"], ["wind", "solar energy"]) == 1.0
    assert token_f1([], ["Ob"]) == 0.0
    assert token_f1(["Lena"], ["Ob"]) == 0.0
    assert token_f1(["The The"], ["The The"]) == 1.0


def test_topics_need_a_span_of_their_own() -> None:
    assert topics_found(["cats", "dogs"], ["dogs", "cats"]) == 2
    assert topics_found(["cats and dogs"], ["cats and dogs", "dogs and cats"]) == 1
    assert topics_found(["big cats"], ["cats"]) == 1
    assert topics_found(["three very big cats"], ["cats"]) == 0
    # The first topic could take either span; the second only the first one.
    assert topics_found(["old cats", "cats"], ["cats", "very old cats now"]) == 2
    assert topics_found([], ["cats"]) == 0


def test_a_silent_detection_scores_zero_and_needs_topics_to_score_at_all() -> None:
    assert detection_metrics(False, ["cats"], ["cats"]) == {"fire_rate": 0.0, "span_f1": 0.0, "topics_found": 0.0}
    assert detection_metrics(True, ["cats"], []) == {"fire_rate": 1.0, "span_f1": None, "topics_found": None}


def test_averages_are_over_the_queries_that_have_a_value() -> None:
    rows = [
        {"hit@10": 1.0, "leak": None, "fire_rate": 1.0, "span_f1": 0.5, "topics_found": 2.0},
        {"hit@10": 0.0, "leak": 1.0, "fire_rate": 1.0, "span_f1": 1.0, "topics_found": 1.0},
        {"hit@10": 0.0, "leak": None, "fire_rate": 0.0, "span_f1": None, "topics_found": None},
    ]
    got = average(rows, [3, 1, 0])
    assert list(got) == list(METRICS)
    assert got["hit@10"] == pytest.approx(1 / 3)
    assert got["leak"] == 1.0
    assert got["fire_rate"] == pytest.approx(2 / 3)
    assert got["span_f1"] == 0.75
    assert got["topic_recall"] == 0.75  # three of four topics, whatever query they stand in
    assert got["pairwise"] is None
    assert set(average([], []).values()) == {None}
