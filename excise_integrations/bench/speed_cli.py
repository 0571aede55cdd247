"""``excise bench speed``: what Excise adds to a search, as ratios within one run."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Any, Literal

import typer

from .._cli import options as opt
from ..errors import InvalidInputError

__all__ = ["speed"]

_TEMPLATES = ("{}", "what is {}", "history of {}", "{}: overview", "tell me about {}")


def speed(
    suite: Annotated[Path, typer.Argument(help="A suite's folder; its documents are searched.")],
    split: Annotated[str, typer.Option(help="Split whose queries are used.")] = "dev",
    documents: Annotated[int | None, typer.Option(min=1, help="Search the first N documents only.")] = None,
    words: Annotated[int | None, typer.Option(min=1, help="Cut documents to so many words.")] = None,
    queries: Annotated[int, typer.Option(min=1, help="Queries of each kind.")] = 10,
    k: Annotated[int, typer.Option("-k", min=1, help="Candidates per query.")] = 100,
    repeats: Annotated[int, typer.Option(min=1, help="Rounds; cold firings take a tenth.")] = 30,
    rivals: Annotated[bool, typer.Option(help="Time LlamaIndex's re-rankers too.")] = True,
    threads: Annotated[int | None, typer.Option(min=1, help="PyTorch's threads.")] = None,
    dtype: Annotated[
        Literal["auto", "float32", "bfloat16"], typer.Option(help="Arithmetic, of the rivals too.")
    ] = "auto",
    backbone: opt.Backbone = None,
    detector: opt.DetectorName = "auto",
    adapter: opt.Adapter = "auto",
    cache: Annotated[Path | None, typer.Option("--cache", help="Keep the documents' vectors here.")] = None,
    as_json: opt.Json = False,
) -> None:
    """Time silent queries and firings beside the frozen search and other re-rankers, in turn."""
    opt.quiet()
    from ..encode.backbone import resolve_dtype
    from ..first_stage.memory import MemoryFirstStage
    from ..pipeline import Excise
    from . import rivals as other
    from .speed import speed_rows
    from .store import VectorStore
    from .suites import load_suite

    excise = Excise.from_pretrained(
        backbone or "minilm", detector=detector, adapter=adapter, dtype=dtype, threads=threads, device="cpu"
    )
    loaded = load_suite(suite, split)
    chosen = [_cut(d, words) for d in loaded.documents[:documents]]
    vectors = None if cache is None else VectorStore(cache).encode([d.text for d in chosen], excise.backbone)
    stage = MemoryFirstStage.from_candidates(chosen, vectors=vectors, backbone=excise.backbone)
    texts = [q.text for q in loaded.queries]
    fired = [q for q, d in zip(texts, excise.detect_batch(texts), strict=True) if d.fired][:queries]
    names = [str(d.text).split(".")[0].split(",")[0][:60] for d in chosen[: 10 * queries]]
    ordinary = [_TEMPLATES[i % len(_TEMPLATES)].format(name) for i, name in enumerate(names)]
    silent = [q for q, d in zip(ordinary, excise.detect_batch(ordinary), strict=True) if not d.fired][:queries]
    if not fired or not silent:
        raise InvalidInputError(f"The detector fires on {len(fired)} queries of {suite}; both kinds are needed.")
    arithmetic = resolve_dtype(dtype, "cpu")
    groups = speed_rows(
        excise,
        stage,
        silent=silent,
        fired=fired,
        k=k,
        repeats=repeats,
        rivals={
            "SentenceTransformerRerank": other.cross_encoder_rerank(arithmetic),
            "ColbertRerank": other.colbert_rerank(arithmetic),
        }
        if rivals
        else None,
        plain=other.plain_encoder(arithmetic),
    )
    record = {
        "suite": loaded.name,
        "documents": len(chosen),
        "k": k,
        "threads": _threads(),
        "dtype": str(arithmetic),
        "adapter": excise.exclusion is not None,
        "groups": {name: [t.record() for t in rows] for name, rows in groups.items()},
    }
    typer.echo(json.dumps(record, indent=2) if as_json else _table(record))


def _cut(document: Any, words: int | None) -> Any:
    from dataclasses import replace

    return document if words is None else replace(document, text=" ".join(document.text.split()[:words]))


def _threads() -> int:
    import torch

    return torch.get_num_threads()


def _table(record: dict[str, Any]) -> str:
    lines: list[str] = [
        f"{record['suite']}: {record['documents']} documents, k {record['k']}, {record['threads']} threads, "
        f"{record['dtype']}"
    ]
    for rows in record["groups"].values():
        lines.append("")
        lines.extend(_line(t) for t in rows)
    return "\n".join(lines)


def _line(t: dict[str, Any]) -> str:
    cells: Sequence[str] = (f"{t['p50']:9.2f}", f"{t['p95']:9.2f}", f"{t['p99']:9.2f}")
    return f"{t['name']:28}{' '.join(cells)} ms  {t['ratio']:6.2f} x {t['reference']}"
