"""BoolQuestions (Zhang et al., 2024) and QUEST (Malaviya et al., ACL 2023): connectives in the query."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from ...errors import SuiteError
from .fields import find_file, id_field, read_records, text_field
from .records import Collection, Judgment, Passage, Question

__all__ = ["read_boolquestions", "read_quest"]

_TYPES = ("and", "or", "not")
_MARK = re.compile(r"<mark>(.*?)</mark>", re.DOTALL)


def read_boolquestions(path: Path, split: str) -> Collection:
    """Read the folder of one subset: ``corpus.jsonl`` {docid, doc, title} and ``eval.json``, or ``SPLIT.json``.

    A question has ``qid``, ``question``, ``question_type`` (and, or, not: the tier) and lists ``positive_ctxs`` and
    ``negative_ctxs`` with a ``passage_id`` each. Questions that lack one of the two are left out, and a passage that is
    in both counts as right: the published sets have both cases.

    Raises:
        SuiteError: a file is missing, a record is malformed, or no question has a wrong passage.
    """
    corpus, file = find_file(path, "corpus.jsonl"), find_file(path, f"{split}.json", "eval.json")
    questions, judgments, lone = [], [], 0
    for where, record in read_records(file):
        kind = text_field(record, "question_type", where=where).lower()
        if kind not in _TYPES:
            raise SuiteError(f"{where}: 'question_type' must be one of {', '.join(_TYPES)}, not {kind!r}.")
        right = _passages(record, "positive_ctxs", where)
        wrong = [p for p in _passages(record, "negative_ctxs", where) if p not in right]
        if not right or not wrong:
            lone += 1
            continue
        name = id_field(record, "qid", where=where)
        questions.append(Question(name, text_field(record, "question", where=where), where, tier=kind.upper()))
        judgments += [Judgment(name, p, score, where) for part, score in ((right, 1), (wrong, -1)) for p in part]
    if not questions:
        raise SuiteError(f"{file}: no question has a right and a wrong passage.")
    notes = (f"{lone} questions without a right or a wrong passage were left out.",) if lone else ()
    return Collection(_docs(corpus), tuple(questions), tuple(judgments), notes)


def _passages(record: dict[str, Any], key: str, where: str) -> list[str]:
    contexts = record.get(key) or []
    if not isinstance(contexts, list) or not all(isinstance(c, dict) for c in contexts):
        raise SuiteError(f"{where}: {key!r} must be a list of objects, not {contexts!r}.")
    return list(
        dict.fromkeys(id_field(c, "passage_id", where=where) for c in contexts if c.get("passage_id") is not None)
    )


def _docs(path: Path) -> Iterator[Passage]:
    for where, record in read_records(path):
        title = text_field(record, "title", where=where, required=False)
        yield Passage(id_field(record, "docid", where=where), text_field(record, "doc", where=where), where, title)


def read_quest(path: Path, split: str) -> Collection:
    """Read ``documents.jsonl`` {title, text} and ``SPLIT.jsonl`` {query, docs, original_query, metadata}.

    Documents are called by their titles. The template tells the tier (NOT, OR, AND), and where it ends in "not _" the
    last marked part of ``original_query`` is the excluded topic, in the words of its category and not always in the
    query's. No excluded document is known.

    Raises:
        SuiteError: a file is missing or a record is malformed.
    """
    corpus, file = find_file(path, "documents.jsonl"), find_file(path, f"{split}.jsonl")
    questions, judgments = [], []
    for number, (where, record) in enumerate(read_records(file), start=1):
        name = f"quest-{number}"
        docs = record.get("docs")
        if not isinstance(docs, list) or not docs or not all(isinstance(d, str) for d in docs):
            raise SuiteError(f"{where}: 'docs' must be a list of titles, not {docs!r}.")
        metadata = record.get("metadata") or {}
        template = text_field(metadata if isinstance(metadata, dict) else {}, "template", where=where, required=False)
        atoms = _MARK.findall(text_field(record, "original_query", where=where, required=False))
        questions.append(
            Question(
                name,
                text_field(record, "query", where=where),
                where,
                tier=_tier(template),
                excluded=tuple(atoms[-1:]) if re.search(r"\bnot _\W*$", template) else (),
            )
        )
        judgments += [Judgment(name, title, 1, where) for title in dict.fromkeys(docs)]
    return Collection(_titles(corpus), tuple(questions), tuple(judgments))


def _tier(template: str) -> str:
    words = set(re.findall(r"\w+", template.lower()))
    return next((tier for word, tier in (("not", "NOT"), ("or", "OR"), ("also", "AND")) if word in words), "")


def _titles(path: Path) -> Iterator[Passage]:
    for where, record in read_records(path):
        title = text_field(record, "title", where=where)
        yield Passage(title, text_field(record, "text", where=where), where, title)
