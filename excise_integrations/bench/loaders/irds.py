"""Any collection of ir_datasets (MacAvaney et al., 2021), by its name."""

from __future__ import annotations

from collections.abc import Iterator
from importlib import import_module
from pathlib import Path
from typing import Any

from ...errors import MissingExtraError, SuiteError
from .records import Collection, Judgment, Passage, Question

__all__ = ["read_irds"]


def read_irds(path: Path, split: str) -> Collection:
    """Read a collection by its name, such as ``beir/scifact/test``; ir_datasets fetches it when it is not there yet.

    Args:
        path: the name.
        split: not used: the name says it.

    Raises:
        MissingExtraError: ir_datasets is not installed.
        SuiteError: the name is unknown, or the collection lacks documents, queries or judgments.
    """
    name = path.as_posix()
    try:
        ir_datasets = import_module("ir_datasets")
    except ImportError:
        raise MissingExtraError("ir_datasets", "irds") from None
    try:
        dataset: Any = ir_datasets.load(name)
    except KeyError:
        raise SuiteError(
            f"ir_datasets has no collection {name!r}; see https://ir-datasets.com for the names."
        ) from None
    for part in ("docs", "queries", "qrels"):
        if not getattr(dataset, f"has_{part}")():
            raise SuiteError(f"The collection {name!r} of ir_datasets has no {part}; name one of its parts that has.")
    judgments = tuple(
        Judgment(str(q.query_id), str(q.doc_id), int(q.relevance), f"{name}, judgment {number}")
        for number, q in enumerate(dataset.qrels_iter(), start=1)
    )
    judged = {j.query for j in judgments}
    questions = tuple(
        Question(str(q.query_id), _text(q), f"{name}, query {number}")
        for number, q in enumerate(dataset.queries_iter(), start=1)
        if str(q.query_id) in judged
    )
    return Collection(_documents(dataset, name), questions, judgments)


def _documents(dataset: Any, name: str) -> Iterator[Passage]:
    for number, document in enumerate(dataset.docs_iter(), start=1):
        yield Passage(str(document.doc_id), _text(document), f"{name}, document {number}")


def _text(record: Any) -> str:
    if hasattr(record, "default_text"):
        return str(record.default_text())
    # Before 0.5.4 records had no text of their own choice.
    parts = (getattr(record, key, "") for key in ("title", "text", "abstract", "body"))
    return "\n".join(str(p) for p in parts if p)
