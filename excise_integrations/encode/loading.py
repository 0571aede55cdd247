"""Build the frozen encoder of a backbone from its checkpoint, and the hash that identifies its weights."""

from __future__ import annotations

import hashlib
import json
import string
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from torch import Tensor, nn

from ..errors import BackboneError
from .minilm import MODEL_SHA256, find_minilm, sha256_file
from .quiet import quiet_loading

if TYPE_CHECKING:
    from sentence_transformers import MultiVectorEncoder

__all__ = ["hash_bytes", "hash_folder", "hash_parameters", "load_checkpoint", "load_minilm"]


def load_checkpoint(
    name_or_path: str | Path, *, device: str, revision: str | None, offline: bool | None
) -> tuple[MultiVectorEncoder, str]:
    """Load any checkpoint that ``MultiVectorEncoder`` reads: its own format, PyLate, or Stanford ColBERT.

    Args:
        name_or_path: a folder or a hub id.
        device: torch device.
        revision: hub revision.
        offline: forbid the hub.

    Returns:
        The encoder and the hash of its weights.

    Raises:
        BackboneError: the checkpoint is missing, damaged, or not a late-interaction encoder.
    """
    from sentence_transformers import MultiVectorEncoder

    local = Path(name_or_path)
    if local.exists() and not (local / "config.json").is_file() and not (local / "modules.json").is_file():
        raise BackboneError(
            f"{local} is not a checkpoint: it has neither config.json nor modules.json. Give the folder that "
            "`MultiVectorEncoder.save_pretrained` or colbert-ai wrote."
        )
    if not local.exists() and (offline or _looks_like_path(str(name_or_path))):
        raise BackboneError(
            f"There is no checkpoint at {str(name_or_path)!r}"
            + (" and the hub may not be asked (offline=True)." if offline else ".")
            + " Give an existing folder, a hub id such as 'colbert-ir/colbertv2.0', or 'minilm'."
        )
    try:
        with quiet_loading():
            encoder = MultiVectorEncoder(
                str(name_or_path),
                device=device,
                revision=revision,
                local_files_only=local.exists() or bool(offline),
                trust_remote_code=False,
                model_kwargs={"use_safetensors": True},
            )
    except Exception as error:
        raise BackboneError(
            f"The backbone {str(name_or_path)!r} could not be loaded: {error}. It must be a late-interaction "
            "checkpoint with safetensors weights (MultiVectorEncoder, PyLate or Stanford ColBERT format)."
        ) from error
    return encoder, hash_folder(local) if local.exists() else hash_parameters(encoder)


def load_minilm(
    path: str | Path | None,
    *,
    device: str,
    offline: bool | None,
    projection: Tensor | Literal["bundled"] | None,
) -> tuple[MultiVectorEncoder, str]:
    """Build all-MiniLM-L6-v2 as a late-interaction encoder from verified weights.

    Args:
        path: a folder with its weights; None looks for them, see :func:`~.minilm.find_minilm`.
        device: torch device.
        offline: None and True forbid the hub.
        projection: the bundled projection, a (dim, 384) tensor, or None for the model's own vectors.

    Returns:
        The encoder and the hash of its weights, the projection included.
    """
    from sentence_transformers import MultiVectorEncoder
    from sentence_transformers.base.modules import Normalize, Transformer
    from sentence_transformers.base.modules.dense import Dense
    from sentence_transformers.multi_vector_encoder.modules import MultiVectorMask

    from ..weights import load_projection

    folder = find_minilm(path, offline=offline is not False)
    matrix = load_projection("minilm") if isinstance(projection, str) else projection
    # A plain folder without modules.json: the encoder's own modules are chosen here.
    with quiet_loading():
        transformer = Transformer(
            str(folder), model_kwargs={"local_files_only": True}, processor_kwargs={"local_files_only": True}
        )
    transformer.max_seq_length = 512
    modules: list[nn.Module] = [transformer]
    if matrix is not None:
        modules.append(
            Dense(
                in_features=matrix.shape[1],
                out_features=matrix.shape[0],
                bias=False,
                activation_function=nn.Identity(),
                init_weight=matrix.float(),
                module_input_name="token_embeddings",
            )
        )
    modules.append(MultiVectorMask(skiplist_words=list(string.punctuation)))
    modules.append(Normalize(module_input_name="token_embeddings"))
    encoder = MultiVectorEncoder(modules=modules, device=device)
    if matrix is None:
        return encoder, MODEL_SHA256
    return encoder, hash_bytes(MODEL_SHA256.encode(), matrix.float().numpy().tobytes())


def _looks_like_path(name: str) -> bool:
    return name.startswith((".", "/", "~")) or name.count("/") > 1 or "\\" in name


def hash_bytes(*parts: bytes) -> str:
    """Return the sha256 of the parts one after another, in hexadecimal digits."""
    digest = hashlib.sha256()
    for part in parts:
        digest.update(part)
    return digest.hexdigest()


def hash_folder(folder: Path) -> str:
    """Return the hash that identifies a checkpoint folder: of its weights and its ``config.json`` files.

    Weights are its safetensors files, or its ``.bin`` files where there is none.
    """
    weights = list(folder.rglob("*.safetensors")) or list(folder.rglob("*.bin"))
    files = sorted([*weights, *folder.rglob("config.json")])
    return hash_bytes(*(json.dumps([str(p.relative_to(folder)), sha256_file(p)]).encode() for p in files))


def hash_parameters(encoder: nn.Module) -> str:
    """Return the hash of an encoder's parameters, for a checkpoint that has no folder here."""
    digest = hashlib.sha256()
    for key, value in sorted(encoder.state_dict().items()):
        digest.update(key.encode())
        digest.update(value.detach().cpu().float().numpy().tobytes())
    return digest.hexdigest()
