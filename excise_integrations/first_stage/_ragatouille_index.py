"""What lies on disk under a RAGatouille index: read it, check it, and find its checkpoint."""

from __future__ import annotations

import contextlib
import copy
import hashlib
import json
import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from .._files import recover
from ..errors import FirstStageError, IndexDamagedError, InvalidInputError
from ..types import Candidate

__all__ = ["IndexFiles", "checkpoint_dim", "find_checkpoint", "read_index"]

_HUB_ID = re.compile(r"[A-Za-z0-9][\w.-]*/[A-Za-z0-9][\w.-]*\Z")
_HASHED = ("metadata.json", "collection.json", "pid_docid_map.json", "docid_metadata_map.json", "centroids.pt")
_TENSORS = ("centroids.pt", "buckets.pt", "avg_residual.pt", "ivf.pid.pt")


@dataclass(frozen=True)
class IndexFiles:
    """A checked index, without its vectors.

    Args:
        folder: where it lies, absolute.
        texts: passage texts by passage id.
        document_ids: document id of each passage.
        metadata: document id → metadata.
        config: colbert-ai's settings of the index.
        doclens: tokens per passage.
        fingerprint: hash of its contents.
    """

    folder: Path
    texts: list[str]
    document_ids: list[str]
    metadata: Mapping[str, Mapping[str, Any]]
    config: Mapping[str, Any]
    doclens: list[int]
    fingerprint: str

    @property
    def dim(self) -> int:
        """Dimension of its vectors."""
        return int(self.config["dim"])

    def pid(self, id: str) -> int:
        """Return the number of a passage.

        Raises:
            InvalidInputError: there is no such passage.
        """
        text = str(id)
        if text.isascii() and text.isdecimal() and str(int(text)) == text and int(text) < len(self.texts):
            return int(text)
        raise InvalidInputError(
            f"The index {self.folder} has no passage {id!r}; its passages are '0' to '{len(self.texts) - 1}'."
        )

    def candidate(self, pid: int, score: float) -> Candidate:
        """Return a passage as a candidate with its document's metadata, which the caller may change."""
        document = self.document_ids[pid]
        metadata = copy.deepcopy(dict(self.metadata.get(document) or {}))
        return Candidate(str(pid), self.texts[pid], float(score), {**metadata, "document_id": document})

    def allowed(self, filter: Mapping[str, Any] | None) -> list[int] | None:
        """Return the passages whose document carries this metadata, or None where nothing is asked.

        Raises:
            InvalidInputError: the filter is no mapping.
        """
        if filter is None:
            return None
        if not isinstance(filter, Mapping):
            raise InvalidInputError(f"filter={filter!r} is not a mapping of metadata keys to values.")
        if not filter:
            return None
        fits: dict[str, bool] = {}
        for document in dict.fromkeys(self.document_ids):
            metadata = {**(self.metadata.get(document) or {}), "document_id": document}
            fits[document] = all(key in metadata and metadata[key] == value for key, value in filter.items())
        return [pid for pid, document in enumerate(self.document_ids) if fits[document]]


def read_index(path: str | Path, *, damaged: bool = False) -> IndexFiles:
    """Read and check the files of an index.

    Args:
        path: the index's folder; it may have been moved or renamed.
        damaged: read as well an index whose passage ids a deletion has left with holes. Its texts
            and document ids still belong together, its vectors do not.

    Raises:
        IndexDamagedError: nothing is there, it is not a RAGatouille index, a file is missing or
            unreadable, or texts and vectors no longer belong together.
    """
    folder = Path(path).expanduser().resolve()
    recover(folder)
    _check_folder(folder)
    record = _json(folder, "metadata.json", dict)
    config = record.get("config")
    if not isinstance(config, dict) or not isinstance(record.get("num_chunks"), int):
        raise IndexDamagedError(f"{folder / 'metadata.json'} is not the metadata of a ColBERT index.")
    texts = _json(folder, "collection.json", list)
    owners = _json(folder, "pid_docid_map.json", dict)
    has_metadata = (folder / "docid_metadata_map.json").exists()
    metadata = _json(folder, "docid_metadata_map.json", dict) if has_metadata else {}
    doclens: list[int] = []
    for chunk in range(record["num_chunks"]):
        doclens += _json(folder, f"doclens.{chunk}.json", list)
        for name in (f"{chunk}.codes.pt", f"{chunk}.residuals.pt"):
            _require(folder, name)
    for name in _TENSORS:
        _require(folder, name)
    try:
        pids = sorted(map(int, owners))
    except ValueError as error:
        raise IndexDamagedError(f"{folder / 'pid_docid_map.json'} has a passage id that is no number.") from error
    if len(pids) != len(texts):
        raise IndexDamagedError(
            f"The index {folder} is damaged: {len(texts)} texts, {len(pids)} document ids. "
            "Build it anew from your documents with RAGPretrainedModel.index."
        )
    if not damaged:
        _check_passages(folder, pids, doclens)
    return IndexFiles(
        folder=folder,
        texts=[str(text) for text in texts],
        document_ids=[str(owners[str(pid)]) for pid in pids],
        metadata={str(key): value for key, value in metadata.items() if isinstance(value, dict)},
        config=config,
        doclens=doclens,
        fingerprint=_fingerprint(folder, doclens),
    )


def _check_folder(folder: Path) -> None:
    if not folder.exists():
        raise IndexDamagedError(
            f"There is no index at {folder}. RAGatouille writes one to <index_root>/colbert/indexes/<index_name>, "
            "with index_root '.ragatouille' in the working directory unless you gave another."
        )
    if folder.is_dir() and (folder / "metadata.json").is_file() and (folder / "pid_docid_map.json").is_file():
        return
    if folder.is_dir() and (folder / "plan.json").is_file():
        raise IndexDamagedError(
            f"The index {folder} is incomplete: its build did not finish, or it was built without RAGatouille. "
            "Build it anew with RAGPretrainedModel.index."
        )
    below = sorted(str(found.parent) for found in folder.glob("**/pid_docid_map.json"))[:5] if folder.is_dir() else []
    raise IndexDamagedError(
        f"{folder} is not a RAGatouille index: it has no metadata.json and pid_docid_map.json."
        + (f" Below it there is: {', '.join(below)}." if below else "")
    )


def _check_passages(folder: Path, pids: list[int], doclens: list[int]) -> None:
    if pids == list(range(len(pids))) and len(doclens) == len(pids):
        return
    raise IndexDamagedError(
        f"The index {folder} is damaged: RAGatouille's delete_from_index has left {len(pids)} texts under passage ids "
        f"up to {max(pids, default=-1)} and vectors of {len(doclens)} passages, so results would carry other "
        "documents' texts. Its texts are intact: rebuild it with "
        f"RagatouilleFirstStage.repair({str(folder)!r}), and delete with RagatouilleFirstStage.delete."
    )


def _require(folder: Path, name: str) -> None:
    # An index written before colbert-ai kept passages per centroid has ivf.pt, from which it makes the other.
    if not (folder / name).is_file() and not (name == "ivf.pid.pt" and (folder / "ivf.pt").is_file()):
        raise IndexDamagedError(f"The index {folder} lacks {name}. Copy the whole folder again, or build it anew.")


def _json(folder: Path, name: str, kind: type) -> Any:
    _require(folder, name)
    try:
        content = json.loads((folder / name).read_text(encoding="utf-8"))
    except (ValueError, OSError, RecursionError) as error:
        raise IndexDamagedError(
            f"{folder / name} cannot be read: {error}. Copy the index again, or build it anew."
        ) from error
    if not isinstance(content, kind):
        raise IndexDamagedError(f"{folder / name} does not hold a JSON {kind.__name__}. Build the index anew.")
    return content


def _fingerprint(folder: Path, doclens: list[int]) -> str:
    digest = hashlib.sha256(json.dumps(doclens).encode())
    for name in _HASHED:
        if (folder / name).is_file():
            digest.update(name.encode() + hashlib.sha256((folder / name).read_bytes()).digest())
    return digest.hexdigest()


# --- checkpoint ------------------------------------------------------------------------------


def find_checkpoint(files: IndexFiles, given: str | Path | None) -> Path:
    """Find the checkpoint that an index was built with.

    Args:
        files: the index.
        given: a folder or a hub id from the caller; None takes the one that the index names, also
            relative to the folders above the index.

    Returns:
        The folder of the checkpoint; one on the hub is taken from the local cache, or fetched.

    Raises:
        FirstStageError: it is not there, or it has another dimension than the index.
    """
    named = str(given) if given is not None else str(files.config.get("checkpoint") or "")
    folder = _local(named, files.folder if given is None else None)
    if folder is None and _HUB_ID.match(named):
        folder = _from_hub(named)
    if folder is None or not (folder / "config.json").is_file():
        raise FirstStageError(
            f"The checkpoint {named!r} of the index {files.folder} is not there. Say where it is now with checkpoint=."
        )
    try:
        brings_code = "auto_map" in json.loads((folder / "config.json").read_text(encoding="utf-8"))
    except (ValueError, TypeError, OSError, RecursionError) as error:
        raise FirstStageError(
            f"{folder / 'config.json'} cannot be read: {error}. Copy the checkpoint again."
        ) from error
    if brings_code:
        raise FirstStageError(
            f"The checkpoint {folder} brings Python code of its own (auto_map in config.json), which is not run here."
        )
    dim = checkpoint_dim(folder)
    if dim is not None and dim != files.dim:
        raise FirstStageError(
            f"The index {files.folder} has vectors of {files.dim} dimensions, the checkpoint {folder} makes {dim}: it "
            "was built with another one. Name that with checkpoint=."
        )
    return folder


def _local(named: str, index: Path | None) -> Path | None:
    if not named:
        return None
    path = Path(named).expanduser()
    bases = [Path()] if path.is_absolute() or index is None else [Path(), *index.parents]
    return next((found.absolute() for base in bases if (found := base / path).is_dir()), None)


def _from_hub(name: str) -> Path:
    from huggingface_hub import snapshot_download

    patterns = ["*.json", "*.safetensors", "*.txt", "*.model", "artifact.metadata"]
    with contextlib.suppress(Exception):
        cached = Path(snapshot_download(name, allow_patterns=patterns, local_files_only=True))
        # The cache may hold no more than the file that somebody once asked for.
        if (cached / "config.json").exists() and any(cached.glob("*.safetensors")):
            return cached
    try:
        return Path(snapshot_download(name, allow_patterns=patterns))
    except Exception as error:
        raise FirstStageError(
            f"The checkpoint {name!r} is neither a folder here nor in the local cache, and the hub did not give "
            f"it ({error}). Name a folder with checkpoint=."
        ) from error


def checkpoint_dim(folder: Path) -> int | None:
    """Return the dimension of a Stanford-format checkpoint, or None where its files do not say."""
    path = folder / "artifact.metadata"
    if not path.is_file():
        return None
    try:
        return int(json.loads(path.read_text(encoding="utf-8"))["dim"])
    except (ValueError, KeyError, TypeError, RecursionError):
        return None
