"""The LangChain compressor."""

from __future__ import annotations

from collections.abc import Sequence

from langchain_core.callbacks import Callbacks
from langchain_core.documents import Document
from langchain_core.documents.compressor import BaseDocumentCompressor
from langchain_core.runnables import ensure_config
from langchain_core.runnables.config import get_async_callback_manager_for_config, get_callback_manager_for_config
from pydantic import Field, StrictInt

from ._langchain_documents import candidate_ids, to_candidates, to_documents
from ._langchain_exclude import requested_topics
from ._langchain_settings import CONFIG, Settings, adispatch, dispatch
from .types import ExciseResult

__all__ = ["ExciseCompressor"]


class ExciseCompressor(Settings, BaseDocumentCompressor):
    """Exclusion-aware re-ranking of documents that any retriever returned.

    For ``ContextualCompressionRetriever(base_compressor=ExciseCompressor(k=10), base_retriever=...)``; let the
    base retriever return many documents (a vector store's ``search_kwargs={"k": 100}``). That retriever passes
    keywords to its base retriever only, so topics are named with
    :func:`~excise_integrations.langchain.excluding`, with the field ``exclude`` or, in a chain, with
    ``config={"configurable": {"exclude": [...]}}``.
    """

    model_config = CONFIG

    k: StrictInt | None = Field(default=None, ge=1)
    """How many documents are returned; None returns all that are not removed."""

    def compress_documents(
        self,
        documents: Sequence[Document],
        query: str,
        callbacks: Callbacks | None = None,
        *,
        exclude: Sequence[str] | None = None,
    ) -> Sequence[Document]:
        """Re-rank documents.

        Args:
            documents: the shortlist in its order; never changed.
            query: the query.
            callbacks: LangChain's; they receive the event ``"excise_detection"``.
            exclude: topics named by the caller, who always wins; ``[]`` switches Excise off for this call.

        Returns:
            New documents, best first.

        Raises:
            ExciseError: the query, a document or an argument cannot be used, or a part failed.
        """
        if not documents:
            return []
        candidates = to_candidates(documents)
        topics = requested_topics(exclude, None, self.exclude)
        result = self._pipeline().rerank(query, candidates, k=self.k, exclude=topics)
        dispatch(get_callback_manager_for_config(ensure_config({"callbacks": callbacks})), result)
        return self._compressed(result, documents)

    async def acompress_documents(
        self,
        documents: Sequence[Document],
        query: str,
        callbacks: Callbacks | None = None,
        *,
        exclude: Sequence[str] | None = None,
    ) -> Sequence[Document]:
        """Do what :meth:`compress_documents` does without blocking the event loop."""
        if not documents:
            return []
        candidates = to_candidates(documents)
        topics = requested_topics(exclude, None, self.exclude)
        result = await self._pipeline().arerank(query, candidates, k=self.k, exclude=topics)
        await adispatch(get_async_callback_manager_for_config(ensure_config({"callbacks": callbacks})), result)
        return self._compressed(result, documents)

    def _compressed(self, result: ExciseResult, documents: Sequence[Document]) -> list[Document]:
        originals = dict(zip(candidate_ids(documents), documents, strict=True))
        return to_documents(result, originals, annotate=self.annotate)
