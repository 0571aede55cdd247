"""From names to parts: how :meth:`Excise.from_pretrained` finds its detector, its adapter and its settings."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, get_args

from .config import ExciseConfig
from .detect.base import Detector
from .encode.arithmetic import DType
from .encode.backbone import Backbone
from .errors import InvalidInputError
from .weights import find_adapter, load_adapter

if TYPE_CHECKING:
    from .pipeline import Excise

__all__ = ["Backend", "at_threshold", "override", "place", "resolve_detector", "resolve_exclusion"]

Backend = Literal["torch", "openvino"]


def override(config: ExciseConfig, settings: Mapping[str, Any]) -> ExciseConfig:
    """Return the settings with some of them replaced; raise :class:`InvalidInputError` when one is out of range."""
    if not settings:
        return config
    try:
        return ExciseConfig(**{**config.model_dump(), **settings})
    except ValueError as error:
        raise InvalidInputError(f"The settings {dict(settings)!r} cannot be used: {error}") from error


def at_threshold(detector: Detector, threshold: float | None) -> Detector:
    """Return the detector with another fire threshold; one that has none stays as it is."""
    change: Callable[[float | None], Detector] | None = getattr(detector, "with_threshold", None)
    return detector if change is None else change(threshold)


def resolve_detector(
    detector: Detector | str | Path,
    *,
    device: str | None,
    dtype: DType,
    path: str | Path | None,
    offline: bool | None,
    config: ExciseConfig,
) -> Detector:
    """Return the detector that ``"auto"``, ``"lora"``, ``"rules"`` or a folder names; an object stays itself."""
    from .detect import resolve

    if isinstance(detector, (str, Path)):
        return resolve(detector, device=device, dtype=dtype, path=path, offline=offline, threshold=config.threshold)
    return detector


def resolve_exclusion(backbone: Backbone, adapter: str | Path) -> Backbone | None:
    """Return the backbone with its exclusion adapter merged in, or None where it has none."""
    if str(adapter) == "none":
        return None
    if str(adapter) == "auto":
        folder = find_adapter(backbone.name, "exclusion")
        if folder is None:
            return None
        found = load_adapter(folder, "exclusion")
        # A minilm with another projection is another backbone: then no bundled adapter fits it.
        return backbone.with_adapter(found) if found.manifest.backbone_sha256 == backbone.weights_hash else None
    return backbone.with_adapter(load_adapter(adapter, "exclusion"))


def place(excise: Excise, backend: Backend, *, detector: bool) -> None:
    """Put the models of a new pipeline on a back end: its backbone, its exclusion adapter, and its own detector.

    Args:
        excise: the pipeline.
        backend: where to.
        detector: whether the detector is the pipeline's own, and not an object of the caller's.

    Raises:
        InvalidInputError: an unknown back end, or a device that it does not run on.
        MissingExtraError: it is not installed.
    """
    if backend not in get_args(Backend):
        raise InvalidInputError(f"backend={backend!r} is none of {', '.join(get_args(Backend))}.")
    if backend == "torch":
        return
    if excise.backbone.device != "cpu":
        raise InvalidInputError(
            f"backend='openvino' runs on the CPU, and the device is {excise.backbone.device!r}. Give device='cpu'."
        )
    from .detect.lora import LoraDetector
    from .encode.openvino import on_openvino

    for backbone in (excise.backbone, excise.exclusion):
        if backbone is not None:
            on_openvino(backbone.encoder[0], "model", backbone.dtype)
    if detector and isinstance(excise.detector, LoraDetector):
        on_openvino(excise.detector.tagger, "transformer", excise.backbone.dtype)
