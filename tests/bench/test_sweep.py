"""Sweeps of the operator's constants."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest
from typer.testing import CliRunner

from excise_integrations import Excise, InvalidInputError
from excise_integrations._cli.app import app
from excise_integrations.bench import load_suite
from excise_integrations.bench.prepared import Prepared
from excise_integrations.bench.sweep import grid_of, sweep

WriteSuite = Callable[..., Path]


@pytest.fixture
def prepared(write_suite: WriteSuite, excise_rules: Excise) -> Prepared:
    suite = load_suite(write_suite())
    return Prepared(excise_rules, suite, suite.queries, k=100)


def test_a_constant_that_decides_is_told_from_one_that_nothing_exercises(prepared: Prepared) -> None:
    cut, floor = sweep(prepared, prepared.excise.config, ["cut_width", "floor"])
    assert list(cut.values) == [0.0, 0.25, 0.5, 1.0, 1.5, 2.0]
    assert cut.configured == 0.5
    assert cut.values[0.5] == {"success@10": 1.0, "hit@10": 1.0, "leak": 0.0}
    # No evidence is two deviations above the mean of seven: nothing is removed any more.
    assert cut.values[2.0] == {"success@10": 0.0, "hit@10": 1.0, "leak": 1.0}
    assert (cut.test.spread, cut.test.inert, cut.exercised) == (1.0, False, 2)
    # Every topic has a document of its own, far above any floor.
    assert (floor.test.spread, floor.test.inert, floor.exercised) == (0.0, True, 0)


def test_a_scale_is_bounded_by_the_hits_that_it_loses(prepared: Prepared) -> None:
    (found,) = sweep(prepared, prepared.excise.config, ["penalty_scale"])
    free = found.values[0.0]["hit@10"]
    assert found.values[found.bounded]["hit@10"] >= free - 0.01
    assert all(v["hit@10"] < free - 0.01 for k, v in found.values.items() if k > found.bounded)


def test_the_configured_value_is_always_tried_and_an_unknown_constant_refused(excise_rules: Excise) -> None:
    config = excise_rules.config.model_copy(update={"cap": 4})
    assert grid_of(config, "cap") == (0, 1, 2, 3, 4, 5)
    with pytest.raises(InvalidInputError, match="no grid for 'k'"):
        grid_of(config, "k")
    with pytest.raises(InvalidInputError, match="no grid for 'topic_fraction'"):
        grid_of(config.model_copy(update={"demotion": "paper"}), "topic_fraction")


def test_the_command_prints_a_row_per_constant(write_suite: WriteSuite) -> None:
    args = ["bench", "sweep", str(write_suite()), "--split", "dev", "--constant", "cap", "--constant", "cut_width"]
    done = CliRunner().invoke(app, args, prog_name="excise")
    assert done.exit_code == 0, done.output
    rows = [line for line in done.stdout.splitlines() if line.startswith("| `")]
    assert [row.split("`")[1] for row in rows] == ["cap", "cut_width"]
    assert "**3**: " in rows[0]
    found = json.loads(CliRunner().invoke(app, [*args, "--json"], prog_name="excise").stdout)
    assert found["demotion"] == "per_topic"
    assert found["suites"]["instruments"][0]["values"]["3"]["hit@10"] <= 1.0
