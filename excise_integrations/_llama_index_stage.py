"""A LlamaIndex retriever as a first stage, and LlamaIndex nodes into one."""

from __future__ import annotations

import asyncio
import contextlib
import copy
import inspect
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from llama_index.core.base.base_retriever import BaseRetriever
from llama_index.core.schema import BaseNode, MetadataMode, NodeWithScore, QueryBundle
from llama_index.core.vector_stores import MetadataFilters

from ._llama_index_nodes import candidates_of, check_base_nodes, grouping
from ._llama_index_query import flat
from .errors import ExciseError, FirstStageError, InvalidInputError
from .types import Candidate

__all__ = ["RetrieverStage", "add_nodes", "changeable"]


class RetrieverStage:
    """One call of a LlamaIndex retriever as a first stage.

    Args:
        retriever: the retriever; a copy of it is told how many nodes to return, where it can be.
        bundle: the query as it came; its image, embedding and embedding strings go to the retriever.
        filters: metadata that every node must have.
    """

    # Vectors are cached by text; there is no index whose rebuilding could change them.
    fingerprint = ""

    def __init__(self, retriever: BaseRetriever, bundle: QueryBundle, filters: MetadataFilters | None = None) -> None:
        self.retriever = retriever
        self.bundle = bundle
        self.filters = filters
        self.nodes: dict[str, BaseNode] = {}

    def search(self, query: str, k: int, *, filter: Mapping[str, Any] | None = None) -> list[Candidate]:
        """Return the retriever's nodes, at most ``k``; ``filter`` is not used (see ``filters``)."""
        retriever = self._prepared(k)
        with self._named():
            found = retriever.retrieve(self._bundle(query))
        return self._shortlist(found, k)

    async def asearch(self, query: str, k: int, *, filter: Mapping[str, Any] | None = None) -> list[Candidate]:
        """Return what :meth:`search` would, without blocking the event loop."""
        retriever = self._prepared(k)
        with self._named():
            if type(retriever)._aretrieve is BaseRetriever._aretrieve:
                # LlamaIndex's default runs the synchronous search on the event loop.
                found = await asyncio.to_thread(retriever.retrieve, self._bundle(query))
            else:
                found = await retriever.aretrieve(self._bundle(query))
        return self._shortlist(found, k)

    @contextlib.contextmanager
    def _named(self) -> Iterator[None]:
        """Name the retriever in whatever it raises."""
        try:
            yield
        except ExciseError:
            raise
        except Exception as error:
            raise FirstStageError(
                f"The retriever {type(self.retriever).__name__} failed: {type(error).__name__}: {error}"
            ) from error

    def _bundle(self, query: str) -> QueryBundle:
        # A new one: retrievers write their embedding into the bundle, and the caller's stays as it is.
        return QueryBundle(
            query_str=query,
            image_path=self.bundle.image_path,
            custom_embedding_strs=self.bundle.custom_embedding_strs,
            embedding=self.bundle.embedding,
        )

    def _prepared(self, k: int) -> BaseRetriever:
        retriever = self.retriever
        # Both names are the framework's convention; several retrievers have only the second.
        name = next((n for n in ("similarity_top_k", "_similarity_top_k") if hasattr(retriever, n)), None)
        if name is not None and getattr(retriever, name) != k:
            retriever = copy.copy(retriever)
            with contextlib.suppress(AttributeError):  # a property without a setter: its own number stays
                setattr(retriever, name, k)
        if self.filters is not None:
            if not hasattr(retriever, "_filters"):
                raise InvalidInputError(
                    f"filters were given, but {type(retriever).__name__} takes none at query time. Filter inside that "
                    "retriever, or use one that takes filters."
                )
            retriever = copy.copy(retriever)
            # Joined, not replaced: what the retriever was made with may be what keeps tenants apart.
            retriever._filters = flat(retriever._filters, self.filters)
        return retriever

    def _shortlist(self, found: object, k: int) -> list[Candidate]:
        if not isinstance(found, (list, tuple)) or not all(isinstance(n, NodeWithScore) for n in found):
            raise FirstStageError(
                f"The retriever {type(self.retriever).__name__} returned a {type(found).__name__}; "
                "a list of NodeWithScore is needed."
            )
        nodes = list(found[:k])
        self.nodes.update((n.node.node_id, n.node) for n in nodes)
        return candidates_of(nodes)


def changeable(stage: object, method: str) -> Any:
    """Return a first stage that has a method; raise :class:`InvalidInputError` when it has not."""
    if not hasattr(stage, method):
        raise InvalidInputError(
            f"The shortlist comes from {'a retriever' if stage is None else type(stage).__name__}, which has no method "
            f"{method}; change its index directly."
        )
    return stage


def add_nodes(stage: Any, nodes: Sequence[BaseNode]) -> tuple[list[str], bool]:
    """Add nodes to a first stage.

    Returns:
        Their ids there, and whether it returns candidates under the nodes' own ids.
    """
    check_base_nodes(nodes)
    # A RAGatouille index makes its own passages: their text comes back, so it is the bare text.
    # Elsewhere the nodes come back, and what is searched is what an embedding model sees.
    keeps = "split_documents" not in inspect.signature(stage.add).parameters
    mode = MetadataMode.EMBED if keeps else MetadataMode.NONE
    ids: list[str] = stage.add(
        [node.get_content(metadata_mode=mode) for node in nodes],
        ids=[node.node_id for node in nodes],
        metadatas=[{**grouping(node), **node.metadata} for node in nodes],
    )
    return ids, keeps
