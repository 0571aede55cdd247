"""A stratified sample for people to judge, and how far they agree with the build and with one another."""

from __future__ import annotations

import csv
import io
import random
from collections import defaultdict
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from ..._files import write_text
from ...errors import InvalidInputError, SuiteError
from ..lines import json_lines, reading
from ..suites import load_corpus

__all__ = ["audit_sample", "build_labels", "cohen_kappa", "read_labels"]

# What these gates ask is what a person is asked: is the query's reading of its documents right?
VALIDITY = ("topic_in_negative", "topic_not_in_gold", "paraphrase_safety", "query_judge")
COLUMNS = (
    "id",
    "tier",
    "form",
    "query",
    "wanted",
    "excluded",
    "wanted_document",
    "excluded_documents",
    "valid",
    "note",
)
_YES, _NO = frozenset({"yes", "y", "1", "true"}), frozenset({"no", "n", "0", "false"})


def audit_sample(suite: str | Path, out: str | Path, *, per_kind: int = 10, seed: int = 0) -> int:
    """Write a sample of a built suite as CSV, with an empty column ``valid`` (yes or no) to fill in.

    Args:
        suite: the folder that ``excise bench build`` wrote.
        out: the file.
        per_kind: records of each tier and form, at least 1; and as many again, if there are, of those that the
            gates on meaning dropped, unmarked, so that agreement means something.
        seed: of the draw and the order.

    Returns:
        The number of records.

    Raises:
        SuiteError: a file of the suite is missing or malformed.
        InvalidInputError: ``per_kind`` is below 1.
    """
    if per_kind < 1:
        raise InvalidInputError(f"per_kind={per_kind} must be at least 1.")
    suite = Path(suite)
    texts = {d.id: d.text for d in load_corpus(suite / "corpus.jsonl")[0]}
    strata: dict[tuple[str, str, bool], list[dict[str, Any]]] = defaultdict(list)
    for row, kept in _judged(suite):
        strata[row["tier"], row["form"], kept].append(row)
    rng = random.Random(seed)
    chosen = [row for key in sorted(strata) for row in rng.sample(strata[key], min(per_kind, len(strata[key])))]
    rng.shuffle(chosen)
    handle = io.StringIO()
    table = csv.writer(handle, lineterminator="\n")
    table.writerow(COLUMNS)
    for row in chosen:
        documents = row["documents"]
        gold = "\n\n".join(texts[name] for name, score in documents.items() if score > 0)
        others = "\n\n".join(texts[name] for name, score in documents.items() if score < 0)
        cells = [row["_id"], row["tier"], row["form"], row["text"], row["wanted"], "; ".join(row["excluded"])]
        table.writerow([_cell(value) for value in (*cells, gold, others, "", "")])
    write_text(Path(out), handle.getvalue())
    return len(chosen)


def build_labels(suite: str | Path) -> dict[str, bool]:
    """Return what the build says: query id → kept (true), or dropped by a gate on meaning."""
    return {row["_id"]: kept for row, kept in _judged(Path(suite))}


def read_labels(path: str | Path) -> dict[str, bool]:
    """Read a sample that came back: query id → valid. Rows whose column ``valid`` is empty are left out.

    Raises:
        SuiteError: the file is missing, lacks a column, or a value is neither yes nor no; file and line are named.
    """
    path = Path(path)
    labels: dict[str, bool] = {}
    with reading(path, "a CSV file in UTF-8"), path.open(encoding="utf-8-sig", newline="") as handle:
        table = csv.DictReader(handle)
        if not {"id", "valid"} <= set(table.fieldnames or ()):
            raise SuiteError(f"{path}, line 1: the columns 'id' and 'valid' are needed, found {table.fieldnames}.")
        for row in table:
            value = (row["valid"] or "").strip().casefold()
            if value and value not in _YES | _NO:
                raise SuiteError(f"{path}, line {table.line_num}: 'valid' must be yes or no, not {row['valid']!r}.")
            if value:
                labels[row["id"]] = value in _YES
    return labels


def cohen_kappa(a: Mapping[str, bool], b: Mapping[str, bool]) -> dict[str, float | int | None]:
    """Compare two raters on what both have judged.

    Returns:
        ``n``, ``agreement`` (share of equal labels) and Cohen's ``kappa``; null where undefined, as kappa is when
        both give one label throughout.
    """
    pairs = [(a[name], b[name]) for name in a if name in b]
    n = len(pairs)
    if not n:
        return {"n": 0, "agreement": None, "kappa": None}
    agreement = sum(x == y for x, y in pairs) / n
    yes_a, yes_b = sum(x for x, _ in pairs) / n, sum(y for _, y in pairs) / n
    chance = yes_a * yes_b + (1 - yes_a) * (1 - yes_b)
    return {"n": n, "agreement": agreement, "kappa": None if chance == 1 else (agreement - chance) / (1 - chance)}


def _judged(suite: Path) -> list[tuple[dict[str, Any], bool]]:
    """Return the records that a person can judge, each with whether it was kept."""
    rows = [row for _, row in json_lines(suite / "records.jsonl")]
    if any(not {"_id", "tier", "form", "text", "wanted", "excluded", "documents", "gate"} <= set(row) for row in rows):
        raise SuiteError(f"{suite / 'records.jsonl'} is not what `excise bench build` wrote.")
    return [(row, row["gate"] is None) for row in rows if row["gate"] is None or row["gate"] in VALIDITY]


def _cell(value: str) -> str:
    # A spreadsheet takes what begins like this for a formula.
    return f"'{value}" if value[:1] in ("=", "+", "-", "@", "\t", "\r") else value
