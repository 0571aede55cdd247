"""Write the embedded backbone as a ColBERT checkpoint of the Stanford format."""

from __future__ import annotations

import json
import os
import shutil
import tempfile
from pathlib import Path
from typing import Any, Literal

from torch import Tensor

from ..errors import BackboneError, InvalidInputError
from ..version import __version__
from .minilm import HUB_ID, HUB_REVISION, MODEL_SHA256, find_minilm

__all__ = ["export_minilm"]

_TOKENIZER_FILES = ("tokenizer.json", "vocab.txt")
_TOKENIZER_SETTINGS = ("tokenizer_config.json", "special_tokens_map.json")
# Files that would decide, before ours, what a loader makes of the folder.
_FOREIGN = ("modules.json", "config_sentence_transformers.json", "pytorch_model.bin", "model.safetensors.index.json")
# colbert-ai packs residuals of up to 4 bits into whole bytes.
_DIM_MULTIPLE = 32
# colbert-ai puts a marker after [CLS]. MiniLM was never trained with one; these cost it nothing measurable.
_QUERY_MARKER = "[unused0]"
_DOCUMENT_MARKER = "[unused1]"
_DOCUMENT_TOKENS = 256
_QUERY_TOKENS = 32
_CARD = """\
---
license: apache-2.0
base_model: {hub_id}
---
{hub_id} at revision {revision}, as a late-interaction checkpoint with {dim} dimensions in the format of
Stanford ColBERT, written by excise-integrations {version}. RAGatouille, colbert-ai and
`excise_integrations.encode.Backbone` load this folder.
"""


def export_minilm(
    folder: str | Path,
    *,
    force: bool = False,
    path: str | Path | None = None,
    projection: Tensor | Literal["bundled"] = "bundled",
) -> Path:
    """Write all-MiniLM-L6-v2 with its projection as a Stanford-format ColBERT checkpoint.

    RAGatouille, colbert-ai and :meth:`Backbone.from_pretrained` load the folder. The dimension is
    the projection's own.

    Args:
        folder: where to; made if it does not exist.
        force: replace files of the same names in a folder that is not empty; other files stay.
        path: a folder with the weights of all-MiniLM-L6-v2; None finds the installed ones.
        projection: a (dim, 384) tensor, ``dim`` a multiple of 32, or the bundled one.

    Returns:
        The folder, absolute.

    Raises:
        InvalidInputError: the folder is a file, is not empty and ``force`` was not given, holds
            another model, or the projection has a shape that colbert-ai cannot store.
        BackboneError: the weights of MiniLM are missing or damaged.
        AdapterError: the bundled projection is missing or damaged.
    """
    from ..weights import load_projection

    target = Path(folder).expanduser().absolute()
    _check_target(target, force)
    source = find_minilm(path)
    matrix = (load_projection("minilm") if isinstance(projection, str) else projection).detach().float().cpu()
    config = json.loads((source / "config.json").read_text(encoding="utf-8"))
    hidden = int(config["hidden_size"])
    if matrix.ndim != 2 or matrix.shape[1] != hidden or matrix.shape[0] % _DIM_MULTIPLE or not matrix.shape[0]:
        raise InvalidInputError(
            f"A projection of shape {tuple(matrix.shape)} cannot be exported: (dim, {hidden}) is needed, "
            f"dim a multiple of {_DIM_MULTIPLE}, because colbert-ai stores vectors in whole bytes."
        )
    target.parent.mkdir(parents=True, exist_ok=True)
    staging = Path(tempfile.mkdtemp(prefix=f".{target.name}-", dir=target.parent))
    try:
        _write_checkpoint(staging, source, matrix, config)
        if not target.exists():
            staging.chmod(0o755)
            staging.rename(target)
        else:
            for file in sorted(staging.iterdir()):
                os.replace(file, target / file.name)
    finally:
        shutil.rmtree(staging, ignore_errors=True)
    return target


def _check_target(target: Path, force: bool) -> None:
    if not target.exists():
        return
    if not target.is_dir():
        raise InvalidInputError(f"{target} is a file; give a folder.")
    if not any(target.iterdir()):
        return
    if not force:
        raise InvalidInputError(f"{target} is not empty. Choose another folder, or replace its files with force=True.")
    for name in _FOREIGN:
        if (target / name).exists():
            raise InvalidInputError(
                f"{target} holds {name}, which belongs to another model and would be loaded in place of this one. "
                "Choose another folder."
            )


def _write_checkpoint(folder: Path, source: Path, matrix: Tensor, config: dict[str, Any]) -> None:
    from safetensors.torch import load_file, save_file

    try:
        weights = load_file(str(source / "model.safetensors"))
    except Exception as error:
        raise BackboneError(f"{source / 'model.safetensors'} is not a readable safetensors file: {error}") from error
    # A buffer that BERT computes itself; newer versions of transformers warn about it.
    tensors = {f"bert.{key}": value for key, value in weights.items() if not key.endswith("position_ids")}
    tensors["linear.weight"] = matrix.contiguous()
    save_file(tensors, str(folder / "model.safetensors"), metadata={"format": "pt"})
    for name in _TOKENIZER_FILES:
        if (source / name).is_file():
            shutil.copyfile(source / name, folder / name)
    for name in _TOKENIZER_SETTINGS:
        if (source / name).is_file():
            settings = json.loads((source / name).read_text(encoding="utf-8"))
            # colbert-ai fills queries up with mask tokens and scores them. MiniLM was never trained for that (nDCG@10
            # 0.80 without, 0.72 with them on a small collection); vectors of padding are zero and count for nothing.
            _write_json(folder / name, {**settings, "mask_token": settings["pad_token"]})
    config.pop("_name_or_path", None)
    _write_json(folder / "config.json", {**config, "architectures": ["HF_ColBERT"]})
    dim = int(matrix.shape[0])
    _write_json(folder / "artifact.metadata", _metadata(dim, matrix))
    card = _CARD.format(hub_id=HUB_ID, revision=HUB_REVISION, dim=dim, version=__version__)
    (folder / "README.md").write_text(card, encoding="utf-8")


def _metadata(dim: int, matrix: Tensor) -> dict[str, Any]:
    from .loading import hash_bytes

    return {
        "query_token_id": _QUERY_MARKER,
        "doc_token_id": _DOCUMENT_MARKER,
        "query_token": "[Q]",
        "doc_token": "[D]",
        "dim": dim,
        "similarity": "cosine",
        "interaction": "colbert",
        "query_maxlen": _QUERY_TOKENS,
        "doc_maxlen": _DOCUMENT_TOKENS,
        "mask_punctuation": True,
        "attend_to_mask_tokens": False,
        "amp": True,
        # RAGatouille reads where its indexes are from here; without it a search looks into ./experiments.
        "root": ".ragatouille/",
        "experiment": "colbert",
        # Read by nobody else: which backbone and which frozen weights these are.
        "excise": {
            "backbone": "minilm",
            "weights_sha256": hash_bytes(MODEL_SHA256.encode(), matrix.numpy().tobytes()),
            "package_version": __version__,
        },
    }


def _write_json(path: Path, content: dict[str, Any]) -> None:
    path.write_text(json.dumps(content, indent=2, sort_keys=True) + "\n", encoding="utf-8")
