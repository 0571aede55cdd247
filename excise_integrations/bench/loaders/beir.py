"""BEIR folders, as BEIR, MTEB and NegConstraint (Xu et al., ACL 2025 findings) distribute them."""

from __future__ import annotations

import csv
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from ...errors import SuiteError
from ..lines import reading
from .fields import find_file, id_field, read_records, text_field
from .records import Collection, Judgment, Passage, Question

__all__ = ["read_beir"]


def read_beir(path: Path, split: str) -> Collection:
    """Read ``corpus.jsonl``, ``queries.jsonl`` and the split's judgments.

    Judgments are looked for in ``qrels/SPLIT.tsv``, ``qrels/SPLIT.jsonl`` (MTEB) and ``SPLIT.tsv`` (NegConstraint).
    Fields of the benchmark format that a query has already are kept. Queries of other splits are left out.

    Raises:
        SuiteError: a file is missing or a line is malformed.
    """
    corpus, queries = find_file(path, "corpus.jsonl"), find_file(path, "queries.jsonl")
    qrels = find_file(path, f"qrels/{split}.tsv", f"qrels/{split}.jsonl", f"{split}.tsv")
    judgments = tuple(_tsv(qrels) if qrels.suffix == ".tsv" else _jsonl(qrels))
    judged = {j.query for j in judgments}
    questions = [_question(record, where) for where, record in read_records(queries)]
    return Collection(
        documents=_documents(corpus),
        questions=tuple(q for q in questions if q.id in judged),
        judgments=judgments,
    )


def _documents(path: Path) -> Iterator[Passage]:
    for where, record in read_records(path):
        title = text_field(record, "title", where=where, required=False)
        yield Passage(id_field(record, "_id", where=where), text_field(record, "text", where=where), where, title)


def _question(record: dict[str, Any], where: str) -> Question:
    excluded = record.get("excluded") or []
    if not isinstance(excluded, list) or not all(isinstance(e, str) for e in excluded):
        raise SuiteError(f"{where}: 'excluded' must be a list of strings, not {excluded!r}.")
    return Question(
        id_field(record, "_id", where=where),
        text_field(record, "text", where=where),
        where,
        tier=text_field(record, "tier", where=where, required=False),
        form=text_field(record, "form", where=where, required=False),
        wanted=text_field(record, "wanted", where=where, required=False),
        excluded=tuple(excluded),
    )


def _tsv(path: Path) -> Iterator[Judgment]:
    with reading(path, "tab-separated UTF-8"), path.open(encoding="utf-8-sig", newline="") as handle:
        reader = csv.reader(handle, delimiter="\t", quoting=csv.QUOTE_NONE)
        for fields in reader:
            where = f"{path}, line {reader.line_num}"
            if not fields or (reader.line_num == 1 and fields[-1].strip().lower() == "score"):
                continue
            if len(fields) != 3:
                raise SuiteError(
                    f"{where}: three fields separated by tabs are needed (query, document, score), found {len(fields)}."
                )
            yield Judgment(fields[0], fields[1], _score(fields[2], where), where)


def _jsonl(path: Path) -> Iterator[Judgment]:
    for where, record in read_records(path):
        yield Judgment(
            id_field(record, "query-id", where=where),
            id_field(record, "corpus-id", where=where),
            _score(record.get("score"), where),
            where,
        )


def _score(value: Any, where: str) -> int:
    try:
        number = float(value)
    except (TypeError, ValueError):
        number = float("nan")
    # MTEB writes 1.0.
    if isinstance(value, bool) or not number.is_integer():
        raise SuiteError(f"{where}: the score {value!r} is no whole number.")
    return int(number)
