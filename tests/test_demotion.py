"""Algorithm 1, branch by branch, on numbers that can be checked by hand."""

from __future__ import annotations

import math

import pytest
import torch

from excise_integrations import ExciseConfig, InvalidInputError
from excise_integrations.demotion import Outcome, cut_of, demote, soft_penalty

PAPER = ExciseConfig(demotion="paper")
# The measured defaults may move; these are what the numbers below were chosen for.
TOPICS = ExciseConfig(demotion="per_topic", topic_fraction=0.9, total_cap=9, dominance=0.12, dominance_slope=0.0)


def run(scores: list[float], *evidence: list[float], config: ExciseConfig = PAPER, **settings: object) -> Outcome:
    config = ExciseConfig(**{**config.model_dump(), **settings})
    columns = torch.tensor(evidence, dtype=torch.float64).T.reshape(len(scores), len(evidence))
    return demote(torch.tensor(scores, dtype=torch.float64), columns, config)


# --- the floor (line 7) ---------------------------------------------------------------------


@pytest.mark.parametrize("config", [PAPER, TOPICS])
def test_below_the_floor_the_reembedded_order_is_returned_undemoted(config: ExciseConfig) -> None:
    out = run([1.0, 3.0, 2.0, 0.0], [0.1, 0.34999, 0.2, 0.0], config=config)
    assert out.order == (1, 2, 0, 3)
    assert (out.removed, out.penalties, out.protected, out.demoted) == ((), (0.0,) * 4, None, False)
    assert set(out.actions) == {"reranked"}
    assert out.scores == (1.0, 3.0, 2.0, 0.0)


@pytest.mark.parametrize("config", [PAPER, TOPICS])
def test_evidence_exactly_at_the_floor_demotes(config: ExciseConfig) -> None:
    out = run([4.0, 3.0, 2.0, 1.0], [0.35, 0.1, 0.1, 0.1], config=config)
    assert out.demoted
    assert out.removed == (0,)


def test_the_floor_is_each_topics_own() -> None:
    out = run([5.0, 4.0, 3.0, 2.0], [0.3, 0.0, 0.0, 0.0], [0.0, 0.9, 0.0, 0.0], config=TOPICS)
    assert out.removed == (1,)
    assert out.penalties[0] == 0.0
    assert out.deciding == (1, 1, 1, 1)


# --- the cut and the soft penalty (lines 12 and 13) ---------------------------------------------


def test_relative_cut_is_mean_plus_half_a_sample_standard_deviation() -> None:
    evidence = torch.tensor([0.9, 0.5, 0.4, 0.2], dtype=torch.float64)
    sd = math.sqrt((0.16 + 0.0 + 0.01 + 0.09) / 3)
    assert cut_of(evidence, PAPER) == pytest.approx(0.5 + 0.5 * sd)
    assert cut_of(evidence, ExciseConfig(cut_width=0.0)) == pytest.approx(0.5)


def test_soft_penalty_is_lambda_times_the_excess_over_the_cut() -> None:
    out = run([4.0, 3.0, 2.0, 1.0], [0.9, 0.5, 0.4, 0.2], removal=False)
    assert out.penalties == pytest.approx((0.97 * (0.9 - out.cuts[0]), 0.0, 0.0, 0.0))
    assert out.scores == pytest.approx((4.0 - out.penalties[0], 3.0, 2.0, 1.0))
    assert out.actions == ("penalised", "protected", "reranked", "reranked")


def test_penalty_can_change_the_order() -> None:
    assert run([1.1, 1.0, 0.5, 0.4], [0.9, 0.1, 0.1, 0.1], removal=False).order == (1, 0, 2, 3)


@pytest.mark.parametrize("size", [1, 2, 3])
def test_small_shortlists_take_the_absolute_rule(size: int) -> None:
    evidence = torch.tensor([0.9, 0.2, 0.1][:size])
    assert cut_of(evidence, PAPER) == PAPER.floor
    assert cut_of(evidence, ExciseConfig(absolute_cut=0.6)) == 0.6
    out = run([3.0, 2.0, 1.0][:size], [0.9, 0.2, 0.1][:size], absolute_cut=0.6)
    assert out.penalties[0] == pytest.approx(0.97 * 0.3)


def test_two_candidates_are_told_apart_by_the_absolute_rule() -> None:
    # With mean + κ · sd the cut would exceed the larger evidence for any κ above 0.707.
    out = run([2.0, 1.9], [0.9, 0.1], cut_width=1.0)
    assert out.order == (1, 0)


def test_equal_evidence_penalises_nobody() -> None:
    # The mean of seven times 0.486 is a rounding error below 0.486.
    for value in (0.4, 0.486, 0.895, 0.402, float(torch.tensor(0.4))):
        for size in (4, 7, 9, 13):
            out = run([float(size - i) for i in range(size)], [value] * size, removal=False)
            assert out.penalties == (0.0,) * size
            assert "penalised" not in out.actions


def test_soft_penalty_can_be_switched_off() -> None:
    evidence = torch.tensor([0.9, 0.1])
    assert soft_penalty(evidence, 0.3, ExciseConfig(soft_penalty=False)).tolist() == [0.0, 0.0]
    out = run([4.0, 3.0, 2.0, 1.0], [0.9, 0.5, 0.4, 0.2], soft_penalty=False, removal=False)
    assert out.order == (0, 1, 2, 3)
    assert out.penalties == (0.0,) * 4


# --- removal, cap and guard (lines 14 to 17) ----------------------------------------------------


def test_removal_takes_the_three_strongest_at_or_above_phi_times_the_maximum() -> None:
    out = run([9.0, 8.0, 7.0, 6.0, 5.0, 4.0], [0.1, 0.8, 0.48, 0.9, 0.6, 0.55])
    assert out.removed == (1, 3, 4)
    # 0.5 is exactly φ · max.
    assert run([9.0, 8.0, 7.0, 6.0], [0.1, 0.5, 1.0, 0.49], removal_fraction=0.5).removed == (1, 2)


def test_guard_keeps_the_top_candidate_that_is_not_the_strongest_match() -> None:
    out = run([9.0, 8.0, 7.0, 6.0, 5.0], [0.9, 0.89, 0.88, 0.1, 0.1])
    assert out.protected == 1
    assert out.removed == (0, 2)
    assert out.actions[1] == "protected"
    assert 1 in out.order


@pytest.mark.parametrize(("order", "protected"), [("frozen", 0), ("reembedded", 2), ("penalised", 3)])
def test_guard_follows_the_configured_order(order: str, protected: int) -> None:
    # Candidate 1 is the strongest match; the penalty takes candidate 2 from the first place to the second.
    out = run([1.0, 0.5, 2.0, 1.9], [0.1, 0.9, 0.85, 0.1], guard_order=order)
    assert out.protected == protected


def test_cap_of_zero_and_removal_off_remove_nobody() -> None:
    scores, evidence = [9.0, 8.0, 7.0, 6.0, 5.0], [0.9, 0.89, 0.88, 0.1, 0.1]
    for config in (PAPER, TOPICS):
        for settings in ({"cap": 0}, {"removal": False}, {"cap": 0, "min_shortlist": 9, "soft_penalty": False}):
            assert run(scores, evidence, config=config, **settings).removed == ()


def test_small_shortlists_lose_the_strongest_match_only_without_soft_penalty() -> None:
    for config in (PAPER, TOPICS):
        soft = run([3.0, 2.0, 1.0], [0.5, 0.9, 0.85], config=config)
        assert soft.removed == ()
        assert soft.order == (0, 1, 2) or soft.order[0] == 0
        hard = run([3.0, 2.0, 1.0], [0.5, 0.9, 0.85], config=config, soft_penalty=False)
        assert hard.removed == (1,)
        assert hard.order == (0, 2)
        assert hard.actions == ("protected", "removed", "reranked")


def test_a_single_candidate_is_demoted_but_never_lost_with_the_soft_penalty() -> None:
    out = run([3.0], [0.9])
    assert out.order == (0,)
    assert out.protected is None
    assert out.penalties[0] == pytest.approx(0.97 * (0.9 - 0.35))


# --- several topics ---------------------------------------------------------------------------


def test_each_topic_removes_its_own_and_the_deciding_topic_says_which() -> None:
    first = [0.9, 0.1, 0.1, 0.1, 0.1, 0.1]
    second = [0.1, 0.1, 0.8, 0.1, 0.1, 0.1]
    out = run([6.0, 5.0, 4.0, 3.0, 2.0, 1.0], first, second, config=TOPICS)
    assert out.removed == (0, 2)
    assert (out.deciding[0], out.deciding[2]) == (0, 1)
    assert out.protected == 1


def test_the_paper_s_single_mean_misses_the_weaker_of_two_topics() -> None:
    first = [0.9, 0.1, 0.1, 0.1, 0.1, 0.1]
    second = [0.1, 0.1, 0.4, 0.1, 0.1, 0.1]
    pooled = [(a + b) / 2 for a, b in zip(first, second, strict=True)]
    assert 2 not in run([6.0, 5.0, 4.0, 3.0, 2.0, 1.0], pooled).removed
    assert 2 in run([6.0, 5.0, 4.0, 3.0, 2.0, 1.0], first, second, config=TOPICS).removed


def test_a_removed_candidate_names_the_topic_that_removed_it() -> None:
    # The second topic exceeds its cut by more in candidate 0, but takes candidate 1; only the first removes 0.
    first = [0.60, 0.2, 0.5, 0.5, 0.5, 0.5]
    second = [0.70, 0.9, 0.0, 0.0, 0.0, 0.0]
    out = run([6.0, 5.0, 4.0, 3.0, 2.0, 1.0], first, second, config=TOPICS)
    assert out.removed == (0, 1)
    assert 0.70 - out.cuts[1] > 0.60 - out.cuts[0]
    assert out.deciding[:2] == (0, 1)


def test_a_candidate_s_penalty_is_its_largest_over_the_topics() -> None:
    first = [0.9, 0.1, 0.1, 0.1]
    second = [0.6, 0.1, 0.1, 0.1]
    out = run([4.0, 3.0, 2.0, 1.0], first, second, config=TOPICS, removal=False)
    assert out.penalties[0] == pytest.approx(0.97 * (0.9 - out.cuts[0]))


def test_no_topic_s_strongest_match_is_protected() -> None:
    first = [0.9, 0.1, 0.1, 0.1]
    second = [0.1, 0.8, 0.1, 0.1]
    third = [0.1, 0.1, 0.7, 0.1]
    out = run([4.0, 3.0, 2.0, 1.0], first, second, third, config=TOPICS)
    assert out.protected == 3
    assert out.removed == (0, 1, 2)


def test_total_cap_holds_over_all_topics() -> None:
    columns = [[0.9 if i == t else 0.0 for i in range(6)] for t in range(4)]
    assert len(run([6.0, 5.0, 4.0, 3.0, 2.0, 1.0], *columns, config=TOPICS).removed) == 4
    assert run([6.0, 5.0, 4.0, 3.0, 2.0, 1.0], *columns, config=TOPICS, total_cap=2).removed == (0, 1)
    small = run([2.0, 1.5, 1.0], *[c[:3] for c in columns[:3]], config=TOPICS, soft_penalty=False, total_cap=1)
    assert len(small.removed) == 1


def test_per_topic_removals_go_to_the_candidates_that_would_rank_highest() -> None:
    evidence = [0.90, 0.89, 0.88, 0.87, 0.1, 0.1, 0.1, 0.1]
    scores = [1.0, 8.0, 7.0, 6.0, 5.0, 4.0, 3.0, 2.0]
    assert run(scores, evidence, config=TOPICS).removed == (1, 2, 3)
    assert run(scores, evidence, config=TOPICS, cap=1).removed == (1,)


def test_per_topic_removes_nothing_below_the_cut() -> None:
    # All are near the maximum, so only the anomaly cut tells them apart.
    evidence = [0.90, 0.85, 0.85, 0.85, 0.85, 0.85]
    assert run([6.0, 5.0, 4.0, 3.0, 2.0, 1.0], evidence, config=TOPICS).removed == (0,)


def test_a_candidate_about_what_is_wanted_is_penalised_and_stays() -> None:
    scores, evidence = torch.tensor([5.0, 4.0, 3.0, 2.0, 1.0]), torch.tensor([[0.9], [0.88], [0.1], [0.1], [0.1]])
    wanted = torch.tensor([0.9, 0.5, 0.6, 0.5, 0.5])
    out = demote(scores, evidence, TOPICS, wanted=wanted)
    assert out.removed == (1,)
    assert out.actions[0] == "penalised"
    for dominance in (None, 0.9):
        config = TOPICS.model_copy(update={"dominance": dominance})
        assert demote(scores, evidence, config, wanted=wanted).removed == (0, 1)
    assert demote(scores, evidence, TOPICS).removed == (0, 1)
    # The paper's rule knows no such thing: candidate 1 is its protected one.
    assert demote(scores, evidence, ExciseConfig(demotion="paper", dominance=0.0), wanted=wanted).removed == (0,)


def test_the_further_ahead_on_the_wanted_words_the_more_evidence_a_removal_takes() -> None:
    scores, evidence = torch.tensor([5.0, 4.0, 3.0, 2.0, 1.0]), torch.tensor([[0.9], [0.88], [0.1], [0.1], [0.1]])
    wanted = torch.tensor([0.5, 0.9, 0.6, 0.5, 0.85])
    config = TOPICS.model_copy(update={"dominance": None})
    assert demote(scores, evidence, config, wanted=wanted).removed == (0, 1)
    # 0.05 ahead of the best candidate below the cut: 0.9 + 2 · 0.05 of the strongest evidence is asked for.
    steep = config.model_copy(update={"dominance_slope": 2.0})
    assert demote(scores, evidence, steep, wanted=wanted).removed == (0,)


def test_a_document_that_opens_with_the_topic_goes_before_one_that_mentions_it() -> None:
    scores, evidence = torch.tensor([5.0, 4.0, 3.0, 2.0, 1.0]), torch.tensor([[0.9], [0.9], [0.1], [0.1], [0.1]])
    opening = torch.tensor([[0.9], [0.3], [0.1], [0.1], [0.1]])
    assert demote(scores, evidence, TOPICS).removed == (0, 1)
    assert demote(scores, evidence, TOPICS, opening=opening).removed == (0,)
    # Half of the weight on the opening: (1 + 1/3) / 2 is just enough for 0.66.
    low = TOPICS.model_copy(update={"topic_fraction": 0.66})
    assert demote(scores, evidence, low, opening=opening).removed == (0, 1)
    off = TOPICS.model_copy(update={"opening_tokens": 0})
    assert demote(scores, evidence, off, opening=opening).removed == (0, 1)
    assert demote(scores, evidence, ExciseConfig(demotion="paper"), opening=opening).removed == (0,)


def test_the_excluded_topics_own_document_goes_however_far_ahead_it_is() -> None:
    scores, evidence = torch.tensor([5.0, 4.0, 3.0, 2.0, 1.0]), torch.tensor([[0.9], [0.88], [0.1], [0.1], [0.1]])
    wanted = torch.tensor([0.9, 0.5, 0.6, 0.5, 0.5])
    opening = torch.tensor([[0.9], [0.88], [0.1], [0.1], [0.1]])
    # "Ants, a family of social insects with elbowed antennae, aside": its own document leads on those words.
    assert demote(scores, evidence, TOPICS, wanted=wanted, opening=opening).removed == (0, 1)
    assert demote(scores, evidence, TOPICS, wanted=wanted).removed == (1,)
    mention = torch.tensor([[0.3], [0.88], [0.1], [0.1], [0.1]])
    assert demote(scores, evidence, TOPICS, wanted=wanted, opening=mention).removed == (1,)
    off = TOPICS.model_copy(update={"dominance_limit": 1.1})
    assert demote(scores, evidence, off, wanted=wanted, opening=opening).removed == (1,)


def test_openings_count_only_where_some_document_opens_with_the_topic() -> None:
    scores, evidence = torch.tensor([5.0, 4.0, 3.0, 2.0, 1.0]), torch.tensor([[0.9], [0.9], [0.1], [0.1], [0.1]])
    opening = torch.tensor([[0.66], [0.3], [0.1], [0.1], [0.1]])
    assert demote(scores, evidence, TOPICS, opening=opening).removed == (0, 1)
    opening[0] = 0.69
    assert demote(scores, evidence, TOPICS, opening=opening).removed == (0,)
    with pytest.raises(InvalidInputError, match="opening has shape"):
        demote(scores, evidence, TOPICS, opening=opening[:3])


def test_openings_do_not_count_where_many_documents_name_the_topic() -> None:
    scores = torch.arange(20.0, 0.0, -1.0)
    evidence, opening = torch.full((20, 1), 0.1), torch.full((20, 1), 0.1)
    evidence[:4], opening[0] = 0.9, 0.9
    assert demote(scores, evidence, TOPICS, opening=opening).removed == (0,)
    crowded = TOPICS.model_copy(update={"opening_crowd": 3})
    assert demote(scores, evidence, crowded, opening=opening).removed == (0, 1, 2)
    evidence[4:11] = 0.9
    assert demote(scores, evidence, TOPICS, opening=opening).removed == (0, 1, 2)


def test_per_topic_protects_a_candidate_below_the_cuts_where_there_is_one() -> None:
    scores, evidence = [5.0, 4.0, 3.0, 2.0, 1.0], [0.9, 0.89, 0.1, 0.1, 0.1]
    assert run(scores, evidence, config=TOPICS).protected == 2
    assert run(scores, evidence).protected == 1


# --- ties and refusals --------------------------------------------------------------------------


@pytest.mark.parametrize("config", [PAPER, TOPICS])
def test_ties_keep_the_frozen_order(config: ExciseConfig) -> None:
    out = run([1.0] * 6, [0.9, 0.9, 0.1, 0.1, 0.1, 0.1], config=config)
    kept = [i for i in range(6) if i not in out.removed]
    assert out.removed[0] == 0
    assert list(out.order) == sorted(kept, key=lambda i: (out.penalties[i], i))
    assert run([1.0] * 6, [0.1] * 6, config=config).order == (0, 1, 2, 3, 4, 5)


@pytest.mark.parametrize("bad", [math.nan, math.inf, -math.inf])
@pytest.mark.parametrize("where", ["scores", "evidence"])
def test_values_that_are_not_finite_are_refused(bad: float, where: str) -> None:
    numbers = [4.0, bad, 2.0, 1.0] if where == "scores" else [4.0, 3.0, 2.0, 1.0]
    evidence = [0.5, bad, 0.2, 0.1] if where == "evidence" else [0.5, 0.3, 0.2, 0.1]
    with pytest.raises(InvalidInputError, match=f"{where} holds a value that is not finite"):
        run(numbers, evidence)


def test_shapes_that_do_not_match_are_refused() -> None:
    with pytest.raises(InvalidInputError, match=r"\(3, 1\).*\(2, topics\)"):
        demote(torch.zeros(2), torch.zeros(3, 1), PAPER)
    with pytest.raises(InvalidInputError, match="topics"):
        demote(torch.zeros(2), torch.zeros(2), PAPER)
    with pytest.raises(InvalidInputError, match="2 columns"):
        demote(torch.zeros(2), torch.zeros(2, 2), PAPER)


def test_nothing_to_rank_and_nothing_excluded() -> None:
    assert demote(torch.zeros(0), torch.zeros(0, 1), TOPICS).order == ()
    out = demote(torch.tensor([1.0, 2.0]), torch.zeros(2, 0), TOPICS)
    assert out.order == (1, 0)
    assert not out.demoted
