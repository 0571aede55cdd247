"""Excise in LangChain chains, and what happens to an exclusion when a chain rewrites the query."""

from __future__ import annotations

import asyncio
import sys
from typing import Any

import pytest
from langchain_classic.chains import HypotheticalDocumentEmbedder, create_history_aware_retriever
from langchain_classic.chains.combine_documents import create_stuff_documents_chain
from langchain_classic.chains.retrieval import create_retrieval_chain
from langchain_classic.retrievers import ContextualCompressionRetriever, EnsembleRetriever, MultiQueryRetriever
from langchain_core.callbacks import BaseCallbackHandler
from langchain_core.documents import Document
from langchain_core.embeddings import DeterministicFakeEmbedding
from langchain_core.language_models import FakeListChatModel
from langchain_core.messages import AIMessage, HumanMessage
from langchain_core.output_parsers import StrOutputParser
from langchain_core.prompts import ChatPromptTemplate, MessagesPlaceholder
from langchain_core.runnables import Runnable, RunnableConfig, RunnableLambda, RunnablePassthrough
from langchain_core.tools import create_retriever_tool
from langchain_core.vectorstores import InMemoryVectorStore, VectorStoreRetriever

from excise_integrations import Candidate, Excise
from excise_integrations.first_stage.memory import MemoryFirstStage
from excise_integrations.langchain import ExciseCompressor, ExciseRetriever, excluding

QUERY = "animals that people keep as pets, but not dogs"
REWRITTEN = "animals that people keep as pets"
IMAGINED = "Many animals are kept as pets in houses; they live with people, are fed by them and sleep there."
DOGS: RunnableConfig = {"configurable": {"exclude": ["dogs"]}}


@pytest.fixture
def retriever(animals: list[Candidate], excise_rules: Excise) -> ExciseRetriever:
    stage = MemoryFirstStage.from_candidates(animals, backbone=excise_rules.backbone)
    return ExciseRetriever(first_stage=stage, excise=excise_rules, k=7)


@pytest.fixture
def plain(animals: list[Candidate]) -> VectorStoreRetriever:
    """A retriever that knows nothing of exclusions."""
    store = InMemoryVectorStore(DeterministicFakeEmbedding(size=8))
    store.add_documents([Document(id=c.id, page_content=c.text) for c in animals])
    return store.as_retriever()


def model(*answers: str) -> FakeListChatModel:
    return FakeListChatModel(responses=list(answers))


def ids(documents: list[Document]) -> list[str | None]:
    return [d.id for d in documents]


def both_ways(runnable: Runnable[Any, Any], value: Any, config: Any = None, **arguments: Any) -> list[str | None]:
    """Invoke synchronously and asynchronously, check that the answers agree, and return the ids."""
    found = ids(runnable.invoke(value, config, **arguments))
    assert sorted(map(str, ids(asyncio.run(runnable.ainvoke(value, config, **arguments))))) == sorted(map(str, found))
    return found


class Prompts(BaseCallbackHandler):
    def __init__(self) -> None:
        self.texts: list[str] = []
        self.events: list[Any] = []

    def on_chat_model_start(self, serialized: Any, messages: Any, **kwargs: Any) -> None:
        self.texts.append("\n".join(str(m.content) for m in messages[0]))

    def on_custom_event(self, name: str, data: Any, **kwargs: Any) -> None:
        self.events.append((name, data["fired"]))


# --- a chain of one's own -----------------------------------------------------------------------


def test_lcel_chain(retriever: ExciseRetriever) -> None:
    def joined(documents: list[Document]) -> str:
        return "\n".join(d.page_content for d in documents)

    prompt = ChatPromptTemplate.from_template("Answer from this:\n{context}\n\nQuestion: {question}")
    context: Runnable[str, Any] = retriever | joined
    chain = {"context": context, "question": RunnablePassthrough()} | prompt | model("Cats.") | StrOutputParser()
    seen = Prompts()
    assert chain.invoke(QUERY, {"callbacks": [seen]}) == "Cats."
    assert asyncio.run(chain.ainvoke(QUERY, {"callbacks": [seen]})) == "Cats."
    assert "".join(chain.stream(QUERY, {"callbacks": [seen]})) == "Cats."
    assert len(seen.texts) == 3
    for text in seen.texts:
        assert "domestic cat" in text
        assert "descendant of the wolf" not in text
    assert seen.events == [("excise_detection", True)] * 3
    chain.invoke(REWRITTEN, {"callbacks": [seen]})
    assert "descendant of the wolf" in seen.texts[-1]


def test_retriever_tool(retriever: ExciseRetriever) -> None:
    tool = create_retriever_tool(retriever, "pets", "Searches texts on pets.")
    assert "wolf" not in tool.invoke({"query": QUERY})
    assert "wolf" in tool.invoke({"query": REWRITTEN})
    with excluding(["dogs"]):
        assert "wolf" not in tool.invoke({"query": REWRITTEN})
        assert "wolf" not in asyncio.run(tool.ainvoke({"query": REWRITTEN}))


# --- question condensing --------------------------------------------------------------------------


def history_aware(retriever: Any) -> Any:
    prompt = ChatPromptTemplate.from_messages([MessagesPlaceholder("chat_history"), ("human", "{input}")])
    return create_history_aware_retriever(model(REWRITTEN), retriever, prompt)


TURN = {
    "input": "And which of them do people keep as pets? Still no dogs, please.",
    "chat_history": [HumanMessage("Tell me about animals."), AIMessage("Gladly.")],
}


def test_condensed_question_keeps_the_exclusion(retriever: ExciseRetriever) -> None:
    chain = history_aware(retriever)
    # The condensed question has lost it.
    assert "dog" in both_ways(chain, TURN)
    assert "dog" not in both_ways(chain, TURN, DOGS)
    with excluding(["dogs"]):
        assert "dog" not in both_ways(chain, TURN)
    assert "dog" not in both_ways(history_aware(retriever.bind(exclude=["dogs"])), TURN)
    assert "dog" not in both_ways(history_aware(retriever.model_copy(update={"exclude": ["dogs"]})), TURN)
    assert "dog" in both_ways(chain, TURN)


def test_the_users_own_words_can_be_asked_for_topics(retriever: ExciseRetriever) -> None:
    detection = retriever.excise.detect(QUERY)
    with excluding([span.text for span in detection.spans]):
        found = history_aware(retriever).invoke(TURN)
    assert "dog" not in ids(found)
    assert found[0].metadata["excise"]["source"] == "caller"


def test_retrieval_chain_with_history(retriever: ExciseRetriever) -> None:
    prompt = ChatPromptTemplate.from_template("{context}\n{input}")
    chain = create_retrieval_chain(history_aware(retriever), create_stuff_documents_chain(model("Cats."), prompt))
    seen = Prompts()
    answer = chain.invoke(TURN, {**DOGS, "callbacks": [seen]})
    assert answer["answer"] == "Cats."
    assert "dog" not in ids(answer["context"])
    assert "wolf" not in seen.texts[-1]
    assert "excise" not in seen.texts[-1]


# --- multi-query --------------------------------------------------------------------------------------


def multi_query(retriever: Any) -> MultiQueryRetriever:
    return MultiQueryRetriever.from_llm(retriever, model(f"{REWRITTEN}\nhouse pets and their keepers"))


def test_multi_query_inside(retriever: ExciseRetriever, plain: VectorStoreRetriever, excise_rules: Excise) -> None:
    plain.search_kwargs["k"] = 8
    over = ExciseRetriever(base_retriever=multi_query(plain), excise=excise_rules)
    found = both_ways(over, QUERY)
    assert sorted(map(str, found)) == ["cat", "goldfish", "hamster", "horse", "parrot", "rabbit", "tortoise"]
    assert over.invoke(QUERY)[0].metadata["excise"]["source"] == "detector"


def test_multi_query_outside(retriever: ExciseRetriever) -> None:
    alone = multi_query(retriever)
    chain: Runnable[str, Any] = RunnableLambda(lambda query: query) | alone
    assert "dog" in both_ways(alone, QUERY)
    with excluding(["dogs"]):
        assert "dog" not in both_ways(alone, QUERY)
        assert "dog" not in both_ways(chain, QUERY)
    assert "dog" not in ids(chain.invoke(QUERY, DOGS))
    if sys.version_info >= (3, 11):
        assert "dog" not in ids(asyncio.run(chain.ainvoke(QUERY, DOGS)))
    assert "dog" not in both_ways(multi_query(retriever.model_copy(update={"exclude": ["dogs"]})), QUERY)


def test_multi_query_drops_repeats_without_annotation(retriever: ExciseRetriever) -> None:
    annotated = both_ways(multi_query(retriever), QUERY)
    bare = both_ways(multi_query(retriever.model_copy(update={"annotate": False})), QUERY)
    assert len(annotated) > len(set(annotated))
    assert sorted(map(str, bare)) == sorted(map(str, set(annotated)))


# --- hypothetical documents -----------------------------------------------------------------------------


def test_hyde_chain(retriever: ExciseRetriever) -> None:
    prompt = ChatPromptTemplate.from_template("Write a passage that answers: {question}")

    def chain(last: Any) -> Any:
        return prompt | model(IMAGINED) | StrOutputParser() | last

    question = {"question": QUERY}
    assert "dog" in both_ways(chain(retriever), question)
    assert "dog" not in both_ways(chain(retriever), question, DOGS)
    assert "dog" not in both_ways(chain(retriever.bind(exclude=["dogs"])), question)
    with excluding(["dogs"]):
        assert "dog" not in both_ways(chain(retriever), question)


def test_hyde_embeddings_inside(animals: list[Candidate], excise_rules: Excise) -> None:
    hyde = HypotheticalDocumentEmbedder.from_llm(
        model(IMAGINED), DeterministicFakeEmbedding(size=8), prompt_key="web_search"
    )
    store = InMemoryVectorStore(hyde)
    store.add_documents([Document(id=c.id, page_content=c.text) for c in animals])
    found = both_ways(ExciseRetriever(base_retriever=store.as_retriever(), excise=excise_rules), QUERY)
    assert len(found) == 7
    assert "dog" not in found


# --- after another retriever ---------------------------------------------------------------------------------


def test_contextual_compression(plain: VectorStoreRetriever, excise_rules: Excise) -> None:
    plain.search_kwargs["k"] = 8
    compression = ContextualCompressionRetriever(
        base_compressor=ExciseCompressor(excise=excise_rules), base_retriever=plain
    )
    seen = Prompts()
    found = compression.invoke(QUERY, {"callbacks": [seen]})
    assert sorted(map(str, ids(found))) == ["cat", "goldfish", "hamster", "horse", "parrot", "rabbit", "tortoise"]
    assert ids(found) == both_ways(compression, QUERY)
    assert seen.events == [("excise_detection", True)]
    chain: Runnable[str, Any] = RunnableLambda(lambda query: query) | compression
    assert "dog" in both_ways(chain, REWRITTEN)
    assert "dog" not in ids(chain.invoke(REWRITTEN, DOGS))
    with excluding(["dogs"]):
        assert "dog" not in both_ways(compression, REWRITTEN)


def test_compression_passes_keywords_to_an_excise_retriever(retriever: ExciseRetriever, excise_rules: Excise) -> None:
    compression = ContextualCompressionRetriever(
        base_compressor=ExciseCompressor(excise=excise_rules, exclude=[]), base_retriever=retriever
    )
    assert "dog" not in both_ways(compression, REWRITTEN, exclude=["dogs"])
    assert len(both_ways(compression, REWRITTEN, k=2)) == 2


def test_over_an_ensemble(plain: VectorStoreRetriever, excise_rules: Excise) -> None:
    plain.search_kwargs["k"] = 8
    over = ExciseRetriever(
        base_retriever=EnsembleRetriever(retrievers=[plain, plain], weights=[0.5, 0.5]), excise=excise_rules
    )
    found = both_ways(over, QUERY)
    assert len(found) == 7
    assert "dog" not in found
