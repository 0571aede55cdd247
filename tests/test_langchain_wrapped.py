"""Any LangChain retriever as the first stage of ours."""

from __future__ import annotations

import asyncio
import copy
import threading
from collections.abc import Sequence
from typing import Any

import pytest
from langchain_core.documents import Document
from langchain_core.embeddings import DeterministicFakeEmbedding
from langchain_core.retrievers import BaseRetriever
from langchain_core.runnables import RunnableLambda
from langchain_core.vectorstores import InMemoryVectorStore

from excise_integrations import Candidate, Excise, ExciseError, FirstStageError, InvalidInputError
from excise_integrations.langchain import ExciseRetriever

QUERY = "animals that people keep as pets, but not dogs"
PLAIN = "animals that people keep as pets"
CALLS: list[dict[str, Any]] = []


class Field(BaseRetriever):
    """Takes ``k`` as a field only, as BM25Retriever does."""

    docs: list[Document]
    k: int = 2

    def _get_relevant_documents(self, query: str, *, run_manager: Any) -> list[Document]:
        CALLS.append({"k": self.k})
        return self.docs[: self.k]


class Keyword(BaseRetriever):
    """Takes ``k`` and ``filter`` as keywords, and has no asynchronous way of its own."""

    docs: list[Document]

    def _get_relevant_documents(
        self, query: str, *, run_manager: Any, k: int = 2, filter: Any = None
    ) -> list[Document]:
        CALLS.append({"k": k, "filter": filter})
        return self.docs[:k]


class Fixed(BaseRetriever):
    """Takes nothing, as MultiQueryRetriever does."""

    docs: list[Any]

    def _get_relevant_documents(self, query: str, *, run_manager: Any) -> list[Document]:
        return self.docs


class Open(Fixed):
    """Takes whatever comes; asynchronous by itself."""

    def _get_relevant_documents(self, query: str, *, run_manager: Any, **kwargs: Any) -> list[Document]:
        CALLS.append(kwargs)
        return self.docs

    async def _aget_relevant_documents(self, query: str, *, run_manager: Any, **kwargs: Any) -> list[Document]:
        CALLS.append({**kwargs, "thread": threading.current_thread() is threading.main_thread()})
        return self.docs


@pytest.fixture(autouse=True)
def _no_calls() -> None:
    CALLS.clear()


@pytest.fixture
def docs(animals: list[Candidate]) -> list[Document]:
    return [
        Document(id=None if c.id == "cat" else c.id, page_content=c.text, metadata={"name": c.id, "tags": [c.id]})
        for c in animals
    ]


def names(documents: Sequence[Document]) -> list[str]:
    return [d.metadata["name"] for d in documents]


def over(base: Any, excise: Excise, **fields: Any) -> ExciseRetriever:
    return ExciseRetriever(base_retriever=base, excise=excise, **fields)


def test_documents_come_back_as_copies(docs: list[Document], excise_rules: Excise) -> None:
    before = copy.deepcopy(docs)
    retriever = over(Fixed(docs=docs), excise_rules, k=5)
    fired, silent = retriever.invoke(QUERY), retriever.invoke(PLAIN)
    assert docs == before
    assert "dog" not in names(fired)
    assert names(silent) == [d.metadata["name"] for d in before[:5]]
    for found in (fired, silent):
        for document in found:
            original = next(d for d in before if d.metadata["name"] == document.metadata["name"])
            assert document.id == original.id
            assert document.page_content == original.page_content
            assert {k: v for k, v in document.metadata.items() if k != "excise"} == original.metadata
            assert document.metadata["excise"]["first_stage_score"] is None
    assert asyncio.run(retriever.ainvoke(QUERY)) == fired


def test_subclasses_of_document_survive(docs: list[Document], excise_rules: Excise) -> None:
    class Page(Document):
        number: int = 0

    pages = [Page(page_content=d.page_content, metadata=d.metadata, number=n) for n, d in enumerate(docs)]
    found = over(Fixed(docs=pages), excise_rules).invoke(PLAIN)
    assert [getattr(p, "number", None) for p in found] == list(range(8))


@pytest.mark.parametrize("asynchronous", [False, True])
def test_shortlist_is_asked_the_way_the_retriever_takes_it(
    docs: list[Document], excise_rules: Excise, asynchronous: bool
) -> None:
    def ask(base: Any, **arguments: Any) -> list[Document]:
        retriever = over(base, excise_rules, shortlist=50)
        if asynchronous:
            return asyncio.run(retriever.ainvoke(QUERY, exclude=["dogs"], **arguments))
        return retriever.invoke(QUERY, exclude=["dogs"], **arguments)

    field = Field(docs=docs)
    assert len(ask(field)) == len(ask(Keyword(docs=docs), filter={"a": 1})) == len(ask(Open(docs=docs))) == 7
    assert field.k == 2
    assert [call["k"] for call in CALLS] == [50, 50, 50]
    assert CALLS[1]["filter"] == {"a": 1}
    assert "exclude" not in CALLS[2]
    # Its own asynchronous way is used where it has one.
    assert CALLS[2].get("thread", False) is asynchronous


@pytest.mark.parametrize("search_type", ["similarity", "mmr"])
def test_vector_store(docs: list[Document], excise_rules: Excise, search_type: str) -> None:
    asked: list[dict[str, Any]] = []

    class Spy(InMemoryVectorStore):
        def similarity_search(self, query: str, k: int = 4, **kwargs: Any) -> list[Document]:
            asked.append({"k": k, **kwargs})
            return super().similarity_search(query, k, **kwargs)

        def max_marginal_relevance_search(
            self, query: str, k: int = 4, fetch_k: int = 20, lambda_mult: float = 0.5, **kwargs: Any
        ) -> list[Document]:
            asked.append({"k": k, "fetch_k": fetch_k})
            return super().max_marginal_relevance_search(query, k, fetch_k, lambda_mult, **kwargs)

    store = Spy(DeterministicFakeEmbedding(size=8))
    store.add_documents([d for d in docs if d.id])
    base = store.as_retriever(search_type=search_type, search_kwargs={"k": 3})
    retriever = over(base, excise_rules)
    assert set(names(retriever.invoke(QUERY))) == {d.id for d in docs if d.id} - {"dog"}
    assert asyncio.run(retriever.ainvoke(QUERY)) == retriever.invoke(QUERY)
    assert {call["k"] for call in asked} == {100}
    assert {call.get("fetch_k") for call in asked} == ({100} if search_type == "mmr" else {None})
    assert base.search_kwargs == {"k": 3}
    only = retriever.invoke(QUERY, filter=lambda d: d.id == "parrot")
    assert names(only) == ["parrot"]


def test_filters_join_or_are_refused(docs: list[Document], excise_rules: Excise) -> None:
    asked: list[Any] = []

    class Spy(InMemoryVectorStore):
        def similarity_search(self, query: str, k: int = 4, **kwargs: Any) -> list[Document]:
            asked.append(kwargs["filter"])
            return docs

    base = Spy(DeterministicFakeEmbedding(size=8)).as_retriever(search_kwargs={"filter": {"tenant": "a"}})
    retriever = over(base, excise_rules)
    retriever.invoke(PLAIN)
    retriever.invoke(PLAIN, filter={"year": 2020})
    assert asked == [{"tenant": "a"}, {"tenant": "a", "year": 2020}]
    for bad in ({"tenant": "b"}, "tenant == 'b'"):
        with pytest.raises(InvalidInputError, match="tenant"):
            retriever.invoke(PLAIN, filter=bad)
    for other in (Fixed(docs=docs), RunnableLambda[str, Any](lambda q: docs)):
        with pytest.raises(InvalidInputError, match="takes no filter"):
            over(other, excise_rules).invoke(PLAIN, filter={"year": 2020})
    assert len(asked) == 2


def test_bindings_are_looked_through(docs: list[Document], excise_rules: Excise) -> None:
    for wrapped in (Field(docs=docs).with_config(tags=["a"]), Keyword(docs=docs).with_retry()):
        retriever = over(wrapped, excise_rules)
        assert len(retriever.invoke(QUERY)) == len(asyncio.run(retriever.ainvoke(QUERY))) == 7
    assert {call["k"] for call in CALLS} == {100}
    assert len(over(RunnableLambda(lambda q: docs), excise_rules).invoke(QUERY)) == 7


def test_long_lists_are_cut_to_the_shortlist(excise_rules: Excise) -> None:
    many = [Document(page_content=f"Text number {n} of many.", metadata={"name": n}) for n in range(30)]
    assert len(over(Fixed(docs=many), excise_rules, shortlist=20, k=9).invoke(PLAIN, k=9)) == 9
    result = over(Fixed(docs=many), excise_rules, shortlist=20).explain(PLAIN, k=9)
    assert len(result.verdicts) == 20


def test_short_shortlist_is_a_warning(docs: list[Document], excise_rules: Excise) -> None:
    found = over(Fixed(docs=docs[:3]), excise_rules).invoke(QUERY)
    assert any("fewer than the 10" in w for w in found[0].metadata["excise"]["warnings"])
    assert over(Fixed(docs=[]), excise_rules).invoke(QUERY) == []


def test_unusable_documents_are_named(docs: list[Document], excise_rules: Excise) -> None:
    cases: list[tuple[list[Any], str]] = [
        ([docs[1], docs[2], docs[1]], "'dog' occurs twice"),
        ([*docs, Document(id="empty", page_content=" ")], "'empty'.*no text"),
        ([{"page_content": "text"}], "list of documents"),
    ]
    for found, message in cases:
        for query in (QUERY, PLAIN):
            with pytest.raises(ExciseError, match=message):
                over(Fixed(docs=found), excise_rules).invoke(query)


def test_failure_names_the_retriever(excise_rules: Excise) -> None:
    class Down(BaseRetriever):
        def _get_relevant_documents(self, query: str, *, run_manager: Any) -> list[Document]:
            raise ConnectionError("index is down")

    retriever = over(Down(), excise_rules)
    with pytest.raises(FirstStageError, match=r"Down failed.*index is down"):
        retriever.invoke(QUERY)
    with pytest.raises(FirstStageError, match=r"Down failed.*index is down"):
        asyncio.run(retriever.ainvoke(QUERY))


def test_a_blocking_retriever_leaves_the_loop_free(docs: list[Document], excise_rules: Excise) -> None:
    started, go = threading.Event(), threading.Event()

    class Slow(BaseRetriever):
        def _get_relevant_documents(self, query: str, *, run_manager: Any, k: int = 4) -> list[Document]:
            started.set()
            assert go.wait(timeout=20), "the event loop is blocked"
            return docs[:k]

    async def main() -> list[Document]:
        task = asyncio.ensure_future(over(Slow(), excise_rules).ainvoke(PLAIN))
        while not started.is_set():
            await asyncio.sleep(0.001)
        go.set()
        return await task

    assert len(asyncio.run(main())) == 8
