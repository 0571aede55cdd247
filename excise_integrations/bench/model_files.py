"""Models given by name: loading them as what they are, and the hash that names their weights."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any, Literal, TypeVar

from ..encode.loading import hash_folder
from ..errors import BackboneError

__all__ = ["ModelType", "find_folder", "load_model", "weights_label"]

ModelType = Literal["SentenceTransformer", "CrossEncoder", "MultiVectorEncoder"]
Loaded = TypeVar("Loaded")
Json = TypeVar("Json", dict[str, Any], list[Any])
_TYPES = ("SentenceTransformer", "SparseEncoder", "CrossEncoder", "MultiVectorEncoder")
_NAMES = {
    "SentenceTransformer": "a dense model (SentenceTransformer)",
    "SparseEncoder": "a sparse model (SparseEncoder)",
    "CrossEncoder": "a cross-encoder (CrossEncoder)",
    "MultiVectorEncoder": "a late-interaction model (MultiVectorEncoder)",
    "plain": "a plain encoder that was trained as neither",
}


def load_model(model: str, model_type: ModelType, load: Callable[[str], Loaded]) -> Loaded:
    """Load a model, and refuse one that was trained as something else.

    sentence-transformers converts any of its models to any other, with new random layers where some are missing;
    as a row of a benchmark that would be a number about nothing.

    Args:
        model: a folder, or an id on the hub.
        model_type: what it must be.
        load: loads it.

    Returns:
        What ``load`` returned.

    Raises:
        BackboneError: it cannot be loaded, or is of another type.
    """
    if Path(model).is_dir():
        _check_type(model, Path(model), model_type)
    try:
        loaded = load(model)
    except BackboneError:
        raise
    except Exception as error:
        raise BackboneError(
            f"The model {model!r} cannot be loaded: {error}. Give a folder that holds it, or allow downloads "
            "(--download)."
        ) from error
    folder = find_folder(model)
    if folder is not None:
        _check_type(model, folder, model_type)
    return loaded


def find_folder(model: str) -> Path | None:
    """Return the folder of a model: itself, or the local copy of a model on the hub; None when there is none."""
    if Path(model).is_dir():
        return Path(model)
    from huggingface_hub import snapshot_download
    from huggingface_hub.errors import HFValidationError, LocalEntryNotFoundError

    try:
        return Path(snapshot_download(model, local_files_only=True))
    except (HFValidationError, LocalEntryNotFoundError, OSError):
        return None


def weights_label(model: str) -> str:
    """Name a model: ``NAME@HASH`` of a folder's weights, or the bare id of one on the hub."""
    folder = Path(model)
    return f"{folder.name}@{hash_folder(folder)[:12]}" if folder.is_dir() else model


def _check_type(model: str, folder: Path, wanted: ModelType) -> None:
    found = _type_of(folder)
    # Pooling needs no weights: a plain encoder is a dense model as it is, and nothing else.
    if found is None or found == wanted or (found == "plain" and wanted == "SentenceTransformer"):
        return
    raise BackboneError(
        f"The model {model!r} is {_NAMES[found]}, not {_NAMES[wanted]}: some of its layers would be random. "
        "Name the kind that it is."
    )


def _type_of(folder: Path) -> str | None:
    """Return what a folder's files say that the model is, or None when they do not say it."""
    declared = _read(folder / "config_sentence_transformers.json", dict).get("model_type")
    if declared in _TYPES:
        return str(declared)
    architectures = [str(a) for a in _read(folder / "config.json", dict).get("architectures") or ()]
    if any(a.endswith("ForSequenceClassification") for a in architectures):
        return "CrossEncoder"
    modules = _read(folder / "modules.json", list)
    if any(isinstance(m, dict) and str(m.get("type", "")).endswith("Pooling") for m in modules):
        return "SentenceTransformer"
    return "plain" if not modules and any(a.endswith("Model") for a in architectures) else None


def _read(path: Path, kind: type[Json]) -> Json:
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return kind()
    return content if isinstance(content, kind) else kind()
