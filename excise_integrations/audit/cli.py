"""``excise log``: filter an audit log and show it."""

from __future__ import annotations

import json
from collections import deque
from pathlib import Path
from typing import Annotated, Any, Literal

import typer

from ._markup import visible
from .log_read import describe, read_log
from .reasons import number

__all__ = ["app"]

app = typer.Typer(add_completion=False)


@app.command()
def log(
    path: Annotated[Path, typer.Argument(metavar="LOG", help="The log's current file; its full files are read too.")],
    fired: Annotated[
        bool | None, typer.Option("--fired/--silent", help="Only queries that excluded something, or nothing.")
    ] = None,
    since: Annotated[str | None, typer.Option(help="From this moment on; ISO 8601, UTC without a zone.")] = None,
    until: Annotated[str | None, typer.Option(help="Before this moment.")] = None,
    action: Annotated[
        Literal["unchanged", "reranked", "penalised", "removed", "protected"] | None,
        typer.Option(help="Only queries where a candidate met this action."),
    ] = None,
    last: Annotated[int | None, typer.Option("--last", "-n", min=1, help="Only the last N of them.")] = None,
    verdicts: Annotated[bool, typer.Option("--verdicts", help="Show what became of every candidate too.")] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print the entries as JSON, one a line.")] = False,
) -> None:
    """Show what an audit log says, one line a query, oldest first."""
    entries: Any = read_log(path, fired=fired, since=since, until=until, action=action)
    if last is not None:
        entries = deque(entries, maxlen=last)
    for entry in entries:
        if as_json:
            typer.echo(json.dumps(entry))
            continue
        typer.echo(describe(entry))
        for verdict in entry["verdicts"] if verdicts else ():
            typer.echo(_verdict(verdict))


def _verdict(verdict: dict[str, Any]) -> str:
    rank = verdict.get("rank", "–")
    name = " ".join(visible(verdict["id"]).split())
    line = f"    {verdict['first_stage_rank']:>4} → {rank:<4} {verdict['action']:<10} {name}"
    if "evidence" in verdict:
        line += f"  evidence {number(verdict['evidence'])}, cut {number(verdict.get('cut'))}"
    return line
