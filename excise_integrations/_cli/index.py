"""``excise index``."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated

import typer

from ..errors import FirstStageError
from . import options as opt

__all__ = ["index"]


def index(
    source: Annotated[
        Path, typer.Argument(metavar="SOURCE", help="A JSONL file of documents, a folder of text files, or a suite.")
    ],
    folder: Annotated[Path, typer.Argument(metavar="FOLDER", help="Where the index goes.")],
    backbone: opt.BackboneName = "minilm",
    device: opt.Device = None,
    cache: Annotated[
        Path | None, typer.Option("--cache", help="Keep vectors here, so that a killed run goes on where it was.")
    ] = None,
    force: Annotated[bool, typer.Option("--force", help="Replace an index that is there.")] = False,
    as_json: opt.Json = False,
) -> None:
    """Encode documents into an index that `excise search` and MemoryFirstStage.load read."""
    if (folder / "manifest.json").exists() and not force:
        raise FirstStageError(f"There is an index at {folder} already; replace it with --force.")
    from .sources import read_documents

    if not source.exists():
        raise FirstStageError(f"There is nothing at {source}. Give a JSONL file or a folder of texts.")
    documents = read_documents(source)
    opt.quiet()
    from ..encode.backbone import Backbone
    from ..first_stage.memory import MemoryFirstStage
    from .progress import StageBars

    encoder = Backbone.from_pretrained(backbone, device=device)
    with StageBars() as bars:
        vectors = None
        if cache is not None:
            from ..bench.store import VectorStore

            vectors = VectorStore(cache).encode(
                [d.text for d in documents], encoder, progress=lambda done, total: bars("encoding", done, total)
            )
        stage = MemoryFirstStage.from_candidates(
            documents,
            vectors=vectors,
            backbone=encoder,
            progress=lambda done, total: bars("encoding", done, total),
        )
        stage.save(folder)
    facts = {
        "folder": str(folder),
        "documents": len(stage),
        "backbone": stage.vector_space,
        "fingerprint": stage.fingerprint,
    }
    typer.echo(json.dumps(facts, indent=2) if as_json else f"{len(stage)} documents indexed in {folder}.")
