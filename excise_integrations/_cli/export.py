"""``excise export``."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated, Literal

import typer

from . import options as opt

__all__ = ["export"]


def export(
    backbone: Annotated[Literal["minilm"], typer.Argument(help="The backbone to write.")],
    folder: Annotated[Path, typer.Argument(metavar="FOLDER", help="Where the checkpoint goes.")],
    force: Annotated[bool, typer.Option("--force", help="Write into a folder that is not empty.")] = False,
    as_json: opt.Json = False,
) -> None:
    """Write a backbone as a Stanford-format ColBERT checkpoint, for RAGatouille and colbert-ai."""
    opt.quiet()
    from ..encode.export import export_minilm

    written = export_minilm(folder, force=force)
    typer.echo(json.dumps({"folder": str(written)}) if as_json else f"{backbone} written to {written}.")
