"""The command line: what it prints, writes and exits with."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner, Result

import excise_integrations
from excise_integrations import Candidate, Excise
from excise_integrations._cli.app import app
from excise_integrations.bench.metrics import METRICS
from excise_integrations.encode import Backbone
from excise_integrations.first_stage.memory import MemoryFirstStage

Run = Callable[..., Result]
QUERY = "animals that people keep as pets, but not dogs"


@pytest.fixture
def loaded() -> list[dict[str, Any]]:
    """How the pipeline was asked for."""
    return []


@pytest.fixture
def run(excise_rules: Excise, monkeypatch: pytest.MonkeyPatch, loaded: list[dict[str, Any]]) -> Run:
    """Run a command in this process, on the session's models."""

    def pipeline(name: str, *, detector: str, adapter: str, device: str | None, **settings: Any) -> Excise:
        loaded.append({"name": name, "detector": detector, "adapter": adapter, "device": device, **settings})
        return excise_rules.with_config(**settings)

    monkeypatch.setattr(Excise, "from_pretrained", pipeline)
    monkeypatch.setattr(Backbone, "from_pretrained", lambda name, device=None: excise_rules.backbone)

    def invoke(*args: str | Path) -> Result:
        return CliRunner().invoke(app, [str(a) for a in args], prog_name="excise", terminal_width=200)

    return invoke


@pytest.fixture
def documents(tmp_path: Path, animals: Sequence[Candidate]) -> Path:
    path = tmp_path / "animals.jsonl"
    records = [{"_id": c.id, "text": c.text, "legs": 2 if c.id == "parrot" else 4} for c in animals]
    path.write_text("".join(json.dumps(r) + "\n" for r in records))
    return path


def ok(result: Result) -> str:
    assert result.exit_code == 0, result.output + repr(result.exception)
    return result.stdout


def failed(result: Result, code: int = 1) -> str:
    assert result.exit_code == code, result.output
    assert "Traceback" not in result.output
    return result.stderr


# --- search -----------------------------------------------------------------------------


def test_search_shows_both_rankings(run: Run, documents: Path) -> None:
    out = ok(run("search", documents, QUERY, "-k", "4"))
    assert QUERY in out
    assert "frozen" in out
    assert "Excise" in out
    assert "removed: dog" in out
    assert "evidence" in out
    assert "reranked" in out


def test_search_as_json(run: Run, documents: Path, loaded: list[dict[str, Any]]) -> None:
    out = json.loads(ok(run("search", documents, QUERY, "-k", "3", "--json", "--set", "floor=0.1")))
    assert out["detection"]["fired"] is True
    span = out["detection"]["spans"][0]
    assert (span["text"], QUERY[span["start"] : span["end"]]) == ("dogs", "dogs")
    assert "dog" in [c["id"] for c in out["frozen"]]
    assert len(out["frozen"]) == len(out["excise"]) == 3
    assert "dog" not in [c["id"] for c in out["excise"]]
    assert [c["id"] for c in out["removed"]] == ["dog"]
    assert out["removed"][0]["excise"]["action"] == "removed"
    assert out["excise"][0]["metadata"] == {"legs": 4}
    assert out["excise"][0]["excise"]["rank"] == 1
    assert out["floor"] == 0.1
    assert loaded == [{"name": "minilm", "detector": "auto", "adapter": "auto", "device": None, "floor": 0.1}]


def test_topics_of_the_callers_and_none_at_all(run: Run, documents: Path) -> None:
    named = json.loads(ok(run("search", documents, "pets", "--exclude", "dogs", "--exclude", "cats", "--json")))
    assert named["detection"]["source"] == "caller"
    assert [s["text"] for s in named["detection"]["spans"]] == ["dogs", "cats"]
    assert {"dog", "cat"} <= {c["id"] for c in named["removed"]}
    assert "not in the query: dogs" in ok(run("search", documents, "pets", "--exclude", "dogs"))
    off = json.loads(ok(run("search", documents, QUERY, "--no-exclude", "--json")))
    assert [c["id"] for c in off["excise"]] == [c["id"] for c in off["frozen"]]
    assert "--exclude" in failed(run("search", documents, QUERY, "--no-exclude", "--exclude", "x"), 2)


def test_filters(run: Run, documents: Path) -> None:
    out = json.loads(ok(run("search", documents, "pets", "--filter", "legs=2", "--json")))
    assert [c["id"] for c in out["frozen"]] == ["parrot"]
    assert "NAME=VALUE" in failed(run("search", documents, "pets", "--filter", "legs"), 2)


def test_texts_cannot_write_to_the_terminal(run: Run, tmp_path: Path) -> None:
    path = tmp_path / "bad.jsonl"
    path.write_text(json.dumps({"_id": "[red]x\x1b[2J", "text": "[bold]escape\x1b]0;title\x07 sequences"}) + "\n")
    out = ok(run("search", path, "escape [blink]\x1b[31m sequences"))
    assert "\x1b" not in out
    assert "[red]x" in out
    assert "[bold]escape" in out
    assert "[blink]" in out


def test_a_folder_of_texts(run: Run, tmp_path: Path) -> None:
    folder = tmp_path / "notes"
    (folder / "deep").mkdir(parents=True)
    (folder / "cat.txt").write_text("Cats purr.")
    (folder / "deep" / "dog.md").write_text("\ufeffDogs bark.", encoding="utf-8")
    (folder / "empty.txt").write_text(" \n")
    (folder / ".hidden.txt").write_text("hidden")
    (folder / "picture.png").write_bytes(b"\x89PNG")
    out = json.loads(ok(run("search", folder, "barking", "--json")))
    assert {c["id"]: c["text"] for c in out["frozen"]} == {"cat.txt": "Cats purr.", "deep/dog.md": "Dogs bark."}
    (folder / "latin.txt").write_bytes(b"caf\xe9")
    assert "latin.txt" in failed(run("search", folder, "barking"))


@pytest.mark.parametrize(
    ("content", "reason"),
    [
        ('{"text": "a"}\n{"text": \n', "line 2: not JSON"),
        ('"just a string"\n', "line 1: an object"),
        ('{"text": " "}\n', "line 1: the document '1' has no text"),
        ('{"_id": "a", "text": "x"}\n\n{"_id": "a", "text": "y"}\n', "line 3: the id 'a' is that of line 1"),
        ('{"_id": {}, "text": "x"}\n', "line 1: the id {}"),
        ('{"text": "x", "metadata": 3}\n', "line 1: 'title' must be"),
        ("\n", "no documents"),
    ],
)
def test_bad_documents_are_named(run: Run, tmp_path: Path, content: str, reason: str) -> None:
    path = tmp_path / "bad.jsonl"
    path.write_text(content)
    assert reason in failed(run("search", path, "anything"))


def test_errors_of_ours_are_one_line_on_stderr(run: Run, documents: Path, tmp_path: Path) -> None:
    (tmp_path / "nothing").mkdir()
    for args in (
        ("search", tmp_path / "nowhere", "x"),
        ("search", tmp_path / "nothing", "x"),
        ("search", documents, " "),
        ("search", documents, "x", "--exclude", " "),
        ("explain", documents, "x", "--set", "nonsense=1"),
        ("evaluate", tmp_path / "nowhere"),
        ("index", tmp_path / "nowhere", tmp_path / "index"),
    ):
        result = run(*args)
        assert failed(result).startswith("Error: ")
        assert result.stdout == ""


def test_wrong_usage_exits_with_2(run: Run, documents: Path) -> None:
    for args in (
        ("bogus",),
        ("search", documents),
        ("search", documents, "x", "-k", "0"),
        ("search", documents, "x", "--set", "floor"),
        ("evaluate",),
        ("evaluate", documents, "--topics", "some"),
        ("export", "colbert", documents),
    ):
        failed(run(*args), 2)


# --- explain ----------------------------------------------------------------------------


def test_explain_in_markdown(run: Run, documents: Path, tmp_path: Path) -> None:
    report = ok(run("explain", documents, QUERY, "--adapter", "none", "--no-highlight"))
    assert "dogs" in report
    rows = [line for line in report.splitlines() if line.startswith("| ")]
    assert [line for line in rows if "| dog | removed |" in line]
    assert {c for c in ("cat", "parrot", "horse") if any(f"| {c} |" in line for line in rows)} == {
        "cat",
        "parrot",
        "horse",
    }
    ok(run("explain", documents, QUERY, "--no-highlight", "-o", tmp_path / "report.md"))
    assert (tmp_path / "report.md").read_text().startswith("# ")


def test_explain_a_silent_query(run: Run, documents: Path) -> None:
    report = json.loads(ok(run("explain", documents, "animals that people keep as pets", "--json")))
    assert {c["action"] for c in report["candidates"]} == {"unchanged"}


def test_explain_in_json_and_html(run: Run, documents: Path) -> None:
    report = json.loads(ok(run("explain", documents, QUERY, "--format", "json")))
    assert len(report["candidates"]) == 8
    assert [c["id"] for c in report["candidates"] if c["action"] == "removed"] == ["dog"]
    assert json.loads(ok(run("explain", documents, QUERY, "--json")))["candidates"] == report["candidates"]
    assert "<html" in ok(run("explain", documents, QUERY, "--format", "html"))


# --- index ------------------------------------------------------------------------------


def test_index_and_search_it(run: Run, documents: Path, tmp_path: Path, loaded: list[dict[str, Any]]) -> None:
    folder = tmp_path / "index"
    facts = json.loads(ok(run("index", documents, folder, "--json")))
    assert facts["documents"] == 8
    assert MemoryFirstStage.load(folder).fingerprint == facts["fingerprint"]
    direct = json.loads(ok(run("search", documents, QUERY, "--json")))
    assert json.loads(ok(run("search", folder, QUERY, "--json"))) == direct
    assert loaded[-1]["name"] == "minilm"
    assert "--force" in failed(run("index", documents, folder))
    assert "8 documents" in ok(run("index", documents, folder, "--force", "--cache", tmp_path / "cache"))
    assert list((tmp_path / "cache").rglob("*.safetensors"))
    assert json.loads(ok(run("search", folder, QUERY, "--json")))["excise"][0]["id"] == direct["excise"][0]["id"]
    next(folder.glob("vectors-*")).unlink()
    assert "lacks vectors-" in failed(run("search", folder, QUERY))


def test_index_refuses_a_folder_with_something_else(run: Run, documents: Path, tmp_path: Path) -> None:
    assert "not a memory index" in failed(run("index", documents, tmp_path))
    assert documents.exists()


# --- evaluate ---------------------------------------------------------------------------


@pytest.fixture
def suite(tmp_path: Path, documents: Path) -> Path:
    folder = tmp_path / "pets"
    (folder / "qrels").mkdir(parents=True)
    (folder / "corpus.jsonl").write_text(documents.read_text())
    query = {"_id": "q1", "text": QUERY, "tier": "T1", "form": "short", "excluded": ["dogs"]}
    (folder / "queries.jsonl").write_text(json.dumps(query) + "\n")
    (folder / "qrels" / "dev.tsv").write_text("query-id\tcorpus-id\tscore\nq1\tcat\t1\nq1\tdog\t-1\n")
    return folder


def test_evaluate_writes_the_documented_json(run: Run, suite: Path, tmp_path: Path) -> None:
    path = tmp_path / "out" / "result.json"
    out = ok(run("evaluate", suite, "--json", path, "--cache", tmp_path / "cache", "--demotion", "paper"))
    assert "success@10" in out
    report = json.loads(path.read_text())
    assert set(report) == {"suites", "config", "version"}
    assert report["version"] == excise_integrations.__version__
    pets = report["suites"]["pets"]
    assert set(pets) == {"n", "frozen", "excise", "tiers", "forms", "found"}
    for part in (pets, pets["tiers"]["T1"], pets["forms"]["short"]):
        assert part["n"] == 1
        assert list(part["frozen"]) == list(part["excise"]) == list(METRICS)
    assert (pets["frozen"]["leak"], pets["excise"]["leak"]) == (1.0, 0.0)
    assert report["config"]["settings"]["demotion"] == "paper"
    assert report["config"]["split"] == "dev"
    again = json.loads(ok(run("evaluate", suite, "--json", "-", "--cache", tmp_path / "cache", "--demotion", "paper")))
    assert again == report


def test_evaluate_pools_suites_query_by_query(run: Run, suite: Path, tmp_path: Path) -> None:
    other = tmp_path / "silent"
    shutil.copytree(suite, other)
    (other / "queries.jsonl").write_text(json.dumps({"_id": "q1", "text": "pets", "tier": "T2", "excluded": ["dogs"]}))
    report = json.loads(ok(run("evaluate", suite, other, "--json", "-")))
    assert (report["pooled"]["n"], report["pooled"]["found"]["n"]) == (2, 1)
    assert report["pooled"]["excise"]["fire_rate"] == 0.5
    assert {tier: part["n"] for tier, part in report["pooled"]["tiers"].items()} == {"T1": 1, "T2": 1}


def test_evaluate_options_reach_the_evaluation(
    run: Run, suite: Path, tmp_path: Path, loaded: list[dict[str, Any]]
) -> None:
    lines = tmp_path / "lines.jsonl"
    args = ("--candidates", "judged", "--topics", "true", "--adapter", "none", "--detector", "rules", "--limit", "1")
    report = json.loads(ok(run("evaluate", suite, *args, "--json", "-", "--per-query", lines, "--set", "cap=0")))
    assert report["suites"]["pets"]["frozen"]["pairwise"] is not None
    assert report["suites"]["pets"]["excise"]["span_f1"] == 1.0
    assert (report["config"]["candidates"], report["config"]["topics"], report["config"]["limit"]) == (
        "judged",
        "true",
        1,
    )
    expected = {"name": "minilm", "detector": "rules", "adapter": "none", "device": None, "cap": 0}
    assert loaded == [expected]
    record = json.loads(lines.read_text())
    assert (record["suite"], record["id"], record["fired"]) == ("pets", "q1", True)


def test_evaluate_files_of_queries_without_a_backbone(run: Run, tmp_path: Path, loaded: list[dict[str, Any]]) -> None:
    files = []
    for folder in ("one", "two"):
        (tmp_path / folder).mkdir()
        path = tmp_path / folder / "queries.jsonl"
        path.write_text(
            json.dumps({"text": QUERY, "excluded": ["dogs"], "kind": "explicit"})
            + "\n"
            + json.dumps({"text": "dogs and cats", "excluded": [], "kind": "plain"})
            + "\n"
        )
        files += ["--queries", path]
    report = json.loads(ok(run("evaluate", *files, "--detector", "rules", "--json", "-")))
    assert set(report["queries"]) == {"one", "two"}
    one = report["queries"]["one"]
    assert (one["recall"], one["false_fire_rate"], one["span_f1"]) == (1.0, 0.0, 1.0)
    assert one["kinds"]["plain"]["fire_rate"] == 0.0
    assert report["suites"] == {}
    assert report["config"]["detector"] == "RulesDetector"
    assert loaded == []


def test_a_suite_is_checked_before_anything_is_loaded(run: Run, suite: Path, loaded: list[dict[str, Any]]) -> None:
    (suite / "qrels" / "dev.tsv").write_text("q1\tcat\tone\n")
    assert "dev.tsv, line 1" in failed(run("evaluate", suite))
    other = suite.parent / "again" / "pets"
    other.mkdir(parents=True)
    assert "'pets'" in failed(run("evaluate", suite, other))
    assert loaded == []


# --- export and further commands --------------------------------------------------------


def test_export_hands_over(run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from excise_integrations.encode import export

    calls: list[tuple[Path, bool]] = []

    def write(folder: Path, *, force: bool = False) -> Path:
        calls.append((folder, force))
        return folder

    monkeypatch.setattr(export, "export_minilm", write)
    assert json.loads(ok(run("export", "minilm", tmp_path, "--json"))) == {"folder": str(tmp_path)}
    ok(run("export", "minilm", tmp_path, "--force"))
    assert calls == [(tmp_path, False), (tmp_path, True)]


def test_commands_of_other_modules_appear_with_them(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    from excise_integrations._cli import app as module

    monkeypatch.setattr(
        module,
        "_LAZY",
        {
            "hello": "excise_integrations._cli.app:app",
            "absent": "excise_integrations.nowhere.cli:app",
            "empty": "excise_integrations._cli.app:no_such_attribute",
        },
    )
    listed = ok(run("--help"))
    assert "hello" in listed
    assert "absent" not in listed
    assert "empty" not in listed
    assert ok(run("hello", "--version")).strip() == excise_integrations.__version__
    failed(run("absent"), 2)


def test_the_process_itself(tmp_path: Path) -> None:
    def call(*args: str) -> subprocess.CompletedProcess[str]:
        root = Path(excise_integrations.__file__).parents[1]
        code = (
            "import sys; from excise_integrations.cli import main\ntry: main()\nfinally: print('torch' in sys.modules)"
        )
        return subprocess.run(
            [sys.executable, "-c", code, *args],
            capture_output=True,
            text=True,
            timeout=300,  # importing torch on a busy machine
            env={**os.environ, "PYTHONPATH": str(root), "COLUMNS": "120"},
            cwd=tmp_path,
        )

    version = call("--version")
    assert version.stdout.splitlines() == [excise_integrations.__version__, "False"]
    missing = call("evaluate", str(tmp_path / "nowhere"))
    assert missing.returncode == 1
    assert missing.stderr.startswith("Error: There is no suite")
    assert "Traceback" not in missing.stderr


def test_without_typer_the_extra_is_named(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    from excise_integrations import cli

    monkeypatch.delitem(sys.modules, "excise_integrations._cli.app")
    monkeypatch.setitem(sys.modules, "typer", None)
    with pytest.raises(SystemExit) as caught:
        cli.main()
    assert caught.value.code == 1
    assert "excise-integrations[cli]" in capsys.readouterr().err
