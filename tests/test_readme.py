"""Every snippet, command and link of the texts does what it says."""

from __future__ import annotations

import json
import os
import re
import shlex
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from ragatouille_fixtures import RagatouilleIndex, ragatouille_index

__all__ = ["ragatouille_index"]

ROOT = Path(__file__).resolve().parents[1]
PAGES = sorted(
    path
    for folder, pattern in ((".", "*.md"), ("docs", "**/*.md"), ("adapters", "**/*.md"))
    for path in (ROOT / folder).glob(pattern)
)
README = (ROOT / "README.md").read_text(encoding="utf-8")


def blocks(language: str, text: str = README) -> list[str]:
    return re.findall(rf"^```{language}\n(.*?)^```$", text, flags=re.MULTILINE | re.DOTALL)


def commands() -> list[str]:
    # What was measured has commands that take hours.
    shown = re.sub(r"<!-- measured:start -->.*<!-- measured:end -->", "", README, flags=re.DOTALL)
    return [line for block in blocks("console", shown) for line in block.splitlines() if line.strip()]


@pytest.fixture(scope="module")
def ran(
    ragatouille_index: RagatouilleIndex, tmp_path_factory: pytest.TempPathFactory, request: pytest.FixtureRequest
) -> dict[str, Any]:
    """The names that are left when all snippets have been run, one after the other."""
    pytest.importorskip("langchain_core")
    pytest.importorskip("llama_index.core")
    from langchain_core.embeddings import DeterministicFakeEmbedding
    from langchain_core.vectorstores import InMemoryVectorStore
    from llama_index.core import MockEmbedding, VectorStoreIndex
    from llama_index.core.llms import MockLLM
    from llama_index.core.schema import TextNode

    here = tmp_path_factory.mktemp("readme")
    ragatouille_index.copy(here / "path/to", "index")
    texts = [f"A text about {subject}." for subject in ("Tesla cars", "electric cars", "bread", "rivers", "jazz")]
    # What the texts around the snippets ask the reader to bring.
    names: dict[str, Any] = {
        "llm": MockLLM(),
        "vector_store": InMemoryVectorStore.from_texts(texts, DeterministicFakeEmbedding(size=8)),
        "index": VectorStoreIndex([TextNode(text=text) for text in texts], embed_model=MockEmbedding(embed_dim=8)),
    }
    before = Path.cwd()
    os.chdir(here)
    try:
        for number, block in enumerate(blocks("python"), start=1):
            exec(compile(block, f"README.md, snippet {number}", "exec"), names)
            names[f"after {number}"] = names.get("retriever")
    finally:
        os.chdir(before)
    return names


def test_the_snippets_run(ran: dict[str, Any]) -> None:
    assert len(blocks("python")) >= 6
    assert "removed" in dir(ran["result"])
    assert [candidate.id for candidate in ran["result"].removed] == ["model-3"]
    assert ran["engine"].query("jazz, but not Tesla").source_nodes


def test_five_lines_each() -> None:
    for snippet in blocks("python")[:2]:
        assert len([line for line in snippet.splitlines() if line.strip()]) <= 5


def test_the_metadata_shown_is_the_metadata_added(ran: dict[str, Any]) -> None:
    (shown,) = (json.loads(block)["excise"] for block in blocks("json"))
    # The LangChain retriever over the index.
    found = ran["after 1"].invoke("electric cars, but not prices", k=3)
    for document in found:
        actual = document.metadata["excise"]
        assert set(shown) - set(actual) <= {"warnings"}
        assert set(actual) <= set(shown)
        assert json.loads(json.dumps(actual)) == actual
        assert actual["fired"] is True
        assert set(actual["spans"][0]) == set(shown["spans"][0])
        for name in shown.keys() & actual.keys():
            assert isinstance(actual[name], (int, float) if isinstance(shown[name], float) else type(shown[name])), name
    for action in ("unchanged", "reranked", "penalised", "removed", "protected"):
        assert f"`{action}`" in README


def test_what_pip_is_told_to_install_exists() -> None:
    project = (ROOT / "pyproject.toml").read_text(encoding="utf-8")
    _, _, listed = project.partition("[project.optional-dependencies]\n")
    extras = re.findall(r"^([a-z-]+) = \[", re.split(r"^\[", listed, flags=re.MULTILINE)[0], flags=re.MULTILINE)
    told = [name for text in re.findall(r"excise-integrations\[([a-z,-]+)\]", README) for name in text.split(",")]
    assert told
    assert set(told) <= set(extras)
    # The table of extras names each of them.
    table = re.search(r"^\| extra \|.*?\n\n", README, flags=re.MULTILINE | re.DOTALL)
    assert table is not None
    named = [
        name for cell in re.findall(r"^\|(.+?)\|", table[0], flags=re.MULTILINE) for name in re.findall("`(.+?)`", cell)
    ]
    assert sorted(named) == sorted(extras)


def test_what_make_is_told_to_make_exists() -> None:
    makefile = (ROOT / "Makefile").read_text(encoding="utf-8")
    told = [line.split()[1] for line in commands() if line.startswith("make ")]
    assert told == ["demo", "test"]
    for target in told:
        assert re.search(rf"^{target}:", makefile, flags=re.MULTILINE)


@pytest.mark.parametrize("command", [line for line in commands() if line.startswith("excise ")])
def test_a_command_runs(command: str, tmp_path: Path) -> None:
    pytest.importorskip("typer")
    pytest.importorskip("rich")
    texts = {
        "model-3": "The Tesla Model 3 is an electric saloon.",
        "leaf": "Nissan's Leaf was the first electric car to be built in large numbers.",
        "zoe": "The Renault Zoe is a small electric car for the city.",
        "id-3": "Volkswagen's ID.3 is an electric car with rear-wheel drive.",
    }
    lines = [json.dumps({"_id": name, "text": text}) for name, text in texts.items()]
    (tmp_path / "documents.jsonl").write_text("\n".join(lines) + "\n", encoding="utf-8")
    arguments = shlex.split(command)
    done = subprocess.run(
        [sys.executable, "-m", "excise_integrations.cli", *arguments[1:]],
        cwd=tmp_path, env={**os.environ, "PYTHONPATH": str(ROOT)}, capture_output=True, text=True, timeout=280,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    text = (tmp_path / "report.md").read_text(encoding="utf-8") if "--output" in arguments else done.stdout
    assert "Tesla" in text
    assert "leaf" in text


@pytest.mark.parametrize("page", PAGES, ids=lambda path: path.relative_to(ROOT).as_posix())
def test_links_lead_somewhere(page: Path) -> None:
    text = re.sub(r"^```.*?^```$", "", page.read_text(encoding="utf-8"), flags=re.MULTILINE | re.DOTALL)
    for link in re.findall(r"\]\(([^)\s]+)\)", text):
        if not re.match(r"[a-z]+:|#", link):
            assert (page.parent / link.partition("#")[0]).exists(), f"{page.name} links to {link}"
