"""``excise bench import``."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Literal

import typer

__all__ = ["import_"]


def import_(
    name: Annotated[
        Literal["beir", "boolquestions", "excluir", "irds", "negconstraint", "nevir", "quest"],
        typer.Argument(metavar="FORMAT", help="beir, boolquestions, excluir, irds, negconstraint, nevir or quest."),
    ],
    path: Annotated[
        Path, typer.Argument(metavar="PATH", help="The files as they are distributed; for irds a collection's name.")
    ],
    out: Annotated[Path, typer.Option("--out", help="Folder of the suite to write.")],
    split: Annotated[str | None, typer.Option("--split", help="Which part; by default the test part.")] = None,
    documents: Annotated[
        Literal["all", "judged"] | None,
        typer.Option("--documents", help="The whole corpus, or the judged documents alone (boolquestions' default)."),
    ] = None,
) -> None:
    """Turn a published benchmark into a suite that `excise evaluate` and `excise bench` read."""
    from .loaders import FORMATS, import_suite

    for note in import_suite(name, path, out, split=split, documents=documents):
        typer.echo(f"note: {note}", err=True)
    typer.echo(f"{out}:{split or FORMATS[name].split}")
