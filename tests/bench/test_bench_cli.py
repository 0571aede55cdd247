"""``excise bench`` from the command line: run, compare, report."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner, Result

from excise_integrations import Excise
from excise_integrations._cli.app import app
from excise_integrations.bench.report import render_report
from excise_integrations.bench.results import Results
from excise_integrations.bench.rows import QueryRow, Row
from excise_integrations.bench.weights import METHODS

WriteSuite = Callable[..., Path]
Run = Callable[..., Result]


@pytest.fixture
def run(excise_rules: Excise, monkeypatch: pytest.MonkeyPatch) -> Run:
    def pipeline(name: str, **options: Any) -> Excise:
        settings = {k: v for k, v in options.items() if k not in ("detector", "adapter", "device")}
        return excise_rules.with_config(**settings)

    monkeypatch.setattr(Excise, "from_pretrained", pipeline)

    def invoke(*args: str | Path) -> Result:
        return CliRunner().invoke(app, ["bench", *(str(a) for a in args)], prog_name="excise")

    return invoke


def test_a_run_is_compared_and_reported(run: Run, write_suite: WriteSuite, tmp_path: Path) -> None:
    out = tmp_path / "out"
    suites = [write_suite("wiki"), write_suite("film")]
    options = ("--out", out, "--cache", tmp_path / "cache", "--systems", "ladder,paper", "--systems", "k-25")
    first = run("run", *suites, *options)
    assert first.exit_code == 0, first.output
    lines = first.stdout.splitlines()
    assert len(lines) == 2 * 7
    assert any(line.split()[:2] == ["wiki", "default"] and "success@10 1.000" in line for line in lines)
    assert any("reembed" in line and "skipped: 'minilm' has no exclusion adapter" in line for line in lines)
    assert not any("kept" in line for line in lines)
    again = run("run", *suites, *options)
    assert sum("(kept)" in line for line in again.stdout.splitlines()) == 2 * 6

    compared = run("compare", out, f"{out}#frozen", "--metric", "success@10", "--json")
    assert compared.exit_code == 0, compared.output
    found = json.loads(compared.stdout)["comparisons"]
    assert [(r["suite"], r["n"], r["a"], r["b"]) for r in found] == [
        ("film", 2, 1.0, 0.0),
        ("wiki", 2, 1.0, 0.0),
        ("all suites", 4, 1.0, 0.0),
    ]
    table = run("compare", out / "wiki" / "default.jsonl", out / "wiki" / "frozen.jsonl").stdout
    assert "+1.000 [+1.000, +1.000]" in table
    assert "pairwise" not in table

    reported = run("report", out, "--out", tmp_path / "report.md")
    assert reported.exit_code == 0, reported.output
    text = (tmp_path / "report.md").read_text()
    assert "| `frozen` the first stage as it is | 0.000 | 0.000 |" in text
    assert "| `default` + removal and guard: Excise | 1.000 | 1.000 |" in text
    assert "- `reembed` on film, wiki: 'minilm' has no exclusion adapter" in text
    assert "No system's headline is above Excise's on any suite." in text


def test_figures_are_drawn_when_matplotlib_is_there(run: Run, write_suite: WriteSuite, tmp_path: Path) -> None:
    out = tmp_path / "out"
    run("run", write_suite(), "--out", out, "--systems", "ladder,k")
    figures = tmp_path / "docs" / "figures"
    reported = run("report", out, "--out", tmp_path / "docs" / "report.md", "--figures", figures)
    assert reported.exit_code == 0, reported.output
    text = (tmp_path / "docs" / "report.md").read_text()
    try:
        import matplotlib  # noqa: F401
    except ImportError:
        assert "No figures: 'matplotlib' is not installed" in reported.output
        assert "![" not in text
        return
    names = ["success-against-no-harm", "ladder", "leak-by-tier", "shortlist-size"]
    assert sorted(p.name for p in figures.iterdir()) == sorted(f"{n}.{s}" for n in names for s in ("png", "svg"))
    assert "![ladder](figures/ladder.png)" in text


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["run", "SUITE", "--out", "OUT", "--systems", "nothing"], "no system and no group 'nothing'"),
        (["run", "SUITE", "--out", "OUT", "--split", "test"], "has no split 'test'"),
        (["run", "SUITE", "SUITE", "--out", "OUT"], "Two suites are called"),
        (["run", "SUITE", "--out", "OUT", "--train", "SUITE"], "has no split 'train'"),
        (["report", "OUT", "--out", "r.md"], "holds no results"),
        (["compare", "OUT", "OUT"], "no file and no folder"),
    ],
)
def test_wrong_input_ends_in_one_line(
    run: Run, write_suite: WriteSuite, tmp_path: Path, arguments: list[str], message: str
) -> None:
    places = {"SUITE": str(write_suite()), "OUT": str(tmp_path / "out")}
    result = run(*(places.get(a, a) for a in arguments))
    assert result.exit_code == 1
    assert message in result.output
    assert not (tmp_path / "out").exists()


def test_systems_are_listed(run: Run) -> None:
    listed = run("systems").stdout
    assert "interventions: " in listed
    assert "bm25-z-true" in listed
    assert "(needs adapter)" in listed


def test_weights_are_swept(run: Run, write_suite: WriteSuite) -> None:
    train = write_suite("train", split="train")
    wiki = write_suite("wiki", qrels=[("q1", "cello", 1), ("q1", "violin", -1)])
    result = run("weights", f"{wiki}:dev", "--train", train)
    assert result.exit_code == 0, result.output
    found = json.loads(result.stdout)
    assert set(found["best"]) == set(found["suites"]["wiki"]) == set(METHODS)


# --- the report, on rows made by hand -------------------------------------------------------


def row(suite: str, system: str, values: list[dict[str, float | None]], **head: Any) -> Row:
    tiers = ["T1", "T2", "C-conj"]
    queries = tuple(
        QueryRow(str(i), {"tier": tiers[i % 3]}, int(i % 3 < 2), v, fired=i % 3 < 2) for i, v in enumerate(values)
    )
    return Row(suite, system, "key", {"n": len(values), **head}, None, queries)


def outcome(success: float | None, ndcg: float = 0.5, leak: float | None = 0.0) -> dict[str, float | None]:
    return {"success@10": success, "leak": leak if success is not None else None, "ndcg@10": ndcg}


def test_the_report_names_whoever_is_above_excise() -> None:
    plain = outcome(None, 0.9)
    rows = [
        row("wiki", "default", [outcome(0.0), outcome(1.0), plain] * 10),
        row("wiki", "frozen", [outcome(0.0, leak=1.0), outcome(0.0, leak=1.0), plain] * 10),
        row("wiki", "bm25-z", [outcome(1.0), outcome(1.0), outcome(None, 0.4)] * 10),
        row("plain", "default", [outcome(None, 0.5)] * 3),
        row("plain", "frozen", [outcome(None, 0.75)] * 3),
        Row("wiki", "gate", "key", {"n": 0}, "no training pairs"),
    ]
    text = render_report(rows, ["figures/ladder.png"])
    assert "![ladder](figures/ladder.png)" in text
    beats = text.split("## Who beats Excise")[1]
    assert "| `bm25-z` |  | wiki | success@10 | +0.500 [" in beats
    assert "| `frozen` |  | plain | ndcg@10 | +0.250 [+0.250, +0.250] | < 0.001 | yes |" in beats
    assert "| `frozen` |  | wiki" not in beats
    assert "- `gate` on wiki: no training pairs" in text
    # success@10, what stands beside it, and the no-harm column, pooled.
    pooled = next(line for line in text.splitlines() if line.startswith("| `bm25-z` | 20 | 1.000"))
    assert " +0.500 [" in pooled
    assert pooled.endswith("| 0.400 | 0.667 |")
    tiers = text.split("## By tier and length")[1]
    assert "| T1 | 11 | 0.000 | 0.000 | 1.000 | 0.000 |" in tiers
    harm = text.split("## No harm")[1].split("##")[0]
    assert "| wiki | 10 | 0.900 | 0.900 | +0.000 [+0.000, +0.000] | 0.000 |" in harm
    assert "| plain | 1 | 0.750 | 0.500 | -0.250 [" in harm
    assert "| pooled | 11 | 0.886 | 0.864 |" in harm
    results = Results(tuple(rows))
    assert results.suites == ["wiki", "plain"]
    assert [results.headline(s) for s in results.suites] == ["success@10", "ndcg@10"]
