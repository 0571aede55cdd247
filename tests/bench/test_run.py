"""Systems on a tiny suite: what a run writes, keeps and skips, and that its rows are the pipeline's."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from tiny_adapters import save_exclusion

from excise_integrations import Excise, ExciseConfig, InvalidInputError
from excise_integrations.bench import evaluate_suite, load_suite
from excise_integrations.bench.evaluate import QueryOutcome
from excise_integrations.bench.metrics import RANKING_METRICS
from excise_integrations.bench.prepared import sample
from excise_integrations.bench.rows import Row, read_folder, read_row, row_path
from excise_integrations.bench.run import run_suite
from excise_integrations.bench.store import VectorStore
from excise_integrations.bench.suites import Suite
from excise_integrations.bench.systems import GROUPS, SYSTEMS, choose
from excise_integrations.detect import RulesDetector
from excise_integrations.weights import load_adapter

WriteSuite = Callable[..., Path]


@pytest.fixture
def suite(write_suite: WriteSuite) -> Suite:
    return load_suite(write_suite())


@pytest.fixture
def adapted(excise_rules: Excise, tmp_path: Path) -> Excise:
    """A pipeline with an exclusion adapter of random weights."""
    folder = save_exclusion(tmp_path / "adapter", excise_rules.backbone.weights_hash, scale=1.0)
    adapter = load_adapter(folder, "exclusion")
    twin = excise_rules.backbone.with_adapter(adapter)
    return Excise(excise_rules.backbone, detector=RulesDetector(), exclusion=twin)


def rows_of(excise: Excise, suite: Suite, out: Path, *names: str, **options: Any) -> dict[str, Row]:
    for _ in run_suite(excise, suite, out, systems=choose(names), **options):
        pass
    return {name: read_row(row_path(out, suite.name, name)) for name in (s.name for s in choose(names))}


def same(row: Row, outcomes: tuple[QueryOutcome, ...], side: str) -> None:
    assert [q.id for q in row.queries] == [o.query.id for o in outcomes]
    for query, outcome in zip(row.queries, outcomes, strict=True):
        measured = getattr(outcome, side)
        assert {m: query.values[m] for m in RANKING_METRICS} == {m: measured[m] for m in RANKING_METRICS}
        assert query.top == getattr(outcome, f"{side}_top")
        if side == "excise":
            assert query.removed == outcome.removed
            assert query.values["span_f1"] == measured["span_f1"]


@pytest.mark.parametrize(
    "settings",
    [
        {},
        {"demotion": "paper"},
        {"k": 3},
        {"k": 4, "removed": "last"},
        {"score_scale": "mean"},
        {"soft_penalty": False},
    ],
)
def test_default_and_frozen_are_the_rows_of_evaluate(
    suite: Suite, excise_rules: Excise, tmp_path: Path, settings: dict[str, Any]
) -> None:
    excise = excise_rules.with_config(**settings)
    rows = rows_of(excise, suite, tmp_path, "default", "frozen", "default-true")
    detected = evaluate_suite(excise, suite).outcomes
    assert any(o.removed for o in detected) or settings
    same(rows["default"], detected, "excise")
    same(rows["frozen"], detected, "frozen")
    same(rows["default-true"], evaluate_suite(excise, suite, topics="true").outcomes, "excise")
    summary = evaluate_suite(excise, suite).summary()["excise"]
    assert {m: v for m, v in rows["default"].average().items()} == summary


def test_the_paper_row_and_judged_candidates(suite: Suite, excise_rules: Excise, tmp_path: Path) -> None:
    paper = evaluate_suite(excise_rules.with_config(demotion="paper"), suite).outcomes
    same(rows_of(excise_rules, suite, tmp_path / "a", "paper")["paper"], paper, "excise")
    judged = evaluate_suite(excise_rules, suite, candidates="judged").outcomes
    row = rows_of(excise_rules, suite, tmp_path / "b", "default", candidates="judged")["default"]
    same(row, judged, "excise")
    assert row.average()["pairwise"] is not None


def test_with_an_adapter_every_rung_runs_and_default_is_still_evaluates(
    suite: Suite, adapted: Excise, tmp_path: Path
) -> None:
    rows = rows_of(
        adapted, suite, tmp_path, "ladder", "paper-ladder", "leave-one-out", store=VectorStore(tmp_path / "cache")
    )
    assert {n: r.skipped for n, r in rows.items() if r.skipped} == {
        "always-fires": "The detector RulesDetector has no threshold; a trained one has."
    }
    outcomes = evaluate_suite(adapted, suite, store=VectorStore(tmp_path / "cache")).outcomes
    same(rows["default"], outcomes, "excise")
    # Without its adapter the pipeline scores by the wanted words.
    alone = evaluate_suite(Excise(adapted.backbone, detector=RulesDetector()), suite).outcomes
    same(rows["no-reembedding"], alone, "excise")
    assert [q.removed for q in rows["cut"].queries] == [(), (), ()]
    assert [q.removed for q in rows["paper-cut-mean"].queries] == [(), (), ()]
    # Silent queries are re-embedded only where the switch is off.
    frozen, reembedded = rows["frozen"].queries[2].top, rows["reembed-only"].queries[2].top
    assert sorted(reembedded) == sorted(frozen)
    assert reembedded != frozen
    assert rows["no-switch"].queries[2].top == reembedded
    assert rows["default"].queries[2].top == rows["cut"].queries[2].top == frozen


def test_every_system_runs_or_says_why_not(suite: Suite, excise_rules: Excise, tmp_path: Path) -> None:
    rows = rows_of(excise_rules, suite, tmp_path)
    assert list(rows) == [s.name for s in SYSTEMS]
    skipped = {n for n, r in rows.items() if r.skipped}
    assert skipped == {
        "reembed", "paper-reembed", "no-switch", "reembed-only", "no-reembedding", "always-fires", "gate", "gate-true",
    }  # fmt: skip
    assert "'minilm' has no exclusion adapter" in str(rows["reembed"].skipped)
    for name, row in rows.items():
        if name not in skipped:
            assert [q.id for q in row.queries] == ["q1", "q2", "q3"]
            # A query that excludes nothing keeps the frozen ranking, whatever the system of ours.
            if row.head["group"] != "rivals":
                assert row.queries[2].top == rows["frozen"].queries[2].top
            json.dumps(row.head)
    assert rows["default"].average()["leak"] == 0.0
    assert rows["frozen"].average()["leak"] == 1.0
    assert rows["no-demotion"].average()["leak"] == 1.0
    assert {len(q.removed) for q in rows["cap-1"].queries[:2]} == {1}
    assert all(len(q.removed) <= 2 for q in rows["fixed-2"].queries)


def test_a_run_goes_on_where_it_was_killed(suite: Suite, excise_rules: Excise, tmp_path: Path) -> None:
    out = tmp_path / "out"
    names = ("frozen", "demote", "cut", "default")
    run = run_suite(excise_rules, suite, out, systems=choose(names))
    next(run)
    next(run)
    run.close()  # as a kill would
    assert sorted(p.stem for p in out.glob("*/*.jsonl")) == ["demote", "frozen"]

    def again(**options: Any) -> dict[str, bool]:
        excise = options.pop("excise", excise_rules)
        return {r.system: new for r, new in run_suite(excise, suite, out, systems=choose(names), **options)}

    assert again() == {"frozen": False, "demote": False, "cut": True, "default": True}
    assert again() == dict.fromkeys(names, False)
    # A damaged file, and whatever the outcomes depend on, run the row again.
    row_path(out, suite.name, "cut").write_text("{")
    assert again() == {"frozen": False, "demote": False, "cut": True, "default": False}
    assert again(excise=excise_rules.with_config(floor=0.4)) == dict.fromkeys(names, True)
    assert again(excise=excise_rules.with_config(floor=0.4), limit=2) == dict.fromkeys(names, True)
    assert [p.name for p in out.rglob(".*")] == []
    assert len(read_folder(out)) == 4


def test_shortlists_are_kept_beside_a_store(
    suite: Suite, excise_rules: Excise, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = VectorStore(tmp_path / "cache")
    first = rows_of(excise_rules, suite, tmp_path / "out", "default", "contrastive", store=store)
    from excise_integrations.bench import prepared

    def searched(*args: object) -> None:
        raise AssertionError("the shortlists were searched again")

    monkeypatch.setattr(prepared, "_shortlists", searched)
    row_path(tmp_path / "out", suite.name, "default").unlink()
    row_path(tmp_path / "out", suite.name, "contrastive").unlink()
    second = rows_of(excise_rules, suite, tmp_path / "out", "default", "contrastive", store=store)
    assert [q.values for q in second["default"].queries] == [q.values for q in first["default"].queries]
    assert [q.top for q in second["contrastive"].queries] == [q.top for q in first["contrastive"].queries]
    with pytest.raises(AssertionError, match="searched again"):
        rows_of(excise_rules, suite, tmp_path / "out", "default", limit=1, store=store)


def test_queries_are_drawn_by_the_seed_in_the_suites_order(suite: Suite) -> None:
    order = [q.id for q in suite.queries]
    draws = {seed: [q.id for q in sample(suite, 2, seed)] for seed in range(20)}
    assert draws[3] == [q.id for q in sample(suite, 2, 3)]
    assert len({tuple(d) for d in draws.values()}) == 3
    assert all(d == sorted(d, key=order.index) for d in draws.values())
    assert [q.id for q in sample(suite, 3, 0)] == [q.id for q in sample(suite, None, 0)] == order


def test_systems_are_chosen_by_name_and_group() -> None:
    assert choose([]) == list(SYSTEMS)
    assert [s.name for s in choose(["k", "default"])] == ["default", "k-25", "k-50", "k-75", "k-100"]
    assert len({s.name for s in SYSTEMS}) == len(SYSTEMS)
    # Controls are trained first, so that no run has one of itself.
    assert {s.group for s in SYSTEMS} == set(GROUPS) - {"controls"}
    for system in SYSTEMS:
        ExciseConfig(**system.settings)
        json.dumps(system.record())
    with pytest.raises(InvalidInputError, match="no group 'laddder'"):
        choose(["laddder"])
