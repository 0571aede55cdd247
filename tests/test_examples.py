"""Every example runs, offline, and its notebooks hold the outputs of their cells."""

from __future__ import annotations

import json
import runpy
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

EXAMPLES = Path(__file__).resolve().parents[1] / "examples"
SCRIPTS = sorted((EXAMPLES / "scripts").glob("*.py"))
NOTEBOOKS = sorted((EXAMPLES / "notebooks").glob("*.ipynb"))
# What each needs beside this package's own extras.
NEEDS = {
    "existing_vector_store": ["langchain_classic", "llama_index.core"],
    "langgraph_agent": ["langchain_core", "langgraph"],
    "legal_discovery": ["ipykernel", "nbclient"],
    "regulatory_search": ["ipykernel", "llama_index.core", "nbclient"],
    "server": ["fastapi", "httpx"],
    "streaming": ["langchain_core", "llama_index.core"],
    "systematic_review": ["ipykernel", "langchain", "langgraph", "nbclient"],
}


def lines(name: str) -> list[dict[str, Any]]:
    text = (EXAMPLES / "data" / f"{name}.jsonl").read_text(encoding="utf-8")
    return [json.loads(line) for line in text.splitlines()]


@pytest.fixture
def from_the_shell(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Callable[[Path], None]:
    """Runs a script as ``python SCRIPT`` in another folder, without a second start of Python."""
    monkeypatch.chdir(tmp_path)

    def run(script: Path) -> None:
        monkeypatch.setattr(sys, "argv", [str(script)])
        runpy.run_path(str(script), run_name="__main__")

    return run


@pytest.mark.parametrize("script", SCRIPTS, ids=lambda path: path.stem)
def test_a_script_runs(
    script: Path, from_the_shell: Callable[[Path], None], capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    for module in NEEDS.get(script.stem, []):
        pytest.importorskip(module)
    from_the_shell(script)
    # Its asserts say what must not reach a model.
    assert capsys.readouterr().out.strip()
    assert not list(tmp_path.iterdir())


def test_a_suite_is_left_where_it_was_asked_for(tmp_path: Path) -> None:
    from excise_integrations.bench import load_suite

    made = runpy.run_path(str(EXAMPLES / "scripts/evaluate_own_queries.py"))
    suite = load_suite(made["write_suite"](tmp_path / "review", "review"), "dev")
    assert len(suite.documents) == 60
    assert len(suite.queries) == 8
    assert suite.qrels["q1"]["exe-3"] == -1
    assert suite.qrels["q1"]["exe-1"] == 1


def test_a_larger_cache_and_more_unequal_queries_are_hit_more_often() -> None:
    simulated = runpy.run_path(str(EXAMPLES / "scripts/simulate_cache.py"))

    def rate(share: float, exponent: float, requests: int = 200) -> float:
        hits: float = simulated["hit_rate"](share, exponent, documents=200, queries=50, requests=requests, k=10)
        return hits

    assert rate(0.0, 1.0) == 0.0
    assert 0.0 < rate(0.1, 0.0) < rate(0.5, 0.0) < rate(1.0, 0.0)
    assert rate(0.1, 0.0) < rate(0.1, 2.0)
    # Room for every document, and every query was asked in the first half.
    assert rate(1.0, 0.0, requests=1000) == 1.0
    assert rate(0.1, 1.0) == rate(0.1, 1.0)


@pytest.mark.parametrize("notebook", NOTEBOOKS, ids=lambda path: path.stem)
def test_a_notebook_runs_and_holds_its_outputs(notebook: Path) -> None:
    for module in NEEDS[notebook.stem]:
        pytest.importorskip(module)
    nbformat = pytest.importorskip("nbformat")
    before = notebook.read_bytes()
    # Its asserts say what must not reach a model.
    fresh = runpy.run_path(str(EXAMPLES / "notebooks/execute.py"))["execute"](notebook)
    assert notebook.read_bytes() == before
    kept = nbformat.read(notebook, as_version=4)
    nbformat.validate(kept)
    assert len(fresh.cells) == len(kept.cells)
    cells = [(a, b) for a, b in zip(kept.cells, fresh.cells, strict=True) if a.cell_type == "code"]
    assert [a.execution_count for a, _ in cells] == list(range(1, len(cells) + 1))
    for old, new in cells:
        # Figures change with the weights; that something was printed does not.
        assert [o.output_type for o in old.outputs] == [o.output_type for o in new.outputs], old.source
        assert "error" not in [o.output_type for o in old.outputs]
    assert str(Path.home()) not in before.decode("utf-8")


@pytest.mark.parametrize("domain", ["legal", "regulatory", "review"])
def test_the_documents_are_short_distinct_and_complete(domain: str) -> None:
    documents = lines(domain)
    assert len(documents) == 60
    assert len({d["_id"] for d in documents}) == len({d["text"] for d in documents}) == 60
    assert {frozenset(d) for d in documents} == {frozenset(documents[0])}
    assert all(d["title"].strip() and 15 <= len(d["text"].split()) <= 60 for d in documents)


def test_the_judged_queries_name_documents_and_their_own_topics() -> None:
    ids = {domain: {d["_id"] for d in lines(domain)} for domain in ("legal", "regulatory", "review")}
    judged = lines("judged")
    assert len(judged) == 24
    for query in judged:
        assert query["wanted"]
        assert query["unwanted"]
        assert not set(query["wanted"]) & set(query["unwanted"])
        assert {*query["wanted"], *query["unwanted"]} <= ids[query["domain"]]
        assert all(topic in query["query"] for topic in query["excluded"])


def test_the_overview_names_every_example() -> None:
    overview = (EXAMPLES / "README.md").read_text(encoding="utf-8")
    for path in [*SCRIPTS, *NOTEBOOKS, EXAMPLES / "demo.py"]:
        assert path.relative_to(EXAMPLES).as_posix() in overview
