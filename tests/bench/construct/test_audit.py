"""The sample for people, what comes back, and the commands."""

from __future__ import annotations

import csv
import json
import re
from pathlib import Path

import pytest
from mining_corpus import WordEncoder, corpus
from scripted import Scripted, judge, write
from typer.testing import CliRunner, Result

from excise_integrations._cli.app import app
from excise_integrations.bench.construct import BuildSettings, audit_sample, build_bench, cohen_kappa, read_labels
from excise_integrations.encode import Backbone
from excise_integrations.errors import SuiteError


@pytest.fixture(scope="module")
def suite(tmp_path_factory: pytest.TempPathFactory) -> Path:
    def strict(prompt: str) -> str:
        return judge(prompt) if "TOPIC: " in prompt or len(prompt) % 2 else '{"wanted": false, "unwanted": [true]}'

    out = tmp_path_factory.mktemp("audit") / "suite"
    build_bench(
        corpus(), out, writer=Scripted("w", write), judge=Scripted("j", strict), backbone=WordEncoder(),
        settings=BuildSettings(count=24, max_uses=4, bm25=0.3, maxsim=0.5),
    )  # fmt: skip
    return out


def excise(*args: str | Path) -> Result:
    return CliRunner().invoke(app, ["bench", *map(str, args)], prog_name="excise")


def fill(path: Path, labels: dict[str, str]) -> None:
    with path.open(newline="") as handle:
        rows = list(csv.DictReader(handle))
    with path.open("w", newline="") as handle:
        table = csv.DictWriter(handle, list(rows[0]))
        table.writeheader()
        table.writerows({**row, "valid": labels.get(row["id"], "")} for row in rows)


def test_a_sample_is_stratified_and_comes_back(suite: Path, tmp_path: Path) -> None:
    sample = tmp_path / "sample.csv"
    made = excise("audit-sample", suite, "--out", sample, "--per-kind", "2")
    assert made.exit_code == 0, made.output
    with sample.open(newline="") as handle:
        rows = list(csv.DictReader(handle))
    gates = {r["_id"]: r["gate"] for r in map(json.loads, (suite / "records.jsonl").read_text().splitlines())}
    kept = [row for row in rows if gates[row["id"]] is None]
    assert 0 < len(kept) < len(rows)
    assert {(r["tier"], r["form"]) for r in rows} == {(t, f) for t in ("T1", "T2", "T3") for f in ("short", "long")}
    assert all(row["wanted_document"] and row["excluded_documents"] and not row["valid"] for row in rows)
    assert not any("query_judge" in value for row in rows for value in row.values())

    agreeing = {name: "yes" if gate is None else "No" for name, gate in gates.items()}
    fill(sample, agreeing)
    second = tmp_path / "second.csv"
    second.write_bytes(sample.read_bytes())
    first_id = rows[0]["id"]
    fill(second, {**agreeing, first_id: "no" if agreeing[first_id] == "yes" else "yes"})
    result = excise("agreement", suite, sample, second, "--json")
    assert result.exit_code == 0, result.output
    found = json.loads(result.stdout)
    assert (found[0]["n"], found[0]["kappa"]) == (len(rows), 1.0)
    assert 0 < found[1]["kappa"] < 1
    assert "kappa 1.000" in excise("agreement", suite, sample).stdout


def test_the_same_seed_draws_the_same(suite: Path, tmp_path: Path) -> None:
    for name, seed in (("a", 1), ("b", 1), ("c", 2)):
        audit_sample(suite, tmp_path / name, per_kind=1, seed=seed)
    assert (tmp_path / "a").read_text() == (tmp_path / "b").read_text() != (tmp_path / "c").read_text()


def test_kappa() -> None:
    a = dict.fromkeys("abcdefghij", True) | dict.fromkeys("fghij", False)
    b = a | {"a": False, "f": True}
    assert cohen_kappa(a, b) == {"n": 10, "agreement": 0.8, "kappa": pytest.approx(0.6)}
    assert cohen_kappa({"a": True}, {"a": True})["kappa"] is None
    assert cohen_kappa({"a": True}, {"b": True}) == {"n": 0, "agreement": None, "kappa": None}


@pytest.mark.parametrize(
    ("text", "why"), [("id,valid\nq,maybe\n", "line 2.*maybe"), ("id\nq\n", "line 1"), (None, "cannot be read")]
)
def test_what_comes_back_is_checked(tmp_path: Path, text: str | None, why: str) -> None:
    path = tmp_path / "x.csv"
    if text is not None:
        path.write_text(text)
    with pytest.raises(SuiteError, match=why):
        read_labels(path)


def test_the_command_builds_with_named_models(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Backbone, "from_pretrained", lambda name: WordEncoder())
    monkeypatch.chdir(tmp_path)
    path = tmp_path / "corpus.jsonl"
    path.write_text("".join(json.dumps({"_id": d.id, "title": d.title, "text": d.text}) + "\n" for d in corpus()))
    options = ("build", "--corpus", path, "--writer", "scripted:write", "--out", tmp_path / "s", "--count", "12")
    asked = excise(*options, "--judge", "scripted:judge")
    assert asked.exit_code != 0
    assert "At most 20 of the writer, 28 of the judge calls" in asked.output
    assert not (tmp_path / "s").exists()
    made = excise(*options, "--judge", "scripted:judge", "--yes", "--json")
    assert made.exit_code == 0, made.output
    assert json.loads(made.stdout)["models"]["judge"] == "scripted.judge"
    same = excise(*options, "--judge", "scripted:write", "--yes")
    assert same.exit_code == 1
    assert "same model" in same.output
    template = excise("build", "--corpus", path, "--writer", "template", "--judge", "none", "--out", tmp_path / "t")
    assert "not run: there was no judge" in template.output, template.output


def test_the_page_on_building(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    page = (Path(__file__).resolve().parents[3] / "docs/howto/build-a-benchmark.md").read_text(encoding="utf-8")
    monkeypatch.setattr(Backbone, "from_pretrained", lambda name: WordEncoder())
    monkeypatch.chdir(tmp_path)
    rows = ({"_id": d.id, "title": d.title, "text": d.text} for d in corpus())
    (tmp_path / "corpus.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    for block in re.findall(r"^```python\n(.*?)^```$", page, flags=re.MULTILINE | re.DOTALL):
        exec(compile(block, "build-a-benchmark.md", "exec"), {})
    assert "{'checked':" in capsys.readouterr().out
    for command in re.findall(r"^excise (bench [\w-]+) .*$", page, flags=re.MULTILINE):
        assert CliRunner().invoke(app, [*command.split(), "--help"]).exit_code == 0
