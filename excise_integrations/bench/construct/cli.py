"""``excise bench build``, ``audit-sample`` and ``agreement``."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from ..._cli import options as opt

if TYPE_CHECKING:
    from .estimate import Estimate

__all__ = ["agreement", "audit_sample_command", "build"]

_MODEL = "as LangChain names it ('openai:gpt-5-mini'), or an object, 'module:attribute'"


def build(
    corpus: Annotated[Path, typer.Option("--corpus", help="corpus.jsonl with _id, title, text, or a suite's folder.")],
    writer: Annotated[str, typer.Option("--writer", help=f"Chat model that writes, {_MODEL}; or 'template'.")],
    judge: Annotated[str, typer.Option("--judge", help="Another one, that judges; or 'none' beside 'template'.")],
    out: Annotated[Path, typer.Option("--out", help="Folder of the suite to write.")],
    second_judge: Annotated[
        str | None, typer.Option("--second-judge", help="A third one; its agreement with the judge is measured.")
    ] = None,
    reference: Annotated[
        list[Path] | None,
        typer.Option("--reference", help="A corpus that the suite must not leak from. Repeatable."),
    ] = None,
    count: Annotated[int, typer.Option("--count", min=1, help="Groups of documents to write a query for.")] = 300,
    split: Annotated[str, typer.Option("--split", help="Name of the split to write.")] = "test",
    seed: Annotated[int, typer.Option("--seed")] = 0,
    timeout: Annotated[float, typer.Option("--timeout", help="Seconds that one answer may take.")] = 60.0,
    answers: Annotated[
        Path | None, typer.Option("--answers", help="Where answers are kept; OUT.answers.jsonl by default.")
    ] = None,
    cache: Annotated[Path | None, typer.Option("--cache", help="Keep vectors here between builds.")] = None,
    backbone: opt.BackboneName = "minilm",
    yes: Annotated[bool, typer.Option("--yes", help="Do not ask before models are called.")] = False,
    as_json: opt.Json = False,
) -> None:
    """Build an X-Bench suite on a corpus; run it again to go on after it was ended."""
    opt.quiet()
    from ..._cli.models import load_model
    from ..._cli.progress import StageBars
    from ...encode.backbone import Backbone
    from ...train.mining_files import load_documents
    from ..store import VectorStore
    from .pipeline import build_bench
    from .records import BuildSettings

    def confirm(estimate: Estimate) -> bool:
        typer.echo(str(estimate), err=True)
        return yes or typer.confirm("Go on?", err=True)

    models: dict[str, Any] = {
        "writer": None if writer == "template" else load_model(writer, "--writer"),
        "judge": None if judge == "none" else load_model(judge, "--judge"),
        "second_judge": None if second_judge is None else load_model(second_judge, "--second-judge"),
    }
    documents = load_documents(corpus)
    references = [d.full_text for path in reference for d in load_documents(path)] if reference else None
    # Bars are for the terminal, where the question has to be seen too.
    bars = StageBars()
    report = build_bench(
        documents,
        out,
        **models,
        backbone=Backbone.from_pretrained(backbone),
        settings=BuildSettings(count=count, seed=seed, timeout=timeout),
        references=references,
        split=split,
        answers=answers,
        store=VectorStore(cache) if cache is not None else None,
        confirm=confirm,
        progress=bars if yes or models["judge"] is None else None,
    )
    if as_json:
        typer.echo(json.dumps({"folder": str(out), **report.facts}, indent=2))
        return
    facts = report.facts
    typer.echo(f"{facts['queries']} queries in {out}, of {facts['groups']} groups")
    typer.echo(", ".join(f"{kind} {number}" for kind, number in facts["kinds"].items()))
    for name, number in facts["writing"].items():
        typer.echo(f"{name.replace('_', ' ')} {number}")
    for gate, counts in facts["gates"].items():
        note = f" (not run: {counts['not_run']})" if "not_run" in counts else ""
        typer.echo(f"{gate} rejected {counts['rejected']} of {counts['checked']}{note}")


def audit_sample_command(
    suite: Annotated[Path, typer.Argument(metavar="SUITE", help="A folder that `excise bench build` wrote.")],
    out: Annotated[Path, typer.Option("--out", help="The CSV file to write.")],
    per_kind: Annotated[int, typer.Option("--per-kind", min=1, help="Records of each tier and form.")] = 10,
    seed: Annotated[int, typer.Option("--seed")] = 0,
) -> None:
    """Write a sample of a built suite for people to judge, in its column 'valid'."""
    from .audit import audit_sample

    typer.echo(f"{audit_sample(suite, out, per_kind=per_kind, seed=seed)} records in {out}")


def agreement(
    suite: Annotated[Path, typer.Argument(metavar="SUITE", help="The folder that the sample was drawn from.")],
    samples: Annotated[list[Path], typer.Argument(metavar="CSV...", help="The sample as it came back, per person.")],
    as_json: opt.Json = False,
) -> None:
    """Print Cohen's kappa of each person with the build, and of the people with one another."""
    from .audit import build_labels, cohen_kappa, read_labels

    raters = [("build", build_labels(suite)), *((str(path), read_labels(path)) for path in samples)]
    records = [
        {"a": a, "b": b, **cohen_kappa(one, two)}
        for at, (a, one) in enumerate(raters)
        for b, two in raters[at + 1 :]
    ]  # fmt: skip
    if as_json:
        typer.echo(json.dumps(records, indent=2))
        return
    for r in records:
        values = "  ".join(f"{k} {'-' if r[k] is None else format(r[k], '.3f')}" for k in ("agreement", "kappa"))
        typer.echo(f"{r['a']} and {r['b']}: n {r['n']}  {values}")
