"""A bounded cache of re-embedded documents."""

from __future__ import annotations

import contextlib
import hashlib
import json
import logging
import os
from array import array
from collections import OrderedDict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import Future
from dataclasses import dataclass
from typing import Any

from ..errors import InvalidInputError
from .arena import BLOCK_BYTES, BlockArena
from .backbone import Backbone
from .disk import DiskCache
from .fork_lock import ForkLock
from .maxsim import TokenVectors
from .storage import Layout, Storage, StoredVectors, check_storage, keep

__all__ = ["CacheStats", "VectorCache", "encoder_space"]

logger = logging.getLogger("excise_integrations")

# Bookkeeping per entry beside the vectors, as measured: key, layout, block numbers, dict slot.
_OVERHEAD = 768
_WARM_BATCH = 256


@dataclass(frozen=True)
class CacheStats:
    """Counters of a cache since it was made.

    Args:
        hits: documents found in memory, or encoded by another caller at that moment.
        misses: documents that had to be encoded.
        evictions: documents that left memory for others.
        entries, bytes: what memory holds now.
        disk_hits: documents found on disk.
    """

    hits: int
    misses: int
    evictions: int
    entries: int
    bytes: int
    disk_hits: int = 0

    @property
    def hit_rate(self) -> float:
        """Share of the documents asked for that were not encoded, in [0, 1]; 0 before the first."""
        found = self.hits + self.disk_hits
        return found / (found + self.misses) if found + self.misses else 0.0


class VectorCache:
    """Least-recently-used cache of token vectors, bounded in bytes and safe among threads.

    Documents are encoded without the query (paper, section on the adapter), so one encoding serves
    every later query. Two callers that miss the same document at once encode it once.

    Args:
        max_bytes: budget for vectors and bookkeeping in memory; 0 keeps nothing there.
        storage: the form that vectors are kept in. A smaller form than "encoded" loses a little, and
            loses it from the first time on: a ranking never depends on what was cached.
        disk: a second layer that outlives the process.
    """

    def __init__(
        self,
        max_bytes: int = 256 * 1024 * 1024,
        *,
        storage: Storage = "encoded",
        disk: DiskCache | None = None,
    ) -> None:
        if max_bytes < 0:
            raise InvalidInputError(f"max_bytes={max_bytes} is negative; 0 switches the cache off.")
        check_storage(storage)
        self.max_bytes = max_bytes
        self.storage: Storage = storage
        self.disk = disk
        self._lock = ForkLock()
        self._process = os.getpid()
        self._arena = BlockArena(max_bytes)
        self._entries: OrderedDict[str, tuple[Layout, array[int]]] = OrderedDict()
        # None as a result: the owner failed, and whoever waits tries by himself.
        self._pending: dict[str, Future[TokenVectors | None]] = {}
        self._hits = self._misses = self._evictions = self._disk_hits = 0

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
            encoder: encodes what is missing; its label, windows and arithmetic are part of the key.
            fingerprint: of the first stage, so that a rebuilt index shares nothing with the old one.

        Returns:
            Vectors in the order of ``texts``.
        """
        keys = self._keys(texts, encoder, fingerprint)
        wanted = dict(zip(keys, texts, strict=True))
        found: dict[str, TokenVectors] = {}
        while len(found) < len(wanted):
            mine, waiting = self._claim(wanted, found, encoder)
            if mine:
                found.update(self._produce(mine, encoder))
            for key, future in waiting.items():
                vectors = future.result()
                if vectors is not None:
                    found[key] = vectors
        return [found[key] for key in keys]

    def warm(
        self,
        texts: Iterable[str],
        encoder: Backbone,
        *,
        fingerprint: str = "",
        progress: Callable[[int, int], None] | None = None,
    ) -> int:
        """Encode documents ahead of the queries that will need them.

        Without a disk layer it stops when memory is full, since more would only drive out what was
        encoded before.

        Args:
            texts: documents; those that are cached are passed over.
            encoder, fingerprint: as in :meth:`encode`.
            progress: called with the documents done and the total.

        Returns:
            How many documents were encoded.
        """
        texts = list(texts)
        wanted = dict(zip(self._keys(texts, encoder, fingerprint), texts, strict=True))
        with self._held_lock():
            there = set() if self.disk is not None else set(self._entries)
        keys = [key for key in wanted if key not in there]
        if self.disk is not None:
            keys = self.disk.missing(keys)
        done, encoded = len(wanted) - len(keys), 0
        # Texts of like length share a batch.
        keys.sort(key=lambda key: len(wanted[key]))
        if progress is not None:
            progress(done, len(wanted))
        for start in range(0, len(keys), _WARM_BATCH):
            part = keys[start : start + _WARM_BATCH]
            evictions = self.stats().evictions
            self.encode([wanted[key] for key in part], encoder, fingerprint=fingerprint)
            encoded += len(part)
            if progress is not None:
                progress(done + encoded, len(wanted))
            if self.disk is None and (self.max_bytes == 0 or self.stats().evictions > evictions):
                logger.warning(
                    "The cache of %d bytes is full after %d of %d documents; raise max_bytes or give it a folder.",
                    self.max_bytes, done + encoded, len(wanted),
                )  # fmt: skip
                break
        return encoded

    def stats(self) -> CacheStats:
        """Return the counters."""
        with self._held_lock():
            return CacheStats(
                self._hits, self._misses, self._evictions, len(self._entries), self._held(), self._disk_hits
            )

    def clear(self) -> None:
        """Forget every vector in memory; the disk layer and the counters stay."""
        with self._held_lock():
            self._entries.clear()
            self._arena.clear()

    # --- steps ------------------------------------------------------------------------------

    def _keys(self, texts: Sequence[str], encoder: Backbone, fingerprint: str) -> list[str]:
        space = f"{encoder_space(encoder)} {self.storage}"
        return [self.key(text, space, fingerprint) for text in texts]

    def _claim(
        self, wanted: Mapping[str, str], found: dict[str, TokenVectors], encoder: Backbone
    ) -> tuple[dict[str, str], dict[str, Future[TokenVectors | None]]]:
        """Add what memory holds to ``found``; return what this caller has to produce, and what others are producing."""
        mine: dict[str, str] = {}
        waiting: dict[str, Future[TokenVectors | None]] = {}
        held: dict[str, tuple[Layout, array[int]]] = {}
        with self._held_lock():
            for key, text in wanted.items():
                if key in found:
                    continue
                if key in self._entries:
                    self._entries.move_to_end(key)
                    held[key] = self._entries[key]
                elif key in self._pending:
                    waiting[key] = self._pending[key]
                else:
                    self._pending[key] = Future()
                    mine[key] = text
            self._hits += len(held) + len(waiting)
            # Copied out under the lock: an eviction would hand the blocks to another document.
            copies = self._arena.get([blocks for _, blocks in held.values()]) if held else []
        for (key, (layout, _)), flat in zip(held.items(), copies, strict=True):
            stored = StoredVectors(layout, flat[: layout.nbytes])
            found[key] = stored.restore(encoder.dtype, encoder.device)
        return mine, waiting

    def _produce(self, missing: dict[str, str], encoder: Backbone) -> dict[str, TokenVectors]:
        vectors: dict[str, TokenVectors] = {}
        fresh: dict[str, StoredVectors] = {}
        try:
            stored = self.disk.get(list(missing)) if self.disk is not None else {}
            left = {key: text for key, text in missing.items() if key not in stored}
            if left:
                for key, value in zip(left, encoder.encode_documents(list(left.values())), strict=True):
                    fresh[key] = keep(value, self.storage)
            stored = {**stored, **fresh}
            vectors = {key: stored[key].restore(encoder.dtype, encoder.device) for key in missing}
            with self._held_lock():
                self._disk_hits += len(missing) - len(left)
                self._misses += len(left)
                for key in missing:
                    self._store(key, stored[key])
        finally:
            with self._held_lock():
                futures = [self._pending.pop(key) for key in missing]
            for key, future in zip(missing, futures, strict=True):
                future.set_result(vectors.get(key))
        if self.disk is not None and fresh:
            self.disk.put(fresh)
        return vectors

    @contextlib.contextmanager
    def _held_lock(self) -> Iterator[None]:
        with self._lock:
            if self._process != os.getpid():
                # Whoever was encoding when this process was forked is not here to finish it.
                self._process = os.getpid()
                self._pending = {}
                if self._lock.torn:
                    self._entries = OrderedDict()
                    self._arena = BlockArena(self.max_bytes)
                    self._lock.torn = False
            yield

    # --- memory, under the lock -------------------------------------------------------------

    def _held(self) -> int:
        return self._arena.nbytes + len(self._entries) * _OVERHEAD

    def _store(self, key: str, value: StoredVectors) -> None:
        blocks = self._arena.blocks(value.layout.nbytes)
        if key in self._entries or blocks * BLOCK_BYTES + _OVERHEAD > self.max_bytes:
            return
        while not self._fits(blocks):
            _, (_, old) = self._entries.popitem(last=False)
            self._arena.release(old)
            self._evictions += 1
            if self._arena.free * 2 * BLOCK_BYTES > self._arena.nbytes and self._entries:
                # Documents became much shorter, and the bookkeeping of many has no room beside so many
                # idle blocks: begin again.
                self._evictions += len(self._entries)
                self._entries.clear()
        self._entries[key] = value.layout, self._arena.put(value.flat.cpu())

    def _fits(self, blocks: int) -> bool:
        if not self._entries:
            # Whatever the blocks were taken for has gone; memory goes back to the system.
            self._arena.clear()
        fresh = max(0, blocks - self._arena.free)
        return self._held() + fresh * BLOCK_BYTES + _OVERHEAD <= self.max_bytes

    # --- copies -----------------------------------------------------------------------------

    def __getstate__(self) -> dict[str, Any]:
        return {"max_bytes": self.max_bytes, "storage": self.storage, "disk": self.disk}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__init__(**state)  # type: ignore[misc]


def encoder_space(encoder: Backbone) -> str:
    """Return what tells one encoder's document vectors from another's: label, arithmetic, windows, length."""
    windows = encoder.windows
    return json.dumps([encoder.label, str(encoder.dtype), windows.words, windows.max_words, encoder.max_tokens])
