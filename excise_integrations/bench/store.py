"""Document vectors on disk, kept between evaluations."""

from __future__ import annotations

import hashlib
import json
import logging
import os
import re
import zlib
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

import torch

from ..encode.cache import VectorCache
from ..encode.maxsim import TokenVectors
from ..encode.windows import WindowPolicy
from ..errors import ExciseError
from ..first_stage._packed import PackedVectors

if TYPE_CHECKING:
    from ..encode.backbone import Backbone

__all__ = ["Encoder", "StoredCache", "VectorStore"]

logger = logging.getLogger("excise_integrations")
_SHARD_DOCUMENTS = 512


class Encoder(Protocol):
    """What a store keeps the vectors of: a backbone, or a dense model that gives one vector a text."""

    @property
    def label(self) -> str:
        """The weights' name and hash."""
        ...

    @property
    def dtype(self) -> torch.dtype: ...

    @property
    def device(self) -> str: ...

    @property
    def max_tokens(self) -> int: ...

    @property
    def windows(self) -> WindowPolicy: ...

    def encode_documents(
        self, texts: Sequence[str], *, progress: Callable[[int], None] | None = None
    ) -> list[TokenVectors]:
        """Return the vectors of texts, telling ``progress`` how many more are done."""
        ...


class VectorStore:
    """Token vectors of documents in shards of safetensors, keyed by text and encoder.

    A shard is written whole and renamed into place, so a killed process loses at most the shard it
    was encoding, and several processes may share a folder.

    Args:
        folder: where the shards are; created when needed.
    """

    def __init__(self, folder: str | Path) -> None:
        self.folder = Path(folder)
        self._spaces: dict[str, _Space] = {}

    def encode(
        self, texts: Sequence[str], encoder: Encoder, *, progress: Callable[[int, int], None] | None = None
    ) -> list[TokenVectors]:
        """Return the vectors of texts, encoding and keeping what is not there yet.

        Args:
            texts: documents.
            encoder: the encoder; its label, adapter, windows and dtype are part of the key.
            progress: called with the documents done and the total.

        Returns:
            Vectors in the order of ``texts``.
        """
        space = self._space(encoder)
        found: dict[str, TokenVectors] = {}
        missing = {key_of(text): text for text in texts}
        # A second round for those that were damaged and are encoded anew.
        for _ in range(2):
            self.fill(list(missing.values()), encoder, progress=progress)
            read = {key: space.read(key, encoder.device) for key in missing}
            found |= {key: vectors for key, vectors in read.items() if vectors is not None}
            missing = {key: text for key, text in missing.items() if key not in found}
            if not missing:
                return [found[key_of(text)] for text in texts]
        raise ExciseError(f"What is written to the cache {space.folder} reads otherwise; give another folder.")

    def fill(
        self, texts: Sequence[str], encoder: Encoder, *, progress: Callable[[int, int], None] | None = None
    ) -> None:
        """Encode and keep what is not there yet; see :meth:`encode`."""
        space = self._space(encoder)
        unique = {key_of(text): text for text in texts}
        missing = [(key, text) for key, text in unique.items() if key not in space.places]
        # Texts of like length share a shard, and so a batch.
        missing.sort(key=lambda item: len(item[1]))
        done = len(unique) - len(missing)
        if progress is not None:
            progress(done, len(unique))
        for start in range(0, len(missing), _SHARD_DOCUMENTS):
            part = missing[start : start + _SHARD_DOCUMENTS]

            def report(count: int) -> None:
                nonlocal done
                done += count
                if progress is not None:
                    progress(done, len(unique))

            vectors = encoder.encode_documents([text for _, text in part], progress=report)
            space.write([key for key, _ in part], PackedVectors.of(vectors, "cpu"))

    def _space(self, encoder: Encoder) -> _Space:
        facts = json.dumps(
            [
                encoder.label,
                str(encoder.dtype),
                encoder.max_tokens,
                encoder.windows.words,
                encoder.windows.max_words,
            ]
        )
        readable = re.sub(r"[^A-Za-z0-9._+-]+", "-", encoder.label).strip("-.")[:80]
        name = f"{readable}-{hashlib.sha256(facts.encode()).hexdigest()[:10]}"
        if name not in self._spaces:
            self._spaces[name] = _Space(self.folder / name)
        return self._spaces[name]


class StoredCache(VectorCache):
    """The pipeline's cache of re-embedded documents, backed by a store."""

    def __init__(self, store: VectorStore) -> None:
        super().__init__(0)
        self.store = store

    def encode(self, texts: Sequence[str], encoder: Backbone, *, fingerprint: str = "") -> list[TokenVectors]:
        """Return the documents' vectors; a text's vectors are the same whatever index it came from."""
        return self.store.encode(texts, encoder)


def key_of(text: str) -> str:
    """Return the key of a text within one encoder's space."""
    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()


class _Space:
    """The shards of one encoder."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.places: dict[str, tuple[_Shard, int]] = {}
        for path in sorted(folder.glob("*.safetensors")):
            self._open(path)

    def _open(self, path: Path) -> None:
        try:
            shard = _Shard(path)
        except Exception as error:
            logger.warning("The cache shard %s cannot be read (%s); its documents are encoded again.", path, error)
            return
        self.places.update({key: (shard, i) for i, key in enumerate(shard.keys)})

    def read(self, key: str, device: str) -> TokenVectors | None:
        """Return the vectors of a key that is there, or forget it and return None: they are not what was written."""
        shard, index = self.places[key]
        vectors = shard.document(index)
        if vectors is None:
            logger.warning("A document's vectors in %s are damaged; it is encoded again.", self.folder)
            del self.places[key]
            return None
        return TokenVectors(vectors.vectors.to(device), vectors.windows)

    def write(self, keys: list[str], packed: PackedVectors) -> None:
        from safetensors import SafetensorError
        from safetensors.torch import save_file

        path = self.folder / f"{hashlib.sha256(''.join(keys).encode()).hexdigest()[:20]}.safetensors"
        temporary = path.with_name(f".{path.name}.{os.getpid()}")
        try:
            self.folder.mkdir(parents=True, exist_ok=True)
            save_file(
                {
                    "vectors": packed.vectors.contiguous(),
                    "window_tokens": packed.window_tokens,
                    "document_windows": packed.document_windows,
                    "checksums": torch.tensor([_checksum(packed.document(i)) for i in range(len(keys))]),
                },
                str(temporary),
                metadata={"keys": json.dumps(keys)},
            )
            with temporary.open("rb") as handle:
                os.fsync(handle.fileno())
            temporary.replace(path)
        except (OSError, SafetensorError) as error:
            raise ExciseError(
                f"The cache {self.folder} was not written: {error}. Make room, or give another folder."
            ) from error
        finally:
            temporary.unlink(missing_ok=True)
        self._open(path)


class _Shard:
    """One file; its vectors stay on disk until they are asked for."""

    def __init__(self, path: Path) -> None:
        self._file = _open_safetensors(path)
        self.keys: list[str] = json.loads(self._file.metadata()["keys"])
        windows = self._file.get_tensor("document_windows").cumsum(0)
        self._windows: list[int] = [0, *windows.tolist()]
        self._lengths: list[int] = self._file.get_tensor("window_tokens").tolist()
        tokens = torch.tensor([0, *self._lengths]).cumsum(0)
        self._tokens: list[int] = tokens[torch.tensor(self._windows)].tolist()
        self._vectors = self._file.get_slice("vectors")
        if self._vectors.get_shape()[0] != self._tokens[-1] or len(self.keys) != len(self._windows) - 1:
            raise ValueError("its parts do not fit each other")
        # Shards of earlier versions have none.
        names = set(self._file.keys())
        self._checksums: list[int] | None = (
            self._file.get_tensor("checksums").tolist() if "checksums" in names else None
        )

    def document(self, index: int) -> TokenVectors | None:
        """Return a document's vectors on the CPU, or None if they are not what was written."""
        found = TokenVectors(
            self._vectors[self._tokens[index] : self._tokens[index + 1]],
            tuple(self._lengths[self._windows[index] : self._windows[index + 1]]),
        )
        return found if self._checksums is None or _checksum(found) == self._checksums[index] else None


def _checksum(document: TokenVectors) -> int:
    raw = document.vectors.contiguous().view(torch.uint8).numpy().data
    return zlib.crc32(raw, zlib.crc32(json.dumps(document.windows).encode()))


def _open_safetensors(path: Path) -> Any:
    from safetensors import safe_open

    return safe_open(str(path), framework="pt")
