"""``excise bench train``: fine-tuned controls."""

from __future__ import annotations

import shlex
import sys
from pathlib import Path
from typing import Annotated, Literal

import typer

from .._cli import options as opt

__all__ = ["train"]


def train(
    kind: Annotated[
        Literal["dense", "cross-encoder", "full", "lora", "query-only"], typer.Argument(help="Which control.")
    ],
    out: Annotated[Path, typer.Option("--out", help="Folder of the trained system.")],
    triples: Annotated[list[Path], typer.Option("--triples", help="A suite with training triples. Repeatable.")],
    rehearsal: Annotated[
        Path | None,
        typer.Option("--rehearsal", help="JSON lines of query and positive, mixed in, as many as there are triples."),
    ] = None,
    rates: Annotated[
        list[float] | None, typer.Option("--rate", help="Learning rate, repeatable; by default the paper's five.")
    ] = None,
    limit: Annotated[int, typer.Option("--limit", min=4, help="Triples for choosing the rate.")] = 400,
    epochs: Annotated[int, typer.Option("--epochs", min=1)] = 1,
    backbone: opt.BackboneName = "minilm",
    seed: Annotated[int, typer.Option("--seed")] = 0,
    max_minutes: Annotated[
        float | None, typer.Option("--max-minutes", min=0, help="End the last training after the step that passes it.")
    ] = None,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Estimate the minutes from a few steps, and end.")] = False,
) -> None:
    """Fine-tune another system on the triples of the exclusion adapter; `bench run --external` runs it."""
    from ..encode.backbone import Backbone
    from ..errors import SuiteError
    from ..train.triples import read_triples
    from .controls import ControlSettings, control_minutes, train_control
    from .lines import json_lines

    pool = read_triples(triples)
    ordinary = []
    for number, record in json_lines(rehearsal) if rehearsal is not None else ():
        pair = (record.get("query"), record.get("positive"))
        if not all(isinstance(text, str) and text.strip() for text in pair):
            raise SuiteError(f"{rehearsal}, line {number}: 'query' and 'positive' must be non-blank strings.")
        ordinary.append((str(pair[0]), str(pair[1])))
    settings = ControlSettings(rates=rates, limit=limit, epochs=epochs, seed=seed)
    frozen = Backbone.from_pretrained(backbone)
    if dry_run:
        minutes = control_minutes(kind, pool, backbone=frozen, settings=settings, ordinary=len(ordinary))
        typer.echo(f"{kind}: {len(pool)} triples, about {minutes:.0f} minutes of training steps")
        return
    made = train_control(
        kind,
        pool,
        out,
        backbone=frozen,
        settings=settings,
        ordinary=ordinary,
        max_minutes=max_minutes,
        sources=[path.name for path in triples],
        command=shlex.join(["excise", *sys.argv[1:]]),
        progress=lambda line: typer.echo(line, err=True),
    )
    typer.echo(str(made))
