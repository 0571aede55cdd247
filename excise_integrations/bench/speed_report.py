"""The tables of speed runs, from their records alone."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from ..errors import InvalidInputError
from .markdown import markdown

__all__ = ["read_record", "render_speed"]

Record = Mapping[str, Any]
_TIMES = ("p50 ms", "p95 ms", "p99 ms", "per second")


def read_record(path: Path) -> dict[str, Any]:
    """Read what ``excise bench speed --out`` wrote.

    Raises:
        InvalidInputError: the file cannot be read, or is no such record.
    """
    try:
        record = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise InvalidInputError(f"{path} cannot be read as a record of `excise bench speed`: {error}") from error
    if not isinstance(record, dict) or "dtype" not in record:
        raise InvalidInputError(f"{path} is no record of `excise bench speed`; write one with --out.")
    return record


def render_speed(records: Sequence[Record]) -> str:
    """Return the Markdown of all parts that the records hold, each under a heading of its own."""
    sections = {
        "Ratios to what runs beside it": _timings(records),
        "Under load": _loads(records),
        "Where the time goes": _profiles(records),
        "The start of a process": _starts(records),
        "Commands": _commands(records),
    }
    return "\n\n".join(f"## {title}\n\n{body}" for title, body in sections.items() if body)


def _setting(record: Record) -> list[str]:
    length = record["tokens"]
    return [f"{record['documents']:,}", "own" if length is None else str(length), str(record["k"]), record["dtype"]]


_SETTING = ("documents", "tokens", "k", "arithmetic")


def _timings(records: Sequence[Record]) -> str:
    rows = [
        [*_setting(r), t["name"], *_times(t), "" if t["name"] == t["reference"] else f"{t['ratio']:.2f} × {_of(t)}"]
        for part in ("detection", "search", "rerank")
        for r in records
        for t in r.get(part, ())
    ]
    return markdown((*_SETTING, "what", *_TIMES, "ratio"), rows) if rows else ""


def _of(timing: Mapping[str, Any]) -> str:
    return str(timing["reference"]).split(",")[0]


def _times(timing: Mapping[str, Any]) -> list[str]:
    return [*(f"{timing[p]:,.1f}" for p in ("p50", "p95", "p99")), f"{timing['per_second']:,.1f}"]


def _loads(records: Sequence[Record]) -> str:
    rows = [
        [t["name"], str(t["callers"]), str(t["batch"]), str(t["n"]), *_times(t)]
        for r in records
        for t in r.get("load", ())
    ]
    return markdown(("what", "callers", "batch", "queries", *_TIMES), rows) if rows else ""


def _profiles(records: Sequence[Record]) -> str:
    tables = []
    for record in records:
        found = record.get("profile")
        if not found:
            continue
        parts = dict.fromkeys(part for costs in found.values() for part in costs)
        totals = {kind: sum(costs.values()) for kind, costs in found.items()}
        rows = [[part, *(_cost(costs.get(part), totals[kind]) for kind, costs in found.items())] for part in parts]
        rows.append(["**all**", *(f"**{total:,.1f}**" for total in totals.values())])
        tables.append(
            f"Milliseconds of a query and share of the whole, {', '.join(f'{n}: {v}' for n, v in _named(record))}:\n\n"
            + markdown(("part", *found), rows)
        )
    return "\n\n".join(tables)


def _named(record: Record) -> list[tuple[str, str]]:
    return list(zip(_SETTING, _setting(record), strict=True))


def _cost(value: float | None, total: float) -> str:
    return "" if value is None else f"{value:,.2f} ({value / total:.1%})"


def _starts(records: Sequence[Record]) -> str:
    rows = [[step, f"{ms:,.0f}"] for r in records for step, ms in r.get("start", {}).items()]
    return markdown(("step", "ms"), rows) if rows else ""


def _commands(records: Sequence[Record]) -> str:
    return "```console\n" + "\n".join(str(r["command"]) for r in records) + "\n```"
