"""``excise bench speed``: what Excise adds to a search, as ratios within one run, and the tables of such runs."""

from __future__ import annotations

import json
import shlex
import sys
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal, get_args

import typer

from .._cli import options as opt
from ..errors import InvalidInputError

if TYPE_CHECKING:
    import torch

    from ..encode.backbone import Backbone
    from ..pipeline import Excise
    from ..types import Candidate
    from .rivals import Rival
    from .speed import Workload

__all__ = ["speed", "speed_report"]

Part = Literal["detection", "search", "rerank", "load", "start", "profile"]
_TEMPLATES = ("{}", "what is {}", "history of {}", "{}: overview", "tell me about {}")


def speed(
    suite: Annotated[Path, typer.Argument(help="A suite's folder; its documents are searched.")],
    split: Annotated[str, typer.Option(help="Split whose queries are used.")] = "dev",
    parts: Annotated[
        list[str] | None,
        typer.Option("--part", help=f"Of {', '.join(get_args(Part))}; repeatable or with commas; all by default."),
    ] = None,
    documents: Annotated[int | None, typer.Option(min=1, help="Search the first N documents only.")] = None,
    tokens: Annotated[
        int | None, typer.Option(min=1, help="Make every document so many tokens long, from the text after it.")
    ] = None,
    queries: Annotated[int, typer.Option(min=1, help="Queries of each kind.")] = 10,
    k: Annotated[int, typer.Option("-k", min=1, help="Candidates per query.")] = 100,
    repeats: Annotated[int, typer.Option(min=1, help="Rounds; whatever encodes a shortlist takes a tenth.")] = 30,
    rivals: Annotated[bool, typer.Option(help="Time the re-rankers of LlamaIndex and RAGatouille too.")] = True,
    threads: Annotated[int | None, typer.Option(min=1, help="PyTorch's threads.")] = None,
    dtype: Annotated[
        Literal["auto", "float32", "bfloat16"], typer.Option(help="Arithmetic, of the rivals too.")
    ] = "auto",
    backbone: opt.Backbone = None,
    detector: opt.DetectorName = "auto",
    adapter: opt.Adapter = "auto",
    cache: Annotated[Path | None, typer.Option("--cache", help="Keep the documents' vectors here.")] = None,
    out: Annotated[Path | None, typer.Option("--out", help="Write the record here, for `speed-report`.")] = None,
    as_json: opt.Json = False,
) -> None:
    """Time silent queries and firings beside the frozen search and other re-rankers, in turn."""
    opt.quiet()
    from .._files import write_text
    from ..encode.backbone import resolve_dtype
    from ..pipeline import Excise

    chosen = _parts(parts)
    excise = Excise.from_pretrained(
        backbone or "minilm", detector=detector, adapter=adapter, dtype=dtype, threads=threads, device="cpu", k=k
    )
    arithmetic = resolve_dtype(dtype, "cpu")
    name, work = _workload(excise, suite, split, documents, tokens, queries, cache)
    record = {
        "command": shlex.join(["excise", *sys.argv[1:]]),
        "suite": name,
        "documents": len(work.stage),
        "tokens": tokens,
        "k": k,
        "threads": _threads(),
        "dtype": str(arithmetic).removeprefix("torch."),
        "adapter": excise.exclusion is not None,
        **_measure(work, chosen, repeats, arithmetic, _rivals(arithmetic) if rivals and "rerank" in chosen else None),
    }
    text = json.dumps(record, indent=2)
    if out is not None:
        write_text(out, text + "\n")
    typer.echo(text if as_json else _table(record))


def speed_report(
    files: Annotated[list[Path], typer.Argument(metavar="FILE…", help="Records that `excise bench speed` wrote.")],
) -> None:
    """Print the Markdown tables of one or more runs."""
    from .speed_report import read_record, render_speed

    typer.echo(render_speed([read_record(file) for file in files]))


def _parts(names: Sequence[str] | None) -> list[str]:
    known = get_args(Part)
    chosen = [name for value in names or known for name in value.split(",") if name]
    for name in chosen:
        if name not in known:
            raise InvalidInputError(f"--part {name!r} is none of {', '.join(known)}.")
    return chosen


def _workload(
    excise: Excise,
    suite: Path,
    split: str,
    documents: int | None,
    tokens: int | None,
    count: int,
    cache: Path | None,
) -> tuple[str, Workload]:
    from ..first_stage.memory import MemoryFirstStage
    from .speed import Workload
    from .store import VectorStore
    from .suites import load_suite

    loaded = load_suite(suite, split)
    chosen = list(loaded.documents[:documents])
    if tokens is not None:
        chosen = _of_length(chosen, tokens, excise.backbone)
    vectors = None if cache is None else VectorStore(cache).encode([d.text for d in chosen], excise.backbone)
    stage = MemoryFirstStage.from_candidates(chosen, vectors=vectors, backbone=excise.backbone)
    texts = [q.text for q in loaded.queries]
    fired = [q for q, d in zip(texts, excise.detect_batch(texts), strict=True) if d.fired][:count]
    names = [str(d.text).split(".")[0].split(",")[0][:60] for d in chosen[: 10 * count]]
    ordinary = [_TEMPLATES[i % len(_TEMPLATES)].format(name) for i, name in enumerate(names)]
    silent = [q for q, d in zip(ordinary, excise.detect_batch(ordinary), strict=True) if not d.fired][:count]
    if not fired or not silent:
        raise InvalidInputError(f"The detector fires on {len(fired)} queries of {suite}; both kinds are needed.")
    return loaded.name, Workload(excise, stage, silent, fired)


def _measure(
    work: Workload, parts: Sequence[str], repeats: int, dtype: torch.dtype, rivals: dict[str, Rival] | None
) -> dict[str, Any]:
    from .rivals import plain_encoder
    from .speed import detection_rows, rerank_rows, search_rows
    from .speed_load import batch_rows, caller_rows
    from .speed_profile import profile_rows
    from .speed_start import start_times

    few = max(3, repeats // 10)
    measures: dict[str, Callable[[], Any]] = {
        "detection": lambda: detection_rows(work, plain_encoder(dtype), repeats=5 * repeats),
        "search": lambda: search_rows(work, repeats=repeats),
        "rerank": lambda: rerank_rows(work, repeats=few, rivals=rivals),
        "load": lambda: [*caller_rows(work), *batch_rows(work)],
        "start": lambda: start_times(work.excise.backbone.name),
        "profile": lambda: profile_rows(work, repeats=repeats),
    }
    found = {part: measures[part]() for part in measures if part in parts}
    return {part: [r.record() for r in rows] if isinstance(rows, list) else rows for part, rows in found.items()}


def _rivals(dtype: torch.dtype) -> dict[str, Rival]:
    from . import rivals as other

    return {
        "SentenceTransformerRerank": other.cross_encoder_rerank(dtype),
        "ColbertRerank": other.colbert_rerank(dtype),
        "RAGatouille rerank": other.ragatouille_rerank(dtype),
    }


def _of_length(documents: Sequence[Candidate], tokens: int, backbone: Backbone) -> list[Candidate]:
    """Return documents of so many tokens: each with the texts after it, cut."""
    out = []
    for at, document in enumerate(documents):
        text, following = document.text, at
        # A word has at least one token.
        while len(text.split()) < tokens:
            following += 1
            text += " " + documents[following % len(documents)].text
        offsets = backbone.tokenizer(text, add_special_tokens=False, return_offsets_mapping=True, verbose=False)
        out.append(replace(document, text=text[: offsets["offset_mapping"][tokens - 1][1]]))
    return out


def _threads() -> int:
    import torch

    return torch.get_num_threads()


def _table(record: dict[str, Any]) -> str:
    lines = [
        f"{record['suite']}: {record['documents']} documents, k {record['k']}, {record['threads']} threads, "
        f"{record['dtype']}"
    ]
    for part in ("detection", "search", "rerank"):
        lines.extend(["", *(_line(t, f"{t['ratio']:6.2f} x {t['reference']}") for t in record.get(part, ()))])
    load = record.get("load", ())
    lines.extend(["", *(_line(t, f"{t['callers']} callers, batches of {t['batch']}") for t in load)])
    lines.extend(["", *(f"{step:28}{ms:9.1f} ms" for step, ms in record.get("start", {}).items())])
    for kind, costs in record.get("profile", {}).items():
        lines.extend(["", kind, *(f"  {part:32}{ms:9.2f} ms" for part, ms in costs.items())])
    return "\n".join(lines)


def _line(t: dict[str, Any], more: str) -> str:
    cells = (f"{t['p50']:9.2f}", f"{t['p95']:9.2f}", f"{t['p99']:9.2f}")
    return f"{t['name']:32}{' '.join(cells)} ms {t['per_second']:8.1f}/s  {more}"
