"""``excise bench train``: fine-tuned controls."""

from __future__ import annotations

import shlex
import sys
from pathlib import Path
from typing import Annotated, Literal

import typer

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
    backbone: Annotated[str, typer.Option("--backbone", help="'minilm', a checkpoint folder, or a hub id.")] = "minilm",
    seed: Annotated[int, typer.Option("--seed")] = 0,
) -> None:
    """Fine-tune another system on the triples of the exclusion adapter; `bench run --external` runs it."""
    from ..encode.backbone import Backbone
    from ..train.triples import read_triples
    from .controls import train_control
    from .suites import json_lines

    pool = read_triples(triples)
    ordinary = []
    if rehearsal is not None:
        ordinary = [(str(r["query"]), str(r["positive"])) for _, r in json_lines(rehearsal)]
    made = train_control(
        kind,
        pool,
        out,
        backbone=Backbone.from_pretrained(backbone),
        ordinary=ordinary,
        rates=rates,
        limit=limit,
        epochs=epochs,
        seed=seed,
        command=shlex.join(["excise", *sys.argv[1:]]),
        progress=lambda line: typer.echo(line, err=True),
    )
    typer.echo(str(made))
