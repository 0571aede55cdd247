"""The documentation: every snippet of the pages runs, and the site builds without a warning."""

from __future__ import annotations

import ast
import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from ragatouille_fixtures import ragatouille_index

__all__ = ["ragatouille_index"]

ROOT = Path(__file__).resolve().parents[1]
DOCS = ROOT / "docs"
# A snippet that needs a server, or weights that are not here, says so on the line before it.
SNIPPET = re.compile(r"^(<!-- not run: .+ -->\n)?^( *)```python\n(.*?)^\2```$", re.MULTILINE | re.DOTALL)


def snippets(page: Path) -> list[tuple[bool, str]]:
    """Return whether each snippet of a page runs, and its code."""
    found = SNIPPET.findall(page.read_text(encoding="utf-8"))
    return [(not skip, re.sub(rf"^{indent}", "", code, flags=re.MULTILINE)) for skip, indent, code in found]


# These have tests of their own, in test_docs_snippets.py.
ELSEWHERE = {"audit.md", "qdrant.md"}
PAGES = [page for page in sorted(DOCS.glob("**/*.md")) if snippets(page) and page.name not in ELSEWHERE]


@pytest.fixture
def brought(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> dict[str, Any]:
    """What the texts ask the reader to bring: a model, a vector store, an index."""
    pytest.importorskip("langchain_core")
    pytest.importorskip("llama_index.core")
    from langchain_core.embeddings import DeterministicFakeEmbedding
    from langchain_core.vectorstores import InMemoryVectorStore
    from llama_index.core import MockEmbedding, VectorStoreIndex
    from llama_index.core.llms import MockLLM
    from llama_index.core.schema import TextNode

    monkeypatch.chdir(tmp_path)
    texts = [f"A text about {subject}." for subject in ("Tesla cars", "electric cars", "bread", "rivers", "jazz")]
    return {
        "llm": MockLLM(),
        "vector_store": InMemoryVectorStore.from_texts(texts, DeterministicFakeEmbedding(size=8)),
        "index": VectorStoreIndex([TextNode(text=text) for text in texts], embed_model=MockEmbedding(embed_dim=8)),
    }


@pytest.mark.parametrize("page", PAGES, ids=lambda path: path.relative_to(DOCS).as_posix())
def test_the_snippets_of_a_page_run(page: Path, brought: dict[str, Any], request: pytest.FixtureRequest) -> None:
    if "path/to/index" in page.read_text(encoding="utf-8"):
        request.getfixturevalue("ragatouille_index").copy(Path("path/to"), "index")
    for number, (runs, code) in enumerate(snippets(page), start=1):
        compiled = compile(code, f"{page.name}, snippet {number}", "exec")
        if runs:
            exec(compiled, brought)
            continue
        # What cannot run here still names things of ours that exist.
        for node in ast.walk(ast.parse(code)):
            if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("excise_integrations"):
                exec(compile(ast.Module([node], []), page.name, "exec"), {})


def test_what_a_page_promises_happens(brought: dict[str, Any]) -> None:
    (code,) = [code for _, code in snippets(DOCS / "faq.md") if "shortlist" in code]
    exec("from excise_integrations import Excise; excise = Excise.from_pretrained('minilm')", brought)
    exec(code, brought)
    assert "Tesla" in [candidate.id for candidate in brought["result"].removed]


def test_every_row_of_the_comparison_names_its_source() -> None:
    text = (DOCS / "comparison.md").read_text(encoding="utf-8")
    links = dict(re.findall(r"^\[([^\]^]+)\]: (https://\S+)$", text, re.MULTILINE))
    notes = dict(re.findall(r"^\[\^(.+?)\]: (.+(?:\n    .+)*)", text, re.MULTILINE))
    head, _, *rows = [line.strip("|").split("|") for line in text.splitlines() if line.startswith("|")]
    assert len(rows) > 10
    # The version of each package that was read, with the release it is.
    assert [cell for cell in rows[0][2:] if not re.fullmatch(r" \[[\d.]+(?:post\d)?\]\[.+\] ", cell)] == []
    assert all("pypi.org/project" in links[re.findall(r"\]\[(.+)\]", cell)[0]] for cell in rows[0][2:])
    for row in rows:
        assert len(row) == len(head)
        note = notes[re.findall(r"\[\^(.+)\]", row[0])[0]]
        named = re.findall(r"\]\[([^\]]+)\]", note)
        assert any("github.com" in links[name] for name in named) or "pypi.org/project" in note, row[0]


def test_the_site_builds_without_a_warning(tmp_path: Path) -> None:
    for module in ("mkdocs", "material", "mkdocstrings_handlers.python"):
        pytest.importorskip(module)
    site = tmp_path / "site"
    done = subprocess.run(
        [sys.executable, "-m", "mkdocs", "build", "--strict", "--site-dir", str(site)],
        cwd=ROOT, env={**os.environ, "NO_MKDOCS_2_WARNING": "1"}, capture_output=True, text=True, timeout=200,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert "WARNING" not in done.stderr
    start = (site / "index.html").read_text(encoding="utf-8")
    # The README is a page of the site, and links of the pages lead to it.
    assert 'href="repo/"' in start
    assert (site / "repo/index.html").is_file()
    legal = (site / "repo/examples/notebooks/legal_discovery.ipynb/index.html").read_text(encoding="utf-8")
    assert "Rotterdam depot" in legal
    api = (site / "api/pipeline/index.html").read_text(encoding="utf-8")
    assert "from_pretrained" in api
    for page in site.glob("**/index.html"):
        text = page.read_text(encoding="utf-8")
        assert not re.search(r":(?:meth|class|func|attr):`", text), page
        # No font, script or style from elsewhere.
        assert not re.search(r'<(?:link|script)[^>]+(?:href|src)="https?://(?!localhost)(?![^"]*canonical)', text), page
