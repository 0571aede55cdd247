"""``excise bench``: run systems on suites, compare runs, write the report."""

from __future__ import annotations

import json
import os
import shlex
import sys
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer

from .._cli import options as opt
from .analyses_cli import boolean, inversion, probe
from .construct.cli import agreement, audit_sample_command, build
from .controls_cli import train as train_
from .hit_rate_cli import hit_rate
from .import_cli import import_
from .speed_cli import speed, speed_report
from .sweep_cli import sweep_constants

if TYPE_CHECKING:
    from ..pipeline import Excise
    from .gate import ReadoutGate
    from .rows import Row
    from .store import VectorStore

__all__ = ["app"]

app = typer.Typer(no_args_is_help=True, help="Run systems side by side, compare runs, and write the report.")

_METRICS = ("success@10", "hit@10", "leak", "leak_docs", "xndcg@10", "ndcg@10", "pairwise")


@app.command("run")
def run(
    suites: opt.Suites,
    out: Annotated[Path, typer.Option("--out", help="Folder of the result files; a run that was ended goes on.")],
    split: opt.Split = "dev",
    systems: Annotated[
        list[str] | None,
        typer.Option("--systems", help="Names of systems or groups, repeatable or with commas; all by default."),
    ] = None,
    cache: opt.Cache = None,
    limit: Annotated[int, typer.Option("--limit", min=1, help="At most this many queries of each suite.")] = 200,
    seed: Annotated[int, typer.Option("--seed", help="Draws the queries of a suite that has more.")] = 0,
    candidates: Annotated[
        Literal["all", "judged"], typer.Option("--candidates", help="Rank the corpus, or the judged documents only.")
    ] = "all",
    train: Annotated[
        Path | None, typer.Option("--train", help="A suite whose split 'train' trains the learned readout gate.")
    ] = None,
    external: Annotated[
        list[str] | None,
        typer.Option(
            "--external",
            metavar="NAME=KIND:MODEL",
            help="A system from outside as a row, repeatable: KIND is dense, cross-encoder, late-interaction, adapter, "
            "query-adapter or rerankers ('control:' before it for a fine-tuned one), MODEL a folder or a hub id.",
        ),
    ] = None,
    download: Annotated[bool, typer.Option("--download", help="Fetch weights of --external from the hub.")] = False,
    budget: Annotated[
        int | None, typer.Option("--budget", min=1, help="Every system reads this many words of a document only.")
    ] = None,
    backbone: opt.BackboneName = "minilm",
    detector: opt.DetectorName = "auto",
    demotion: opt.Demotion = None,
    adapter: opt.Adapter = "auto",
    device: opt.Device = None,
    settings: opt.Settings = None,
) -> None:
    """Run systems on suites; each writes OUT/SUITE/SYSTEM.jsonl, one line per query."""
    from .._cli import render
    from .._cli.progress import StageBars
    from .external import parse_external
    from .rankers import external_ranker
    from .run import run_suite
    from .store import VectorStore
    from .suites import load_suites, shorten
    from .systems import SYSTEMS, choose

    outside = {e.name: e for e in map(parse_external, external or ())}
    names = [name for value in systems or () for name in value.split(",") if name]
    chosen = choose(names, (*SYSTEMS, *(e.system for e in outside.values())))
    loaded = load_suites(suites, split)
    if budget is not None:
        loaded = [shorten(suite, budget) for suite in loaded]
    excise = opt.load_excise(
        backbone, detector=detector, adapter=adapter, demotion=demotion, device=device, settings=settings
    )
    store = VectorStore(cache) if cache is not None else None
    gate, source = _gate(excise, train, store)
    rankers = {name: partial(external_ranker, e, store, download=download) for name, e in outside.items()}
    console = render.console(stderr=True)
    facts = {"command": shlex.join(["excise", *sys.argv[1:]]), "budget": budget}
    for suite in loaded:
        for warning in suite.warnings:
            console.print(f"warning: {warning}", style="yellow", markup=False, highlight=False)
        with StageBars(f"{suite.name}: ") as bars:
            for row, new in run_suite(
                excise, suite, out, systems=chosen, limit=limit, seed=seed, candidates=candidates, store=store,
                gate=gate, gate_source=source, external=rankers, facts=facts, progress=bars,
            ):  # fmt: skip
                typer.echo(_line(row, new))


@app.command("compare")
def compare(
    a: Annotated[
        str,
        typer.Argument(
            metavar="A", help="A result file; a run's folder with #SYSTEM; or `evaluate --per-query` with #frozen."
        ),
    ],
    b: Annotated[str, typer.Argument(metavar="B", help="What A is compared with, likewise.")],
    metrics: Annotated[
        list[str] | None, typer.Option("--metric", help="Repeatable; by default those that have values.")
    ] = None,
    resamples: Annotated[int, typer.Option("--resamples", min=1)] = 10_000,
    seed: Annotated[int, typer.Option("--seed")] = 0,
    as_json: opt.Json = False,
) -> None:
    """Compare two runs or systems by the paired bootstrap, query by query."""
    from .compare import compare as compare_outcomes
    from .compare import load_outcomes

    records = compare_outcomes(load_outcomes(a), load_outcomes(b), metrics or _METRICS, resamples=resamples, seed=seed)
    if as_json:
        typer.echo(json.dumps({"a": a, "b": b, "resamples": resamples, "seed": seed, "comparisons": records}, indent=2))
        return
    typer.echo(f"{'suite':<16} {'metric':<12} {'n':>5} {'A':>7} {'B':>7}  {'A - B [95 %]':<26} p")
    for r in records:
        interval = f"{r['difference']:+.3f} [{r['low']:+.3f}, {r['high']:+.3f}]"
        typer.echo(
            f"{r['suite']:<16} {r['metric']:<12} {r['n']:>5} {r['a']:>7.3f} {r['b']:>7.3f}  {interval:<26} {r['p']:.4f}"
        )


@app.command("report")
def report(
    folder: Annotated[Path, typer.Argument(metavar="DIR", help="A run's folder.")],
    out: Annotated[Path, typer.Option("--out", help="The Markdown file to write.")],
    figures: Annotated[
        Path | None, typer.Option("--figures", help="Draw figures into this folder; needs matplotlib.")
    ] = None,
    shortened: Annotated[
        Path | None, typer.Option("--shortened", metavar="DIR", help="A run with --budget, to stand beside this one.")
    ] = None,
    hit_rates: Annotated[
        Path | None, typer.Option("--hit-rates", metavar="FILE", help="What `bench hit-rate` wrote, as a figure.")
    ] = None,
) -> None:
    """Write the report of a run from its result files."""
    from .._files import write_text
    from ..errors import MissingExtraError
    from .figures import draw_figures, draw_hit_rates
    from .hit_rate_report import read_hit_rates
    from .report import render_report
    from .results import Results
    from .rows import read_folder

    rows = read_folder(folder)
    latency = read_hit_rates(hit_rates) if hit_rates is not None else None
    drawn: list[str] = []
    if figures is not None:
        try:
            paths = draw_figures(Results(tuple(rows)), figures)
            if latency is not None and (path := draw_hit_rates(latency, figures)) is not None:
                paths.append(path)
            drawn = [Path(os.path.relpath(p, out.parent)).as_posix() for p in paths]
        except MissingExtraError as error:
            typer.echo(f"No figures: {error}", err=True)
    write_text(out, render_report(rows, drawn, shortened=read_folder(shortened) if shortened else (), latency=latency))
    typer.echo(f"{out}: {len(rows)} rows, {len(drawn)} figures")


@app.command("weights")
def weights(
    suites: opt.Suites,
    train: Annotated[Path, typer.Option("--train", help="A suite whose split 'train' trains the readout gate.")],
    split: opt.Split = "train",
    cache: opt.Cache = None,
    limit: Annotated[int, typer.Option("--limit", min=1, help="At most this many queries of each suite.")] = 100,
    seed: Annotated[int, typer.Option("--seed", help="Draws the queries.")] = 0,
    backbone: opt.BackboneName = "minilm",
    device: opt.Device = None,
) -> None:
    """Sweep the weight of each intervention's penalty with true topics, and print success@10 as JSON."""
    from .gate import train_gate
    from .prepared import Prepared, sample
    from .store import VectorStore
    from .suites import load_suite, load_suites
    from .weights import best_weights, sweep_weights

    loaded = load_suites(suites, split)
    source = load_suite(train, "train")
    excise = opt.load_excise(backbone, detector="rules", adapter="none", demotion=None, device=device, settings=None)
    store = VectorStore(cache) if cache is not None else None
    drawn = {suite.name: sample(suite, limit, seed) for suite in loaded}
    # The readout must not have seen the queries that its weight is chosen on.
    taken = {q.text for queries in drawn.values() for q in queries}
    source = replace(source, queries=tuple(q for q in source.queries if q.text not in taken))
    gate = train_gate(excise.backbone, source, store=store)
    sweeps = {}
    for suite in loaded:
        prepared = Prepared(excise, suite, drawn[suite.name], k=excise.config.k, store=store)
        sweeps[suite.name] = sweep_weights(prepared, excise.config, gate=gate)
    best = best_weights(list(sweeps.values()))
    typer.echo(json.dumps({"limit": limit, "seed": seed, "best": best, "suites": sweeps}))


@app.command("systems")
def systems_() -> None:
    """List the systems, by group."""
    from .systems import GROUPS, SYSTEMS

    for group, title in GROUPS.items():
        typer.echo(f"{group}: {title}")
        for system in SYSTEMS:
            if system.group == group:
                needs = f" (needs {', '.join(system.needs)})" if system.needs else ""
                typer.echo(f"  {system.name:<24} {system.title}{needs}")


app.command("inversion")(inversion)
app.command("probe")(probe)
app.command("boolean")(boolean)
app.command("sweep")(sweep_constants)
app.command("import")(import_)
app.command("speed")(speed)
app.command("hit-rate")(hit_rate)
app.command("speed-report")(speed_report)
app.command("train")(train_)
app.command("build")(build)
app.command("audit-sample")(audit_sample_command)
app.command("agreement")(agreement)


def _gate(
    excise: Excise, train: Path | None, store: VectorStore | None
) -> tuple[Callable[[], ReadoutGate] | None, str]:
    if train is None:
        return None, ""
    from .gate import train_gate
    from .prepared import suite_digest
    from .suites import load_suite

    # Read at once: a typo must not cost the rows before it.
    suite = load_suite(train, "train")
    trained: list[Any] = []

    def gate() -> ReadoutGate:
        if not trained:
            trained.append(train_gate(excise.backbone, suite, store=store))
        found: ReadoutGate = trained[0]
        return found

    return gate, f"{suite.name} {suite_digest(suite)}"


def _line(row: Row, new: bool) -> str:
    name = f"{row.suite:<14} {row.system:<24}"
    if row.skipped is not None:
        return f"{name} skipped: {row.skipped}"
    values = row.average() if row.queries else row.head.get("metrics") or {}
    shown: Sequence[str] = ("success@10", "hit@10", "leak", "ndcg@10", "pairwise")
    numbers = "  ".join(f"{m} {values[m]:.3f}" for m in shown if values.get(m) is not None)
    return f"{name} {numbers}" + ("" if new else "  (kept)")
