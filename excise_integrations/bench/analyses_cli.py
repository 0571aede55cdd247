"""``excise bench inversion``, ``probe`` and ``boolean``."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any

import typer

from .._cli import options as opt

__all__ = ["boolean", "inversion", "probe"]

_MaybeSuites = Annotated[
    list[Path] | None,
    typer.Argument(metavar="[SUITE...]", help="BEIR folders; FOLDER:SPLIT reads another split than --split."),
]


def inversion(
    suites: opt.Suites,
    split: opt.Split = "dev",
    cache: opt.Cache = None,
    backbone: opt.BackboneName = "minilm",
    figures: Annotated[
        Path | None, typer.Option("--figures", help="Draw a figure into this folder; needs matplotlib.")
    ] = None,
    as_json: opt.Json = False,
) -> None:
    """Say how often, and by how much, frozen MaxSim ranks an excluded document above the wanted one, by length."""
    from ..encode.backbone import Backbone
    from .inversion import draw_inversion, inversion_pairs, inversion_summary
    from .store import VectorStore
    from .suites import load_suites

    opt.quiet()
    loaded = load_suites(suites, split)
    frozen = Backbone.from_pretrained(backbone)
    store = VectorStore(cache) if cache is not None else None
    pairs = {suite.name: inversion_pairs(suite, frozen, store=store) for suite in loaded}
    pools = {**pairs, **({"pooled": [p for part in pairs.values() for p in part]} if len(pairs) > 1 else {})}
    found = {name: inversion_summary(part) for name, part in pools.items()}
    if figures is not None:
        draw_inversion(pairs, figures)
    if as_json:
        typer.echo(json.dumps({"backbone": frozen.label, "suites": found}))
        return
    for name, record in found.items():
        slope = ""
        if record["slope"] is not None:
            interval = f"[{record['low']:+.3f}, {record['high']:+.3f}]"
            slope = f"; margin {record['slope']:+.3f} {interval} per token of the exclusion"
        typer.echo(f"{name}: {record['inverted']:.3f} of {record['n']} queries inverted{slope}")
        for b in record["bins"]:
            length = f"{b['from']}" if b["from"] == b["to"] else f"{b['from']} to {b['to']}"
            typer.echo(f"  {length:>8} tokens: n {b['n']:>4}  inverted {b['inverted']:.3f}  margin {b['margin']:+.3f}")


def probe(
    suites: _MaybeSuites = None,
    split: opt.Split = "dev",
    generated: Annotated[
        int, typer.Option("--generated", min=0, help="Generated queries beside the packaged natural pairs.")
    ] = 1200,
    limit: Annotated[
        int, typer.Option("--limit", min=50, help="At most this many pairs of queries, drawn by the seed.")
    ] = 1500,
    seed: Annotated[int, typer.Option("--seed", help="Draws the pairs and splits them.")] = 0,
    backbone: opt.BackboneName = "minilm",
    detector: opt.DetectorName = "auto",
    device: opt.Device = None,
    as_json: opt.Json = False,
) -> None:
    """Train a linear probe on every layer: is a word, a query, a document excluded or wanted?

    The frozen backbone stands beside the trained detector. Documents are probed when suites are given.
    """
    from ..detect import resolve
    from ..detect.lora import LoraDetector
    from ..encode.backbone import Backbone
    from ..errors import InvalidInputError
    from ..train.detector_data import detector_examples
    from .hidden import backbone_layers, detector_layers
    from .probe import draw_pairs, probe_documents, probe_queries
    from .suites import load_suites

    opt.quiet()
    loaded = load_suites(suites or (), split)
    trained = resolve(detector, device=device)
    if not isinstance(trained, LoraDetector):
        raise InvalidInputError(
            f"--detector {detector!r} has no layers; give 'lora' or the folder of a trained detector."
        )
    examples = draw_pairs(detector_examples(generated=generated, seed=seed), limit, seed)
    frozen = Backbone.from_pretrained(backbone, device=device)
    readers = {frozen.label: backbone_layers(frozen), trained.label or "detector": detector_layers(trained)}
    found: dict[str, dict[str, Any]] = {}
    for name, reader in readers.items():
        found[name] = probe_queries(reader, examples, loaded, seed=seed)
        if loaded:
            found[name]["documents"] = probe_documents(reader, loaded, seed=seed)
    if as_json:
        typer.echo(json.dumps({"pairs": len({e.pair for e in examples}), "seed": seed, "encoders": found}))
        return
    for name, record in found.items():
        typer.echo(_probe_table(name, record))


def boolean(
    suites: _MaybeSuites = None,
    split: opt.Split = "dev",
    bundled: Annotated[
        bool, typer.Option("--bundled/--no-bundled", help="Add the packaged AND and OR questions.")
    ] = True,
    cache: opt.Cache = None,
    backbone: opt.BackboneName = "minilm",
    detector: opt.DetectorName = "auto",
    demotion: opt.Demotion = None,
    adapter: opt.Adapter = "auto",
    device: opt.Device = None,
    settings: opt.Settings = None,
    as_json: opt.Json = False,
) -> None:
    """Measure AND, OR and NOT: how often the right one of two or three texts comes first, frozen and with Excise."""
    from .boolean import LARGEST_FALL, boolean_results, bundled_boolean
    from .store import VectorStore
    from .suites import load_suites

    loaded = [*(bundled_boolean() if bundled else []), *load_suites(suites or (), split)]
    if not loaded:
        raise typer.BadParameter("give a suite, or leave --no-bundled out.", param_hint="SUITE...")
    excise = opt.load_excise(
        backbone, detector=detector, adapter=adapter, demotion=demotion, device=device, settings=settings
    )
    found = boolean_results(excise, loaded, store=VectorStore(cache) if cache is not None else None)
    if as_json:
        typer.echo(json.dumps({"suites": [s.name for s in loaded], "largest_fall": LARGEST_FALL, "tiers": found}))
        return
    typer.echo(f"{'':<5} {'n':>4} {'frozen':>7} {'Excise':>7}  {'difference [95 %]':<26} fires")
    for tier, row in found.items():
        interval = f"{row['difference']:+.3f} [{row['low']:+.3f}, {row['high']:+.3f}]"
        shares = f"{row['frozen']:>7.3f} {row['excise']:>7.3f}"
        typer.echo(f"{tier:<5} {row['n']:>4} {shares}  {interval:<26} {row['fire_rate']:.3f}")


def _probe_table(name: str, record: Mapping[str, Any]) -> str:
    tokens, queries, documents = record["tokens"], record["queries"], record.get("documents")
    lines = [
        f"{name}: words {tokens['train']} + {tokens['test']}, queries {queries['train']} + {queries['test']}, "
        f"of suites {queries['suites']}, documents {documents['n'] if documents else 0}; balanced accuracy, chance 0.5",
        f"  {'layer':<11} {'words':>7} {'queries':>8} {'suites':>7} {'documents':>10}",
    ]
    for at, (word, query) in enumerate(zip(tokens["layers"], queries["layers"], strict=True)):
        values: Sequence[float | None] = (
            word["held_out"],
            query["held_out"],
            query["suites"],
            documents["layers"][at]["accuracy"] if documents else None,
        )
        cells = ["" if v is None else f"{v:.3f}" for v in values]
        lines.append(f"  {word['layer']:<11} {cells[0]:>7} {cells[1]:>8} {cells[2]:>7} {cells[3]:>10}")
    return "\n".join(lines)
