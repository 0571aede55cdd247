"""Training checkpoints without pickle: tensors in safetensors, counters in JSON."""

from __future__ import annotations

import json
import os
import shutil
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from ..errors import AdapterError

__all__ = ["load_checkpoint", "save_checkpoint"]


def save_checkpoint(
    folder: str | Path,
    trainable: Mapping[str, nn.Parameter],
    optimizer: torch.optim.Optimizer,
    schedule: torch.optim.lr_scheduler.LambdaLR,
    epoch: int,
) -> None:
    """Write a checkpoint, all of it or nothing.

    Args:
        folder: target, replaced.
        trainable: the trained parameters by name, in the optimizer's order of groups or not.
        optimizer, schedule: their state is kept too.
        epoch: epochs finished.
    """
    from safetensors.torch import save_file

    folder = Path(folder)
    folder.parent.mkdir(parents=True, exist_ok=True)
    staging = Path(tempfile.mkdtemp(prefix=f".{folder.name}-", dir=folder.parent))
    tensors: dict[str, Tensor] = {}
    for name, parameter in trainable.items():
        tensors[f"p.{name}"] = parameter.detach().clone()
        for key, value in optimizer.state.get(parameter, {}).items():
            tensors[f"o.{key}.{name}"] = torch.as_tensor(value).clone()
    save_file(tensors, str(staging / "state.safetensors"))
    with (staging / "state.json").open("w", encoding="utf-8") as handle:
        json.dump({"epoch": epoch, "steps": schedule.last_epoch}, handle)
        handle.flush()
        os.fsync(handle.fileno())
    if folder.exists():
        shutil.rmtree(folder)
    staging.rename(folder)


def load_checkpoint(
    folder: str | Path,
    trainable: Mapping[str, nn.Parameter],
    optimizer: torch.optim.Optimizer,
    schedule: torch.optim.lr_scheduler.LambdaLR,
) -> int:
    """Restore what :func:`save_checkpoint` wrote.

    Returns:
        How many epochs are finished.

    Raises:
        AdapterError: the checkpoint is damaged or belongs to another model.
    """
    from safetensors.torch import load_file

    folder = Path(folder)
    try:
        tensors = load_file(str(folder / "state.safetensors"))
        counters: dict[str, Any] = json.loads((folder / "state.json").read_text(encoding="utf-8"))
        with torch.no_grad():
            for name, parameter in trainable.items():
                parameter.copy_(tensors[f"p.{name}"])
                optimizer.state[parameter] = {
                    key: tensors[f"o.{key}.{name}"] for key in ("step", "exp_avg", "exp_avg_sq")
                }
        steps, epoch = int(counters["steps"]), int(counters["epoch"])
    except Exception as error:
        raise AdapterError(
            f"The checkpoint {folder} cannot be resumed: {error}. Start again without --resume."
        ) from error
    schedule.last_epoch = steps
    for group, base in zip(optimizer.param_groups, schedule.base_lrs, strict=True):
        group["lr"] = base * schedule.lr_lambdas[0](steps)
    return epoch
