"""Find, verify, load and save trained adapters.

An adapter is a folder: PEFT's two files (``adapter_config.json``, ``adapter_model.safetensors``), for a
detector ``span_head.safetensors``, a ``manifest.json`` with the sha256 of each file, and a card
(``README.md``). A projection is the same with ``projection.safetensors`` instead of PEFT's files.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
import shutil
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from ._files import recover, swap
from .errors import AdapterError

if TYPE_CHECKING:
    from torch import Tensor, nn

__all__ = [
    "Adapter",
    "Manifest",
    "bundled_root",
    "find_adapter",
    "load_adapter",
    "load_projection",
    "save_adapter",
    "update_manifest",
]

Task = Literal["detector", "exclusion", "projection"]
_SAFE_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]*\Z")


class Manifest(BaseModel):
    """What an adapter folder says about itself (``manifest.json``)."""

    model_config = ConfigDict(extra="forbid")

    format: Literal[1] = 1
    task: Task
    backbone: str
    backbone_sha256: str = Field(pattern=r"^[0-9a-f]{64}$")
    rank: int | None = None
    threshold: float | None = Field(None, ge=0.0, le=1.0)
    temperature: float | None = Field(None, gt=0.0)
    settings: dict[str, Any] = Field(default_factory=dict)
    training_data: dict[str, Any] = Field(default_factory=dict)
    metrics: dict[str, Any] = Field(default_factory=dict)
    command: str = ""
    package_version: str = ""
    files: dict[str, str]


class Adapter:
    """A verified adapter folder.

    Args:
        folder: where it lies.
        manifest: its manifest; every listed file has been hashed and matches.
    """

    def __init__(self, folder: Path, manifest: Manifest) -> None:
        self.folder = folder
        self.manifest = manifest

    @property
    def digest(self) -> str:
        """sha256 over the hashes of the adapter's files."""
        text = json.dumps(sorted(self.manifest.files.items()))
        return hashlib.sha256(text.encode()).hexdigest()

    @property
    def label(self) -> str:
        """``backbone/task@sha256[:12]``, as it stands in audit trails."""
        return f"{self.manifest.backbone}/{self.manifest.task}@{self.digest[:12]}"

    def check_backbone(self, name: str, weights_hash: str) -> None:
        """Raise :class:`AdapterError` unless the adapter was trained on these weights."""
        if self.manifest.backbone_sha256 != weights_hash:
            raise AdapterError(
                f"The adapter {self.folder} was trained on {self.manifest.backbone!r} with weights "
                f"{self.manifest.backbone_sha256[:12]}, but the backbone {name!r} has weights {weights_hash[:12]}. "
                "Load the backbone that it was trained on, or train one for yours with: excise train adapter"
            )

    def tensors(self, name: str) -> dict[str, Tensor]:
        """Load one safetensors file of the folder."""
        from safetensors.torch import load_file

        try:
            return load_file(str(self.folder / name))
        except Exception as error:
            raise AdapterError(f"{self.folder / name} is not a readable safetensors file: {error}") from error

    def merge_into(self, model: nn.Module) -> nn.Module:
        """Merge the LoRA weights into a transformer that the caller owns.

        Args:
            model: a ``transformers`` model in float32; it is changed in place.

        Returns:
            The merged model.
        """
        from peft import PeftModel

        from .encode.quiet import quiet_loading

        try:
            with quiet_loading():
                wrapped = PeftModel.from_pretrained(model, str(self.folder), is_trainable=False)
            return wrapped.merge_and_unload()  # type: ignore[no-any-return]
        except Exception as error:
            raise AdapterError(f"The adapter {self.folder} does not fit its backbone: {error}") from error


def bundled_root() -> Path:
    """Return the folder of the bundled weights.

    ``_weights`` beside the package when it is installed from a wheel, ``adapters`` at the root of a
    checkout otherwise.
    """
    here = Path(__file__).resolve().parent
    installed = here / "_weights"
    return installed if installed.is_dir() else here.parent / "adapters"


def find_adapter(backbone: str, task: Task) -> Path | None:
    """Return the folder of a bundled adapter, or None when there is none."""
    if not _SAFE_NAME.match(backbone):
        return None
    folder = bundled_root() / backbone / task
    return folder if (folder / "manifest.json").is_file() else None


def load_adapter(folder: str | Path, task: Task) -> Adapter:
    """Load and verify an adapter folder.

    Args:
        folder: an adapter folder.
        task: what it must be for.

    Returns:
        The verified adapter.

    Raises:
        AdapterError: the manifest is missing or malformed, it is for another task, or a file is
            missing or its sha256 differs.
    """
    folder = Path(folder)
    path = folder / "manifest.json"
    if not path.is_file():
        # Where two folders cannot be exchanged at once, a process killed in save_adapter can leave this one aside.
        recover(folder)
    if not path.is_file():
        raise AdapterError(f"{folder} is not an adapter folder: it has no manifest.json.")
    try:
        manifest = Manifest.model_validate_json(path.read_text(encoding="utf-8"))
    except (ValidationError, UnicodeDecodeError, OSError) as error:
        raise AdapterError(f"{path} is not a valid manifest: {error}") from error
    if manifest.task != task:
        raise AdapterError(f"{folder} is an adapter for the task {manifest.task!r}; one for {task!r} is needed.")
    required = {
        "projection": ["projection.safetensors"],
        "exclusion": ["adapter_config.json", "adapter_model.safetensors"],
        "detector": ["adapter_config.json", "adapter_model.safetensors", "span_head.safetensors"],
    }[task]
    for name in required:
        if name not in manifest.files:
            raise AdapterError(f"{path} does not list {name}, which an adapter for {task!r} needs.")
    for name, expected in manifest.files.items():
        if not _SAFE_NAME.match(name):
            raise AdapterError(f"{path} lists the file {name!r}, which is not a plain file name.")
        file = folder / name
        if not file.is_file():
            raise AdapterError(f"{folder} lacks {name}, which its manifest lists; copy the whole folder again.")
        try:
            found = hashlib.sha256(file.read_bytes()).hexdigest()
        except OSError as error:
            raise AdapterError(f"{file} cannot be read: {error}") from error
        if found != expected:
            raise AdapterError(
                f"{file} has sha256 {found}, its manifest says {expected}: the file is damaged or was changed. "
                "Copy the folder again or train the adapter anew."
            )
    return Adapter(folder, manifest)


def load_projection(backbone: str) -> Tensor:
    """Load the bundled projection of a backbone.

    Returns:
        A (dim, hidden) tensor.

    Raises:
        AdapterError: there is none, or it is damaged.
    """
    folder = find_adapter(backbone, "projection")
    if folder is None:
        raise AdapterError(
            f"No projection is bundled for {backbone!r} under {bundled_root()}; reinstall excise-integrations."
        )
    return load_adapter(folder, "projection").tensors("projection.safetensors")["weight"]


def save_adapter(
    folder: str | Path,
    *,
    task: Task,
    backbone: str,
    backbone_sha256: str,
    tensors: Mapping[str, Mapping[str, Tensor]],
    adapter_config: Mapping[str, Any] | None = None,
    card: str,
    **manifest: Any,
) -> Adapter:
    """Write an adapter folder, all of it or nothing.

    The files are written beside the target, synced, and swapped in by renames; a killed process
    leaves the old folder or the new one.

    Args:
        folder: target; replaced if it is an adapter folder already.
        task: "detector", "exclusion" or "projection".
        backbone: backbone name.
        backbone_sha256: hash of the frozen weights it was trained on.
        tensors: file name → tensors.
        adapter_config: PEFT's ``adapter_config.json``.
        card: text of ``README.md``.
        **manifest: further fields of :class:`Manifest`.

    Returns:
        The adapter, verified by reading it back.

    Raises:
        AdapterError: the target is something else than an adapter folder, a field is wrong, or the
            files cannot be written; the old folder then stays as it was.
    """
    folder = Path(folder)
    if folder.exists() and not _replaceable(folder):
        raise AdapterError(f"{folder} exists and is not an adapter folder; choose an empty one.")
    for name in tensors:
        if not _SAFE_NAME.match(name):
            raise AdapterError(f"{name!r} is not a plain file name; an adapter's files lie in its own folder.")
    staging: Path | None = None
    try:
        folder.parent.mkdir(parents=True, exist_ok=True)
        staging = Path(tempfile.mkdtemp(prefix=f".{folder.name}-", dir=folder.parent))
        _write_adapter(staging, task, backbone, backbone_sha256, tensors, adapter_config, card, manifest)
        load_adapter(staging, task)
        staging.chmod(0o755)
        swap(folder, staging)
    except AdapterError:
        raise
    except Exception as error:
        raise AdapterError(f"The adapter {folder} was not written: {error}") from error
    finally:
        if staging is not None:
            shutil.rmtree(staging, ignore_errors=True)
    return load_adapter(folder, task)


def _replaceable(folder: Path) -> bool:
    return folder.is_dir() and ((folder / "manifest.json").is_file() or not any(folder.iterdir()))


def _write_adapter(
    folder: Path,
    task: Task,
    backbone: str,
    backbone_sha256: str,
    tensors: Mapping[str, Mapping[str, Tensor]],
    adapter_config: Mapping[str, Any] | None,
    card: str,
    manifest: Mapping[str, Any],
) -> None:
    from safetensors.torch import save_file

    for name, content in tensors.items():
        save_file({k: v.contiguous().cpu() for k, v in content.items()}, str(folder / name))
        with (folder / name).open("rb") as handle:
            os.fsync(handle.fileno())
    if adapter_config is not None:
        _write(folder / "adapter_config.json", json.dumps(adapter_config, indent=2, sort_keys=True))
    files = {p.name: hashlib.sha256(p.read_bytes()).hexdigest() for p in sorted(folder.iterdir())}
    record = Manifest(task=task, backbone=backbone, backbone_sha256=backbone_sha256, files=files, **manifest)
    _write(folder / "manifest.json", record.model_dump_json(indent=2) + "\n")
    _write(folder / "README.md", card)


def update_manifest(folder: str | Path, **fields: Any) -> Adapter:
    """Change fields of a manifest, such as a calibrated threshold; the weights stay as they are.

    Args:
        folder: adapter folder.
        **fields: fields of :class:`Manifest`; dicts are merged into what stands there.

    Returns:
        The adapter, verified again.

    Raises:
        AdapterError: the manifest is missing or malformed, a field is wrong, or it cannot be written.
    """
    folder = Path(folder)
    path = folder / "manifest.json"
    try:
        record = Manifest.model_validate_json(path.read_text(encoding="utf-8")).model_dump()
    except (OSError, ValueError) as error:
        raise AdapterError(f"{path} is not a valid manifest: {error}") from error
    for name, value in fields.items():
        record[name] = {**record[name], **value} if isinstance(value, dict) else value
    staging = path.with_name(f".{path.name}.{os.getpid()}")
    try:
        changed = Manifest.model_validate(record)
        _write(staging, changed.model_dump_json(indent=2) + "\n")
        staging.replace(path)
    except (OSError, ValidationError) as error:
        raise AdapterError(f"{path} was not changed: {error}") from error
    finally:
        staging.unlink(missing_ok=True)
    return load_adapter(folder, changed.task)


def _write(path: Path, text: str) -> None:
    with path.open("w", encoding="utf-8") as handle:
        handle.write(text)
        handle.flush()
        os.fsync(handle.fileno())
