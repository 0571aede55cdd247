"""``excise log``."""

from __future__ import annotations

import json
from datetime import datetime, timezone
from pathlib import Path

import pytest
from audit_results import HOSTILE, make_hostile, make_result, make_silent

from excise_integrations.audit import AuditLog

typer_testing = pytest.importorskip("typer.testing")
pytest.importorskip("rich")


def run(*arguments: object) -> tuple[int, str, str]:
    from excise_integrations._cli.app import app

    result = typer_testing.CliRunner().invoke(app, ["log", *map(str, arguments)])
    return result.exit_code, result.stdout, result.stderr


@pytest.fixture
def path(tmp_path: Path) -> Path:
    log = AuditLog(tmp_path / "audit.jsonl", text="plain")
    log.write(make_silent(), time=datetime(2026, 1, 1, tzinfo=timezone.utc))
    log.write(make_result(), time=datetime(2026, 1, 2, tzinfo=timezone.utc))
    log.write(make_silent(query="the last one"), time=datetime(2026, 1, 3, tzinfo=timezone.utc))
    return log.path


def test_it_shows_and_filters(path: Path) -> None:
    code, out, _ = run(path)
    assert code == 0
    assert [line[:10] for line in out.splitlines()] == ["2026-01-01", "2026-01-02", "2026-01-03"]
    for options in (["--fired"], ["--action", "removed"], ["--since", "2026-01-02", "--until", "2026-01-03"]):
        assert [line[:10] for line in run(path, *options)[1].splitlines()] == ["2026-01-02"]
    assert "the last one" in run(path, "--silent", "-n", 1)[1]


def test_verdicts(path: Path) -> None:
    lines = run(path, "--fired", "--verdicts")[1].splitlines()
    assert len(lines) == 6
    assert lines[1].split() == ["1", "→", "–", "removed", "cat", "evidence", "0.875,", "cut", "0.578"]


def test_json(path: Path) -> None:
    entries = [json.loads(line) for line in run(path, "--json")[1].splitlines()]
    assert [e["detection"]["fired"] for e in entries] == [False, True, False]


def test_hostile_texts_cannot_steer_the_terminal(path: Path) -> None:
    AuditLog(path, text="plain").write(make_hostile(HOSTILE + "\n\r"))
    _, out, _ = run(path, "--verdicts", "--fired")
    assert not {"\x1b", "\x00", "\u202e", "\r"} & set(out)
    assert len(out.splitlines()) == 6 + 3


def test_errors_are_ours(tmp_path: Path, path: Path) -> None:
    code, _, err = run(tmp_path / "none.jsonl")
    assert (code, "There is no audit log" in err) == (1, True)
    assert run(path, "--since", "yesterday")[0] == 1
    assert run(path, "--action", "deleted")[0] == 2
