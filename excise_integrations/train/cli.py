"""``excise train …`` and ``excise calibrate``; ``mine`` and ``warm`` have modules of their own."""

from __future__ import annotations

import json
import random
import shlex
import sys
from pathlib import Path
from typing import Annotated, Any, Literal

import typer

from ..errors import InvalidInputError
from .mine_cli import mine_app
from .warm_cli import warm_app

__all__ = ["app", "calibrate_app", "mine_app", "warm_app"]

app = typer.Typer(no_args_is_help=True, help="Train a detector, an exclusion adapter or a projection.")
calibrate_app = typer.Typer()

Shared = Annotated[Path | None, typer.Option("--data", help="Folder with detector/, exclusion/ and pairs/.")]
Out = Annotated[Path, typer.Option("--out", help="Adapter folder to write.")]


def _command() -> str:
    """The command line as it was called, with the program's plain name."""
    return shlex.join(["excise", *sys.argv[1:]])


def _say(line: str) -> None:
    typer.echo(line, err=True)


@app.command("detector")
def detector(
    out: Out,
    data: Shared = None,
    generated: Annotated[int, typer.Option(min=0, help="Generated examples, a multiple of 4.")] = 4000,
    natural_repeats: Annotated[
        int, typer.Option(min=0, help="How often each natural pair is used; 0 takes generated examples alone.")
    ] = 1,
    natural_share: Annotated[
        float, typer.Option(min=0.0, max=1.0, help="Share of the natural pairs that are drawn, for a learning curve.")
    ] = 1.0,
    rank: Annotated[int, typer.Option(min=1, help="LoRA rank.")] = 8,
    epochs: Annotated[int, typer.Option(min=1)] = 6,
    learning_rate: Annotated[float, typer.Option()] = 5e-4,
    grid: Annotated[
        Literal["balanced", "no-long-silent", "no-long-firing"],
        typer.Option(help="Which of the four cells long/short × excludes/does not are used (paper, Table 4)."),
    ] = "balanced",
    seed: Annotated[int, typer.Option()] = 0,
    start: Annotated[Path | None, typer.Option(help="A detector to start from, of the same or a lower rank.")] = None,
    checkpoint: Annotated[Path | None, typer.Option(help="Where a checkpoint is kept after each epoch.")] = None,
    resume: Annotated[bool, typer.Option(help="Go on from the checkpoint.")] = False,
    max_minutes: Annotated[float | None, typer.Option(help="End after the epoch that passes this.")] = None,
) -> None:
    """Train the detector on generated and natural minimal pairs."""
    from .detector import DetectorRecipe, train_detector
    from .detector_data import detector_examples, source_counts

    examples = detector_examples(
        generated=generated, seed=seed, shared=data, natural_repeats=natural_repeats, natural_share=natural_share
    )
    if grid != "balanced":
        dropped = 0 if grid == "no-long-silent" else 1
        examples = [e for e in examples if (e.form, e.label) != ("long", dropped)]
    adapter = train_detector(
        examples,
        out,
        recipe=DetectorRecipe(rank=rank, epochs=epochs, learning_rate=learning_rate, seed=seed),
        start=start,
        checkpoint=checkpoint,
        resume=resume,
        max_minutes=max_minutes,
        progress=_say,
        command=_command(),
        sources=source_counts(examples),
    )
    typer.echo(adapter.label)


@app.command("average")
def average(
    adapters: Annotated[list[Path], typer.Argument(help="Adapter folders of one lineage.")],
    out: Out,
    task: Annotated[Literal["detector", "exclusion"], typer.Option(help="What the adapters are for.")] = "detector",
    weight: Annotated[list[float] | None, typer.Option(help="One per adapter, in order; alike by default.")] = None,
) -> None:
    """Average the weights of several runs that descend from one."""
    from .average import average_adapters

    made = average_adapters(adapters, out, task=task, weights=weight, command=_command())
    typer.echo(made.label)


@app.command("adapter")
def adapter(
    out: Out,
    triples: Annotated[list[Path], typer.Option(help="A suite with training triples. Repeatable.")],
    backbone: Annotated[str, typer.Option(help="'minilm', a checkpoint folder, or a hub id.")] = "minilm",
    rank: Annotated[int, typer.Option(min=1)] = 8,
    epochs: Annotated[int, typer.Option(min=1)] = 3,
    learning_rate: Annotated[
        float | None, typer.Option(help="By default the best of five by held-out success.")
    ] = None,
    seed: Annotated[int, typer.Option()] = 0,
    checkpoint: Annotated[Path | None, typer.Option()] = None,
    resume: Annotated[bool, typer.Option()] = False,
    max_minutes: Annotated[float | None, typer.Option()] = None,
) -> None:
    """Train an exclusion adapter for a backbone."""
    from ..encode.backbone import Backbone
    from .exclusion_adapter import AdapterRecipe, select_learning_rate, train_adapter
    from .triples import read_triples

    frozen = Backbone.from_pretrained(backbone)
    pool = read_triples(triples)
    recipe = AdapterRecipe(rank=rank, epochs=epochs, seed=seed)
    sources: dict[str, Any] = {"suites": [path.name for path in triples]}
    if learning_rate is None:
        learning_rate, held_out = select_learning_rate(frozen, pool, recipe=recipe, progress=_say)
        sources["held_out_success"] = {f"{rate:g}": value for rate, value in held_out.items()}
    made = train_adapter(
        frozen,
        pool,
        out,
        recipe=AdapterRecipe(rank=rank, epochs=epochs, seed=seed, learning_rate=learning_rate),
        checkpoint=checkpoint,
        resume=resume,
        max_minutes=max_minutes,
        progress=_say,
        command=_command(),
        sources=sources,
    )
    typer.echo(made.label)


@app.command("projection")
def projection(
    out: Out,
    pairs: Annotated[Path, typer.Option(help="Folder with query_passage.jsonl and medical_questions.jsonl.")],
    dim: Annotated[int, typer.Option(min=1)] = 256,
    seed: Annotated[int, typer.Option()] = 0,
) -> None:
    """Fit the projection of the MiniLM backbone."""
    from ..encode.backbone import Backbone
    from .projection import fit_projection, sample_pairs, save_projection

    backbone = Backbone.from_pretrained("minilm", projection=None)
    queries, documents = sample_pairs(pairs, queries=1500, documents=900, seed=seed)
    matrix, kept = fit_projection(backbone, queries, documents, dim)
    made = save_projection(out, matrix, backbone=backbone, kept=kept, command=_command())
    typer.echo(f"{made.label} keeps {kept:.4f}")


@calibrate_app.command()
def calibrate(
    detector: Annotated[Path, typer.Argument(help="Folder of a trained detector.")],
    data: Annotated[Path, typer.Option("--data", help="Folder with detector/, exclusion/ and pairs/.")],
    suites: Annotated[
        list[str] | None, typer.Option("--suite", help="Dev suites under exclusion/. Repeatable.")
    ] = None,
    write: Annotated[bool, typer.Option("--write", help="Put the threshold into the manifest.")] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
) -> None:
    """Choose the fire threshold of a detector: false firing, then the noise test, then Youden's J."""
    from dataclasses import asdict

    from ..bench.suites import load_queries
    from ..detect.lora import LoraDetector
    from ..weights import update_manifest
    from .calibrate import calibrate as choose
    from .calibrate import fit_temperature, reliability

    model = LoraDetector.from_folder(detector)
    positives: list[str] = []
    controls: list[str] = []
    for name in suites or ["excluir", "wiki", "legal", "medical", "film"]:
        folder = data / "exclusion" / name
        lines = (folder / "qrels" / "dev.tsv").read_text(encoding="utf-8").split("\n")
        dev = {line.split("\t")[0] for line in lines}
        for query in load_queries(folder / "queries.jsonl"):
            if query.id not in dev:
                continue
            if query.excluded:
                positives.append(query.text)
            elif query.groups.get("tier", "").startswith("C-"):
                controls.append(query.text)
    # The first half of these trained the detector.
    plain = [q.text for q in load_queries(data / "detector" / "quest_no_exclusion.jsonl")]
    ordinary = {"quest": plain[len(plain) // 2 :], "pairs": _pair_queries(data / "pairs", 1500)}
    if not positives or not controls:
        raise InvalidInputError(f"The suites under {data} hold no excluding query or no control.")
    scores = {
        name: [float(d.confidence or 0.0) for d in model.detect(texts)]
        for name, texts in {"positives": positives, "controls": controls, **ordinary}.items()
    }
    result = choose(
        scores["positives"],
        scores["controls"],
        {name: scores[name] for name in ordinary},
        budgets={"quest": 0.02, "pairs": 0.006},
    )
    probabilities = scores["positives"] + scores["controls"]
    labels = [1] * len(positives) + [0] * len(controls)
    logits = [_logit(p) for p in probabilities]
    record = {
        **result.record(),
        "queries": {name: len(values) for name, values in scores.items()},
        "reliability": asdict(reliability(probabilities, labels)),
        "temperature_that_would_fit": fit_temperature(logits, labels),
    }
    if write:
        update_manifest(
            detector, threshold=result.threshold, metrics={"calibration": record}, package_version=_version()
        )
    if as_json:
        typer.echo(json.dumps(record, indent=2))
    else:
        typer.echo(f"threshold {result.threshold}: {result.reason}")
        typer.echo(f"admissible: {', '.join(map(str, result.admissible)) or 'none'}")
        typer.echo(f"spread of Youden's J {result.youden.spread:.4f}, noise {result.youden.noise:.4f}")


def _pair_queries(folder: Path, count: int) -> list[str]:
    texts: list[str] = []
    for name in ("query_passage.jsonl", "medical_questions.jsonl"):
        lines = (folder / name).read_text(encoding="utf-8").split("\n")
        texts += [json.loads(line)["query"] for line in lines if line.strip()]
    random.Random(0).shuffle(texts)
    return texts[:count]


def _logit(p: float) -> float:
    import math

    p = min(max(p, 1e-6), 1 - 1e-6)
    return math.log(p / (1 - p))


def _version() -> str:
    from ..version import __version__

    return __version__
