"""One Qdrant collection: what is asked of it, and its failures as errors of this package."""

from __future__ import annotations

import contextlib
import copy
import hashlib
import json
import threading
import uuid
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Literal

import torch

from ..encode.backbone import Backbone
from ..encode.maxsim import TokenVectors
from ..errors import ExciseError, FirstStageError, IndexDamagedError, InvalidInputError
from ..types import Candidate
from ..version import __version__
from ._progress import Progress, reporter
from ._qdrant_points import VECTOR, batches, models, point_id, token_vectors

from qdrant_client import QdrantClient  # isort: skip  # after the module that names the extra

__all__ = ["Collection", "connect"]

_NOTE = "excise"
_ENCODE_SLICE = 256
_IDS_A_REQUEST = 64
_IDS_A_PAGE = 1000
# Qdrant's local mode is not made for threads.
_LOCAL = threading.RLock()


def connect(client: QdrantClient | str | Path) -> QdrantClient:
    """Return a client: the one that is given, or one of a server (URL), of ``":memory:"`` or of a local folder."""
    if isinstance(client, QdrantClient):
        return client
    where = str(client)
    try:
        if where == ":memory:" or "://" in where:
            return QdrantClient(location=where)
        # Threads take turns here (see _LOCAL), so that SQLite need not tie itself to one of them.
        return QdrantClient(path=where, force_disable_check_same_thread=True)
    except Exception as error:
        raise FirstStageError(f"Qdrant at {where!r} cannot be opened: {type(error).__name__}: {error}") from error


class Collection:
    """A collection that this package made, with a note of which encoder filled it.

    Args:
        client: the client.
        name: the collection's name.
    """

    def __init__(self, client: QdrantClient, name: str) -> None:
        self.client = client
        self.name = name

    @classmethod
    def create(
        cls,
        client: QdrantClient,
        name: str,
        backbone: Backbone,
        vector_options: Mapping[str, Any],
        options: Mapping[str, Any],
    ) -> Collection:
        """Make an empty collection.

        Raises:
            FirstStageError: the name is taken, or the server refuses.
        """
        note = {"format": 1, "backbone": backbone.name, "vector_space": backbone.label, "package_version": __version__}
        params = models.VectorParams(
            size=backbone.dim,
            # Not cosine, which would store other vectors than were given.
            distance=models.Distance.DOT,
            multivector_config=models.MultiVectorConfig(comparator=models.MultiVectorComparator.MAX_SIM),
            **vector_options,
        )
        made = cls(client, name)
        with made.asking("be made"):
            if client.collection_exists(name):
                raise FirstStageError(
                    f"There is a collection {name!r} already. Open it with QdrantFirstStage(client, {name!r}), or "
                    "delete it first."
                )
            client.create_collection(name, {VECTOR: params}, metadata=_revised(note), **options)
        return made

    @contextlib.contextmanager
    def asking(self, what: str) -> Iterator[None]:
        """Ask the client for something: one thread at a time in local mode, failures as :meth:`failing` tells them."""
        with _LOCAL if self.local else contextlib.nullcontext(), self.failing(what):
            yield

    @contextlib.contextmanager
    def failing(self, what: str) -> Iterator[None]:
        """Turn Qdrant's failures into :class:`FirstStageError`."""
        try:
            yield
        except ExciseError:
            raise
        except Exception as error:
            raise FirstStageError(
                f"The Qdrant collection {self.name!r} could not {what}: {type(error).__name__}: {error}"
            ) from error

    @property
    def local(self) -> bool:
        """Whether the collection lies in this process."""
        options = self.client.init_options
        return options.get("location") == ":memory:" or options.get("path") is not None

    # --- the note -------------------------------------------------------------------------

    def note(self) -> dict[str, Any]:
        """Return what the collection says about itself.

        Raises:
            IndexDamagedError: there is no such collection, or this package did not make it.
        """
        with self.asking("be read"):
            if not self.client.collection_exists(self.name):
                raise IndexDamagedError(
                    f"There is no Qdrant collection {self.name!r}. Make one with QdrantFirstStage.create(client, "
                    f"{self.name!r}) or from_texts."
                )
            note = (self.client.get_collection(self.name).config.metadata or {}).get(_NOTE)
        if not isinstance(note, dict) or note.get("format") != 1 or not {"backbone", "vector_space"} <= set(note):
            raise IndexDamagedError(
                f"The Qdrant collection {self.name!r} does not say which encoder filled it: QdrantFirstStage.create "
                "did not make it, or the server is older than 1.16. Make another one there."
            )
        return note

    @property
    def fingerprint(self) -> str:
        """A hash of the note, whose revision changes with every change."""
        return hashlib.sha256(json.dumps([self.name, self.note()], sort_keys=True).encode()).hexdigest()

    @contextlib.contextmanager
    def changing(self) -> Iterator[None]:
        """Mark the collection as changed, before and after: a killed writer leaves no old fingerprint."""
        note = self.note()
        self._revise(note)
        try:
            yield
        except BaseException:
            with contextlib.suppress(ExciseError):
                self._revise(note)
            raise
        self._revise(note)

    def _revise(self, note: Mapping[str, Any]) -> None:
        with self.asking("be changed"):
            self.client.update_collection(self.name, metadata=_revised(note))

    # --- points ---------------------------------------------------------------------------

    def marks(self, ids: Sequence[str]) -> dict[str, str]:
        """Return what tells one writing of these documents from the next; raise for an unknown id."""
        found = self._there(ids)
        self._check_known(ids, found)
        return found

    def _there(self, ids: Sequence[str]) -> dict[str, str]:
        records = self._records(ids, payload=["id", "mark"], vectors=False)
        return {payload["id"]: payload["mark"] for payload in (r.payload or {} for r in records)}

    def vectors(self, ids: Sequence[str], dtype: torch.dtype, device: str) -> dict[str, TokenVectors]:
        """Return the vectors of these documents; raise :class:`InvalidInputError` for an unknown id."""
        found = {}
        for record in self._records(ids, payload=["id", "windows"], vectors=True):
            found[(record.payload or {})["id"]] = token_vectors(record, dtype, device)
        self._check_known(ids, found)
        return found

    def left_to_store(self, new: list[Candidate], existing: Literal["refuse", "skip", "replace"]) -> list[Candidate]:
        """Return the documents to be stored, see :meth:`QdrantFirstStage.add`."""
        if existing not in ("refuse", "skip", "replace"):
            raise InvalidInputError(f"existing={existing!r} is not one of 'refuse', 'skip', 'replace'.")
        if existing == "replace":
            return new
        there = self._there([d.id for d in new])
        left = [d for d in new if d.id not in there]
        if existing == "refuse" and len(left) < len(new):
            taken = next(d.id for d in new if d.id in there)
            raise InvalidInputError(
                f"The id {taken!r} is used twice; ids must be unique within a collection. To go on after an "
                "interruption give existing='skip', to write anew existing='replace'."
            )
        return left

    def _records(self, ids: Sequence[str], *, payload: list[str], vectors: bool) -> Iterator[models.Record]:
        """Yield these documents' points, in any order; unknown ids are passed over."""
        if isinstance(ids, str):
            raise InvalidInputError("ids is one string; give a list of ids.")
        size = _IDS_A_REQUEST if vectors else _IDS_A_PAGE
        for start in range(0, len(ids), size):
            points: list[Any] = [point_id(i) for i in ids[start : start + size]]
            with self.asking("be read"):
                found = self.client.retrieve(self.name, points, with_payload=payload, with_vectors=vectors)
            yield from found

    def _check_known(self, ids: Sequence[str], there: Mapping[str, Any]) -> None:
        """Raise :class:`InvalidInputError` for the first id that is not there."""
        for i in ids:
            if i not in there:
                raise InvalidInputError(f"No document has the id {i!r}; the collection has {self.count()}.")

    def upload(
        self, new: Sequence[Candidate], backbone: Backbone, vectors: Sequence[TokenVectors] | None, progress: Progress
    ) -> None:
        """Store documents, batch by batch, encoding them unless their vectors are given."""
        stored = 0
        with reporter(progress, len(new)) as report, self.changing():
            for start in range(0, len(new), _ENCODE_SLICE):
                part = new[start : start + _ENCODE_SLICE]
                encoded = _encode(part, backbone) if vectors is None else vectors[start : start + _ENCODE_SLICE]
                for batch in batches(part, encoded):
                    with self.asking(f"take all documents ({stored} of {len(new)} are stored)"):
                        self.client.upsert(self.name, batch, wait=True)
                    stored += len(batch)
                    if report is not None:
                        report(len(batch))

    def delete(self, ids: Sequence[str]) -> None:
        """Remove documents, or raise :class:`InvalidInputError` for the first that is not there."""
        self._check_known(ids, self._there(ids))
        with self.changing():
            for start in range(0, len(ids), _IDS_A_PAGE):
                points: list[Any] = [point_id(i) for i in ids[start : start + _IDS_A_PAGE]]
                with self.asking("be changed"):
                    self.client.delete(self.name, models.PointIdsList(points=points), wait=True)

    def count(self) -> int:
        """Return how many documents there are."""
        with self.asking("be counted"):
            return self.client.count(self.name, exact=True).count

    def ids(self) -> list[str]:
        """Return every document's id; reads the whole collection."""
        out: list[str] = []
        at: Any = None
        while True:
            with self.asking("be read"):
                page, at = self.client.scroll(
                    self.name, limit=_IDS_A_PAGE, offset=at, with_payload=["id"], with_vectors=False
                )
            out.extend((r.payload or {})["id"] for r in page)
            if at is None:
                return out

    # --- copies ---------------------------------------------------------------------------

    def __deepcopy__(self, memo: dict[int, Any]) -> Collection:
        # Connections cannot be copied, and the documents are those of everybody who opens the collection.
        return copy.copy(self)

    def __copy__(self) -> Collection:
        return Collection(self.client, self.name)

    def __reduce__(self) -> tuple[Any, ...]:
        if self.local:
            raise InvalidInputError(
                f"The collection {self.name!r} lies in this process and cannot be pickled; use a Qdrant server."
            )
        return (_reconnect, (dict(self.client.init_options), self.name))


def _encode(new: Sequence[Candidate], backbone: Backbone) -> list[TokenVectors]:
    # Equal texts get the very same vectors, so that they tie.
    unique = list(dict.fromkeys(d.text for d in new))
    encoded = dict(zip(unique, backbone.encode_documents(unique), strict=True))
    return [encoded[d.text] for d in new]


def _reconnect(options: dict[str, Any], name: str) -> Collection:
    return Collection(QdrantClient(**options), name)


def _revised(note: Mapping[str, Any]) -> dict[str, Any]:
    return {_NOTE: {**note, "revision": uuid.uuid4().hex}}
