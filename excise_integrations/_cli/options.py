"""Options that several commands share, and what becomes of them."""

from __future__ import annotations

import json
import os
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer

if TYPE_CHECKING:
    from ..pipeline import Excise

__all__ = [
    "Adapter",
    "Backbone",
    "BackboneName",
    "Cache",
    "Demotion",
    "DetectorName",
    "Device",
    "Json",
    "Log",
    "LogText",
    "Settings",
    "Split",
    "Suites",
    "load_excise",
    "pairs",
    "quiet",
]

Backbone = Annotated[
    str | None,
    typer.Option(
        "--backbone",
        help="'minilm', a checkpoint folder, or a hub id. By default, what the index was built with, else minilm.",
    ),
]
BackboneName = Annotated[str, typer.Option("--backbone", help="'minilm', a checkpoint folder, or a hub id.")]
Suites = Annotated[
    list[Path], typer.Argument(metavar="SUITE...", help="BEIR folders; FOLDER:SPLIT reads another split than --split.")
]
Split = Annotated[str, typer.Option("--split", help="Which qrels.")]
Cache = Annotated[Path | None, typer.Option("--cache", help="Keep vectors here between runs.")]
DetectorName = Annotated[
    str, typer.Option("--detector", help="'auto', 'lora', 'rules', or the folder of a trained detector.")
]
Adapter = Annotated[str, typer.Option("--adapter", help="'auto', 'none', or the folder of an exclusion adapter.")]
Demotion = Annotated[
    str | None, typer.Option("--demotion", help="'paper' (Algorithm 1) or 'per_topic'; the default of the settings.")
]
Device = Annotated[str | None, typer.Option("--device", help="torch device; by default a GPU when there is one.")]
Settings = Annotated[
    list[str] | None,
    typer.Option("--set", metavar="NAME=VALUE", help="A setting of ExciseConfig, e.g. --set floor=0.4. Repeatable."),
]
Log = Annotated[
    Path | None,
    typer.Option("--log", metavar="FILE", help="Append a line to this audit log; read it with `excise log`."),
]
LogText = Annotated[
    Literal["hash", "plain"],
    typer.Option("--log-text", help="Whether the log holds hashes of the query and its topics, or their words."),
]
Json = Annotated[bool, typer.Option("--json", help="Print JSON on stdout.")]


def pairs(values: Sequence[str] | None, option: str) -> dict[str, Any]:
    """Parse ``NAME=VALUE`` options; a value is JSON where it parses as such, else a string."""
    out: dict[str, Any] = {}
    for value in values or ():
        name, equals, text = value.partition("=")
        if not equals or not name:
            raise typer.BadParameter(f"{value!r} is not NAME=VALUE.", param_hint=option)
        try:
            out[name] = json.loads(text)
        except (ValueError, RecursionError):
            out[name] = text
    return out


def quiet() -> None:
    """Keep the libraries' own progress bars and notes off the terminal."""
    os.environ.setdefault("TOKENIZERS_PARALLELISM", "false")
    os.environ.setdefault("TRANSFORMERS_VERBOSITY", "error")
    os.environ.setdefault("HF_HUB_DISABLE_PROGRESS_BARS", "1")
    from transformers.utils import logging

    logging.disable_progress_bar()  # type: ignore[no-untyped-call]


def load_excise(
    backbone: str | Path,
    *,
    detector: str,
    adapter: str,
    demotion: str | None,
    device: str | None,
    settings: Sequence[str] | None,
    log: Path | None = None,
    log_text: Literal["hash", "plain"] = "hash",
) -> Excise:
    """Load the pipeline that the options describe."""
    fields = pairs(settings, "--set")
    if log is not None:
        from ..audit.log import AuditLog

        fields["log"] = AuditLog(log, text=log_text)
    quiet()
    from ..pipeline import Excise

    if demotion is not None:
        fields["demotion"] = demotion
    return Excise.from_pretrained(backbone, detector=detector, adapter=adapter, device=device, **fields)
