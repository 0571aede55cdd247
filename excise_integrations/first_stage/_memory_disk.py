"""A memory index on disk: safetensors, JSON lines and a manifest."""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import re
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Literal

import torch
from pydantic import BaseModel, ConfigDict, Field, ValidationError

from ..encode.minilm import sha256_file
from ..errors import FirstStageError, IndexDamagedError, InvalidInputError
from ..types import Candidate
from ..version import __version__
from ._packed import PackedVectors

__all__ = ["IndexManifest", "read_index", "read_manifest", "write_index"]

_MANIFEST = "manifest.json"
# No path, no hidden file, nothing that a file system reads otherwise.
_PLAIN_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]*\Z")


class IndexManifest(BaseModel):
    """What a memory index says about itself."""

    model_config = ConfigDict(extra="forbid")

    format: Literal[1] = 1
    kind: Literal["excise-memory-index"] = "excise-memory-index"
    backbone: str
    vector_space: str
    documents: int = Field(ge=0)
    vectors_file: str
    documents_file: str
    files: dict[str, str]
    package_version: str = ""


def write_index(
    folder: str | Path, *, backbone: str, vector_space: str, candidates: Sequence[Candidate], packed: PackedVectors
) -> Path:
    """Write an index, all of it or nothing.

    The big files carry their own hash in their names and the manifest is replaced last, by one
    rename: a killed process leaves the old index or the new one.

    Raises:
        InvalidInputError: a document's metadata is not plain JSON.
        FirstStageError: the folder holds something else, or the disk does not take the files.
    """
    from safetensors import SafetensorError

    folder = Path(folder)
    lines = [_line(candidate) for candidate in candidates]
    old: IndexManifest | None = None
    if folder.exists():
        if not folder.is_dir():
            raise FirstStageError(f"{folder} is a file; give a folder to save the index in.")
        if (folder / _MANIFEST).exists():
            old = read_manifest(folder)
        elif any(not entry.name.startswith(".tmp-") for entry in folder.iterdir()):
            raise FirstStageError(f"{folder} is not empty and is not a memory index; choose another folder.")
    manifest = IndexManifest(
        backbone=backbone,
        vector_space=vector_space,
        documents=len(lines),
        vectors_file="",
        documents_file="",
        files={},
        package_version=__version__,
    )
    try:
        files = _write_files(folder, manifest, lines, packed)
    except (OSError, SafetensorError) as error:
        left = "The index that was there is as it was." if old is not None else "No index is there."
        raise FirstStageError(
            f"The index {folder} was not written: {error}. {left} Make room, or give another folder."
        ) from error
    if old is not None:
        for name in set(old.files) - set(files):
            (folder / name).unlink(missing_ok=True)
    return folder


def _write_files(folder: Path, manifest: IndexManifest, lines: list[str], packed: PackedVectors) -> dict[str, str]:
    """Write and rename into place; what fails before the manifest is there is cleared away."""
    from safetensors.torch import save_file

    folder.mkdir(parents=True, exist_ok=True)
    there = {path.name for path in folder.iterdir()}
    files: dict[str, str] = {}
    with contextlib.ExitStack() as undo, tempfile.TemporaryDirectory(prefix=".tmp-", dir=folder) as staging:
        vectors, documents = Path(staging, "vectors"), Path(staging, "documents")
        save_file(
            {
                "vectors": packed.vectors.contiguous().cpu(),
                "window_tokens": packed.window_tokens,
                "document_windows": packed.document_windows,
            },
            str(vectors),
        )
        documents.write_text("".join(lines), encoding="utf-8", newline="\n")
        for path, suffix in ((vectors, ".safetensors"), (documents, ".jsonl")):
            _sync(path)
            digest = sha256_file(path)
            name = f"{path.name}-{digest[:16]}{suffix}"
            path.replace(folder / name)
            if name not in there:
                undo.callback((folder / name).unlink, missing_ok=True)
            files[name] = digest
        vectors_file, documents_file = files
        named = {"vectors_file": vectors_file, "documents_file": documents_file, "files": files}
        staged = Path(staging, _MANIFEST)
        staged.write_text(manifest.model_copy(update=named).model_dump_json(indent=2) + "\n", encoding="utf-8")
        _sync(staged)
        _sync(folder)
        staged.replace(folder / _MANIFEST)
        undo.pop_all()
    _sync(folder)
    return files


def read_manifest(folder: str | Path) -> IndexManifest:
    """Read an index's manifest.

    Raises:
        IndexDamagedError: ``folder`` is missing, is not an index, or its manifest is malformed.
    """
    folder = Path(folder)
    path = folder / _MANIFEST
    if not folder.is_dir():
        raise IndexDamagedError(f"There is no index at {folder}: no such folder. Build one with: excise index")
    if not path.is_file():
        raise IndexDamagedError(f"{folder} is not a memory index: it has no {_MANIFEST}. Build one with: excise index")
    try:
        manifest = IndexManifest.model_validate_json(path.read_text(encoding="utf-8"))
    except (ValidationError, UnicodeDecodeError) as error:
        raise IndexDamagedError(
            f"{path} is not the manifest of a memory index: {error}. If the index is your own, build it again."
        ) from error
    for name in (*manifest.files, manifest.vectors_file, manifest.documents_file):
        if not _PLAIN_NAME.match(name) or name not in manifest.files:
            raise IndexDamagedError(f"{path} names the file {name!r}, which an index does not have. Build it again.")
    return manifest


def read_index(folder: str | Path, *, device: str = "cpu") -> tuple[IndexManifest, list[Candidate], PackedVectors]:
    """Read and verify an index.

    Raises:
        IndexDamagedError: a file is missing, was changed, or does not fit the others.
    """
    from safetensors.torch import load_file

    folder = Path(folder)
    manifest = read_manifest(folder)
    for name, expected in manifest.files.items():
        if not (folder / name).is_file():
            raise IndexDamagedError(f"{folder} lacks {name}, which its manifest lists. Build the index again.")
        if (found := sha256_file(folder / name)) != expected:
            raise IndexDamagedError(
                f"{folder / name} has sha256 {found}, its manifest says {expected}: the file is damaged or was "
                "changed. Build the index again."
            )
    try:
        tensors = load_file(str(folder / manifest.vectors_file), device=device)
        packed = PackedVectors(
            tensors["vectors"],
            tensors["window_tokens"].to("cpu", torch.long),
            tensors["document_windows"].to("cpu", torch.long),
        )
        candidates = []
        with (folder / manifest.documents_file).open(encoding="utf-8", newline="\n") as handle:
            for line in handle:
                record = json.loads(line)
                candidates.append(Candidate(record["id"], record["text"], None, record["metadata"]))
    except Exception as error:
        raise IndexDamagedError(f"The index {folder} cannot be read: {error}. Build it again.") from error
    if not packed.consistent() or not len(packed) == len(candidates) == manifest.documents:
        raise IndexDamagedError(
            f"The index {folder} lists {manifest.documents} documents, but holds {len(candidates)} texts and the "
            f"vectors of {len(packed)}. Build it again."
        )
    return manifest, candidates, packed


def fingerprint(vector_space: str, candidates: Sequence[Candidate]) -> str:
    """Return a hash of everything that a search depends on: ids, texts, metadata, order and encoder."""
    digest = hashlib.sha256(vector_space.encode())
    for c in candidates:
        digest.update(json.dumps([c.id, c.text, dict(c.metadata)], sort_keys=True, default=repr).encode())
    return digest.hexdigest()


def _line(candidate: Candidate) -> str:
    record: dict[str, Any] = {"id": candidate.id, "text": candidate.text, "metadata": dict(candidate.metadata)}
    try:
        # ASCII only, so that a lone surrogate or a line separator in a text survives.
        return json.dumps(record) + "\n"
    except (TypeError, ValueError, RecursionError) as error:
        raise InvalidInputError(
            f"The metadata of document {candidate.id!r} cannot be saved as JSON ({error}). Use strings, numbers, "
            "booleans, None, lists and dicts."
        ) from error


def _sync(path: Path) -> None:
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
