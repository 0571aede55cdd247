"""The snippets of the pages on auditing and on Qdrant run, and the commands of every page exist."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import typer.main

from excise_integrations import Candidate, Excise
from excise_integrations._cli.app import app

ROOT = Path(__file__).resolve().parents[1]
DOCS = ROOT / "docs"


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


def commands() -> list[str]:
    """Every line of a console block that calls ``excise``."""
    pages = [*DOCS.glob("**/*.md"), *(ROOT / folder / "README.md" for folder in (".", "adapters", "examples"))]
    found = re.findall(
        r"^ *```console\n(.*?)^ *```$",
        "\n".join(page.read_text(encoding="utf-8") for page in pages),
        re.MULTILINE | re.DOTALL,
    )
    lines = "".join(found).replace("\\\n", " ").splitlines()
    return sorted({line.strip() for line in lines if line.strip().startswith("excise ")})


def test_commands_exist() -> None:
    assert len(commands()) > 40
    for line in commands():
        words = shlex.split(line, comments=True)[1:]
        command: Any = typer.main.get_command(app)
        while hasattr(command, "get_command"):
            command = command.get_command(None, words.pop(0))
        options = {name for parameter in command.params for name in (*parameter.opts, *parameter.secondary_opts)}
        assert {word.partition("=")[0] for word in words if re.match("--?[a-z]", word)} <= options, line
