"""``excise bench sweep``."""

from __future__ import annotations

import json
from typing import Annotated, Literal

import typer

from .._cli import options as opt
from .sweep import LOST_HITS, Sweep, sweep

__all__ = ["sweep_constants"]


def sweep_constants(
    suites: opt.Suites,
    split: opt.Split = "train",
    names: Annotated[
        list[str] | None, typer.Option("--constant", help="A constant of the rule; all of them by default. Repeatable.")
    ] = None,
    topics: Annotated[Literal["true", "detected"], typer.Option(help="The suite's topics, or detected ones.")] = "true",
    limit: Annotated[int, typer.Option(min=1, help="At most this many queries a suite, drawn by the seed.")] = 400,
    seed: Annotated[int, typer.Option("--seed")] = 0,
    cache: opt.Cache = None,
    backbone: opt.BackboneName = "minilm",
    detector: opt.DetectorName = "auto",
    demotion: opt.Demotion = None,
    adapter: opt.Adapter = "auto",
    device: opt.Device = None,
    settings: opt.Settings = None,
    as_json: opt.Json = False,
) -> None:
    """Move each constant of the rule over a grid, suite by suite, and say whether it matters beyond its noise.

    For training and dev data: a constant that was chosen on a test split proves nothing.
    """
    from .prepared import Prepared, sample
    from .store import VectorStore
    from .suites import load_suites

    opt.quiet()
    excise = opt.load_excise(
        backbone, detector=detector, adapter=adapter, demotion=demotion, device=device, settings=settings
    )
    store = VectorStore(cache) if cache is not None else None
    found: dict[str, list[Sweep]] = {}
    for suite in load_suites(suites, split):
        prepared = Prepared(excise, suite, sample(suite, limit, seed), k=excise.config.k, store=store)
        found[suite.name] = sweep(prepared, excise.config, names, topics=topics)
    if as_json:
        records = {name: [s.record() for s in part] for name, part in found.items()}
        typer.echo(
            json.dumps({"split": split, "topics": topics, "demotion": excise.config.demotion, "suites": records})
        )
        return
    for name, part in found.items():
        typer.echo(f"## {name}\n\n{_table(part)}\n")


def _table(part: list[Sweep]) -> str:
    head = [
        "constant",
        "success@10 (hit@10, leak) by value",
        "spread",
        "noise",
        "verdict",
        f"hit@10 - {LOST_HITS} up to",
    ]
    lines = [f"| {' | '.join(head)} |", "|" + "---|" * len(head)]
    for s in part:
        cells = [
            f"{'**' if value == s.configured else ''}{value:g}{'**' if value == s.configured else ''}: "
            f"{v['success@10']:.3f} ({v['hit@10']:.3f}, {v['leak']:.3f})"
            for value, v in s.values.items()
        ]
        verdict = "unexercised" if not s.exercised else "inert" if s.test.inert else "active"
        numbers = [
            f"{s.test.spread:.3f}",
            f"{s.test.noise:.3f}",
            f"{verdict} ({s.exercised} queries)",
            f"{s.bounded:g}",
        ]
        lines.append(f"| `{s.name}` | {'; '.join(cells)} | {' | '.join(numbers)} |")
    return "\n".join(lines)
