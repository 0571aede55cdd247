"""What every reader returns, and how it becomes a suite; all checks of ids and texts are made here, once."""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from ...errors import SuiteError
from ...train.mining_files import check_target, write_folder
from ...version import __version__
from ..suites import suite_files

__all__ = ["Collection", "Judgment", "Passage", "Question", "write_collection"]

_MARKER, _WHAT = "import.json", "an imported suite"


@dataclass(frozen=True)
class Passage:
    """A document: ``where`` names its file and line for errors."""

    id: str
    text: str
    where: str
    title: str = ""


@dataclass(frozen=True)
class Question:
    """A query with what the benchmark format knows of it; ``where`` names its file and line for errors."""

    id: str
    text: str
    where: str
    tier: str = ""
    form: str = ""
    wanted: str = ""
    excluded: tuple[str, ...] = ()


@dataclass(frozen=True)
class Judgment:
    """A document's score for a query: at least 1 relevant, -1 excluded."""

    query: str
    document: str
    score: int
    where: str


@dataclass(frozen=True)
class Collection:
    """A benchmark as it was read.

    Args:
        documents: read once, so a large corpus need not fit into memory twice.
        questions: the queries.
        judgments: of these queries and documents.
        notes: what was left out, as sentences.
    """

    documents: Iterable[Passage]
    questions: tuple[Question, ...]
    judgments: tuple[Judgment, ...]
    notes: tuple[str, ...] = ()


def write_collection(
    collection: Collection,
    out: str | Path,
    *,
    split: str,
    documents: Literal["all", "judged"] = "all",
    facts: dict[str, Any] | None = None,
) -> tuple[str, ...]:
    """Write a collection as a suite; the folder appears whole or not at all.

    Args:
        collection: what a reader returned.
        out: the folder; an imported suite that is there already is replaced.
        split: the name of the qrels.
        documents: write the corpus, or the judged documents alone.
        facts: what goes into ``import.json`` beside the counts.

    Returns:
        Notes: what was left out, and what the suite cannot measure.

    Raises:
        SuiteError: an id occurs twice, a judgment names an unknown one, a text is empty, nothing is judged, or the
            folder holds something else. File and line are named.
    """
    out = Path(out)
    check_target(out, _MARKER, _WHAT)
    queries = _queries(collection.questions)
    if not collection.judgments:
        raise SuiteError("No query is judged; there is nothing to measure.")
    judged = _judged(collection.judgments, queries)
    rows, blank = _corpus(collection.documents, judged, documents)
    kept = {j.query for j in collection.judgments}
    notes = list(collection.notes)
    if blank:
        notes.append(f"{blank} documents without text were left out.")
    if len(kept) < len(queries):
        notes.append(f"{len(queries) - len(kept)} queries without judgments were left out.")
    excluding = {j.query for j in collection.judgments if j.score < 0}
    if not excluding:
        notes.append("No document is marked as excluded: success@10, leak and pairwise will have no value.")
    record = {
        **(facts or {}),
        "split": split, "documents": len(rows), "queries": len(kept), "with_excluded_document": len(excluding),
        "judgments": len(collection.judgments), "notes": notes, "version": __version__,
    }  # fmt: skip
    contents = suite_files(
        rows,
        [_query_row(q) for q in queries.values() if q.id in kept],
        [(j.query, j.document, j.score) for j in collection.judgments],
        split=split,
    )
    contents[_MARKER] = json.dumps(record, indent=2, ensure_ascii=False) + "\n"
    write_folder(out, contents, marker=_MARKER, what=_WHAT)
    return tuple(notes)


def _queries(questions: Iterable[Question]) -> dict[str, Question]:
    found: dict[str, Question] = {}
    for question in questions:
        _check_id(question.id, "query", question.where)
        if question.id in found:
            raise SuiteError(
                f"{question.where}: the query id {question.id!r} occurs twice; first in {found[question.id].where}."
            )
        if not question.text.strip():
            raise SuiteError(f"{question.where}: the query {question.id!r} has no text.")
        found[question.id] = question
    return found


def _judged(judgments: Iterable[Judgment], queries: dict[str, Question]) -> dict[str, Judgment]:
    seen: set[tuple[str, str]] = set()
    documents: dict[str, Judgment] = {}
    for judgment in judgments:
        if judgment.query not in queries:
            raise SuiteError(f"{judgment.where}: there is no query {judgment.query!r}.")
        if (judgment.query, judgment.document) in seen:
            raise SuiteError(
                f"{judgment.where}: the document {judgment.document!r} is judged twice for {judgment.query!r}."
            )
        seen.add((judgment.query, judgment.document))
        documents.setdefault(judgment.document, judgment)
    return documents


def _corpus(
    documents: Iterable[Passage], judged: dict[str, Judgment], which: Literal["all", "judged"]
) -> tuple[list[dict[str, str]], int]:
    rows: list[dict[str, str]] = []
    seen: set[str] = set()
    blank = 0
    for document in documents:
        _check_id(document.id, "document", document.where)
        if document.id in seen:
            raise SuiteError(f"{document.where}: the document id {document.id!r} occurs twice.")
        seen.add(document.id)
        if document.id not in judged and which == "judged":
            continue
        if not document.text.strip() and not document.title.strip():
            if document.id in judged:
                raise SuiteError(f"{document.where}: the judged document {document.id!r} has no text.")
            blank += 1
            continue
        rows.append({"_id": document.id, "title": document.title, "text": document.text})
    for name, judgment in judged.items():
        if name not in seen:
            raise SuiteError(f"{judgment.where}: there is no document {name!r}.")
    return rows, blank


def _query_row(question: Question) -> dict[str, Any]:
    return {
        "_id": question.id, "text": question.text, "tier": question.tier, "form": question.form,
        "wanted": question.wanted, "excluded": list(question.excluded),
    }  # fmt: skip


def _check_id(name: str, what: str, where: str) -> None:
    if not name.strip() or any(c in name for c in "\t\r\n"):
        raise SuiteError(f"{where}: the {what} id {name!r} must not be empty and must not hold a tab or a line break.")
