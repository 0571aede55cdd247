"""The report as Markdown."""

from __future__ import annotations

from typing import Any

from ._markup import escape_markdown as md
from ._segments import Segment, excerpt, query_segments
from .reasons import number

__all__ = ["markdown"]

_EXCERPT = 400


def markdown(record: dict[str, Any]) -> str:
    """Render a report's record as Markdown (GitHub's dialect)."""
    lines = ["# Excise report", "", f"**Query:** {_query(record)}", ""]
    lines += [f"{md(sentence)}  " for sentence in record["summary"]]
    if record["warnings"]:
        lines += ["", "## Warnings", ""]
        lines += [f"- {md(warning)}" for warning in record["warnings"]]
    if record["topics"]:
        lines += ["", "## Excluded topics", ""]
        lines += _table(
            ["Topic", "Where in the query", "Confidence", "Strongest evidence", "Cut", "Removed"],
            [
                [md(t["text"]), where(t), *(number(t[key]) for key in ("confidence", "strongest", "cut")), t["removed"]]
                for t in record["topics"]
            ],
        )
    removed = [c for c in record["candidates"] if c["action"] == "removed"]
    if removed:
        lines += ["", "## Removed documents", ""]
        for c in removed:
            lines += [f"- **{md(c['id'])}** (first-stage rank {c['first_stage_rank']}). {md(c['reason'])}"]
            if c["text"] is not None:
                lines += ["", f"  > {_marked(excerpt(c, _EXCERPT))}", ""]
    if record["candidates"]:
        lines += ["", "## Candidates", ""]
        lines += _table(
            ["Rank", "First stage", "Document", "Action", "Evidence", "Cut", "Penalty", "Score", "Why"],
            [
                [
                    "–" if c["rank"] is None else c["rank"],
                    c["first_stage_rank"],
                    md(c["id"]),
                    c["action"],
                    number(c["evidence"]),
                    number(c["cut"]),
                    number(c["penalty"]),
                    number(c["score"]),
                    md(c["reason"]),
                ]
                for c in sorted(record["candidates"], key=lambda c: (c["rank"] is None, c["rank"] or 0))
            ],
        )
    lines += ["", "## Made with", ""]
    lines += [f"- {name}: {md(value)}" for name, value in provenance(record)]
    return "\n".join(lines) + "\n"


def where(topic: dict[str, Any]) -> str:
    """Say where a topic stands in the query."""
    if topic["start"] is None:
        return "not in the query"
    return f"characters {topic['start']} to {topic['end']}"


def provenance(record: dict[str, Any]) -> list[tuple[str, str]]:
    """Return what the result was made with, as names and values."""
    out = [
        ("Report made", record["created"]),
        ("Version", f"excise-integrations {record['version']}"),
        ("Configuration", record["config"]["digest"] or "unknown"),
        ("Safety floor", number(record["floor"])),
        ("Adapters", ", ".join(record["adapters"]) or "none"),
    ]
    if record["backbone"]:
        out.append(("Backbone", record["backbone"]))
    if record["timings"]:
        seconds = ", ".join(f"{name} {1000 * value:.1f} ms" for name, value in record["timings"].items() if value)
        out.append(("Time", seconds))
    for name, value in (record["config"]["settings"] or {}).items():
        out.append((f"Setting {name}", str(value)))
    return out


def _query(record: dict[str, Any]) -> str:
    # Blanks at the edge of a piece would keep the stars from being read as emphasis.
    out = []
    for kind, text in query_segments(record):
        piece = md(text)
        before, after = " " if text[:1].isspace() else "", " " if text[-1:].isspace() else ""
        out.append(before + (f"**{piece}** (excluded)" if kind == "excluded" else piece) + (after if piece else ""))
    return "".join(out)


def _marked(segments: list[Segment]) -> str:
    out = []
    for kind, text in segments:
        piece = md(text)
        before, after = " " if text[:1].isspace() else "", " " if text[-1:].isspace() else ""
        out.append(before + (f"**{piece}**" if kind else piece) + (after if piece else ""))
    return "".join(out).strip()


def _table(header: list[str], rows: list[list[object]]) -> list[str]:
    lines = [f"| {' | '.join(header)} |", f"|{'---|' * len(header)}"]
    lines += [f"| {' | '.join(str(cell) for cell in row)} |" for row in rows]
    return lines
