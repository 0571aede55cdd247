"""The LlamaIndex retriever."""

from __future__ import annotations

import inspect
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from llama_index.core.base.base_retriever import BaseRetriever
from llama_index.core.callbacks import CallbackManager
from llama_index.core.ingestion import run_transformations
from llama_index.core.schema import (
    BaseNode,
    Document,
    IndexNode,
    MetadataMode,
    NodeWithScore,
    QueryBundle,
    QueryType,
    TransformComponent,
)
from llama_index.core.settings import Settings

from ._llama_index_events import announced
from ._llama_index_nodes import check_base_nodes, grouping, nodes_of
from ._llama_index_query import checked_topics, equalities, read_query
from ._llama_index_stage import RetrieverStage, add_nodes, changeable
from .errors import InvalidInputError
from .first_stage.base import FirstStage
from .pipeline import Excise
from .types import ExciseResult

__all__ = ["ExciseRetriever"]


class ExciseRetriever(BaseRetriever):
    """Retrieve, and obey what the query does not want.

    The shortlist comes from a first stage or from any LlamaIndex retriever, which is asked for the whole of
    it (100 nodes). When nothing is excluded, the nodes are exactly the shortlist's top ones, in its order and with its
    scores. ``retrieve`` takes a string, a ``QueryBundle`` or an :class:`ExciseQuery`; how an exclusion gets
    past query rewriting is told there and in :func:`excluding`. HyDE's hypothetical documents steer a
    ``base_retriever`` that embeds them; a first stage searches the query's own text.

    Args:
        first_stage: where the shortlist comes from; this or ``base_retriever``.
        base_retriever: any LlamaIndex retriever; it is not changed.
        excise: the pipeline; None loads ``model``.
        model: what :meth:`Excise.from_pretrained` loads when ``excise`` is None; None is the first stage's
            own checkpoint, else the embedded default.
        similarity_top_k: how many nodes to return, at least 1.
        k: the same under its shorter name; it wins.
        shortlist: how many the first stage is asked for (more, if ``similarity_top_k`` needs it); None takes
            ``excise.config.k``.
        exclude: excluded topics of every query that names none itself; ``[]`` switches Excise off.
        callback_manager, object_map, objects, verbose: as for every LlamaIndex retriever.
        **settings: with ``excise``, fields of :class:`ExciseConfig` that replace its own; without, also the
            other arguments of :meth:`Excise.from_pretrained` (``detector``, ``device``, …).

    Raises:
        InvalidInputError: neither or both sources, a bad ``similarity_top_k``, or a setting out of range.
    """

    def __init__(
        self,
        *,
        first_stage: FirstStage | None = None,
        base_retriever: BaseRetriever | None = None,
        excise: Excise | None = None,
        model: str | Path | None = None,
        similarity_top_k: int = 10,
        k: int | None = None,
        shortlist: int | None = None,
        exclude: Sequence[str] | None = None,
        callback_manager: CallbackManager | None = None,
        object_map: dict[str, Any] | None = None,
        objects: list[IndexNode] | None = None,
        verbose: bool = False,
        **settings: Any,
    ) -> None:
        if (first_stage is None) == (base_retriever is None):
            raise InvalidInputError("Give either first_stage or base_retriever: one of them makes the shortlist.")
        if first_stage is not None and not isinstance(first_stage, FirstStage):
            raise InvalidInputError(f"first_stage={first_stage!r} has no search(query, k, *, filter) and fingerprint.")
        if base_retriever is not None and not isinstance(base_retriever, BaseRetriever):
            raise InvalidInputError(f"base_retriever={base_retriever!r} is not a LlamaIndex BaseRetriever.")
        self.similarity_top_k = similarity_top_k if k is None else k
        self.exclude = checked_topics(exclude)
        self.first_stage = first_stage
        self.base_retriever = base_retriever
        # An index knows the checkpoint that its vectors come from; only that one compares with them.
        own = getattr(first_stage, "checkpoint", None) if excise is None and model is None else None
        self.excise = _pipeline(excise, own or model, settings if shortlist is None else {**settings, "k": shortlist})
        self._nodes: dict[str, BaseNode] = {}
        super().__init__(callback_manager=callback_manager, object_map=object_map, objects=objects, verbose=verbose)

    @property
    def similarity_top_k(self) -> int:
        """How many nodes are returned."""
        return self._similarity_top_k

    @similarity_top_k.setter
    def similarity_top_k(self, value: int) -> None:
        if not isinstance(value, int) or isinstance(value, bool) or value < 1:
            raise InvalidInputError(f"similarity_top_k={value!r} must be an integer of at least 1.")
        self._similarity_top_k = value

    # --- construction -------------------------------------------------------------------

    @classmethod
    def from_texts(
        cls,
        texts: Sequence[str],
        *,
        ids: Sequence[str] | None = None,
        metadatas: Sequence[Mapping[str, Any]] | None = None,
        excise: Excise | None = None,
        model: str | Path | None = None,
        progress: bool = True,
        **keywords: Any,
    ) -> ExciseRetriever:
        """Encode texts and search them in memory: no index is needed.

        Args:
            texts: passages, none blank.
            ids: one unique id per text, the nodes' ids; None numbers them.
            metadatas: one mapping per text; ``document_id`` in it groups passages of one document.
            progress: whether a progress bar is shown.
            excise, model, **keywords: ``similarity_top_k`` and the other arguments of the class.
        """
        from .first_stage.memory import MemoryFirstStage

        own = {name: keywords.pop(name) for name in list(keywords) if name in _OWN}
        excise = _pipeline(excise, model, keywords)
        stage = MemoryFirstStage.from_texts(
            texts, ids=ids, metadatas=metadatas, backbone=excise.backbone, progress=progress
        )
        return cls(first_stage=stage, excise=excise, **own)

    @classmethod
    def from_nodes(cls, nodes: Sequence[BaseNode], *, progress: bool = True, **keywords: Any) -> ExciseRetriever:
        """Encode nodes and search them in memory; copies of these nodes are what ``retrieve`` returns.

        Args:
            nodes: nodes with unique ids; what is encoded is their text as an embedding model sees it.
            progress, **keywords: as in :meth:`from_texts`.
        """
        check_base_nodes(nodes)
        retriever = cls.from_texts(
            [node.get_content(metadata_mode=MetadataMode.EMBED) for node in nodes],
            ids=[node.node_id for node in nodes],
            metadatas=[{**grouping(node), **node.metadata} for node in nodes],
            progress=progress,
            **keywords,
        )
        retriever._nodes = {node.node_id: node for node in nodes}
        return retriever

    @classmethod
    def from_documents(
        cls,
        documents: Sequence[Document],
        *,
        transformations: Sequence[TransformComponent] | None = None,
        progress: bool = True,
        **keywords: Any,
    ) -> ExciseRetriever:
        """Cut documents into nodes and search them in memory.

        Args:
            documents: LlamaIndex documents, none without text.
            transformations: what cuts them, as for LlamaIndex's indexes; None takes
                ``Settings.transformations``, ``[]`` keeps every document whole.
            progress, **keywords: as in :meth:`from_texts`.
        """
        check_base_nodes(documents)
        for document in documents:
            if not document.get_content().strip():
                raise InvalidInputError(f"The document {document.node_id!r} has no text; drop it or give its text.")
        steps = Settings.transformations if transformations is None else transformations
        nodes = run_transformations(list(documents), list(steps), in_place=False, show_progress=False)
        return cls.from_nodes(nodes, progress=progress, **keywords)

    @classmethod
    def from_ragatouille(
        cls,
        index: str | Path | Any,
        *,
        checkpoint: str | Path | None = None,
        one_per_document: bool = False,
        **keywords: Any,
    ) -> ExciseRetriever:
        """Search a RAGatouille index; the nodes' ids are passage ids, ``document_id`` is in their metadata.

        Args:
            index: the index folder, or a ``RAGPretrainedModel`` that has loaded or built one.
            checkpoint: where the checkpoint that built the index is now, if it was moved.
            one_per_document: return each document's best passage only.
            **keywords: ``similarity_top_k`` and the other arguments of the class; without ``excise`` and
                ``model``, the index's own checkpoint is the backbone.

        Raises:
            MissingExtraError: RAGatouille is not installed.
            IndexDamagedError: there is no index, or it would return wrong texts.
        """
        from .first_stage.ragatouille import RagatouilleFirstStage

        on_disk = isinstance(index, (str, Path))
        opened = RagatouilleFirstStage.from_index if on_disk else RagatouilleFirstStage.from_model
        stage = opened(index, checkpoint=checkpoint, one_per_document=one_per_document)
        return cls(first_stage=stage, **keywords)

    # --- change ---------------------------------------------------------------------------

    def add(self, nodes: Sequence[BaseNode]) -> list[str]:
        """Add nodes to the first stage, which stays searchable.

        Args:
            nodes: nodes whose ids are not in it yet. For a RAGatouille index every node is a document,
                which it may cut into passages, and metadata are plain JSON types.

        Returns:
            Their ids in the first stage.

        Raises:
            InvalidInputError: the first stage cannot be changed, or a node cannot be used.
        """
        ids, keeps = add_nodes(changeable(self.first_stage, "add"), nodes)
        if keeps:
            self._nodes.update((node.node_id, node) for node in nodes)
        return ids

    def delete(self, ids: Sequence[str]) -> None:
        """Delete from the first stage by id, as :meth:`add` returned it.

        Args:
            ids: node ids; of a RAGatouille index document ids, whose passages all go.

        Raises:
            InvalidInputError: the first stage cannot be changed, or an id is unknown.
        """
        if isinstance(ids, str):
            raise InvalidInputError(f"ids={ids!r} is a string; give a list of ids: [{ids!r}].")
        changeable(self.first_stage, "delete").delete(list(ids))
        for i in ids:
            self._nodes.pop(i, None)

    # --- retrieval ------------------------------------------------------------------------

    def explain(self, query: QueryType) -> ExciseResult:
        """Return the whole result of a query, given as to ``retrieve``: also what was removed, and why."""
        return self._search(_bundle(query))[0]

    async def aexplain(self, query: QueryType) -> ExciseResult:
        """Return what :meth:`explain` does without blocking the event loop."""
        return (await self._asearch(_bundle(query)))[0]

    def _retrieve(self, query_bundle: QueryBundle) -> list[NodeWithScore]:
        return nodes_of(*self._search(query_bundle))

    async def _aretrieve(self, query_bundle: QueryBundle) -> list[NodeWithScore]:
        return nodes_of(*await self._asearch(query_bundle))

    def _search(self, bundle: QueryBundle) -> tuple[ExciseResult, Mapping[str, BaseNode]]:
        text, stage, nodes, keywords = self._asked(bundle)
        return announced(self.excise.search(text, stage, **keywords)), nodes

    async def _asearch(self, bundle: QueryBundle) -> tuple[ExciseResult, Mapping[str, BaseNode]]:
        text, stage, nodes, keywords = self._asked(bundle)
        return announced(await self.excise.asearch(text, stage, **keywords)), nodes

    def _asked(self, bundle: QueryBundle) -> tuple[str, FirstStage, Mapping[str, BaseNode], dict[str, Any]]:
        request = read_query(bundle)
        topics = self.exclude if request.exclude is None else request.exclude
        keywords: dict[str, Any] = {"k": self.similarity_top_k, "exclude": topics}
        if self.base_retriever is not None:
            stage = RetrieverStage(self.base_retriever, bundle, request.filters)
            return request.text, stage, stage.nodes, keywords
        assert self.first_stage is not None
        return request.text, self.first_stage, self._nodes, {**keywords, "filter": equalities(request.filters)}


_OWN = frozenset(inspect.signature(ExciseRetriever).parameters) - {"first_stage", "base_retriever", "settings"}


def _bundle(query: QueryType) -> QueryBundle:
    return query if isinstance(query, QueryBundle) else QueryBundle(query)


def _pipeline(excise: Excise | None, model: str | Path | None, settings: Mapping[str, Any]) -> Excise:
    if excise is None:
        return Excise.from_pretrained(model or "minilm", **settings)
    if model is not None:
        raise InvalidInputError(f"model={model!r} and excise were both given; give one of them.")
    if not isinstance(excise, Excise):
        raise InvalidInputError(f"excise={excise!r} is a {type(excise).__name__}, not an Excise.")
    return excise.with_config(**settings) if settings else excise
