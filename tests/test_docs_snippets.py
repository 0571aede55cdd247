"""The snippets of the pages on auditing and on Qdrant run, and the commands exist."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from excise_integrations import Candidate, Excise
from excise_integrations._cli.app import app

DOCS = Path(__file__).resolve().parents[1] / "docs"


def blocks(page: str, language: str) -> list[str]:
    text = (DOCS / page).read_text(encoding="utf-8")
    return re.findall(rf"^```{language}\n(.*?)^```$", text, flags=re.MULTILINE | re.DOTALL)


@pytest.fixture
def handlers() -> Iterator[None]:
    from llama_index.core.instrumentation import get_dispatcher

    root = get_dispatcher()
    before = list(root.event_handlers)
    yield
    root.event_handlers[:] = before


def run(page: str, names: dict[str, Any]) -> dict[str, Any]:
    for number, block in enumerate(blocks(page, "python"), start=1):
        exec(compile(block, f"{page}, snippet {number}", "exec"), names)
    return names


def test_auditing(
    excise_rules: Excise,
    animals: list[Candidate],
    handlers: None,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    from excise_integrations import langchain, llama_index
    from excise_integrations.first_stage.memory import MemoryFirstStage

    monkeypatch.chdir(tmp_path)
    texts = ["The Tesla Model S is an electric car.", *(a.text for a in animals)]
    stage = MemoryFirstStage.from_texts(texts, backbone=excise_rules.backbone)
    names = run("audit.md", {"retriever": langchain.ExciseRetriever(first_stage=stage, excise=excise_rules)})
    printed = capsys.readouterr().out
    assert "hmac" in printed
    assert "electric cars, but not Tesla ['0'] {'detect'" in printed
    assert names["report"].summary
    assert "<html" in names["page"]
    llama_index.ExciseRetriever(first_stage=stage, excise=excise_rules).retrieve("electric cars, but not Tesla")
    assert "electric cars, but not Tesla ['0'] {'detect'" in capsys.readouterr().out


def test_qdrant(capsys: pytest.CaptureFixture[str]) -> None:
    names = run("qdrant.md", {})
    assert [c.id for c in names["result"].removed] == ["model-3"]
    assert "1 of 1" in capsys.readouterr().out
    assert len(names["stage"]) == 4


def test_commands_exist() -> None:
    commands = [line for block in blocks("audit.md", "console") for line in block.splitlines() if line.strip()]
    assert len(commands) == 3
    for command in commands:
        name, *rest = shlex.split(command)[1:]
        shown = CliRunner().invoke(app, [name, "--help"], terminal_width=200).output
        assert all(option in shown for option in rest if option.startswith("--")), command
