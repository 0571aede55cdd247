"""``excise evaluate``."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer

from ..version import __version__
from . import options as opt

if TYPE_CHECKING:
    from rich.table import Table

    from ..detect.base import Detector
    from ..pipeline import Excise

__all__ = ["evaluate"]

_QUERY_COLUMNS = ("fire_rate", "recall", "false_fire_rate", "span_f1", "topic_recall")


def evaluate(
    suites: Annotated[
        list[Path] | None, typer.Argument(metavar="SUITE...", help="BEIR folders with excluded documents.")
    ] = None,
    split: opt.Split = "dev",
    backbone: opt.BackboneName = "minilm",
    topics: Annotated[
        Literal["detected", "true"], typer.Option("--topics", help="Ask the detector, or take the suite's topics.")
    ] = "detected",
    detector: opt.DetectorName = "auto",
    demotion: opt.Demotion = None,
    adapter: opt.Adapter = "auto",
    candidates: Annotated[
        Literal["all", "judged"], typer.Option("--candidates", help="Rank the corpus, or the judged documents only.")
    ] = "all",
    limit: Annotated[
        int | None, typer.Option("--limit", min=1, help="At most this many queries of each suite.")
    ] = None,
    cache: Annotated[
        Path | None, typer.Option("--cache", help="Keep vectors here between runs; survives a kill.")
    ] = None,
    queries: Annotated[
        list[Path] | None,
        typer.Option("--queries", help="A JSONL file of queries without documents, {text, excluded}. Repeatable."),
    ] = None,
    per_query: Annotated[
        Path | None, typer.Option("--per-query", help="Write one JSON line per query, with detections and rankings.")
    ] = None,
    device: opt.Device = None,
    settings: opt.Settings = None,
    json_path: Annotated[
        str | None, typer.Option("--json", metavar="FILE", help="Write the results as JSON; - is stdout.")
    ] = None,
) -> None:
    """Measure the frozen ranking and Excise's on suites, and detection on files of queries."""
    if not suites and not queries:
        raise typer.BadParameter("give at least one suite, or --queries.", param_hint="SUITE...")
    from .._files import write_text
    from ..bench.suites import load_queries, load_suites
    from . import render

    # Every file is read before anything is encoded: a typo must not cost an hour.
    loaded = load_suites(suites or (), split)
    files = _named(queries or ())
    questions = {name: load_queries(path) for name, path in files.items()}
    out = render.console(stderr=json_path == "-")
    report: dict[str, Any] = {"suites": {}, "config": {}, "version": __version__}
    records: list[dict[str, Any]] = []

    excise: Excise | None = None
    if loaded:
        excise = opt.load_excise(
            backbone, detector=detector, adapter=adapter, demotion=demotion, device=device, settings=settings
        )
        report["config"] = _config(excise, split=split, topics=topics, candidates=candidates, limit=limit)
        from ..bench.evaluate import SuiteResult, evaluate_suite
        from ..bench.store import VectorStore
        from .progress import StageBars

        store = VectorStore(cache) if cache is not None else None
        results = []
        for suite in loaded:
            for warning in suite.warnings:
                out.print(f"warning: {warning}", style="yellow", markup=False, highlight=False)
            with StageBars(f"{suite.name}: ") as bars:
                result = evaluate_suite(
                    excise, suite, topics=topics, candidates=candidates, limit=limit, store=store, progress=bars
                )
            results.append(result)
            report["suites"][suite.name] = result.summary()
            records += [{"suite": suite.name, **o.record()} for o in result.outcomes]
            out.print(_suite_table(suite.name, report["suites"][suite.name]))
        if len(results) > 1:
            pooled = SuiteResult("pooled", tuple(o for result in results for o in result.outcomes))
            report["pooled"] = pooled.summary()
            out.print(_suite_table("all suites, every query alike", report["pooled"]))
    if questions:
        found = excise.detector if excise is not None else _detector(detector, device, settings)
        report["config"].setdefault("detector", _label(found))
        report["queries"] = _measure_queries(found, questions, limit, records, out)

    if json_path == "-":
        typer.echo(json.dumps(report, indent=2))
    elif json_path is not None:
        write_text(Path(json_path), json.dumps(report, indent=2) + "\n")
    if per_query is not None:
        write_text(per_query, "".join(json.dumps(r) + "\n" for r in records))


def _measure_queries(
    detector: Detector,
    questions: Mapping[str, Sequence[Any]],
    limit: int | None,
    records: list[dict[str, Any]],
    out: Any,
) -> dict[str, Any]:
    from ..bench.queries import evaluate_queries
    from .progress import StageBars

    summaries: dict[str, Any] = {}
    for name, rows in questions.items():
        with StageBars(f"{name}: ") as bars:
            summary = evaluate_queries(detector, rows[:limit], progress=bars)
        records += [{"queries": name, **r} for r in summary.pop("queries")]
        summaries[name] = summary
        out.print(_query_table(name, summary))
    return summaries


def _detector(name: str, device: str | None, settings: Sequence[str] | None) -> Detector:
    # Queries without documents need no backbone.
    opt.quiet()
    from ..config import ExciseConfig
    from ..detect import resolve
    from ..errors import InvalidInputError

    try:
        config = ExciseConfig(**opt.pairs(settings, "--set"))
    except ValueError as error:
        raise InvalidInputError(f"The settings cannot be used: {error}") from error
    return resolve(name, device=device, threshold=config.threshold)


def _config(excise: Excise, **facts: Any) -> dict[str, Any]:
    return {
        **facts,
        "backbone": excise.backbone.label,
        "detector": _label(excise.detector),
        "exclusion_adapter": excise.exclusion.adapter if excise.exclusion is not None else None,
        "settings": excise.config.model_dump(mode="json"),
        "digest": excise.config.digest(),
    }


def _label(detector: Detector) -> str:
    return str(getattr(detector, "label", None) or type(detector).__name__)


def _named(paths: Iterable[Path]) -> dict[str, Path]:
    """Call each file by its stem, or by its folder when it is one of many ``queries.jsonl``."""
    out: dict[str, Path] = {}
    for path in paths:
        name = path.resolve().parent.name if path.stem == "queries" else path.stem
        out[name if name not in out else str(path)] = path
    return out


def _suite_table(name: str, summary: Mapping[str, Any]) -> Table:
    from ..bench.metrics import METRICS

    table = _table(name, METRICS)
    rows = [("all", summary), *summary["tiers"].items(), *summary["forms"].items(), ("found", summary["found"])]
    for label, part in rows:
        for side in ("frozen", "excise"):
            table.add_row(
                label if side == "frozen" else "",
                str(part["n"]) if side == "frozen" else "",
                side,
                *(_cell(part[side][m]) for m in METRICS),
            )
        table.add_section()
    return table


def _query_table(name: str, summary: Mapping[str, Any]) -> Table:
    table = _table(name, _QUERY_COLUMNS, side=False)
    for label, part in [("all", summary), *(g for key in ("kinds", "tiers", "forms") for g in summary[key].items())]:
        table.add_row(label, str(part["n"]), *(_cell(part[m]) for m in _QUERY_COLUMNS))
    return table


def _table(name: str, columns: Sequence[str], *, side: bool = True) -> Table:
    from rich.table import Table

    table = Table(title=name, title_justify="left")
    table.add_column("")
    table.add_column("n", justify="right")
    if side:
        table.add_column("")
    for column in columns:
        table.add_column(column, justify="right")
    return table


def _cell(value: float | None) -> str:
    return "" if value is None else f"{value:.3f}"
