"""``excise warm``: re-embed an index's documents ahead of the queries that will need them."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated, Any, Literal

import typer

from .._cli import options as opt
from ..errors import ExciseError, InvalidInputError

__all__ = ["warm_app"]

warm_app = typer.Typer(add_completion=False)


@warm_app.command()
def warm(
    source: Annotated[
        Path, typer.Argument(metavar="SOURCE", help="An index of `excise index`, a RAGatouille index, or a JSONL file.")
    ],
    cache: Annotated[Path, typer.Option("--cache", help="Folder of the disk cache.")],
    backbone: opt.Backbone = None,
    adapter: opt.Adapter = "auto",
    storage: Annotated[
        Literal["encoded", "float16", "bfloat16", "int8"],
        typer.Option(help="Form of the vectors; int8 takes half of bfloat16."),
    ] = "encoded",
    max_bytes: Annotated[int, typer.Option(min=1, help="Bound of the disk cache.")] = 4 * 1024**3,
    device: opt.Device = None,
    as_json: opt.Json = False,
) -> None:
    """Fill the disk cache with the re-embedded documents of an index. A killed run goes on where it was."""
    opt.quiet()
    from .._cli.progress import StageBars
    from .._cli.sources import Source
    from ..encode.cache import VectorCache
    from ..encode.disk import DiskCache
    from ..pipeline import Excise

    found = Source.at(source)
    excise = Excise.from_pretrained(backbone or found.backbone(), detector="rules", adapter=adapter, device=device)
    if excise.exclusion is None:
        raise InvalidInputError(
            f"There is no exclusion adapter for {excise.backbone.label}, so that nothing is re-embedded. Train one "
            "with `excise train adapter` and give its folder with --adapter."
        )
    with StageBars() as bars, DiskCache(cache, max_bytes=max_bytes) as disk:
        stage: Any = found.open(excise.backbone, lambda done, total: bars("encoding", done, total))
        # A first stage gives out texts by searching; asked for all it ranks all.
        documents = stage.search("all documents", max(1, len(stage)))
        before = disk.stats().entries
        encoded = VectorCache(0, storage=storage, disk=disk).warm(
            [c.text for c in documents],
            excise.encoder,
            fingerprint=stage.fingerprint,
            progress=lambda done, total: bars("re-embedding", done, total),
        )
        stats = disk.stats()
    # A cache never fails a query; whoever warms one wants to know.
    if (stored := stats.entries + stats.evictions - before) < encoded:
        raise ExciseError(
            f"The cache {cache} took {max(0, stored)} of {encoded} documents. Make room on its disk or raise "
            "--max-bytes, and run the command again: it goes on where it was."
        )
    record = {
        "folder": str(cache),
        "documents": len(documents),
        "encoded": encoded,
        "entries": stats.entries,
        "bytes": stats.bytes,
        "evictions": stats.evictions,
        "encoder": excise.encoder.label,
        "fingerprint": stage.fingerprint,
    }
    if as_json:
        typer.echo(json.dumps(record, indent=2))
        return
    typer.echo(f"{encoded} of {len(documents)} documents re-embedded; {cache} holds {stats.bytes / 1e6:.1f} MB.")
    if stats.evictions:
        typer.echo(f"{stats.evictions} rows were driven out: raise --max-bytes.", err=True)
