"""A bounded cache of re-embedded documents."""

from __future__ import annotations

import hashlib
import threading
from collections import OrderedDict
from collections.abc import Sequence
from concurrent.futures import Future
from dataclasses import dataclass
from typing import Any

from ..errors import InvalidInputError
from .backbone import Backbone
from .maxsim import TokenVectors

__all__ = ["CacheStats", "VectorCache"]

# Bookkeeping per entry beside the vectors: key, tuple, dict slot.
_OVERHEAD = 512


@dataclass(frozen=True)
class CacheStats:
    """Counters of a cache since it was made."""

    hits: int
    misses: int
    evictions: int
    entries: int
    bytes: int


class VectorCache:
    """Least-recently-used cache of token vectors, bounded in bytes and safe among threads.

    Documents are encoded without the query (paper, section on the adapter), so one encoding serves
    every later query. Two callers that miss the same document at once encode it once.

    Args:
        max_bytes: budget for vectors and bookkeeping; 0 keeps nothing.
    """

    def __init__(self, max_bytes: int = 256 * 1024 * 1024) -> None:
        if max_bytes < 0:
            raise InvalidInputError(f"max_bytes={max_bytes} is negative; 0 switches the cache off.")
        self.max_bytes = max_bytes
        self._lock = threading.Lock()
        self._entries: OrderedDict[str, TokenVectors] = OrderedDict()
        self._pending: dict[str, Future[TokenVectors]] = {}
        self._bytes = 0
        self._hits = self._misses = self._evictions = 0

    @staticmethod
    def key(text: str, space: str, fingerprint: str = "") -> str:
        """Return the key of a document: its content, the encoder that embeds it, the index it came from."""
        digest = hashlib.sha256()
        for part in (space, fingerprint, text):
            raw = part.encode("utf-8", "surrogatepass")
            digest.update(len(raw).to_bytes(8, "big"))
            digest.update(raw)
        return digest.hexdigest()

    def encode(self, texts: Sequence[str], encoder: Backbone, *, fingerprint: str = "") -> list[TokenVectors]:
        """Return the documents' vectors, encoding only what is not cached.

        Args:
            texts: documents.
            encoder: encodes what is missing; its label is part of the key.
            fingerprint: of the first stage, so that a rebuilt index shares nothing with the old one.

        Returns:
            Vectors in the order of ``texts``.
        """
        keys = [self.key(text, encoder.label, fingerprint) for text in texts]
        found: dict[str, TokenVectors] = {}
        waiting: dict[str, Future[TokenVectors]] = {}
        mine: dict[str, str] = {}
        with self._lock:
            for key, text in zip(keys, texts, strict=True):
                if key in found or key in waiting or key in mine:
                    continue
                if key in self._entries:
                    self._entries.move_to_end(key)
                    found[key] = self._entries[key]
                    self._hits += 1
                elif key in self._pending:
                    waiting[key] = self._pending[key]
                    self._hits += 1
                else:
                    self._pending[key] = Future()
                    mine[key] = text
                    self._misses += 1
        if mine:
            found.update(self._encode_missing(mine, encoder))
        for key, future in waiting.items():
            found[key] = future.result()
        return [found[key] for key in keys]

    def _encode_missing(self, missing: dict[str, str], encoder: Backbone) -> dict[str, TokenVectors]:
        try:
            vectors = dict(zip(missing, encoder.encode_documents(list(missing.values())), strict=True))
        except BaseException as error:
            with self._lock:
                futures = [self._pending.pop(key) for key in missing]
            for future in futures:
                future.set_exception(error)
            raise
        with self._lock:
            for key, value in vectors.items():
                self._store(key, value)
            futures = [self._pending.pop(key) for key in missing]
        for future, value in zip(futures, vectors.values(), strict=True):
            future.set_result(value)
        return vectors

    def _store(self, key: str, value: TokenVectors) -> None:
        size = value.nbytes + _OVERHEAD
        if size > self.max_bytes:
            return
        self._entries[key] = value
        self._bytes += size
        while self._bytes > self.max_bytes:
            _, old = self._entries.popitem(last=False)
            self._bytes -= old.nbytes + _OVERHEAD
            self._evictions += 1

    def stats(self) -> CacheStats:
        """Return the counters."""
        with self._lock:
            return CacheStats(self._hits, self._misses, self._evictions, len(self._entries), self._bytes)

    def clear(self) -> None:
        """Forget every vector; counters stay."""
        with self._lock:
            self._entries.clear()
            self._bytes = 0

    def __getstate__(self) -> dict[str, Any]:
        return {"max_bytes": self.max_bytes}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__init__(state["max_bytes"])  # type: ignore[misc]
