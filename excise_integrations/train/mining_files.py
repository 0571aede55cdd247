"""A mined suite on disk, and the corpora and judgments that mining reads."""

from __future__ import annotations

import hashlib
import json
import tempfile
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from .._files import swap
from ..bench.suites import suite_files
from ..errors import SuiteError
from ..version import __version__
from .constructions import read_jsonl
from .descriptions import Document
from .mining import Mined, MiningSettings, documents_of
from .query_templates import Draft, Group

__all__ = [
    "check_target",
    "document_row",
    "forbidden_by",
    "group_judgments",
    "load_documents",
    "query_row",
    "write_folder",
    "write_suite",
]

_RECORD = "mining.json"


def load_documents(path: str | Path) -> list[Document]:
    """Read a corpus.

    Args:
        path: a ``corpus.jsonl`` {_id, title, text}, or the folder of a suite.

    Raises:
        SuiteError: the file is missing or a line is malformed; file and line are named.
    """
    path = Path(path)
    if path.is_dir():
        path = path / "corpus.jsonl"
    if not path.is_file():
        raise SuiteError(f"There is no corpus at {path}; give a corpus.jsonl or a suite's folder.")
    try:
        rows = read_jsonl(path)
    except ValueError as error:
        raise SuiteError(f"{path}: {error}") from None
    documents: list[Document] = []
    for number, row in enumerate(rows, start=1):
        name, title, text = row.get("_id"), row.get("title") or "", row.get("text")
        if not isinstance(name, (str, int)) or not str(name) or not isinstance(title, str) or not isinstance(text, str):
            raise SuiteError(f"{path}, record {number}: '_id', 'title' and 'text' must be strings.")
        documents.append(Document(str(name), title, text))
    return documents


def forbidden_by(files: Iterable[str | Path]) -> tuple[list[Document], set[str]]:
    """Read the judgments of test and dev splits.

    Args:
        files: ``qrels/SPLIT.tsv`` of suites. Where the suite's ``corpus.jsonl`` stands beside the
            folder ``qrels``, titles and texts of the judged documents are read too.

    Returns:
        The judged documents whose text was found, and the ids of all of them.

    Raises:
        SuiteError: a file is missing or has no judgments.
    """
    documents: list[Document] = []
    ids: set[str] = set()
    for file in map(Path, files):
        if not file.is_file():
            raise SuiteError(f"There is no file of judgments at {file}.")
        judged: set[str] = set()
        for number, line in enumerate(file.read_text(encoding="utf-8-sig").splitlines(), start=1):
            fields = line.split("\t")
            if not line.strip() or (number == 1 and fields[-1].strip() == "score"):
                continue
            if len(fields) != 3:
                raise SuiteError(f"{file}, line {number}: three fields separated by tabs are needed.")
            judged.add(fields[1])
        if not judged:
            # A wrong file must not silently protect nothing.
            raise SuiteError(f"{file} has no judgments.")
        ids |= judged
        corpus = file.parent.parent / "corpus.jsonl"
        if corpus.is_file():
            documents.extend(d for d in load_documents(corpus) if d.id in judged)
    return documents, ids


def write_suite(
    folder: str | Path,
    mined: Mined,
    settings: MiningSettings,
    *,
    split: str = "train",
    prefix: str = "mined",
    source: Sequence[str] = (),
    excluded_qrels: Sequence[str] = (),
    writer: str = "templates",
) -> Path:
    """Write triples as a suite: ``corpus.jsonl``, ``queries.jsonl``, ``qrels/SPLIT.tsv``, ``mining.json``.

    The corpus holds the documents of the triples. The folder appears whole or not at all.

    Args:
        folder: target; a mined suite that is there already is replaced.
        mined, settings: what was mined, and how.
        split: name of the split.
        prefix: beginning of the query ids.
        source, excluded_qrels, writer: written down in ``mining.json``.

    Raises:
        SuiteError: the folder holds something else.
    """
    folder = Path(folder)
    check_target(folder, _RECORD, "a mined suite")
    named = [(f"{prefix}-{number}", triple) for number, triple in enumerate(mined.triples, start=1)]
    contents = suite_files(
        [document_row(d) for d in documents_of(mined.triples)],
        [query_row(name, triple.draft) for name, triple in named],
        [judgment for name, triple in named for judgment in group_judgments(name, triple.group)],
        split=split,
    )
    record = {
        "triples": len(mined.triples),
        "kinds": dict(sorted(Counter(f"{t.draft.tier} {t.draft.form}" for t in mined.triples).items())),
        "refused": mined.refused,
        "band": list(mined.band),
        "settings": asdict(settings),
        "writer": writer,
        "source": list(source),
        "excluded_qrels": list(excluded_qrels),
        "sha256": {name: hashlib.sha256(text.encode()).hexdigest() for name, text in contents.items()},
        "version": __version__,
    }
    contents[_RECORD] = json.dumps(record, indent=2) + "\n"
    return write_folder(folder, contents, marker=_RECORD, what="a mined suite")


def document_row(document: Document) -> dict[str, Any]:
    """Return a document's line of ``corpus.jsonl``."""
    return {"_id": document.id, "title": document.title, "text": document.text}


def query_row(name: str, draft: Draft) -> dict[str, Any]:
    """Return a query's line of ``queries.jsonl``."""
    return {
        "_id": name,
        "text": draft.text,
        "tier": draft.tier,
        "form": draft.form,
        "wanted": draft.wanted,
        "excluded": list(draft.excluded),
    }


def group_judgments(name: str, group: Group) -> list[tuple[str, str, int]]:
    """Return a query's judgments of its group, the wanted document first: query id, document id, score."""
    return [(name, group.wanted.id, 1), *((name, d.id, -1) for d in group.excluded)]


def check_target(folder: Path, marker: str, what: str) -> None:
    """Raise :class:`SuiteError` when a folder holds anything but what has the file ``marker``."""
    if folder.exists() and (not folder.is_dir() or (any(folder.iterdir()) and not (folder / marker).is_file())):
        raise SuiteError(f"{folder} exists and is not {what}; choose another folder.")


def write_folder(folder: Path, contents: Mapping[str, str], *, marker: str, what: str) -> Path:
    """Write a folder of files that appears whole or not at all.

    Args:
        folder: target; one that holds the file ``marker`` is replaced.
        contents: path within the folder → text.
        marker, what: the file that tells a folder of this kind, and its kind, for the error.

    Raises:
        SuiteError: the folder holds something else, or the disk does not take it; what was there is as it was.
    """
    check_target(folder, marker, what)
    try:
        folder.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(prefix=f".{folder.name}-", dir=folder.parent) as scratch:
            made = Path(scratch) / folder.name
            for name, text in contents.items():
                path = made / name
                path.parent.mkdir(parents=True, exist_ok=True)
                path.write_text(text, encoding="utf-8", newline="\n")
            swap(folder, made)
    except OSError as error:
        raise SuiteError(f"The suite {folder} was not written: {error}. Make room, or give another folder.") from error
    return folder
