"""`excise search` and `excise explain` leave a report and a line in the audit log."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner, Result

from excise_integrations import Candidate, Excise
from excise_integrations._cli.app import app
from excise_integrations.audit import read_log

QUERY = "animals that people keep as pets, but not dogs"
Run = Callable[..., Result]


@pytest.fixture
def run(excise_rules: Excise, monkeypatch: pytest.MonkeyPatch) -> Run:
    """Run a command in this process, on the session's models."""

    def pipeline(name: str, *, log: Any = None, **options: Any) -> Excise:
        return Excise(excise_rules.backbone, detector=excise_rules.detector, config=excise_rules.config, log=log)

    monkeypatch.setattr(Excise, "from_pretrained", pipeline)

    def invoke(*arguments: str | Path) -> Result:
        return CliRunner().invoke(app, [str(a) for a in arguments], prog_name="excise", terminal_width=200)

    return invoke


@pytest.fixture
def documents(tmp_path: Path, animals: Sequence[Candidate]) -> Path:
    path = tmp_path / "animals.jsonl"
    path.write_text("".join(json.dumps({"_id": c.id, "text": c.text}) + "\n" for c in animals))
    return path


def ok(result: Result) -> str:
    assert result.exit_code == 0, result.output + repr(result.exception)
    return result.stdout


def test_explain_writes_one_html_page(run: Run, documents: Path, tmp_path: Path) -> None:
    page = tmp_path / "out.html"
    assert ok(run("explain", documents, QUERY, "--html", page)) == f"The report is in {page}.\n"
    text = page.read_text(encoding="utf-8")
    assert text.startswith("<!doctype html>") or text.startswith("<!DOCTYPE html>")
    assert "<mark" in text
    assert text.rstrip().endswith("</html>")
    # What is asked for besides goes where it would go without the page.
    page.unlink()
    told = json.loads(ok(run("explain", documents, QUERY, "--html", page, "--json", "--no-highlight")))
    assert [c["id"] for c in told["candidates"] if c["action"] == "removed"] == ["dog"]
    assert page.exists()
    ok(run("explain", documents, QUERY, "--html", page, "-o", tmp_path / "out.md"))
    assert (tmp_path / "out.md").read_text(encoding="utf-8").startswith("#")
    failed = run("explain", documents, QUERY, "--html", tmp_path / "out.md" / "folder.html")
    assert failed.exit_code == 1
    assert "out.md" in failed.stderr
    assert "Traceback" not in failed.output


@pytest.mark.parametrize("command", ["search", "explain"])
def test_commands_append_to_an_audit_log(run: Run, documents: Path, tmp_path: Path, command: str) -> None:
    log = tmp_path / "audit.jsonl"
    ok(run(command, documents, QUERY))
    assert not log.exists()
    ok(run(command, documents, QUERY, "--log", log))
    assert "dogs" not in log.read_text()
    ok(run(command, documents, "pets", "--exclude", "dogs", "--log", log, "--log-text", "plain"))
    first, second = read_log(log)
    assert (first["removed"], second["removed"]) == (["dog"], ["dog"])
    assert "query" not in first
    assert (second["query"], second["detection"]["source"]) == ("pets", "caller")
    shown = ok(run("log", log, "--fired", "--verdicts"))
    assert "“pets”" in shown
    assert "removed" in shown
    refused = run(command, documents, QUERY, "--log", tmp_path)
    assert refused.exit_code == 1
    assert "is a folder" in refused.stderr
