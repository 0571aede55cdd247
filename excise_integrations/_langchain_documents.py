"""LangChain documents as candidates and back, and a LangChain retriever as a first stage."""

from __future__ import annotations

import inspect
from collections.abc import Collection, Mapping, Sequence
from typing import Any

from langchain_core.callbacks import Callbacks
from langchain_core.documents import Document
from langchain_core.retrievers import BaseRetriever
from langchain_core.runnables import Runnable, RunnableConfig, run_in_executor
from langchain_core.runnables.base import RunnableBindingBase

from .errors import ExciseError, FirstStageError, InvalidInputError
from .types import Candidate, ExciseResult

__all__ = ["RetrieverStage", "candidate_ids", "fill_ids", "to_candidates", "to_documents"]

# Candidates need ids and LangChain documents may have none. Whoever sees this prefix gives None back.
_POSITION = "excise-position:"


def fill_ids(ids: Sequence[str | None], taken: Collection[str] = ()) -> list[str]:
    """Return the ids with a number that is not taken in place of each that is missing."""
    used = {*taken, *(i for i in ids if i is not None)}
    filled, number = [], 0
    for own in ids:
        while own is None and f"{_POSITION}{number}" in used:
            number += 1
        filled.append(f"{_POSITION}{number}" if own is None else own)
        used.add(filled[-1])
    return filled


def candidate_ids(documents: Sequence[Document], taken: Collection[str] = ()) -> list[str]:
    """Return one id per document: its own, or a number that is not taken yet.

    Raises:
        InvalidInputError: one of them is no document.
    """
    for rank, document in enumerate(documents, start=1):
        if not isinstance(document, Document):
            raise InvalidInputError(f"The document at rank {rank} is a {type(document).__name__}, not a Document.")
    return fill_ids([d.id for d in documents], taken)


def to_candidates(documents: Sequence[Document]) -> list[Candidate]:
    """Return the documents as a shortlist, in their order."""
    ids = candidate_ids(documents)
    return [Candidate(i, d.page_content, None, d.metadata) for i, d in zip(ids, documents, strict=True)]


def to_documents(
    result: ExciseResult, originals: Mapping[str, Document] | None = None, *, annotate: bool = True
) -> list[Document]:
    """Return new documents for the candidates of a result.

    Args:
        result: the result.
        originals: the documents that the candidates were made of, by candidate id; they are copied, not changed.
        annotate: whether the verdict is put under the metadata key ``"excise"``.
    """
    documents = []
    for candidate in result.candidates:
        metadata = {**candidate.metadata, "excise": result.metadata(candidate)} if annotate else {**candidate.metadata}
        original = (originals or {}).get(candidate.id)
        if original is not None:
            documents.append(original.model_copy(update={"metadata": metadata}))
        else:
            own = None if candidate.id.startswith(_POSITION) else candidate.id
            documents.append(Document(id=own, page_content=candidate.text, metadata=metadata))
    return documents


class RetrieverStage:
    """One call of a LangChain retriever as a first stage.

    Args:
        retriever: the retriever.
        callbacks: of the run that asks.
    """

    # Vectors are cached by text; there is no index whose rebuilding could change them.
    fingerprint = ""

    def __init__(self, retriever: Runnable[str, list[Document]], callbacks: Callbacks = None) -> None:
        self.retriever = retriever
        self.callbacks = callbacks
        self.documents: dict[str, Document] = {}

    def search(self, query: str, k: int, *, filter: Any = None) -> list[Candidate]:
        """Return the retriever's documents, at most ``k``."""
        runnable, keywords = _asked(self.retriever, "_get_relevant_documents", k, filter)
        try:
            found = runnable.invoke(query, self._config, **keywords)
        except Exception as error:
            raise self._failure(error) from error
        return self._shortlist(found, k)

    async def asearch(self, query: str, k: int, *, filter: Any = None) -> list[Candidate]:
        """Return what :meth:`search` would, through the retriever's own asynchronous way."""
        method = "_aget_relevant_documents"
        inherited = getattr(type(_innermost(self.retriever)), method, None) is BaseRetriever._aget_relevant_documents
        if inherited and _asked(self.retriever, "_get_relevant_documents", k, filter)[1]:
            # LangChain's default takes no keywords; a worker thread runs the synchronous way with them.
            return await run_in_executor(None, self.search, query, k, filter=filter)
        runnable, keywords = _asked(self.retriever, method, k, filter)
        try:
            found = await runnable.ainvoke(query, self._config, **keywords)
        except Exception as error:
            raise self._failure(error) from error
        return self._shortlist(found, k)

    @property
    def _config(self) -> RunnableConfig:
        return {"callbacks": self.callbacks}

    def _failure(self, error: Exception) -> ExciseError:
        if isinstance(error, ExciseError):
            return error
        return FirstStageError(f"The retriever {type(self.retriever).__name__} failed: {type(error).__name__}: {error}")

    def _shortlist(self, found: object, k: int) -> list[Candidate]:
        if not isinstance(found, (list, tuple)) or not all(isinstance(d, Document) for d in found):
            raise FirstStageError(
                f"The retriever {type(self.retriever).__name__} returned a {type(found).__name__}; "
                "a list of documents is needed."
            )
        documents = list(found[:k])
        candidates = to_candidates(documents)
        self.documents = {c.id: d for c, d in zip(candidates, documents, strict=True)}
        return candidates


def _innermost(retriever: Runnable[str, list[Document]]) -> Runnable[str, list[Document]]:
    while isinstance(retriever, RunnableBindingBase):
        retriever = retriever.bound
    return retriever


def _asked(
    retriever: Runnable[str, list[Document]], method: str, k: int, filter: Any
) -> tuple[Runnable[str, list[Document]], dict[str, Any]]:
    """Return a copy of a retriever that returns ``k`` documents, where it can, and the keywords of its call.

    Raises:
        InvalidInputError: a filter is given that the retriever cannot take.
    """
    if isinstance(retriever, RunnableBindingBase):
        inner, keywords = _asked(retriever.bound, method, k, filter)
        return retriever.model_copy(update={"bound": inner}), keywords
    if not isinstance(retriever, BaseRetriever):
        _refuse_filter(retriever, filter)
        return retriever, {}
    fields = type(retriever).model_fields
    update: dict[str, Any] = {"k": k} if "k" in fields else {}
    search = getattr(retriever, "search_kwargs", None)
    if "search_kwargs" in fields and isinstance(search, Mapping):
        # Vector store retrievers and their relatives return 4 unless told otherwise.
        update["search_kwargs"] = _search_kwargs(retriever, search, k, filter)
        return retriever.model_copy(update=update), {}
    parameters = inspect.signature(getattr(retriever, method)).parameters
    open_ended = any(p.kind is p.VAR_KEYWORD for p in parameters.values())
    keywords = {"k": k} if "k" in parameters or open_ended else {}
    if filter is not None:
        if "filter" not in parameters and not open_ended:
            _refuse_filter(retriever, filter)
        keywords["filter"] = filter
    return (retriever.model_copy(update=update) if update else retriever), keywords


def _search_kwargs(retriever: BaseRetriever, given: Mapping[str, Any], k: int, filter: Any) -> dict[str, Any]:
    search = {**given, "k": k}
    if str(getattr(retriever, "search_type", "")).endswith("mmr"):
        search["fetch_k"] = max(given.get("fetch_k", 20), k)
    if filter is not None:
        search["filter"] = _both(retriever, given.get("filter"), filter)
    return search


def _both(retriever: BaseRetriever, fixed: Any, asked: Any) -> Any:
    """Return a filter that keeps what the retriever was made with: it may be what keeps tenants apart."""
    if fixed is None or fixed == asked:
        return asked
    if isinstance(fixed, Mapping) and isinstance(asked, Mapping):
        joined = {**fixed, **asked}
        if all(joined[key] == value for key, value in fixed.items()):
            return joined
    raise InvalidInputError(
        f"filter={asked!r} cannot be joined with the filter {fixed!r} that the {type(retriever).__name__} was made "
        "with. Leave one of them out."
    )


def _refuse_filter(retriever: object, filter: Any) -> None:
    if filter is not None:
        raise InvalidInputError(
            f"filter={filter!r} was given, but {type(retriever).__name__} takes no filter. Filter inside that "
            "retriever, or use one that takes a filter."
        )
