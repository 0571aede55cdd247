"""``excise search`` and ``excise explain``."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer

from ..types import Candidate, ExciseResult
from . import options as opt

if TYPE_CHECKING:
    from ..pipeline import Excise

__all__ = ["explain", "search"]

_Source = Annotated[
    Path,
    typer.Argument(
        metavar="SOURCE",
        help="A JSONL file of documents, a folder of text files, a suite, an index of `excise index`, or a "
        "RAGatouille index.",
    ),
]
_Query = Annotated[str, typer.Argument(metavar="QUERY", help="The query. Put -- before one that starts with a dash.")]
_Exclude = Annotated[
    list[str] | None,
    typer.Option("--exclude", help="A topic to exclude, instead of asking the detector. Repeatable."),
]
_NoExclude = Annotated[bool, typer.Option("--no-exclude", help="Switch exclusion off: the frozen ranking.")]
_Filter = Annotated[
    list[str] | None, typer.Option("--filter", metavar="KEY=VALUE", help="Metadata that must match. Repeatable.")
]


def search(
    source: _Source,
    query: _Query,
    k: Annotated[int, typer.Option("-k", min=1, help="Results to show.")] = 10,
    exclude: _Exclude = None,
    no_exclude: _NoExclude = False,
    filter: _Filter = None,
    backbone: opt.Backbone = None,
    detector: opt.DetectorName = "auto",
    adapter: opt.Adapter = "auto",
    demotion: opt.Demotion = None,
    device: opt.Device = None,
    settings: opt.Settings = None,
    log: opt.Log = None,
    log_text: opt.LogText = "hash",
    as_json: opt.Json = False,
) -> None:
    """Search documents: the frozen ranking and Excise's side by side, with what moved and why."""
    _, result, shortlist = _run(
        source, query, k, exclude, no_exclude, filter, backbone,
        detector=detector, adapter=adapter, demotion=demotion, device=device, settings=settings,
        log=log, log_text=log_text,
    )  # fmt: skip
    from . import render

    if as_json:
        typer.echo(json.dumps(render.search_record(result, shortlist, k), indent=2, default=str))
        return
    out = render.console()
    out.print(render.query_line(query, result.detection))
    out.print(render.search_table(result, shortlist, k))
    if result.removed:
        out.print("removed:", ", ".join(render.plain(c.id) for c in result.removed), markup=False, highlight=False)
    for warning in result.warnings:
        out.print(f"warning: {warning}", style="yellow", markup=False, highlight=False)


def explain(
    source: _Source,
    query: _Query,
    exclude: _Exclude = None,
    no_exclude: _NoExclude = False,
    filter: _Filter = None,
    format: Annotated[
        Literal["md", "json", "html"] | None,
        typer.Option("--format", help="Markdown (the default), JSON or one HTML page."),
    ] = None,
    highlight: Annotated[
        bool, typer.Option("--highlight/--no-highlight", help="Mark what matched a topic; encodes the shortlist again.")
    ] = True,
    output: Annotated[Path | None, typer.Option("--output", "-o", help="Write to a file instead of stdout.")] = None,
    html: Annotated[
        Path | None, typer.Option("--html", metavar="FILE", help="Write the report as one HTML page to this file.")
    ] = None,
    backbone: opt.Backbone = None,
    detector: opt.DetectorName = "auto",
    adapter: opt.Adapter = "auto",
    demotion: opt.Demotion = None,
    device: opt.Device = None,
    settings: opt.Settings = None,
    log: opt.Log = None,
    log_text: opt.LogText = "hash",
    as_json: opt.Json = False,
) -> None:
    """Report one query: which topics it excludes and what became of every candidate of the shortlist."""
    excise, result, _ = _run(
        source, query, None, exclude, no_exclude, filter, backbone,
        detector=detector, adapter=adapter, demotion=demotion, device=device, settings=settings,
        log=log, log_text=log_text,
    )  # fmt: skip
    from .._files import write_text
    from ..audit.report import Report

    report = Report(result, excise.encoder if highlight else None, config=excise.config)
    write = {"md": report.to_markdown, "json": report.to_json, "html": report.to_html}
    if html is not None:
        write_text(html, report.to_html())
        if output is None and format is None and not as_json:
            typer.echo(f"The report is in {html}.")
            return
    text = write["json" if as_json else format or "md"]().rstrip("\n") + "\n"
    if output is None:
        typer.echo(text, nl=False)
    else:
        write_text(output, text)


def _run(
    source: Path,
    query: str,
    k: int | None,
    exclude: Sequence[str] | None,
    no_exclude: bool,
    filter: Sequence[str] | None,
    backbone: str | None,
    **loading: Any,
) -> tuple[Excise, ExciseResult, list[Candidate]]:
    if exclude and no_exclude:
        raise typer.BadParameter("it cannot be combined with --exclude.", param_hint="--no-exclude")
    conditions = opt.pairs(filter, "--filter")
    from .progress import StageBars
    from .sources import Source

    opt.quiet()
    where = Source.at(source)
    excise = opt.load_excise(backbone or where.backbone(), **loading)
    with StageBars() as bars:
        stage = where.open(excise.backbone, lambda done, total: bars("encoding", done, total))
    shortlist = stage.search(query, excise.shortlist_size(k), filter=conditions or None)
    topics = [] if no_exclude else (list(exclude) if exclude else None)
    result = excise.rerank(query, shortlist, k=k, exclude=topics, first_stage=stage)
    return excise, result, shortlist
