"""``excise bench hit-rate``: how long a firing takes by how much of its shortlist the cache holds."""

from __future__ import annotations

import json
import shlex
import sys
from pathlib import Path
from typing import Annotated

import typer

from .._cli import options as opt

__all__ = ["hit_rate"]


def hit_rate(
    suite: Annotated[Path, typer.Argument(help="A suite's folder; its documents are searched.")],
    out: Annotated[Path, typer.Option("--out", help="Write the record here, for `bench report --hit-rate`.")],
    split: opt.Split = "dev",
    queries: Annotated[int, typer.Option(min=1, help="Queries, on which the detector must fire.")] = 10,
    k: Annotated[int, typer.Option("-k", min=1, help="Candidates per query.")] = 100,
    repeats: Annotated[int, typer.Option(min=1, help="Firings per hit rate.")] = 10,
    backbone: opt.BackboneName = "minilm",
    detector: opt.DetectorName = "auto",
    adapter: opt.Adapter = "auto",
    cache: opt.Cache = None,
) -> None:
    """Time firings with none, a part and all of their shortlist in the cache, in turn."""
    opt.quiet()
    from .._cli.progress import StageBars
    from .._files import write_text
    from ..pipeline import Excise
    from .hit_rate import hit_rate_rows
    from .speed_cli import _workload
    from .summary import machine, step

    excise = Excise.from_pretrained(backbone, detector=detector, adapter=adapter, device="cpu", k=k)
    name, work = _workload(excise, suite, split, None, None, queries, cache)
    with StageBars() as bars:
        rows = hit_rate_rows(work, repeats=repeats, progress=step(bars, "firings"))
    record = {
        "command": shlex.join(["excise", *sys.argv[1:]]), "suite": name, "documents": len(work.stage), "k": k,
        "backbone": excise.backbone.label, "adapter": excise.exclusion and excise.exclusion.adapter,
        "machine": machine(), "hit_rates": [r.record() for r in rows],
    }  # fmt: skip
    write_text(out, json.dumps(record, indent=2) + "\n")
    for row in rows:
        typer.echo(f"hit rate {row.hit_rate:4.2f}  p50 {row.p50:8.1f} ms  p95 {row.p95:8.1f} ms  ({row.n} firings)")
