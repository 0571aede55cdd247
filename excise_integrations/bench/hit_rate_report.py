"""The report's section on latency against the cache's hit rate."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from ..errors import SuiteError
from .lines import reading
from .markdown import markdown

__all__ = ["hit_rate_section", "read_hit_rates"]


def read_hit_rates(path: Path) -> dict[str, Any]:
    """Read what ``excise bench hit-rate`` wrote.

    Raises:
        SuiteError: the file cannot be read, or holds something else.
    """
    with reading(path, "JSON in UTF-8"):
        record = json.loads(path.read_text(encoding="utf-8"))
    try:
        rows = [{name: float(row[name]) for name in ("hit_rate", "n", "p50", "p95")} for row in record["hit_rates"]]
        return {name: record[name] for name in ("command", "suite", "documents", "k", "machine")} | {"hit_rates": rows}
    except (KeyError, TypeError, ValueError) as error:
        raise SuiteError(f"{path} is no record of `excise bench hit-rate` ({error!r}).") from None


def hit_rate_section(record: Mapping[str, Any]) -> str:
    """Return what firings cost by the cache's hit rate, as Markdown, with the command and the machine.

    Args:
        record: what :func:`read_hit_rates` returns.
    """
    rows = record["hit_rates"]
    full = rows[-1]["p50"]
    body = [
        [f"{r['hit_rate']:.2f}", f"{r['n']:.0f}", f"{r['p50']:.1f}", f"{r['p95']:.1f}", f"{r['p50'] / full:.1f}"]
        for r in rows
    ]
    about = (
        f"Re-ranking {record['k']} candidates of {record['documents']:,} from {record['suite']} after a retriever "
        f"that has no vectors, with a part of each shortlist in the cache. {record['machine']}."
    )
    head = ["hit rate", "firings", "p50 ms", "p95 ms", "times the last row"]
    return f"```console\n{record['command']}\n```\n\n{about}\n\n{markdown(head, body)}"
