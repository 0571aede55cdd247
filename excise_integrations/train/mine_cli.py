"""``excise mine``: confusable pairs out of a corpus."""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path
from typing import Annotated, Any, Literal

import typer

from .._cli import options as opt
from ..errors import InvalidInputError

__all__ = ["mine_app"]

mine_app = typer.Typer(add_completion=False)


@mine_app.command()
def mine(
    corpus: Annotated[Path, typer.Argument(help="corpus.jsonl with _id, title and text, or a suite's folder.")],
    out: Annotated[Path, typer.Option("--out", help="Folder of the suite to write.")],
    exclude_qrels: Annotated[
        list[Path] | None,
        typer.Option(
            "--exclude-qrels",
            help="Judgments of a test or dev split, qrels/SPLIT.tsv; what they judge is never used. Repeatable.",
        ),
    ] = None,
    count: Annotated[int, typer.Option(min=1, help="Triples to mine.")] = 1000,
    backbone: Annotated[str, typer.Option(help="'minilm', a checkpoint folder, or a hub id.")] = "minilm",
    similarity: Annotated[
        Literal["dense", "maxsim"], typer.Option(help="Mean of the token vectors, or their MaxSim.")
    ] = "dense",
    band: Annotated[
        tuple[float, float] | None,
        typer.Option(help="Lowest and highest similarity; by default the corpus' usual ones."),
    ] = None,
    near_duplicate: Annotated[float, typer.Option(help="Estimated Jaccard similarity of near-duplicates.")] = 0.5,
    round_trip: Annotated[int, typer.Option(min=0, help="Rank that every document must reach; 0 for no check.")] = 100,
    llm: Annotated[
        str | None,
        typer.Option(
            help="Chat model that writes, as LangChain names it ('openai:gpt-5-mini'), or 'module:attribute'."
        ),
    ] = None,
    split: Annotated[str, typer.Option(help="Name of the split to write.")] = "train",
    seed: Annotated[int, typer.Option()] = 0,
    as_json: opt.Json = False,
) -> None:
    """Mine training triples (query, wanted, confusable) and write them as a suite."""
    opt.quiet()
    from .._cli.models import load_model
    from .._cli.progress import StageBars
    from ..encode.backbone import Backbone
    from .mining import MiningSettings
    from .mining import mine as run
    from .mining_files import forbidden_by, load_documents, write_suite
    from .query_llm import LLMWriter

    settings = MiningSettings(
        count=count,
        seed=seed,
        similarity=similarity,
        band=band,
        near_duplicate=near_duplicate,
        round_trip=round_trip,
    )
    documents = load_documents(corpus)
    forbidden, ids = forbidden_by(exclude_qrels or [])
    writer = LLMWriter(load_model(llm, "--llm")) if llm else None
    with StageBars() as bars:
        mined = run(
            documents,
            Backbone.from_pretrained(backbone),
            settings=settings,
            writer=writer,
            forbidden=forbidden,
            forbidden_ids=ids,
            progress=bars,
        )
    if not mined.triples:
        raise InvalidInputError(
            f"No triple could be mined from {corpus} ({json.dumps(mined.refused)}); widen --band or give a larger "
            "corpus."
        )
    write_suite(
        out,
        mined,
        settings,
        split=split,
        source=[str(corpus)],
        excluded_qrels=[str(file) for file in exclude_qrels or []],
        writer=llm or "templates",
    )
    kinds = Counter(f"{t.draft.tier} {t.draft.form}" for t in mined.triples)
    record: dict[str, Any] = {
        "folder": str(out),
        "triples": len(mined.triples),
        "kinds": dict(sorted(kinds.items())),
        "refused": mined.refused,
        "band": list(mined.band),
        "protected": len(ids),
    }
    if as_json:
        typer.echo(json.dumps(record, indent=2))
        return
    typer.echo(f"{len(mined.triples)} triples in {out}, similarity {mined.band[0]:.2f} to {mined.band[1]:.2f}")
    typer.echo(", ".join(f"{kind} {number}" for kind, number in record["kinds"].items()))
    for reason, number in mined.refused.items():
        typer.echo(f"refused {number}: {reason}")
