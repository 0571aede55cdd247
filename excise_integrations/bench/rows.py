"""Result files: one system on one suite, as a head and one JSON line per query."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from .._files import write_text
from ..errors import SuiteError
from .lines import json_lines
from .metrics import METRICS, Values, average

__all__ = ["QueryRow", "Row", "read_folder", "read_head", "read_row", "row_path", "write_row"]


@dataclass(frozen=True)
class QueryRow:
    """What one system did with one query.

    Args:
        id: the query's.
        groups: what it is broken down by (``tier``, ``form``).
        topics: how many excluded topics the suite records.
        values: metric → value or None.
        top: ids of the first ten documents.
        removed: ids of the removed documents.
        fired: whether a topic was found, or given.
    """

    id: str
    groups: Mapping[str, str]
    topics: int
    values: Values
    top: tuple[str, ...] = ()
    removed: tuple[str, ...] = ()
    fired: bool = False

    @property
    def ordinary(self) -> bool:
        """Whether the query excludes nothing: no topic, no excluded document, no tier of exclusions."""
        tier = self.groups.get("tier", "")
        return not self.topics and self.values.get("leak") is None and (not tier or tier.startswith("C"))

    def record(self) -> dict[str, Any]:
        """Return plain JSON types."""
        return {**self.__dict__, "groups": dict(self.groups), "top": list(self.top), "removed": list(self.removed)}


@dataclass(frozen=True)
class Row:
    """One system on one suite.

    Args:
        suite: the suite's name.
        system: the system's name.
        key: hash of everything that the outcomes depend on.
        head: what else is known: group, title, settings, machine, command, seconds.
        skipped: why the system did not run; None when it did.
        queries: its outcomes, in the suite's order.
    """

    suite: str
    system: str
    key: str
    head: Mapping[str, Any] = field(default_factory=dict)
    skipped: str | None = None
    queries: tuple[QueryRow, ...] = ()

    def values(self, metric: str) -> dict[str, float | None]:
        """Return query id → value of one metric."""
        return {q.id: q.values.get(metric) for q in self.queries}

    def average(self, queries: Sequence[QueryRow] | None = None) -> dict[str, Any]:
        """Return metric → mean over the queries that have a value, or over some of them."""
        chosen = self.queries if queries is None else queries
        return average([q.values for q in chosen], [q.topics for q in chosen], METRICS)


def row_path(folder: Path, suite: str, system: str) -> Path:
    """Return where the row of a system on a suite lies."""
    return folder / suite / f"{system}.jsonl"


def write_row(folder: Path, row: Row) -> Path:
    """Write a row whole, or not at all.

    Args:
        folder: the folder of a run.
        row: the row; its averages go into the head.

    Returns:
        The file.
    """
    head = {
        "suite": row.suite, "system": row.system, "key": row.key, "skipped": row.skipped,
        "n": len(row.queries), "metrics": row.average() if row.queries else None, **row.head,
    }  # fmt: skip
    path = row_path(folder, row.suite, row.system)
    write_text(path, "".join(json.dumps(r) + "\n" for r in [head, *(q.record() for q in row.queries)]))
    return path


def read_head(path: Path) -> dict[str, Any] | None:
    """Return the head of a result file, or None when there is none that can be read."""
    try:
        with path.open(encoding="utf-8") as handle:
            head = json.loads(handle.readline())
    except (OSError, ValueError, RecursionError):
        return None
    return head if isinstance(head, dict) and "system" in head else None


def read_row(path: Path) -> Row:
    """Read a result file.

    Raises:
        SuiteError: the file is missing, malformed or incomplete.
    """
    records = [record for _, record in json_lines(path)]
    try:
        head, *lines = records
        row = Row(
            suite=head.pop("suite"),
            system=head.pop("system"),
            key=head.pop("key"),
            skipped=head.pop("skipped"),
            queries=tuple(_query(line) for line in lines),
            head=head,
        )
    except (KeyError, TypeError, ValueError) as error:
        raise SuiteError(f"{path} is no result file of `excise bench run` ({error!r}).") from None
    if len(row.queries) != row.head.get("n"):
        raise SuiteError(f"{path} holds {len(row.queries)} of {row.head.get('n')} queries; run its row again.")
    return row


def read_folder(folder: str | Path) -> list[Row]:
    """Read every result file of a run, by suite and system.

    Raises:
        SuiteError: there is none, or one cannot be read.
    """
    folder = Path(folder)
    paths = sorted(folder.glob("*/*.jsonl"))
    if not paths:
        raise SuiteError(f"{folder} holds no results; `excise bench run SUITE --out {folder}` writes them.")
    return [read_row(path) for path in paths]


def _query(record: dict[str, Any]) -> QueryRow:
    return QueryRow(**{**record, "top": tuple(record["top"]), "removed": tuple(record["removed"])})
