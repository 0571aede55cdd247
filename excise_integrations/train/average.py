"""The mean of several runs' weights: steadier than any one of them, at the cost of one."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path

import torch
from torch import Tensor

from ..errors import AdapterError, InvalidInputError
from ..weights import Adapter, Task, load_adapter, save_adapter

__all__ = ["average_adapters"]


def average_adapters(
    folders: Sequence[str | Path],
    out: str | Path,
    *,
    task: Task = "detector",
    weights: Sequence[float] | None = None,
    command: str = "",
) -> Adapter:
    """Average adapters of one lineage and write the result.

    The runs must descend from one another, or from one run: matrices of low rank that were trained apart
    mean different things, and their mean means nothing.

    Args:
        folders: at least two adapter folders of one backbone and rank.
        out: the folder to write.
        task: what they are for.
        weights: one positive weight per folder; None weighs all alike.
        command: the command line, for the manifest.

    Returns:
        The averaged adapter. It has no threshold: see ``excise calibrate``.

    Raises:
        InvalidInputError: there are fewer than two folders, or a weight is not positive.
        AdapterError: a folder is damaged, or the adapters are for another task, or differ in backbone, rank or tensors.
    """
    shares = [1.0] * len(folders) if weights is None else list(weights)
    if len(folders) < 2 or len(shares) != len(folders):
        raise InvalidInputError(f"{len(folders)} adapters and {len(shares)} weights; at least two, one weight each.")
    if min(shares) <= 0:
        raise InvalidInputError(f"The weights {shares} must all be positive.")
    adapters = [load_adapter(folder, task) for folder in folders]
    first = adapters[0].manifest
    for adapter in adapters[1:]:
        for name in ("backbone", "backbone_sha256", "rank"):
            ours, theirs = getattr(first, name), getattr(adapter.manifest, name)
            if ours != theirs:
                raise AdapterError(f"{adapter.folder} has {name}={theirs!r}, {adapters[0].folder} has {ours!r}.")
    names = [name for name in first.files if name.endswith(".safetensors")]
    config = adapters[0].folder / "adapter_config.json"
    card = adapters[0].folder / "README.md"
    return save_adapter(
        out,
        task=first.task,
        backbone=first.backbone,
        backbone_sha256=first.backbone_sha256,
        tensors={name: _mean([a.tensors(name) for a in adapters], shares) for name in names},
        adapter_config=json.loads(config.read_text(encoding="utf-8")) if config.is_file() else None,
        card=card.read_text(encoding="utf-8") if card.is_file() else "",
        rank=first.rank,
        settings=first.settings,
        training_data={
            "averaged": [
                {
                    "adapter": a.label,
                    "weight": w,
                    "training_data": a.manifest.training_data,
                    "settings": a.manifest.settings,
                    "command": a.manifest.command,
                }
                for a, w in zip(adapters, shares, strict=True)
            ]
        },
        command=command,
    )


def _mean(tensors: Sequence[dict[str, Tensor]], weights: Sequence[float]) -> dict[str, Tensor]:
    total = sum(weights)
    out: dict[str, Tensor] = {}
    for name, first in tensors[0].items():
        parts = [t.get(name) for t in tensors]
        if any(p is None or p.shape != first.shape for p in parts):
            raise AdapterError(f"The adapters' tensors {name!r} differ in shape; average runs of one recipe.")
        stacked = torch.stack([p.float() * w for p, w in zip(parts, weights, strict=True) if p is not None])
        out[name] = (stacked.sum(dim=0) / total).to(first.dtype)
    return out
