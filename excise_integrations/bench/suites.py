"""Benchmark suites: BEIR folders with excluded documents, and files of queries."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Literal

from ..errors import SuiteError
from ..types import Candidate
from .lines import json_lines, numbered_lines

__all__ = [
    "Query",
    "Suite",
    "bundled_suite",
    "load_corpus",
    "load_queries",
    "load_suite",
    "load_suites",
    "shorten",
    "suite_files",
    "to_json_lines",
]


@dataclass(frozen=True)
class Query:
    """A benchmark query.

    Args:
        id: unique within its file.
        text: the query.
        excluded: the topics that it excludes; empty when it excludes none or nobody wrote them down.
        groups: what it is broken down by, e.g. ``{"tier": "T1", "form": "long"}``; empty values are left out.
    """

    id: str
    text: str
    excluded: tuple[str, ...] = ()
    groups: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class Suite:
    """A corpus, the queries of one split, and what is relevant (≥ 1) or excluded (-1) for each.

    Args:
        name: the folder's name.
        split: the split of the qrels.
        documents: the corpus; a document's text is its title, a line break, and its text.
        queries: the queries that have a qrel in this split.
        qrels: query id → document id → score.
        warnings: oddities of the files that do not stop an evaluation, as sentences.
    """

    name: str
    split: str
    documents: tuple[Candidate, ...]
    queries: tuple[Query, ...]
    qrels: Mapping[str, Mapping[str, int]]
    warnings: tuple[str, ...] = ()


def load_suite(folder: str | Path, split: str = "dev") -> Suite:
    """Load a suite.

    Args:
        folder: a folder with ``corpus.jsonl``, ``queries.jsonl`` and ``qrels/SPLIT.tsv``.
        split: which qrels to read.

    Returns:
        The suite. Queries without a qrel in the split are left out, and so are documents without
        any text. A document whose id is taken keeps its place under another id, unless it is judged.

    Raises:
        SuiteError: a file is missing, a line is malformed, or a qrel names an unknown query or an
            unknown or ambiguous document. File and line are named.
    """
    folder = Path(folder)
    if not folder.is_dir():
        raise SuiteError(f"There is no suite at {folder}: no such folder.")
    qrels_file = folder / "qrels" / f"{split}.tsv"
    if not qrels_file.is_file():
        splits = sorted(p.stem for p in (folder / "qrels").glob("*.tsv"))
        raise SuiteError(
            f"{folder} has no split {split!r}: there is no {qrels_file}. "
            + (f"Splits there: {', '.join(splits)}." if splits else "It has no qrels/*.tsv at all.")
        )
    documents, repeated, warnings = load_corpus(folder / "corpus.jsonl")
    queries = load_queries(folder / "queries.jsonl")
    blank = {d.id for d in documents if not d.text.strip()}
    qrels = _load_qrels(qrels_file, {q.id for q in queries}, {d.id for d in documents}, repeated)
    if blank:
        warnings.append(f"{folder / 'corpus.jsonl'}: {len(blank)} documents without text cannot be retrieved.")
    return Suite(
        name=folder.resolve().name,
        split=split,
        documents=tuple(d for d in documents if d.id not in blank),
        queries=tuple(q for q in queries if q.id in qrels),
        qrels=qrels,
        warnings=tuple(warnings),
    )


def bundled_suite(name: Literal["and", "or"]) -> Path:
    """Return the folder of a suite that comes with the package: AND or OR questions with two or three candidates.

    One candidate answers the question, the others (scored -1) meet one condition of AND, or neither of OR. The
    questions exclude nothing, so `pairwise` with judged candidates must not fall.
    """
    return Path(__file__).parent / "data" / "boolean" / name


def shorten(suite: Suite, words: int) -> Suite:
    """Return a suite whose documents end after so many words: an equal budget for every system.

    Those that are shorter stay as they are, so that their vectors need not be made again.
    """
    documents = tuple(
        d if len(parts := d.text.split()) <= words else replace(d, text=" ".join(parts[:words]))
        for d in suite.documents
    )
    return replace(suite, documents=documents)


def suite_files(
    corpus: Iterable[Mapping[str, Any]],
    queries: Iterable[Mapping[str, Any]],
    judgments: Iterable[tuple[str, str, int]],
    *,
    split: str,
) -> dict[str, str]:
    """Return the files of a suite, path within its folder → text.

    Args:
        corpus: rows of ``_id``, ``title`` and ``text``.
        queries: rows of ``queries.jsonl``.
        judgments: query id, document id and score.
        split: the name of the qrels.
    """
    lines = (f"{query}\t{document}\t{score}" for query, document, score in judgments)
    return {
        "corpus.jsonl": to_json_lines(corpus),
        "queries.jsonl": to_json_lines(queries),
        f"qrels/{split}.tsv": "\n".join(["query-id\tcorpus-id\tscore", *lines]) + "\n",
    }


def to_json_lines(rows: Iterable[Mapping[str, Any]]) -> str:
    """Return rows as :func:`~excise_integrations.bench.lines.json_lines` reads them."""
    return "".join(json.dumps(row, ensure_ascii=False) + "\n" for row in rows)


def load_suites(folders: Sequence[str | Path], split: str = "dev") -> list[Suite]:
    """Load suites that are reported together.

    Args:
        folders: see :func:`load_suite`; ``FOLDER:SPLIT`` reads another split than the rest.
        split: which qrels to read.

    Raises:
        SuiteError: two folders have the same name, or as :func:`load_suite`.
    """
    places = [_with_split(str(folder), split) for folder in folders]
    names = [folder.resolve().name for folder, _ in places]
    for name in names:
        if names.count(name) > 1:
            raise SuiteError(f"Two suites are called {name!r}; results are keyed by the folder's name.")
    return [load_suite(folder, part) for folder, part in places]


def _with_split(place: str, split: str) -> tuple[Path, str]:
    folder, _, part = place.rpartition(":")
    if folder and part and not Path(place).exists() and not {"/", "\\"} & set(part):
        return Path(folder), part
    return Path(place), split


def load_corpus(path: Path) -> tuple[list[Candidate], set[str], list[str]]:
    """Read a ``corpus.jsonl``.

    Returns:
        The documents, the ids that occur more than once, and warnings about them.
    """
    documents: list[Candidate] = []
    seen: set[str] = set()
    repeated: set[str] = set()
    warnings: list[str] = []
    for number, record in json_lines(path):
        name = _string(record, "_id", path, number, required=True)
        text = _string(record, "text", path, number, required=True, blank=True)
        title = _string(record, "title", path, number)
        if name in seen:
            repeated.add(name)
            warnings.append(f"{path}, line {number}: the id {name!r} is taken; the document is called {name}#{number}.")
            name = f"{name}#{number}"
        seen.add(name)
        documents.append(Candidate(name, f"{title}\n{text}" if title.strip() else text))
    return documents, repeated, warnings


def load_queries(path: str | Path) -> list[Query]:
    """Read queries from JSON lines: ``text`` and, if there are, ``_id``, ``excluded``, ``tier``, ``form``, ``kind``.

    A line without ``_id`` is called by its number.

    Raises:
        SuiteError: the file is missing or a line is malformed. File and line are named.
    """
    path = Path(path)
    queries: list[Query] = []
    seen: set[str] = set()
    for number, record in json_lines(path):
        name = _string(record, "_id", path, number) or str(number)
        if name in seen:
            raise SuiteError(f"{path}, line {number}: the query id {name!r} occurs twice.")
        seen.add(name)
        excluded = record.get("excluded") or []
        if not isinstance(excluded, list) or not all(isinstance(e, str) and e.strip() for e in excluded):
            raise SuiteError(
                f"{path}, line {number}: 'excluded' must be a list of non-blank strings, not {excluded!r}."
            )
        groups = {key: _string(record, key, path, number) for key in ("tier", "form", "kind")}
        queries.append(
            Query(
                name,
                _string(record, "text", path, number, required=True),
                tuple(excluded),
                {key: value for key, value in groups.items() if value},
            )
        )
    return queries


def _load_qrels(path: Path, queries: set[str], documents: set[str], repeated: set[str]) -> dict[str, dict[str, int]]:
    qrels: dict[str, dict[str, int]] = {}
    for number, line in numbered_lines(path):
        fields = line.split("\t")
        if number == 1 and fields[-1] == "score":
            continue
        if len(fields) != 3:
            raise SuiteError(f"{path}, line {number}: three fields separated by tabs are needed, found {len(fields)}.")
        query, document, score = fields
        try:
            value = int(score)
        except ValueError:
            raise SuiteError(f"{path}, line {number}: the score {score!r} is not a whole number.") from None
        if query not in queries:
            raise SuiteError(f"{path}, line {number}: the query {query!r} is not in queries.jsonl.")
        if document not in documents:
            raise SuiteError(f"{path}, line {number}: the document {document!r} is not in corpus.jsonl.")
        if document in repeated:
            raise SuiteError(f"{path}, line {number}: corpus.jsonl has more than one document {document!r}.")
        judged = qrels.setdefault(query, {})
        if document in judged:
            raise SuiteError(f"{path}, line {number}: the document {document!r} is judged twice for {query!r}.")
        judged[document] = value
    if not qrels:
        raise SuiteError(f"{path} has no judgments.")
    return qrels


def _string(
    record: dict[str, Any], key: str, path: Path, number: int, *, required: bool = False, blank: bool = False
) -> str:
    value = record.get(key)
    if isinstance(value, int) and not isinstance(value, bool) and key == "_id":
        return str(value)
    if value is None and not required:
        return ""
    if not isinstance(value, str) or (required and not blank and not value.strip()):
        raise SuiteError(f"{path}, line {number}: {key!r} must be a non-blank string, not {value!r}.")
    return value
