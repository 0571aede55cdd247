"""What must hold of the operator whatever the numbers."""

from __future__ import annotations

import math
from itertools import pairwise
from typing import Any

import torch
from hypothesis import HealthCheck, assume, given, settings
from hypothesis import strategies as st

from excise_integrations import ExciseConfig
from excise_integrations.demotion import Outcome, cut_of, demote, soft_penalty

# Numbers on a grid: distinct ones differ by more than rounding.
GRID = 100_000
quick = settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.too_slow])


@st.composite
def shortlists(
    draw: st.DrawFn, *, topics: int | None = None, least: int = 1, most: int = 12
) -> tuple[list[float], list[list[float]]]:
    """Distinct scores, and distinct evidence per topic."""
    n = draw(st.integers(least, most))
    count = topics if topics is not None else draw(st.integers(1, 3))
    column = st.lists(st.integers(-GRID, GRID), min_size=n, max_size=n, unique=True)
    scores = draw(st.lists(st.integers(-GRID, 40 * GRID), min_size=n, max_size=n, unique=True))
    return [s / GRID for s in scores], [[e / GRID for e in draw(column)] for _ in range(count)]


configs = st.builds(
    ExciseConfig,
    demotion=st.just("per_topic"),
    floor=st.sampled_from([-1.0, 0.0, 0.35, 0.9]),
    cut_width=st.sampled_from([0.0, 0.5, 2.0]),
    penalty_scale=st.sampled_from([0.0, 0.97, 30.0]),
    soft_penalty=st.booleans(),
    cap=st.integers(0, 4),
    total_cap=st.integers(0, 5),
    topic_fraction=st.sampled_from([0.0, 0.6, 0.95]),
    min_shortlist=st.sampled_from([1, 4, 6]),
    guard_order=st.sampled_from(["penalised", "reembedded"]),
)


def paper(**values: Any) -> ExciseConfig:
    return ExciseConfig(demotion="paper", **values)


def run(scores: list[float], columns: list[list[float]], config: ExciseConfig) -> Outcome:
    evidence = torch.tensor(columns, dtype=torch.float64).T.reshape(len(scores), len(columns))
    return demote(torch.tensor(scores, dtype=torch.float64), evidence, config)


def algorithm_1(scores: list[float], e: list[float], config: ExciseConfig) -> tuple[list[int], set[int], list[float]]:
    """The paper's listing from line 7 on, written again in plain Python."""
    n = len(scores)
    by_score = sorted(range(n), key=lambda i: -scores[i])
    if max(e) < config.floor:
        return by_score, set(), [0.0] * n
    mean = math.fsum(e) / n
    if n >= 4:
        cut = mean + config.cut_width * math.sqrt(math.fsum((x - mean) ** 2 for x in e) / (n - 1))
    else:
        cut = config.floor
    penalty = [config.penalty_scale * max(0.0, x - cut) if config.soft_penalty else 0.0 for x in e]
    final = [s - p for s, p in zip(scores, penalty, strict=True)]
    strongest = max(range(n), key=lambda i: e[i])
    if n >= 4:
        bound = config.removal_fraction * max(e)
        demoted = sorted((i for i in range(n) if e[i] >= bound), key=lambda i: -e[i])[:3]
    else:
        demoted = [] if config.soft_penalty else [strongest]
    ranking = sorted(range(n), key=lambda i: -final[i])
    guarded = next((i for i in ranking if i != strongest), None)
    removed = set(demoted) - {guarded}
    return [i for i in ranking if i not in removed], removed, penalty


@quick
@given(shortlists(topics=1), st.booleans())
def test_the_paper_s_rule_is_algorithm_1(data: tuple[list[float], list[list[float]]], soft: bool) -> None:
    scores, columns = data
    config = paper(soft_penalty=soft)
    order, removed, penalty = algorithm_1(scores, columns[0], config)
    final = [s - p for s, p in zip(scores, penalty, strict=True)]
    assume(len({round(f, 9) for f in final}) == len(final))
    out = run(scores, columns, config)
    assert list(out.order) == order
    assert set(out.removed) == removed
    assert all(math.isclose(a, b, abs_tol=1e-8) for a, b in zip(out.penalties, penalty, strict=True))


@quick
@given(shortlists(), configs, st.randoms(use_true_random=False))
def test_permutation_equivariance(data: tuple[list[float], list[list[float]]], config: ExciseConfig, rng: Any) -> None:
    scores, columns = data
    out = run(scores, columns, config)
    # At a tie, or on an edge, the order of summation may decide.
    assume(len({round(s, 9) for s in out.scores}) == len(scores))
    edges = [*out.cuts, *(config.topic_fraction * max(c) for c in columns)]
    assume(all(abs(x - edge) > 1e-9 for c in columns for x in c for edge in edges if x != edge))
    perm = list(range(len(scores)))
    rng.shuffle(perm)
    moved = run([scores[p] for p in perm], [[c[p] for p in perm] for c in columns], config)
    assert [perm[i] for i in moved.order] == list(out.order)
    assert {perm[i] for i in moved.removed} == set(out.removed)
    assert (moved.protected is None) == (out.protected is None)
    assert moved.protected is None or perm[moved.protected] == out.protected
    assert [moved.actions[perm.index(i)] for i in range(len(scores))] == list(out.actions)


@quick
@given(shortlists(least=2), st.sampled_from([0.01, 0.97, 5.0]), st.integers(1, 400))
def test_flat_penalty_invariance(data: tuple[list[float], list[list[float]]], scale: float, squeeze: int) -> None:
    """Proposition 2: penalties that differ by less than the smallest gap of the re-embedded scores change no order."""
    scores, columns = data
    columns = [[0.5 + x / squeeze / 2 for x in c] for c in columns]
    config = ExciseConfig(removal=False, penalty_scale=scale)
    out = run(scores, columns, config)
    ranked = sorted(scores, reverse=True)
    gap = min(a - b for a, b in pairwise(ranked))
    assume(max(out.penalties) - min(out.penalties) < gap - 1e-9)
    assert list(out.order) == sorted(range(len(scores)), key=lambda i: -scores[i])


@quick
@given(shortlists(), configs)
def test_what_is_removed_is_bounded_and_never_protected(
    data: tuple[list[float], list[list[float]]], config: ExciseConfig
) -> None:
    scores, columns = data
    out = run(scores, columns, config)
    assert len(out.removed) <= min(config.total_cap, config.cap * len(columns))
    assert out.protected not in out.removed
    if out.protected is not None:
        assert out.protected in out.order
        active = [c for c in columns if max(c) >= config.floor]
        assert all(c[out.protected] < max(c) for c in active)
    small = len(scores) < config.min_shortlist
    assert not (small and config.soft_penalty and out.removed)


@quick
@given(shortlists(topics=1), st.integers(0, 4), st.booleans())
def test_the_paper_s_rule_removes_at_most_its_cap(
    data: tuple[list[float], list[list[float]]], cap: int, soft: bool
) -> None:
    scores, columns = data
    out = run(scores, columns, paper(cap=cap, soft_penalty=soft))
    assert len(out.removed) <= cap
    assert out.protected not in out.removed
    assert out.protected is None or columns[0][out.protected] < max(columns[0])


@quick
@given(shortlists(), configs)
def test_an_outcome_is_whole(data: tuple[list[float], list[list[float]]], config: ExciseConfig) -> None:
    scores, columns = data
    out = run(scores, columns, config)
    n = len(scores)
    assert sorted([*out.order, *out.removed]) == list(range(n))
    assert len(out.scores) == len(out.penalties) == len(out.actions) == len(out.deciding) == n
    assert all(math.isfinite(s) for s in out.scores)
    assert all(p >= 0.0 for p in out.penalties)
    final = [out.scores[i] for i in out.order]
    assert final == sorted(final, reverse=True)
    assert all((out.actions[i] == "removed") == (i in out.removed) for i in range(n))
    assert all(0 <= t < len(columns) for t in out.deciding)
    if max(max(c) for c in columns) < config.floor:
        assert not out.demoted
        assert list(out.order) == sorted(range(n), key=lambda i: -scores[i])


@quick
@given(
    st.lists(st.floats(-1, 1), min_size=2, max_size=20),
    st.floats(-1, 1),
    st.sampled_from([0.0, 0.97, 5.0]),
)
def test_the_penalty_is_monotone_in_evidence_at_a_fixed_cut(values: list[float], cut: float, scale: float) -> None:
    values.sort()
    penalties = soft_penalty(torch.tensor(values, dtype=torch.float64), cut, ExciseConfig(penalty_scale=scale)).tolist()
    assert penalties == sorted(penalties)
    assert all(p == 0.0 for p, e in zip(penalties, values, strict=True) if e <= cut)


@quick
@given(shortlists(topics=1, least=2, most=3), st.data())
def test_more_evidence_never_lifts_a_candidate_at_a_fixed_cut(
    data: tuple[list[float], list[list[float]]], draw: st.DataObject
) -> None:
    """Below the minimum shortlist the cut is a constant; there the whole rule is monotone."""
    scores, (evidence,) = data
    config = ExciseConfig(floor=-1.0, absolute_cut=0.35)
    target = draw.draw(st.integers(0, len(scores) - 1))
    more = [min(1.0, e + 0.3) if i == target else e for i, e in enumerate(evidence)]
    before, after = run(scores, [evidence], config), run(scores, [more], config)
    assert after.scores[target] <= before.scores[target]
    assert after.order.index(target) >= before.order.index(target)
    assert all(a == b for i, (a, b) in enumerate(zip(after.scores, before.scores, strict=True)) if i != target)


@quick
@given(st.lists(st.floats(-1, 1), min_size=4, max_size=30), st.floats(0, 3))
def test_the_relative_cut_is_between_the_mean_and_its_width(values: list[float], width: float) -> None:
    evidence = torch.tensor(values, dtype=torch.float64)
    cut = cut_of(evidence, ExciseConfig(cut_width=width))
    mean = math.fsum(values) / len(values)
    spread = math.sqrt(math.fsum((v - mean) ** 2 for v in values) / (len(values) - 1))
    assert math.isclose(cut, mean + width * spread, abs_tol=1e-9)
