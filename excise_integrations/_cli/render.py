"""Results as tables and as JSON."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any

from rich.console import Console
from rich.table import Table
from rich.text import Text

from ..types import Candidate, Detection, ExciseResult

__all__ = ["console", "plain", "query_line", "search_record", "search_table"]

_STYLES = {"removed": "red strike", "penalised": "yellow", "protected": "green"}
# What a terminal could take as a command.
_CONTROL = re.compile(r"[\x00-\x1f\x7f-\x9f\u200e\u200f\u202a-\u202e\u2066-\u2069]+")
_PIPE_WIDTH = 160


def console(*, stderr: bool = False) -> Console:
    """Return a console; one that is no terminal is wide enough for the tables."""
    out = Console(stderr=stderr)
    return out if out.is_terminal else Console(stderr=stderr, width=_PIPE_WIDTH)


def plain(text: str, limit: int | None = None) -> str:
    """Return a text on one line, without control characters, cut to a length."""
    text = " ".join(_CONTROL.sub(" ", text).split())
    return text if limit is None or len(text) <= limit else text[: limit - 1] + "…"


def query_line(query: str, detection: Detection) -> Text:
    """Return the query with its excluded topics highlighted."""
    line = Text()
    at = 0
    for span in sorted((s for s in detection.spans if s.start is not None), key=lambda s: s.start or 0):
        start, end = max(at, span.start or 0), span.end or 0
        line.append(_CONTROL.sub(" ", query[at:start]))
        line.append(_CONTROL.sub(" ", query[start:end]), style="bold reverse red")
        at = max(at, end)
    line.append(_CONTROL.sub(" ", query[at:]))
    for span in detection.spans:
        if span.start is None:
            line.append("  (not in the query: ", style="dim")
            line.append(plain(span.text), style="bold reverse red")
            line.append(")", style="dim")
    return line


def search_table(result: ExciseResult, shortlist: Sequence[Candidate], k: int) -> Table:
    """Return the frozen ranking and Excise's side by side."""
    table = Table(expand=True)
    for name, justify in (("#", "right"), ("frozen", "left"), ("score", "right"), ("Excise", "left")):
        table.add_column(name, justify=justify, ratio=1 if justify == "left" else None, no_wrap=justify == "right")  # type: ignore[arg-type]
    for name in ("score", "evidence", "was", "action"):
        table.add_column(name, justify="left" if name == "action" else "right", no_wrap=True)
    left, right = list(shortlist[:k]), list(result.candidates)
    for i in range(max(len(left), len(right))):
        row: list[str | Text] = [str(i + 1)]
        if i < len(left):
            verdict = result.verdicts[left[i].id]
            row += [_cell(left[i], _STYLES.get(verdict.action, "")), _number(left[i].score)]
        else:
            row += ["", ""]
        if i < len(right):
            verdict = result.verdicts[right[i].id]
            style = _STYLES.get(verdict.action, "")
            row += [
                _cell(right[i], style),
                _number(verdict.score),
                _number(verdict.evidence),
                str(verdict.first_stage_rank),
                Text(verdict.action, style=style),
            ]
        table.add_row(*row)
    return table


def search_record(result: ExciseResult, shortlist: Sequence[Candidate], k: int | None = None) -> dict[str, Any]:
    """Return a search as plain JSON types."""
    detection = result.detection
    return {
        "query": result.query,
        "detection": {
            "fired": detection.fired,
            "confidence": detection.confidence,
            "spans": [
                {"text": s.text, "start": s.start, "end": s.end, "confidence": s.confidence} for s in detection.spans
            ],
            "wanted": detection.wanted,
            "source": detection.source,
        },
        "frozen": [{"id": c.id, "text": c.text, "score": c.score} for c in shortlist[:k]],
        "excise": [_candidate(c, result) for c in result.candidates],
        "removed": [_candidate(c, result) for c in result.removed],
        "warnings": list(result.warnings),
        "adapters": list(result.adapters),
        "config": result.config,
        "floor": result.floor,
        "error": result.error,
        "shadow": result.shadow,
    }


def _cell(candidate: Candidate, style: str) -> Text:
    return Text.assemble((plain(candidate.id, 24), "bold"), "  ", plain(candidate.text, 70), style=style)


def _number(value: float | None) -> str:
    return "" if value is None else f"{value:.3f}"


def _candidate(candidate: Candidate, result: ExciseResult) -> dict[str, Any]:
    return {
        "id": candidate.id,
        "text": candidate.text,
        "metadata": dict(candidate.metadata),
        "excise": {
            **result.metadata(candidate),
            "topic_evidence": list(result.verdicts[candidate.id].topic_evidence),
        },
    }
