"""Train the fine-tuned controls: other systems on the triples of the exclusion adapter (paper, section 4)."""

from __future__ import annotations

import hashlib
import importlib.util
import json
import random
import tempfile
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Literal, get_args

import torch

from .._files import swap, write_text
from ..encode.backbone import Backbone
from ..errors import InvalidInputError, MissingExtraError
from ..train.triples import Triple, grouped_split
from .control_models import (
    DOCUMENT_TOKENS,
    QUERY_TOKENS,
    Contrast,
    CrossEncoderModel,
    DenseModel,
    LateModel,
    Model,
)
from .control_run import TIMED_STEPS, Run

__all__ = ["FULL_RATES", "LORA_RATES", "Control", "ControlSettings", "control_minutes", "train_control"]

Control = Literal["dense", "cross-encoder", "full", "lora", "query-only"]
FULL_RATES = (1e-5, 2e-5, 5e-5, 1e-4, 2e-4)
LORA_RATES = (5e-5, 1e-4, 2e-4, 5e-4, 1e-3)
RECORD = "control.json"
"""Every control's folder holds this: how it was trained."""


@dataclass(frozen=True)
class ControlSettings:
    """How a control is trained.

    Args:
        rates: learning rates to choose from, positive; by default the paper's five. A single one is taken as it is.
        limit: triples for choosing the rate.
        held_out: share of those that is held out, in (0, 1).
        epochs: of the last training.
        batch_size: triples per step.
        rank: of LoRA.
        seed: of everything random.

    Raises:
        InvalidInputError: no learning rate, or one that is not positive.
    """

    rates: Sequence[float] | None = None
    limit: int = 400
    held_out: float = 0.25
    epochs: int = 1
    batch_size: int = 16
    rank: int = 8
    seed: int = 0

    def __post_init__(self) -> None:
        if self.rates is not None and (not self.rates or min(self.rates) <= 0):
            raise InvalidInputError(f"The learning rates {list(self.rates)} must be positive, and one at least.")

    def rates_of(self, kind: Control) -> list[float]:
        """Return the learning rates to try for a control, the smallest first."""
        usual = LORA_RATES if kind in ("lora", "query-only") else FULL_RATES
        return sorted(usual if self.rates is None else self.rates)


def train_control(
    kind: Control,
    triples: Sequence[Triple],
    folder: str | Path,
    *,
    backbone: Backbone,
    settings: ControlSettings | None = None,
    ordinary: Sequence[tuple[str, str]] = (),
    max_minutes: float | None = None,
    sources: Sequence[str] = (),
    command: str = "",
    progress: Callable[[str], None] = print,
) -> Path:
    """Train a control, choosing its learning rate as the exclusion adapter's is chosen, and write its folder.

    Retrievers are trained by multiple negatives ranking with the confusable document as the hard negative; the
    cross-encoder by binary cross-entropy over the wanted, the confusable and some random documents. The rate is
    the argmax of the held-out success after one epoch over at most ``settings.limit`` triples, split by wanted
    document; ties go to the smaller; then everything is trained on.

    Args:
        kind: ``"dense"`` and ``"cross-encoder"`` start from MiniLM's weights; ``"full"`` changes all of the
            backbone's, ``"lora"`` an adapter on both sides, ``"query-only"`` one on queries alone, against documents
            that stay as they are.
        triples: training triples.
        folder: where the result is written: a SentenceTransformer, a CrossEncoder, a MultiVectorEncoder checkpoint,
            or an adapter folder. A control that lies there is replaced.
        backbone: of the last three kinds; it is copied, never changed.
        settings: how it is trained.
        ordinary: (query, passage) pairs without an exclusion, mixed in as a rehearsal; as many as there are triples
            at most.
        max_minutes: end the last training after the step that passes this.
        sources: what the triples were read from, for the folder's record.
        command: for the folder's record.
        progress: receives a line now and then.

    Returns:
        The folder.

    Raises:
        InvalidInputError: an unknown kind, no triple, or a folder that holds something else.
        MissingExtraError: ``accelerate`` or ``datasets`` is not installed.
    """
    settings = settings or ControlSettings()
    folder = Path(folder)
    _check(kind, triples)
    if folder.exists() and not _is_control(folder):
        raise InvalidInputError(f"{folder} exists and holds no control; choose an empty folder.")
    batch_size, seed = settings.batch_size, settings.seed
    pool = _shuffled(triples, seed)
    best, success = _choose_rate(kind, pool, backbone, settings, progress)
    rehearsed = random.Random(seed).sample(list(ordinary), min(len(ordinary), len(pool)))
    run = Run(
        best, epochs=settings.epochs, batch_size=batch_size, seed=seed, max_minutes=max_minutes, progress=progress
    )
    model = _build(kind, backbone, settings)
    clock = time.monotonic()
    model.fit(_contrasts(pool, rehearsed, seed), run)
    minutes = (time.monotonic() - clock) / 60
    progress(f"trained {kind} at {best:g}: {run.steps} steps in {minutes:.1f} minutes")
    record = {
        "control": kind, "learning_rate": best, "held_out_success": {f"{r:g}": s for r, s in success.items()},
        "selection_triples": min(settings.limit, len(pool)) if success else 0, "epochs": settings.epochs,
        "batch_size": batch_size, "steps": run.steps, "stopped": run.stopped, "document_tokens": DOCUMENT_TOKENS,
        "query_tokens": QUERY_TOKENS, "seed": seed, "command": command,
        "training_data": {
            "triples": len(pool), "sha256": _digest(pool), "ordinary": len(rehearsed), "sources": list(sources),
        },
    }  # fmt: skip
    _put(model, folder, record)
    return folder


def control_minutes(
    kind: Control,
    triples: Sequence[Triple],
    *,
    backbone: Backbone,
    settings: ControlSettings | None = None,
    ordinary: int = 0,
) -> float:
    """Estimate how many minutes :func:`train_control` steps for, from a few timed steps.

    Reading the held-out documents comes on top.

    Args:
        kind, triples, backbone, settings: as there.
        ordinary: how many ordinary pairs there are.

    Raises:
        InvalidInputError: an unknown kind, or no triple.
    """
    settings = settings or ControlSettings()
    _check(kind, triples)
    size, seed = settings.batch_size, settings.seed
    run = Run(1e-5, epochs=TIMED_STEPS, batch_size=size, seed=seed, max_steps=TIMED_STEPS)
    some = _shuffled(triples, seed)[: TIMED_STEPS * size]
    _build(kind, backbone, settings).fit(_contrasts(some, (), seed), run)
    count = len(triples)
    tried = len(settings.rates_of(kind))
    choosing = tried * -(-int(min(settings.limit, count) * (1 - settings.held_out)) // size) if tried > 1 else 0
    last = settings.epochs * -(-(count + min(ordinary, count)) // size)
    return (choosing + last) * (run.seconds_per_step or 0.0) / 60


def _check(kind: str, triples: Sequence[Triple]) -> None:
    if kind not in get_args(Control):
        raise InvalidInputError(f"{kind!r} is no control. There are {', '.join(get_args(Control))}.")
    if not triples:
        raise InvalidInputError("There is no training triple.")
    for package in ("accelerate", "datasets"):
        if importlib.util.find_spec(package) is None:
            raise MissingExtraError(package, "bench")


def _choose_rate(
    kind: Control,
    pool: Sequence[Triple],
    backbone: Backbone,
    settings: ControlSettings,
    progress: Callable[[str], None],
) -> tuple[float, dict[float, float]]:
    """Return the best learning rate, and the held-out success of each that was tried."""
    rates, seed = settings.rates_of(kind), settings.seed
    if len(rates) == 1:
        return rates[0], {}
    some = pool[: settings.limit]
    train, held = grouped_split(some, settings.held_out, seed=seed)
    if not train:
        raise InvalidInputError(f"The {len(some)} triples have one wanted document: none can be held out.")
    success: dict[float, float] = {}
    for rate in rates:
        model = _build(kind, backbone, settings)
        model.fit(_contrasts(train, (), seed), Run(rate, batch_size=settings.batch_size, seed=seed))
        success[rate] = _held_out_success(model, held)
        progress(f"learning rate {rate:g}: held-out success {success[rate]:.3f} on {len(held)} triples")
    # Of equals the first, which is the smallest.
    return max(rates, key=lambda r: success[r]), success


def _shuffled(triples: Sequence[Triple], seed: int) -> list[Triple]:
    pool = list(triples)
    random.Random(seed).shuffle(pool)
    return pool


def _build(kind: Control, backbone: Backbone, settings: ControlSettings) -> Model:
    torch.manual_seed(settings.seed)
    if kind == "dense":
        return DenseModel()
    if kind == "cross-encoder":
        return CrossEncoderModel()
    return LateModel(backbone, kind, rank=settings.rank)


def _contrasts(triples: Sequence[Triple], ordinary: Sequence[tuple[str, str]], seed: int) -> list[Contrast]:
    """Return triples and ordinary pairs, shuffled; an ordinary query's other document is another query's."""
    rows = [(t.query, t.wanted, t.negative) for t in triples]
    passages = [passage for _, passage in ordinary]
    rng = random.Random(seed)
    for query, passage in ordinary:
        others = [p for p in rng.sample(passages, min(2, len(passages))) if p != passage]
        rows.append((query, passage, others[0] if others else triples[0].negative))
    rng.shuffle(rows)
    return rows


@torch.no_grad()
def _held_out_success(model: Model, held: Sequence[Triple]) -> float:
    """Share of triples whose wanted document outranks its confusable one and is among the ten best of all held out."""
    scores = model.scores([t.query for t in held], [*(t.wanted for t in held), *(t.negative for t in held)])
    n = len(held)
    gold, negative = scores[:, :n].diagonal(), scores[:, n:].diagonal()
    better = (scores > gold[:, None]).sum(dim=1)
    return int(((gold > negative) & (better < 10)).sum()) / n


def _digest(triples: Sequence[Triple]) -> str:
    """Return the sha256 of triples, whatever their order."""
    lines = sorted(json.dumps(asdict(t), sort_keys=True) for t in triples)
    return hashlib.sha256("\n".join(lines).encode()).hexdigest()


def _is_control(folder: Path) -> bool:
    return folder.is_dir() and ((folder / RECORD).is_file() or not any(folder.iterdir()))


def _put(model: Model, folder: Path, record: dict[str, Any]) -> None:
    """Write beside the target and put it there at once: a training that is killed leaves the old control or the new."""
    folder.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix=f".{folder.name}-", dir=folder.parent) as scratch:
        made = Path(scratch) / folder.name
        model.write(made, record)
        write_text(made / RECORD, json.dumps(record, indent=2) + "\n")
        swap(folder, made)
