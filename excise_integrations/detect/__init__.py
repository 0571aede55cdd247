"""Which topic a query excludes."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from ..errors import AdapterError
from ..weights import find_adapter
from .base import Detector
from .llm import LLMDetector
from .rules import RulesDetector

if TYPE_CHECKING:
    from ..encode.arithmetic import DType

__all__ = ["Detector", "LLMDetector", "RulesDetector", "resolve"]


def resolve(
    name: str | Path,
    *,
    device: str | None = None,
    dtype: DType = "auto",
    path: str | Path | None = None,
    offline: bool | None = None,
    threshold: float | None = None,
) -> Detector:
    """Return a detector by name.

    Args:
        name: ``"auto"`` (the bundled trained one, else the rules), ``"lora"`` (the bundled one or an
            error), ``"rules"``, or the folder of a trained one.
        device: torch device of a trained one.
        dtype: its arithmetic; see :func:`~excise_integrations.encode.backbone.resolve_dtype`.
        path: a folder with the weights of MiniLM.
        offline: whether the hub may not be asked for them.
        threshold: fire threshold of a trained one; None takes its calibrated one.

    Raises:
        AdapterError: the folder is not a detector, or none is bundled.
    """
    if str(name) == "rules":
        return RulesDetector()
    folder = find_adapter("minilm", "detector") if str(name) in ("auto", "lora") else Path(name)
    if folder is None:
        if str(name) == "auto":
            return RulesDetector()
        raise AdapterError("No trained detector is bundled; use detector='rules' or the folder of a trained one.")
    from .lora import LoraDetector

    return LoraDetector.from_folder(folder, device=device, dtype=dtype, path=path, offline=offline, threshold=threshold)
