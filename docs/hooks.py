"""What the site needs beside the pages: files of the repository as pages, and docstrings in Markdown.

The pages link to the README, the examples and other files of the repository, as is right where the repository is read.
In the site each of those files becomes a page under ``repo/``; notebooks become Markdown with their outputs.
"""

from __future__ import annotations

import json
import posixpath
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import griffe
from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import File, Files
from mkdocs.structure.pages import Page

ROOT = Path(__file__).resolve().parents[1]
DOCS = ROOT / "docs"
LINK = re.compile(r"(\]\()([^()\s#:]+)((?:#[^()\s]*)?\))")
LANGUAGES = {".py": "python", ".json": "json", ".jsonl": "json", ".toml": "toml"}


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """Add every file of the repository that a page links to, and what those link to."""
    todo = [DOCS / file.src_uri for file in files.documentation_pages()]
    todo += [ROOT / name for name in ("README.md", "CHANGELOG.md", "CONTRIBUTING.md", "examples/README.md")]
    seen = set(todo)
    for path in todo:
        text = as_markdown(path)
        for target in targets(text, path):
            if target not in seen and DOCS not in target.parents:
                seen.add(target)
                todo.append(target)
        if DOCS not in path.parents:
            files.append(File.generated(config, uri(path), content=relinked(text, path)))
    return files


def on_page_markdown(markdown: str, page: Page, config: MkDocsConfig, files: Files) -> str:
    """Point the links of a page at the generated ones."""
    path = DOCS / page.file.src_uri
    return relinked(markdown, path) if path.is_file() else markdown


def uri(path: Path) -> str:
    """Return where a file of the repository is in the site's sources."""
    if DOCS in path.parents:
        return path.relative_to(DOCS).as_posix()
    return f"repo/{path.relative_to(ROOT).as_posix()}" + ("" if path.suffix == ".md" else ".md")


def targets(text: str, path: Path) -> Iterator[Path]:
    """Yield the files that a text links to."""
    for _, link, _ in LINK.findall(text):
        target = (path.parent / link).resolve()
        if target.is_file() and ROOT in target.parents:
            yield target


def relinked(text: str, path: Path) -> str:
    """Return a text whose links lead to the same files within the site."""

    def replace(match: re.Match[str]) -> str:
        target = (path.parent / match[2]).resolve()
        if not target.is_file() or ROOT not in target.parents:
            return match[0]
        return match[1] + posixpath.relpath(uri(target), posixpath.dirname(uri(path))) + match[3]

    return LINK.sub(replace, text)


def as_markdown(path: Path) -> str:
    """Return a file as a page."""
    text = path.read_text(encoding="utf-8")
    if path.suffix == ".md":
        return text
    if path.suffix == ".ipynb":
        return "\n\n".join(part for cell in json.loads(text)["cells"] for part in cell_parts(cell))
    return f"# {path.name}\n\n{fenced(text, LANGUAGES.get(path.suffix, 'text'))}"


def cell_parts(cell: dict[str, Any]) -> Iterator[str]:
    """Yield the parts of a notebook's cell: its text, or its code and what that printed."""
    source = "".join(cell["source"])
    if cell["cell_type"] != "code":
        yield source
        return
    yield fenced(source, "python")
    for output in cell["outputs"]:
        data = output.get("data", {})
        if "text/markdown" in data:
            # A heading in an output is no heading of the page.
            yield re.sub(r"^#+ (.*)$", r"**\1**", "".join(data["text/markdown"]), flags=re.MULTILINE)
        else:
            yield fenced("".join(output.get("text", data.get("text/plain", ""))), "text")


def fenced(text: str, language: str) -> str:
    """Return a block of code, whatever it contains."""
    fence = "`" * max(3, 1 + max((len(run) for run in re.findall(r"`+", text)), default=0))
    return f"{fence}{language}\n{text.rstrip()}\n{fence}"


class Roles(griffe.Extension):
    """Write Sphinx roles and literal blocks of the docstrings as Markdown."""

    def on_instance(self, *, obj: griffe.Object, **kwargs: Any) -> None:
        """Rewrite the docstring of an object."""
        if obj.docstring is not None:
            text = re.sub(r":(?:attr|class|data|func|meth|mod):`[~.]?([^`]+)`", r"`\1`", obj.docstring.value)
            obj.docstring.value = re.sub(r"::\n\n", ":\n\n", text)
