"""In which arithmetic models run."""

from __future__ import annotations

import contextlib
from pathlib import Path
from typing import Literal

import torch

from ..errors import InvalidInputError

__all__ = ["DType", "default_device", "resolve_dtype"]

DType = Literal["auto", "float32", "bfloat16"]


def default_device() -> str:
    """Return a GPU's device where there is one, else the CPU's."""
    return "cuda" if torch.cuda.is_available() else "cpu"


def resolve_dtype(dtype: DType, device: str) -> torch.dtype:
    """Return the arithmetic of a backbone: bfloat16 where the hardware has it, unless told otherwise.

    Raises:
        InvalidInputError: ``dtype`` is not one of "auto", "float32", "bfloat16".
    """
    if dtype == "float32":
        return torch.float32
    if dtype == "bfloat16":
        return torch.bfloat16
    if dtype != "auto":
        raise InvalidInputError(f"dtype={dtype!r} is not one of 'auto', 'float32', 'bfloat16'.")
    if device.startswith("cuda"):
        return torch.bfloat16 if torch.cuda.is_bf16_supported() else torch.float32
    if device == "cpu" and _cpu_has_bf16():
        return torch.bfloat16
    return torch.float32


def _cpu_has_bf16() -> bool:
    # Without these instructions bfloat16 is emulated and slower than float32.
    with contextlib.suppress(OSError):
        flags = Path("/proc/cpuinfo").read_text(encoding="utf-8")
        return "avx512_bf16" in flags or "amx_bf16" in flags or " bf16" in flags
    return False
