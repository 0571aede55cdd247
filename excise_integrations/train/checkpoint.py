"""Training checkpoints without pickle: tensors in safetensors, counters in JSON."""

from __future__ import annotations

import contextlib
import json
import os
import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from ..encode.minilm import sha256_file
from ..errors import AdapterError

__all__ = ["load_checkpoint", "save_checkpoint"]

_COUNTERS = "state.json"
# What a checkpoint without a name for its tensors calls them.
_TENSORS = "state.safetensors"
_RANDOM = "random"


def save_checkpoint(
    folder: str | Path,
    trainable: Mapping[str, nn.Parameter],
    optimizer: torch.optim.Optimizer,
    schedule: torch.optim.lr_scheduler.LambdaLR,
    epoch: int,
) -> None:
    """Write a checkpoint, all of it or nothing.

    The tensors go to a new file that carries its own hash in its name, and the counters, which name
    it, are replaced last by one rename: a killed process leaves the old checkpoint or the new one.
    PyTorch's random state is kept too, so that a resumed run ends as one that was not interrupted.

    Args:
        folder: target; a checkpoint in it is replaced.
        trainable: the trained parameters by name, in the optimizer's order of groups or not.
        optimizer, schedule: their state is kept too.
        epoch: epochs finished.

    Raises:
        AdapterError: the disk does not take it; the old checkpoint is as it was.
    """
    from safetensors import SafetensorError
    from safetensors.torch import save_file

    folder = Path(folder)
    tensors: dict[str, Tensor] = {_RANDOM: torch.get_rng_state()}
    for name, parameter in trainable.items():
        tensors[f"p.{name}"] = parameter.detach().clone()
        for key, value in optimizer.state.get(parameter, {}).items():
            tensors[f"o.{key}.{name}"] = torch.as_tensor(value).clone()
    staging = folder / ".new"
    staged, counters = staging / _TENSORS, staging / _COUNTERS
    target: Path | None = None
    try:
        # One that a killed run has left goes first.
        shutil.rmtree(staging, ignore_errors=True)
        staging.mkdir(parents=True)
        save_file(tensors, str(staged))
        _sync(staged)
        digest = sha256_file(staged)
        target = folder / f"state-{digest[:16]}.safetensors"
        record = {"epoch": epoch, "steps": schedule.last_epoch, "tensors": target.name, "sha256": digest}
        counters.write_text(json.dumps(record), encoding="utf-8")
        _sync(counters)
        staged.replace(target)
        _sync(folder)
        counters.replace(folder / _COUNTERS)
        _sync(folder)
    except (OSError, SafetensorError) as error:
        raise AdapterError(
            f"The checkpoint {folder} was not written: {error}. Make room, or give another folder."
        ) from error
    finally:
        shutil.rmtree(staging, ignore_errors=True)
    for path in folder.glob("state*.safetensors"):
        if path != target:
            with contextlib.suppress(OSError):
                path.unlink()


def load_checkpoint(
    folder: str | Path,
    trainable: Mapping[str, nn.Parameter],
    optimizer: torch.optim.Optimizer,
    schedule: torch.optim.lr_scheduler.LambdaLR,
) -> int:
    """Restore what :func:`save_checkpoint` wrote, PyTorch's random state among it.

    Returns:
        How many epochs are finished.

    Raises:
        AdapterError: the checkpoint is damaged or belongs to another model.
    """
    from safetensors.torch import load_file

    folder = Path(folder)
    try:
        counters: dict[str, Any] = json.loads((folder / _COUNTERS).read_text(encoding="utf-8"))
        # A plain name: a file elsewhere is no part of this checkpoint.
        path = folder / Path(counters.get("tensors", _TENSORS)).name
        if "sha256" in counters and sha256_file(path) != counters["sha256"]:
            raise ValueError(f"{path.name} does not have the sha256 that {_COUNTERS} says")
        tensors = load_file(str(path))
        with torch.no_grad():
            for name, parameter in trainable.items():
                parameter.copy_(tensors[f"p.{name}"])
                optimizer.state[parameter] = {
                    key: tensors[f"o.{key}.{name}"] for key in ("step", "exp_avg", "exp_avg_sq")
                }
        steps, epoch = int(counters["steps"]), int(counters["epoch"])
        if _RANDOM in tensors:
            torch.set_rng_state(tensors[_RANDOM])
    except Exception as error:
        raise AdapterError(
            f"The checkpoint {folder} cannot be resumed: {error}. Start again without --resume."
        ) from error
    schedule.last_epoch = steps
    for group, base in zip(optimizer.param_groups, schedule.base_lrs, strict=True):
        group["lr"] = base * schedule.lr_lambdas[0](steps)
    return epoch


def _sync(path: Path) -> None:
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
