"""MaxSim in Qdrant: one point per document, its token vectors as a multivector."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Literal

from ..encode.backbone import Backbone
from ..encode.maxsim import TokenVectors
from ..errors import FirstStageError
from ..types import Candidate
from ._progress import Progress
from ._qdrant_collection import Collection, connect
from ._qdrant_points import checked, documents, models, ranked, request, to_filter
from ._qdrant_vectors import FrozenVectors
from ._snapshot import check_search

from qdrant_client import AsyncQdrantClient, QdrantClient  # isort: skip  # after the modules that name the extra

__all__ = ["Progress", "QdrantFirstStage"]


class QdrantFirstStage:
    """A first stage over a Qdrant collection, on one machine or a cluster.

    The constructor opens a collection that :meth:`create` made; who opens it sees what others write. Safe to use
    from many threads. A pickle opens it again elsewhere: it holds the client's options, an API key included, and
    leaves ``async_client`` behind. A long document's score is the MaxSim over all its windows, where
    :class:`MemoryFirstStage` takes the best window's; what re-ranks it takes the best window in both.

    Filters are equalities of metadata: ``{"year": 2024}`` (in a list, one equal element is enough), or a
    ``qdrant_client.models.Filter`` over ``metadata.<key>``. On a server, filters that are used often want an index:
    ``client.create_payload_index("docs", "metadata.year", "integer")``.

    Args:
        client: a ``QdrantClient`` (``prefer_grpc=True`` is faster), a server's address, ``":memory:"``, or the
            path of a local folder.
        collection: the collection's name.
        backbone: the encoder that filled it, or what :meth:`Backbone.from_pretrained` takes; None loads it by
            the name in the collection.
        async_client: an ``AsyncQdrantClient`` of the same server, for :meth:`asearch`, used in one event loop;
            without it :meth:`asearch` takes a worker thread.
        search_params: fields of ``qdrant_client.models.SearchParams``, e.g. ``{"exact": True}``.
        cache_bytes: budget for frozen vectors that :meth:`vectors` has fetched.

    Raises:
        MissingExtraError: qdrant-client is not installed.
        IndexDamagedError: there is no such collection, or this class did not make it.
        FirstStageError: the server does not answer, or the collection was filled with other weights.
    """

    def __init__(
        self,
        client: QdrantClient | str | Path,
        collection: str,
        *,
        backbone: Backbone | str | Path | None = None,
        async_client: AsyncQdrantClient | None = None,
        search_params: Mapping[str, Any] | None = None,
        cache_bytes: int = 256 * 1024 * 1024,
    ) -> None:
        self._collection = Collection(connect(client), collection)
        self.async_client = async_client
        self.search_params = models.SearchParams(**search_params) if search_params else None
        note = self._collection.note()
        if not isinstance(backbone, Backbone):
            backbone = Backbone.from_pretrained(backbone or note["backbone"])
        self.backbone = backbone
        if note["vector_space"] != self.vector_space:
            raise FirstStageError(
                f"The collection {collection!r} was filled with {note['vector_space']}, but the backbone is "
                f"{self.vector_space}. Load the backbone that filled it, or make another collection."
            )
        self._frozen = FrozenVectors(self._collection, backbone, cache_bytes)

    # --- construction -------------------------------------------------------------------

    @classmethod
    def create(
        cls,
        client: QdrantClient | str | Path,
        collection: str,
        *,
        backbone: Backbone | str | Path | None = None,
        vector_options: Mapping[str, Any] | None = None,
        collection_options: Mapping[str, Any] | None = None,
        **options: Any,
    ) -> QdrantFirstStage:
        """Make an empty collection and open it.

        Args:
            client, collection: see the class.
            backbone: the encoder; None is the embedded default.
            vector_options: further fields of ``qdrant_client.models.VectorParams``, such as ``datatype``,
                ``on_disk``, ``hnsw_config`` or ``quantization_config``.
            collection_options: further arguments of ``QdrantClient.create_collection``, such as
                ``shard_number`` or ``replication_factor``.
            **options: further arguments of the class.

        Raises:
            FirstStageError: there is a collection of that name already, or the server refuses.
        """
        client = connect(client)
        if not isinstance(backbone, Backbone):
            backbone = Backbone.from_pretrained(backbone or "minilm")
        Collection.create(client, collection, backbone, vector_options or {}, collection_options or {})
        return cls(client, collection, backbone=backbone, **options)

    @classmethod
    def from_texts(
        cls,
        texts: Sequence[str],
        *,
        ids: Sequence[str] | None = None,
        metadatas: Sequence[Mapping[str, Any]] | None = None,
        client: QdrantClient | str | Path = ":memory:",
        collection: str = "documents",
        progress: Progress = False,
        **options: Any,
    ) -> QdrantFirstStage:
        """Make a collection and fill it.

        Args:
            texts, ids, metadatas, progress: as in :meth:`add`.
            client, collection: where.
            **options: ``backbone`` and the other arguments of :meth:`create`.
        """
        new = documents(texts, ids, metadatas)
        return cls.from_candidates(new, client=client, collection=collection, progress=progress, **options)

    @classmethod
    def from_candidates(
        cls,
        candidates: Sequence[Candidate],
        *,
        vectors: Sequence[TokenVectors] | None = None,
        client: QdrantClient | str | Path = ":memory:",
        collection: str = "documents",
        progress: Progress = False,
        **options: Any,
    ) -> QdrantFirstStage:
        """Make a collection of candidates, encoding their texts unless their vectors are given.

        Args:
            candidates: documents; their scores are not kept.
            vectors: the backbone's vectors of each, when they have been computed before.
            client, collection, progress, **options: as in :meth:`from_texts`.
        """
        new = checked(list(candidates), vectors)
        stage = cls.create(client, collection, **options)
        stage._collection.upload(new, stage.backbone, vectors, progress)
        return stage

    # --- change ---------------------------------------------------------------------------

    def add(
        self,
        texts: Sequence[str],
        *,
        ids: Sequence[str] | None = None,
        metadatas: Sequence[Mapping[str, Any]] | None = None,
        existing: Literal["refuse", "skip", "replace"] = "refuse",
        progress: Progress = False,
    ) -> list[str]:
        """Encode texts and store them in batches; searches see each batch as it arrives.

        Args:
            texts: passages, none blank.
            ids: one unique id per text; None makes random ones.
            metadatas: one mapping per text, plain JSON types.
            existing: what happens to ids that are there: nothing is added at all; they are passed over, so that an
                interrupted call can be repeated; or they are written anew.
            progress: a progress bar (True), or a function called with documents stored and in total.

        Returns:
            The ids of the texts.

        Raises:
            InvalidInputError: a text, an id or metadata cannot be used; nothing was added.
            FirstStageError: Qdrant failed; it says how many documents had been stored.
        """
        new = documents(texts, ids, metadatas)
        # Random ids are new.
        left = new if ids is None else self._collection.left_to_store(new, existing)
        self._collection.upload(left, self.backbone, None, progress)
        return [d.id for d in new]

    def delete(self, ids: Sequence[str]) -> None:
        """Remove documents; nothing is removed when one of the ids is unknown.

        Raises:
            InvalidInputError: an id that is not in the collection.
        """
        self._collection.delete(ids)

    # --- search ---------------------------------------------------------------------------

    def search(self, query: str, k: int, *, filter: Any = None) -> list[Candidate]:
        """Return the top ``k`` by MaxSim, best first; equal scores go by id.

        Args:
            query: a non-blank query.
            k: at least 1; fewer candidates come back when fewer match.
            filter: see the class.

        Raises:
            InvalidInputError: a blank query, ``k`` below 1, or a filter that cannot be used.
            FirstStageError: Qdrant failed.
        """
        return self.search_batch([query], k, filter=filter)[0]

    def search_batch(self, queries: Sequence[str], k: int, *, filter: Any = None) -> list[list[Candidate]]:
        """Return one list per query, as :meth:`search` would, in one request."""
        requests = self._requests(queries, k, filter)
        if not requests:
            return []
        with self._collection.asking("be searched"):
            found = self._collection.client.query_batch_points(self._collection.name, requests)
        return [ranked(response.points) for response in found]

    async def asearch(self, query: str, k: int, *, filter: Any = None) -> list[Candidate]:
        """Return what :meth:`search` would, without blocking the event loop."""
        if self.async_client is None:
            return await asyncio.to_thread(self.search, query, k, filter=filter)
        requests = await asyncio.to_thread(self._requests, [query], k, filter)
        with self._collection.failing("be searched"):
            found = await self.async_client.query_batch_points(self._collection.name, requests)
        return ranked(found[0].points)

    def vectors(self, ids: Sequence[str]) -> list[TokenVectors]:
        """Return the frozen vectors of these documents, in order.

        Raises:
            InvalidInputError: an id that is not in the collection.
        """
        return self._frozen.get(ids)

    def _requests(self, queries: Sequence[str], k: int, filter: Any) -> list[models.QueryRequest]:
        check_search(queries, k)
        conditions = to_filter(filter)
        encoded = self.backbone.encode_queries(list(queries))
        return [request(e.vectors, k, conditions, self.search_params) for e in encoded]

    # --- facts ----------------------------------------------------------------------------

    @property
    def client(self) -> QdrantClient:
        """The client."""
        return self._collection.client

    @property
    def collection(self) -> str:
        """The collection's name."""
        return self._collection.name

    @property
    def vector_space(self) -> str:
        """Label of the backbone that made the vectors."""
        return self.backbone.label

    @property
    def checkpoint(self) -> str:
        """Name of the backbone, which goes with the collection."""
        return self.backbone.name

    @property
    def fingerprint(self) -> str:
        """Changes with every :meth:`add` and :meth:`delete`, whichever process makes it; one request."""
        return self._collection.fingerprint

    @property
    def ids(self) -> list[str]:
        """The ids, in no order; reads the whole collection."""
        return self._collection.ids()

    def __len__(self) -> int:
        return self._collection.count()

    # --- copies ---------------------------------------------------------------------------

    def __deepcopy__(self, memo: dict[int, Any]) -> QdrantFirstStage:
        # The model is shared, and so are the documents, which are those of everybody who opens the collection.
        return self.__copy__()

    def __copy__(self) -> QdrantFirstStage:
        twin = object.__new__(type(self))
        twin.__dict__ = self.__dict__.copy()
        return twin

    def __getstate__(self) -> dict[str, Any]:
        # Tied to an event loop of this process.
        return {**self.__dict__, "async_client": None}
