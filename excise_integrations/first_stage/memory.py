"""Exact MaxSim over a collection held in memory."""

from __future__ import annotations

import asyncio
import itertools
import threading
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from ..encode.backbone import Backbone
from ..encode.maxsim import TokenVectors
from ..errors import FirstStageError, InvalidInputError
from ..types import Candidate
from ._memory_disk import fingerprint, read_index, read_manifest, write_index
from ._packed import PackedVectors, top
from ._progress import Progress, reporter
from ._snapshot import Snapshot, check_documents, check_lists, check_search

__all__ = ["MemoryFirstStage", "Progress"]

_ENCODE_SLICE = 1024


class MemoryFirstStage:
    """A first stage without an index on disk: every search scores every passage exactly.

    Meant for up to a few hundred thousand passages; the constructor makes an empty collection. Safe
    to search from many threads, also while :meth:`add` or :meth:`delete` runs. A deep copy shares
    the vectors and the backbone and changes independently.

    Args:
        backbone: the encoder, or what :meth:`Backbone.from_pretrained` takes; None is the embedded default.
        device: where the vectors are kept; None is the backbone's device.
    """

    def __init__(self, backbone: Backbone | str | Path | None = None, *, device: str | None = None) -> None:
        if backbone is None or isinstance(backbone, (str, Path)):
            backbone = Backbone.from_pretrained(backbone or "minilm")
        self.backbone = backbone
        self.device = device or self.backbone.device
        empty = PackedVectors.empty(self.backbone.dim, self.backbone.dtype, self.device)
        self._snapshot = Snapshot((), empty)
        self._lock = threading.Lock()

    # --- construction -------------------------------------------------------------------

    @classmethod
    def from_texts(
        cls,
        texts: Sequence[str],
        *,
        ids: Sequence[str] | None = None,
        metadatas: Sequence[Mapping[str, Any]] | None = None,
        backbone: Backbone | str | Path | None = None,
        device: str | None = None,
        progress: Progress = False,
    ) -> MemoryFirstStage:
        """Encode texts and hold them.

        Args:
            texts: passages, none blank; long ones are scored by their best window.
            ids: one unique id per text; None numbers them from "0".
            metadatas: one mapping per text, for filters and for the caller.
            backbone: see the class.
            device: see the class.
            progress: a progress bar (True), a callback, or nothing.

        Raises:
            InvalidInputError: a blank text, a repeated id, or lists of different lengths.
        """
        stage = cls(backbone, device=device)
        stage.add(texts, ids=ids, metadatas=metadatas, progress=progress)
        return stage

    @classmethod
    def from_candidates(
        cls,
        candidates: Sequence[Candidate],
        *,
        vectors: Sequence[TokenVectors] | None = None,
        backbone: Backbone | str | Path | None = None,
        device: str | None = None,
        progress: Progress = False,
    ) -> MemoryFirstStage:
        """Hold candidates, encoding their texts unless their vectors are given.

        Args:
            candidates: documents; their scores are not kept.
            vectors: the backbone's vectors of each, when they have been computed before.
            backbone, device, progress: as in :meth:`from_texts`.
        """
        stage = cls(backbone, device=device)
        stage._add([replace(c, score=None) for c in candidates], vectors, progress)
        return stage

    @classmethod
    def load(
        cls, folder: str | Path, *, backbone: Backbone | str | Path | None = None, device: str | None = None
    ) -> MemoryFirstStage:
        """Load an index that :meth:`save` wrote.

        Args:
            folder: the index.
            backbone: the encoder that built it; None loads it by the name in the manifest.
            device: where the vectors are kept; None is the backbone's device.

        Raises:
            IndexDamagedError: the folder is missing, is not an index, or a file was changed.
            FirstStageError: the index was built with other weights than the backbone's.
            BackboneError: the backbone named by the index cannot be loaded.
        """
        manifest = read_manifest(folder)
        stage = cls(manifest.backbone if backbone is None else backbone, device=device)
        if manifest.vector_space != stage.vector_space:
            raise FirstStageError(
                f"The index {folder} was built with {manifest.vector_space}, but the backbone is "
                f"{stage.vector_space}. Load the backbone that built it, or build the index again."
            )
        _, candidates, packed = read_index(folder, device=stage.device)
        stage._snapshot = Snapshot(tuple(candidates), packed)
        return stage

    def save(self, folder: str | Path) -> Path:
        """Write the collection and its vectors to a folder, all of it or nothing.

        An index that is there already is replaced; a killed process leaves the old one or the new one.

        Raises:
            InvalidInputError: a document's metadata is not plain JSON.
            FirstStageError: the folder holds something else.
        """
        snapshot = self._snapshot
        return write_index(
            folder,
            backbone=self.backbone.name,
            vector_space=self.vector_space,
            candidates=snapshot.candidates,
            packed=snapshot.packed,
        )

    # --- change ---------------------------------------------------------------------------

    def add(
        self,
        texts: Sequence[str],
        *,
        ids: Sequence[str] | None = None,
        metadatas: Sequence[Mapping[str, Any]] | None = None,
        progress: Progress = False,
    ) -> list[str]:
        """Encode further texts and add them at the end; nothing is added when one is refused.

        Args:
            texts, ids, metadatas, progress: as in :meth:`from_texts`; without ids, unused numbers are taken.

        Returns:
            The ids of the added texts.
        """
        texts = check_lists(texts, ids, metadatas)
        # Writers wait for each other; a search takes the snapshot that is there.
        with self._lock:
            if ids is None:
                ids = self._unused_ids(len(texts))
            records = metadatas or [{}] * len(texts)
            new = [Candidate(i, t, None, m or {}) for i, t, m in zip(ids, texts, records, strict=True)]
            self._add(new, None, progress)
        return [c.id for c in new]

    def _unused_ids(self, count: int) -> list[str]:
        free = (str(n) for n in itertools.count(len(self)) if str(n) not in self._snapshot.positions)
        return list(itertools.islice(free, count))

    def _add(self, new: list[Candidate], vectors: Sequence[TokenVectors] | None, progress: Progress) -> None:
        old = self._snapshot
        check_documents(new)
        old.refuse_duplicates(new)
        if vectors is not None and (
            len(vectors) != len(new) or any(v.vectors.shape[-1] != self.backbone.dim for v in vectors)
        ):
            raise InvalidInputError(
                f"vectors must hold one entry of dimension {self.backbone.dim} for each of the {len(new)} candidates."
            )
        if new:
            packed = self._encode(new, progress) if vectors is None else PackedVectors.of(vectors, self.device)
            parts = [old.packed, packed] if old.candidates else [packed]
            self._snapshot = Snapshot((*old.candidates, *new), PackedVectors.concat(parts))

    def _encode(self, new: list[Candidate], progress: Progress) -> PackedVectors:
        # Equal texts get the very same vectors, so that they tie whatever batch they would fall into.
        unique = list(dict.fromkeys(c.text for c in new))
        vectors: dict[str, TokenVectors] = {}
        with reporter(progress, len(unique)) as report:
            for start in range(0, len(unique), _ENCODE_SLICE):
                part = unique[start : start + _ENCODE_SLICE]
                encoded = self.backbone.encode_documents(part, progress=report)
                vectors.update(zip(part, (replace(v, vectors=v.vectors.to(self.device)) for v in encoded), strict=True))
        return PackedVectors.of([vectors[c.text] for c in new], self.device)

    def delete(self, ids: Sequence[str]) -> None:
        """Remove documents; nothing is removed when one of the ids is unknown.

        Raises:
            InvalidInputError: an id that is not in the collection.
        """
        with self._lock:
            self._snapshot = self._snapshot.without(ids)

    # --- search ---------------------------------------------------------------------------

    def search(self, query: str, k: int, *, filter: Mapping[str, Any] | None = None) -> list[Candidate]:
        """Return the top ``k`` by exact MaxSim, best first; equal scores keep the order of insertion.

        Args:
            query: a non-blank query.
            k: at least 1; fewer candidates come back when fewer match.
            filter: metadata that every candidate must carry, key by key equal.

        Raises:
            InvalidInputError: a blank query, ``k`` below 1, or a filter that is no mapping.
        """
        return self.search_batch([query], k, filter=filter)[0]

    def search_batch(
        self, queries: Sequence[str], k: int, *, filter: Mapping[str, Any] | None = None
    ) -> list[list[Candidate]]:
        """Return one list per query, as :meth:`search` would, reading the vectors once for many queries."""
        check_search(queries, k)
        snapshot = self._snapshot
        mask = snapshot.matching(filter)
        found = len(snapshot.candidates) if mask is None else int(mask.sum())
        if not found or not queries:
            return [[] for _ in queries]
        encoded = [q.vectors for q in self.backbone.encode_queries(queries)]
        results = []
        for scores in snapshot.packed.score(encoded, mask):
            best = top(scores, min(k, found))
            results.append([replace(snapshot.candidates[i], score=float(scores[i])) for i in best])
        return results

    async def asearch(self, query: str, k: int, *, filter: Mapping[str, Any] | None = None) -> list[Candidate]:
        """Return what :meth:`search` would, from a worker thread."""
        return await asyncio.to_thread(self.search, query, k, filter=filter)

    def vectors(self, ids: Sequence[str]) -> list[TokenVectors]:
        """Return the frozen vectors of these documents, in order.

        Raises:
            InvalidInputError: an id that is not in the collection.
        """
        snapshot = self._snapshot
        return [snapshot.packed.document(i) for i in snapshot.lookup(ids)]

    # --- facts ----------------------------------------------------------------------------

    @property
    def vector_space(self) -> str:
        """Label of the backbone that made the vectors."""
        return self.backbone.label

    @property
    def fingerprint(self) -> str:
        """A hash of the ids, texts, metadata, their order, and the encoder."""
        snapshot = self._snapshot
        known: tuple[Snapshot, str] | None = self.__dict__.get("_fingerprint")
        if known is None or known[0] is not snapshot:
            known = (snapshot, fingerprint(self.vector_space, snapshot.candidates))
            self.__dict__["_fingerprint"] = known
        return known[1]

    @property
    def ids(self) -> list[str]:
        """The ids, in the order of insertion."""
        return [c.id for c in self._snapshot.candidates]

    def __len__(self) -> int:
        return len(self._snapshot.candidates)

    # --- copies ---------------------------------------------------------------------------

    def __getstate__(self) -> dict[str, Any]:
        state = self.__dict__.copy()
        del state["_lock"]
        return state

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state)
        self._lock = threading.Lock()

    def __deepcopy__(self, memo: dict[int, Any]) -> MemoryFirstStage:
        twin = object.__new__(type(self))
        twin.__setstate__(self.__getstate__())
        return twin
