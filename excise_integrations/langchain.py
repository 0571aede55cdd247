"""LangChain: a retriever over any first stage or retriever, and a compressor for after any retriever.

What a query excludes gets lost when something rewrites the query first. Three ways around:

* The rewriting is inside: ``ExciseRetriever(base_retriever=MultiQueryRetriever.from_llm(...))`` (or a
  vector store with HyDE embeddings). Excise sees the user's own query, the rewritten ones only bring
  the shortlist. Nothing more is needed.
* The rewriting is outside, in a chain: ``chain.invoke(..., config={"configurable": {"exclude": [...]}})``.
  The config goes down to every step that is a runnable of the chain: ``prompt | llm | parser | retriever``
  (HyDE), ``create_history_aware_retriever``, ``create_retrieval_chain``, and, within a chain,
  MultiQueryRetriever and ContextualCompressionRetriever.
* Anywhere at all, also where no config is passed on (MultiQueryRetriever and
  ContextualCompressionRetriever invoked by themselves; asynchronous chains on Python 3.10):
  ``with excluding([...]): ...``.

``retriever.bind(exclude=[...])`` and the field ``exclude`` fix topics once for all calls. Where several
are given, the keyword wins, then the config, then ``excluding``, then the field, then the detector.
"""

from __future__ import annotations

from .errors import MissingExtraError

try:
    import langchain_core  # noqa: F401
except ImportError as error:
    raise MissingExtraError("langchain-core", "langchain") from error

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, cast

from langchain_core.callbacks import AsyncCallbackManagerForRetrieverRun, CallbackManagerForRetrieverRun, Callbacks
from langchain_core.documents import Document
from langchain_core.retrievers import BaseRetriever
from langchain_core.runnables import Runnable, RunnableConfig
from pydantic import Field, StrictInt, model_validator

from ._langchain_compressor import ExciseCompressor
from ._langchain_documents import RetrieverStage, candidate_ids, fill_ids, to_documents
from ._langchain_exclude import excluding, requested_topics
from ._langchain_settings import CONFIG, Settings, adispatch, dispatch
from .errors import InvalidInputError
from .first_stage.base import FirstStage
from .pipeline import Excise
from .types import ExciseResult

__all__ = ["ExciseCompressor", "ExciseRetriever", "excluding"]


class ExciseRetriever(Settings, BaseRetriever):
    """Exclusion-aware retriever: ``retriever.invoke("electric cars, but not Tesla")``.

    Takes exactly one of ``first_stage`` and ``base_retriever``. Every returned document carries the
    verdict in ``metadata["excise"]``, and every call sends a custom event ``"excise_detection"``.

    A wrapped retriever is asked for the whole shortlist (``shortlist``, by default 100 documents):
    through its ``search_kwargs``, its field ``k`` or a keyword ``k``, whichever it has, always on a
    copy. A ``filter`` goes the same way and is refused where there is none. ``exclude`` never goes
    to it. Documents are never changed: copies come back, and what has no id stays without.
    """

    model_config = CONFIG

    first_stage: FirstStage | None = None
    """Where the shortlist comes from."""
    base_retriever: Runnable[str, list[Document]] | None = None
    """Any LangChain retriever in place of a first stage."""
    k: StrictInt = Field(default=10, ge=1)
    """How many documents are returned."""
    shortlist: StrictInt | None = Field(default=None, ge=1)
    """How many the first stage is asked for (more, if ``k`` needs it); None takes ``excise.config.k``."""

    @model_validator(mode="after")
    def _one_source(self) -> ExciseRetriever:
        if (self.first_stage is None) == (self.base_retriever is None):
            raise ValueError(
                "give exactly one of first_stage and base_retriever, or use from_texts, from_documents or "
                "from_ragatouille."
            )
        return self

    # --- construction -------------------------------------------------------------------

    @classmethod
    def from_texts(
        cls,
        texts: Sequence[str],
        *,
        ids: Sequence[str] | None = None,
        metadatas: Sequence[Mapping[str, Any]] | None = None,
        excise: Excise | None = None,
        progress: bool = True,
        **fields: Any,
    ) -> ExciseRetriever:
        """Build a retriever over texts, held in memory.

        Args:
            texts: passages, none blank.
            ids: one unique id per text; None leaves the documents without ids.
            metadatas: one mapping per text, for filters and for the caller.
            excise: the pipeline, whose backbone also encodes the texts; None loads the embedded default.
            progress: whether a progress bar is shown.
            **fields: ``k`` and the other fields.

        Raises:
            InvalidInputError: a blank text, a repeated id, lists of different lengths, or a bad field.
        """
        from .first_stage.memory import MemoryFirstStage

        excise = excise or Excise.from_pretrained()
        stage = MemoryFirstStage.from_texts(
            texts,
            ids=fill_ids([None] * len(texts)) if ids is None else ids,
            metadatas=metadatas,
            backbone=excise.backbone,
            progress=progress,
        )
        return cls(first_stage=stage, excise=excise, **fields)

    @classmethod
    def from_documents(
        cls, documents: Sequence[Document], *, excise: Excise | None = None, progress: bool = True, **fields: Any
    ) -> ExciseRetriever:
        """Build a retriever over LangChain documents, held in memory.

        Args:
            documents: documents; their ids and metadata come back with them.
            excise, progress, **fields: as in :meth:`from_texts`.
        """
        ids = candidate_ids(documents)
        texts, metadatas = [d.page_content for d in documents], [d.metadata for d in documents]
        return cls.from_texts(texts, ids=ids, metadatas=metadatas, excise=excise, progress=progress, **fields)

    @classmethod
    def from_ragatouille(
        cls,
        index: Any,
        *,
        checkpoint: str | Path | None = None,
        one_per_document: bool = False,
        excise: Excise | None = None,
        **fields: Any,
    ) -> ExciseRetriever:
        """Build a retriever over a RAGatouille index. The documents that come back are its passages.

        Args:
            index: the path of the index, or a ``RAGPretrainedModel`` that has one.
            checkpoint: for a path: where the checkpoint that built the index is now, if it was moved.
            one_per_document: return each document's best passage only.
            excise: the pipeline; None takes the index's own checkpoint as the backbone.
            **fields: ``k`` and the other fields.

        Raises:
            MissingExtraError: RAGatouille is not installed.
            IndexDamagedError: there is no index, or it would return wrong texts.
        """
        from .first_stage.ragatouille import RagatouilleFirstStage

        if isinstance(index, (str, Path)):
            stage = RagatouilleFirstStage.from_index(index, checkpoint=checkpoint, one_per_document=one_per_document)
        elif checkpoint is not None:
            raise InvalidInputError(f"checkpoint={str(checkpoint)!r} goes with a path; a model has its own checkpoint.")
        else:
            stage = RagatouilleFirstStage.from_model(index, one_per_document=one_per_document)
        return cls(first_stage=stage, **{**fields, "excise": excise})

    # --- change ---------------------------------------------------------------------------

    def add(self, documents: Sequence[Document]) -> list[str]:
        """Add documents to the first stage, which stays searchable.

        Args:
            documents: documents with ids that are not in it yet, or without ids.

        Returns:
            Their ids in the first stage.

        Raises:
            InvalidInputError: the first stage cannot be changed, or a document cannot be used.
        """
        stage = self._changeable("add")
        taken: list[str] = getattr(stage, "document_ids", None) or getattr(stage, "ids", [])
        ids = candidate_ids(documents, taken)
        stage.add([d.page_content for d in documents], ids=ids, metadatas=[d.metadata for d in documents])
        return ids

    def delete(self, ids: Sequence[str]) -> None:
        """Delete documents from the first stage by id, as :meth:`add` returned it.

        Args:
            ids: document ids; in a RAGatouille index all passages of the document go.

        Raises:
            InvalidInputError: as for :meth:`add`, or an id is unknown.
        """
        self._changeable("delete").delete(ids)

    def _changeable(self, method: str) -> Any:
        if not hasattr(self.first_stage, method):
            source = self.first_stage if self.first_stage is not None else self.base_retriever
            raise InvalidInputError(f"{type(source).__name__} has no method {method}; change its index directly.")
        return self.first_stage

    # --- retrieval ------------------------------------------------------------------------

    def explain(
        self, query: str, *, k: int | None = None, exclude: Sequence[str] | None = None, filter: Any = None
    ) -> ExciseResult:
        """Retrieve as :meth:`invoke` does and return the whole result: what was removed, and every verdict."""
        keywords = self._keywords({"k": k, "exclude": exclude, "filter": filter})
        return self._pipeline(k=self.shortlist).search(query, self._stage(None), **keywords)

    def invoke(
        self,
        input: str,
        config: RunnableConfig | None = None,
        *,
        k: int | None = None,
        exclude: Sequence[str] | None = None,
        filter: Any = None,
        **kwargs: Any,
    ) -> list[Document]:
        """Retrieve.

        Args:
            input: the query.
            config: LangChain's; ``config["configurable"]["exclude"]`` names topics for a whole chain.
            k: how many documents; None takes the field.
            exclude: topics named by the caller, who always wins; ``[]`` switches Excise off for this call.
            filter: passed to the first stage: metadata that every document must carry, or whatever a
                wrapped retriever takes.

        Returns:
            New documents, best first.

        Raises:
            ExciseError: the query or an argument cannot be used, or a part failed.
        """
        topics = requested_topics(exclude, config, None)
        return super().invoke(input, config, k=k, exclude=topics, filter=filter, **kwargs)

    async def ainvoke(
        self,
        input: str,
        config: RunnableConfig | None = None,
        *,
        k: int | None = None,
        exclude: Sequence[str] | None = None,
        filter: Any = None,
        **kwargs: Any,
    ) -> list[Document]:
        """Do what :meth:`invoke` does without blocking the event loop."""
        topics = requested_topics(exclude, config, None)
        return await super().ainvoke(input, config, k=k, exclude=topics, filter=filter, **kwargs)

    def _get_relevant_documents(
        self, query: str, *, run_manager: CallbackManagerForRetrieverRun, **kwargs: Any
    ) -> list[Document]:
        stage, keywords = self._stage(run_manager.get_child()), self._keywords(kwargs)
        result = self._pipeline(k=self.shortlist).search(query, stage, **keywords)
        dispatch(run_manager.get_child(), result)
        return to_documents(result, getattr(stage, "documents", None), annotate=self.annotate)

    async def _aget_relevant_documents(
        self, query: str, *, run_manager: AsyncCallbackManagerForRetrieverRun, **kwargs: Any
    ) -> list[Document]:
        stage, keywords = self._stage(run_manager.get_child()), self._keywords(kwargs)
        result = await self._pipeline(k=self.shortlist).asearch(query, stage, **keywords)
        await adispatch(run_manager.get_child(), result)
        return to_documents(result, getattr(stage, "documents", None), annotate=self.annotate)

    def _stage(self, callbacks: Callbacks) -> FirstStage:
        if self.first_stage is not None:
            return self.first_stage
        return RetrieverStage(cast("Runnable[str, list[Document]]", self.base_retriever), callbacks)

    def _keywords(self, given: Mapping[str, Any]) -> dict[str, Any]:
        unknown = sorted(set(given) - {"k", "exclude", "filter", "verbose"})
        if unknown:
            raise InvalidInputError(f"invoke takes k, exclude and filter; it was given {', '.join(unknown)}.")
        k = given.get("k")
        return {
            "k": self.k if k is None else k,
            "exclude": requested_topics(given.get("exclude"), None, self.exclude),
            "filter": given.get("filter"),
        }
