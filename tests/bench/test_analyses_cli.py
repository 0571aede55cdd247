"""``excise bench inversion``, ``probe`` and ``boolean`` from the command line."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner, Result

from excise_integrations import Excise
from excise_integrations._cli.app import app

WriteSuite = Callable[..., Path]


def bench(*args: str | Path) -> Result:
    done = CliRunner().invoke(app, ["bench", *map(str, args)], prog_name="excise")
    assert done.exit_code == 0, done.output
    return done


def test_inversion_prints_a_table_by_length(write_suite: WriteSuite, tmp_path: Path) -> None:
    suites = [write_suite("wiki"), write_suite("film")]
    lines = bench("inversion", *suites, "--cache", tmp_path / "cache").stdout.splitlines()
    assert lines[0] == "wiki: 1.000 of 2 queries inverted"
    assert any(line.startswith("pooled: 1.000 of 4 queries") for line in lines)
    found = json.loads(bench("inversion", *suites, "--cache", tmp_path / "cache", "--json").stdout)
    assert found["suites"]["pooled"]["bins"][0]["n"] == 4


def test_the_probe_has_a_row_for_every_layer_of_both_encoders(write_suite: WriteSuite) -> None:
    options = ("--generated", "0", "--limit", "60")
    found = json.loads(bench("probe", *options, "--json").stdout)
    assert found["pairs"] == 60
    frozen, trained = found["encoders"].values()
    assert [r["layer"] for r in frozen["tokens"]["layers"]] == ["embeddings", *"123456", "projection"]
    assert [r["layer"] for r in trained["queries"]["layers"]] == ["embeddings", *"123456"]
    assert "documents" not in frozen
    # The detector was trained to tell these queries apart, and its last layer does.
    assert trained["queries"]["layers"][-1]["held_out"] > 0.9
    done = CliRunner().invoke(app, ["bench", "probe", "--detector", "rules"])
    assert done.exit_code == 1
    assert "'rules' has no layers" in done.output


def test_the_packaged_questions_stand_beside_the_suites_given(
    write_suite: WriteSuite, excise_rules: Excise, monkeypatch: pytest.MonkeyPatch
) -> None:
    def pipeline(name: str, **options: Any) -> Excise:
        return excise_rules

    monkeypatch.setattr(Excise, "from_pretrained", pipeline)
    queries = [{"_id": "q1", "text": "bowed string instruments, but not the violin", "tier": "NOT"}]
    suite = write_suite(queries=queries, qrels=[("q1", "cello", 1), ("q1", "violin", -1)])
    rows = {line.split()[0]: line.split() for line in bench("boolean", suite).stdout.splitlines()[1:]}
    assert list(rows) == ["AND", "OR", "NOT"]
    assert rows["NOT"][1:5] == ["1", "0.000", "1.000", "+1.000"]
    assert int(rows["AND"][1]) >= 32
    assert int(rows["OR"][1]) >= 32
    alone = json.loads(bench("boolean", suite, "--no-bundled", "--json").stdout)
    assert (alone["suites"], list(alone["tiers"]), alone["largest_fall"]) == (["instruments"], ["NOT"], 0.067)
