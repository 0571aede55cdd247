"""Excise inside LlamaIndex query engines, chat engines and query transforms, with scripted models."""

from __future__ import annotations

import asyncio
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

pytest.importorskip("llama_index.core")

from llama_index.core import VectorStoreIndex
from llama_index.core.base.llms.types import CompletionResponse, CompletionResponseGen, LLMMetadata
from llama_index.core.base.response.schema import RESPONSE_TYPE
from llama_index.core.bridge.pydantic import Field
from llama_index.core.chat_engine import CondensePlusContextChatEngine, CondenseQuestionChatEngine
from llama_index.core.embeddings import MockEmbedding
from llama_index.core.indices.query.query_transform import HyDEQueryTransform
from llama_index.core.llms import ChatMessage, CustomLLM, MockLLM
from llama_index.core.llms.callbacks import llm_completion_callback
from llama_index.core.query_engine import RetrieverQueryEngine, TransformQueryEngine
from llama_index.core.response_synthesizers import get_response_synthesizer
from llama_index.core.retrievers import QueryFusionRetriever, TransformRetriever
from llama_index.core.retrievers.fusion_retriever import FUSION_MODES
from llama_index.core.schema import NodeWithScore, TextNode
from llama_index.core.vector_stores import MetadataFilter, MetadataFilters

from excise_integrations import Candidate, Excise, IndexDamagedError
from excise_integrations.llama_index import ExcisePostprocessor, ExciseQuery, ExciseRetriever, excluding

if TYPE_CHECKING:
    from ragatouille_fixtures import RagatouilleIndex

WANTED = "small mammals kept as pets"
NOT_CATS = "small mammals kept as pets, but not cats"
REWRITTEN = "Which little pets are there?"
FROM_AFAR = MetadataFilters(filters=[MetadataFilter(key="legs", value="some")])


class Scripted(CustomLLM):
    """Answers every prompt with the same text, and keeps the prompts."""

    answer: str = REWRITTEN
    prompts: list[str] = Field(default_factory=list)

    @property
    def metadata(self) -> LLMMetadata:
        return LLMMetadata()

    @llm_completion_callback()
    def complete(self, prompt: str, formatted: bool = False, **_: Any) -> CompletionResponse:
        self.prompts.append(prompt)
        return CompletionResponse(text=self.answer)

    @llm_completion_callback()
    def stream_complete(self, prompt: str, formatted: bool = False, **_: Any) -> CompletionResponseGen:
        yield self.complete(prompt)


@pytest.fixture(scope="module")
def retrievers() -> list[ExciseRetriever]:
    """Keeps the one retriever of this file: encoding costs more than searching."""
    return []


@pytest.fixture
def nodes(animals: list[Candidate]) -> list[TextNode]:
    return [
        TextNode(id_=c.id, text=c.text, metadata={"legs": "none" if c.id == "goldfish" else "some"}) for c in animals
    ]


@pytest.fixture
def retriever(retrievers: list[ExciseRetriever], nodes: list[TextNode], excise_rules: Excise) -> ExciseRetriever:
    if not retrievers:
        made = ExciseRetriever.from_nodes(nodes, excise=excise_rules, similarity_top_k=5, progress=False)
        retrievers.append(made)
    return retrievers[0]


@pytest.fixture
def vectors(nodes: list[TextNode]) -> VectorStoreIndex:
    return VectorStoreIndex(nodes, embed_model=MockEmbedding(embed_dim=4))


def sources(response: RESPONSE_TYPE | Any) -> list[str]:
    return [n.node.node_id for n in response.source_nodes]


def ids(nodes: list[NodeWithScore]) -> list[str]:
    return [n.node.node_id for n in nodes]


# --- query engines ------------------------------------------------------------------------------


def test_the_prompt_of_a_query_engine_obeys(retriever: ExciseRetriever) -> None:
    # MockLLM answers with its prompt.
    engine = RetrieverQueryEngine.from_args(retriever, llm=MockLLM())
    plain = engine.query(WANTED)
    assert "domestic cat" in str(plain)
    obeyed = engine.query(NOT_CATS)
    assert "domestic cat" not in str(obeyed)
    assert "cheek pouches" in str(obeyed)
    assert "excise" not in str(obeyed)
    assert obeyed.source_nodes[0].node.metadata["excise"]["fired"] is True
    assert sources(asyncio.run(engine.aquery(NOT_CATS))) == sources(obeyed)


def test_a_query_engine_hands_the_callers_topics_on(retriever: ExciseRetriever) -> None:
    engine = RetrieverQueryEngine.from_args(retriever, llm=MockLLM())
    query = ExciseQuery(WANTED, exclude=["rabbits"], filters=FROM_AFAR)
    for response in (engine.query(query), asyncio.run(engine.aquery(query))):
        assert "rabbit" not in sources(response)
        assert "goldfish" not in sources(response)
        assert response.source_nodes[0].node.metadata["excise"]["source"] == "caller"
    assert "rabbit" in sources(engine.query(WANTED))


def test_a_vector_index_obeys_with_the_postprocessor(vectors: VectorStoreIndex, excise_rules: Excise) -> None:
    engine = vectors.as_query_engine(
        llm=MockLLM(), similarity_top_k=100, node_postprocessors=[ExcisePostprocessor(excise=excise_rules, top_n=6)]
    )
    for response in (engine.query(NOT_CATS), asyncio.run(engine.aquery(NOT_CATS))):
        assert len(sources(response)) == 6
        assert "cat" not in sources(response)
        assert "domestic cat" not in str(response)
    query = ExciseQuery(WANTED, exclude=["dogs"], filters=FROM_AFAR)
    assert not {"dog", "goldfish"} & set(sources(engine.query(query)))


def test_a_streaming_engine_obeys(retriever: ExciseRetriever) -> None:
    engine = RetrieverQueryEngine.from_args(retriever, llm=MockLLM(), streaming=True)
    response = engine.query(NOT_CATS)
    assert "domestic cat" not in "".join(response.response_gen)  # type: ignore[union-attr, arg-type]


# --- what rewrites the query --------------------------------------------------------------------


def hyde(retriever: ExciseRetriever) -> TransformQueryEngine:
    engine = RetrieverQueryEngine.from_args(retriever, llm=MockLLM())
    return TransformQueryEngine(engine, HyDEQueryTransform(llm=Scripted(answer="Rabbits are small pets.")))


def test_the_exclusion_survives_hyde(retriever: ExciseRetriever) -> None:
    engine = hyde(retriever)
    assert "cat" not in sources(engine.query(NOT_CATS))
    query = ExciseQuery(WANTED, exclude=["rabbits"], filters=FROM_AFAR)
    for response in (engine.query(query), asyncio.run(engine.aquery(query))):
        assert not {"rabbit", "goldfish"} & set(sources(response))
    transformed = TransformRetriever(retriever, HyDEQueryTransform(llm=Scripted()))
    assert "rabbit" not in ids(transformed.retrieve(query))


def test_hyde_still_steers_a_retriever_that_embeds(vectors: VectorStoreIndex, excise_rules: Excise) -> None:
    embedded: list[str] = []

    class Heard(MockEmbedding):
        def get_agg_embedding_from_queries(self, queries: list[str], agg_fn: Callable[..., Any] | None = None) -> Any:
            embedded.extend(queries)
            return super().get_agg_embedding_from_queries(queries)

    base = vectors.as_retriever(embed_model=Heard(embed_dim=4))
    over = ExciseRetriever(base_retriever=base, excise=excise_rules)
    transform = HyDEQueryTransform(llm=Scripted(answer="A hypothetical pet."))
    found = TransformRetriever(over, transform).retrieve(ExciseQuery(WANTED, exclude=["cats"]))
    assert "cat" not in ids(found)
    assert embedded == ["A hypothetical pet.", WANTED]


@pytest.mark.parametrize("use_async", [False, True])
@pytest.mark.parametrize("mode", list(FUSION_MODES))
def test_multi_query_fusion_counts_a_node_once(retriever: ExciseRetriever, mode: FUSION_MODES, use_async: bool) -> None:
    fusion = QueryFusionRetriever(
        [retriever], llm=Scripted(answer=f"{REWRITTEN}\ntiny animals at home"), mode=mode, num_queries=3,
        similarity_top_k=6, use_async=use_async,
    )  # fmt: skip
    found = fusion.retrieve(ExciseQuery(WANTED, exclude=[]))
    assert len(found) == len(set(ids(found))) == 6
    if mode == FUSION_MODES.RECIPROCAL_RANK:
        # The three queries agree on the best node: it is counted three times, at the highest rank.
        assert found[0].score == pytest.approx(3 / 60, rel=0.02)


@pytest.mark.parametrize("use_async", [False, True])
def test_the_exclusion_survives_multi_query_fusion(retriever: ExciseRetriever, use_async: bool) -> None:
    fusion = QueryFusionRetriever(
        [retriever], llm=Scripted(), num_queries=2, similarity_top_k=8, mode=FUSION_MODES.RECIPROCAL_RANK,
        use_async=use_async,
    )  # fmt: skip
    engine = RetrieverQueryEngine.from_args(fusion, llm=MockLLM())
    query = ExciseQuery(WANTED, exclude=["cats"], filters=FROM_AFAR)
    # The model's own query knows nothing of the exclusion …
    assert "cat" in sources(engine.query(query))
    # … unless it is said around the call.
    with excluding(["cats"], filters=FROM_AFAR):
        for found in (sources(engine.query(WANTED)), sources(asyncio.run(engine.aquery(WANTED)))):
            assert len(found) >= 4
            assert not {"cat", "goldfish"} & set(found)


def test_the_exclusion_survives_fusion_of_plain_retrievers(vectors: VectorStoreIndex, excise_rules: Excise) -> None:
    fusion = QueryFusionRetriever(
        [vectors.as_retriever(similarity_top_k=100)], llm=Scripted(), num_queries=3, similarity_top_k=100,
        mode=FUSION_MODES.RECIPROCAL_RANK,
    )  # fmt: skip
    after = ExcisePostprocessor(excise=excise_rules, top_n=5)
    engine = RetrieverQueryEngine.from_args(fusion, llm=MockLLM(), node_postprocessors=[after])
    # The engine gives its postprocessors the query that it got, not the rewritten ones.
    found = sources(engine.query(ExciseQuery(WANTED, exclude=["cats"], filters=FROM_AFAR)))
    assert len(found) == 5
    assert not {"cat", "goldfish"} & set(found)
    # The same around the whole fusion.
    over = ExciseRetriever(base_retriever=fusion, excise=excise_rules, similarity_top_k=5)
    assert "cat" not in ids(over.retrieve(ExciseQuery(WANTED, exclude=["cats"])))
    assert "cat" not in ids(asyncio.run(over.aretrieve(NOT_CATS)))


HISTORY = [ChatMessage(role="user", content="I like pets."), ChatMessage(role="assistant", content="Good.")]


@pytest.mark.parametrize("kind", ["question", "context"])
def test_the_exclusion_survives_question_condensing(retriever: ExciseRetriever, kind: str) -> None:
    llm = Scripted()

    def engine() -> CondenseQuestionChatEngine | CondensePlusContextChatEngine:
        if kind == "context":
            return CondensePlusContextChatEngine.from_defaults(retriever, llm=llm)
        answering = RetrieverQueryEngine(retriever, get_response_synthesizer(llm=llm))
        return CondenseQuestionChatEngine.from_defaults(answering, llm=llm)

    lost = engine().chat("And small ones, but not cats?", chat_history=list(HISTORY))
    assert "cat" in sources(lost)
    with excluding(["cats"]):
        kept = engine().chat("And small ones, but not cats?", chat_history=list(HISTORY))
        assert sources(kept)
        assert "cat" not in sources(kept)
        later = asyncio.run(engine().achat("And small ones, but not cats?", chat_history=list(HISTORY)))
        assert "cat" not in sources(later)


def test_the_users_own_words_can_be_asked_before_the_rewriting(retriever: ExciseRetriever) -> None:
    llm = Scripted()
    question = "And small ones, but not cats?"
    topics = [span.text for span in retriever.excise.detect(question).spans]
    with excluding(topics):
        response = CondensePlusContextChatEngine.from_defaults(retriever, llm=llm).chat(
            question, chat_history=list(HISTORY)
        )
    assert "cat" not in sources(response)
    assert "domestic cat" not in llm.prompts[-1]


# --- over a RAGatouille index -------------------------------------------------------------------

ASTRONOMY = "articles about astronomy"
NO_PRICES = "articles about astronomy, but not about its prices"


@pytest.fixture(scope="module")
def over_index(ragatouille_index: RagatouilleIndex) -> ExciseRetriever:
    return ExciseRetriever.from_ragatouille(
        ragatouille_index.path, checkpoint=ragatouille_index.checkpoint, similarity_top_k=5, detector="rules"
    )


def documents_of(nodes: list[NodeWithScore]) -> list[str]:
    return [n.node.metadata["document_id"] for n in nodes]


def test_a_ragatouille_index_obeys_in_a_query_engine(over_index: ExciseRetriever) -> None:
    engine = RetrieverQueryEngine.from_args(over_index, llm=MockLLM())
    plain = engine.query(ASTRONOMY)
    assert "astronomy-prices" in documents_of(plain.source_nodes)
    for response in (engine.query(NO_PRICES), asyncio.run(engine.aquery(NO_PRICES))):
        assert len(response.source_nodes) == 5
        assert "astronomy-prices" not in documents_of(response.source_nodes)
        assert "prices of astronomy" not in str(response)
        assert "astronomy-history" in documents_of(response.source_nodes)
    on_subject = MetadataFilters(filters=[MetadataFilter(key="subject", value="astronomy")])
    query = ExciseQuery(ASTRONOMY, exclude=["famous people"], filters=on_subject)
    found = documents_of(engine.query(query).source_nodes)
    assert set(found) == {"astronomy-history", "astronomy-prices", "astronomy-beginners", "astronomy-scientific"}


def test_a_silent_query_returns_the_indexs_own_list(over_index: ExciseRetriever) -> None:
    assert over_index.first_stage is not None
    expected = over_index.first_stage.search(ASTRONOMY, 5)
    found = over_index.retrieve(ASTRONOMY)
    assert [(n.node_id, n.score, n.text) for n in found] == [(c.id, c.score, c.text) for c in expected]
    assert found[0].node.ref_doc_id == found[0].metadata["document_id"]


def test_passages_of_one_document_stay_apart(over_index: ExciseRetriever, ragatouille_index: RagatouilleIndex) -> None:
    found = over_index.retrieve("chapters about a river, its boats, bridges and delta")
    assert len(found) == len(set(ids(found))) == 5
    assert documents_of(found).count("river") > 1
    single = ExciseRetriever.from_ragatouille(
        ragatouille_index.path, checkpoint=ragatouille_index.checkpoint, one_per_document=True,
        excise=over_index.excise, similarity_top_k=5,
    )  # fmt: skip
    found = single.retrieve("chapters about a river, its boats, bridges and delta")
    assert documents_of(found).count("river") == 1
    assert len(found) == 5


def test_a_ragatouille_model_is_taken_as_it_is(
    over_index: ExciseRetriever, ragatouille_index: RagatouilleIndex
) -> None:
    from excise_integrations.first_stage.ragatouille import RAGPretrainedModel

    model = RAGPretrainedModel.from_index(str(ragatouille_index.path))
    retriever = ExciseRetriever.from_ragatouille(model, excise=over_index.excise, similarity_top_k=5)
    expected = over_index.retrieve(NO_PRICES)
    assert [(n.node_id, n.score) for n in retriever.retrieve(NO_PRICES)] == [(n.node_id, n.score) for n in expected]


def test_a_ragatouille_index_can_be_changed(
    over_index: ExciseRetriever, ragatouille_index: RagatouilleIndex, tmp_path: Path
) -> None:
    retriever = ExciseRetriever.from_ragatouille(
        ragatouille_index.copy(tmp_path), checkpoint=ragatouille_index.checkpoint, excise=over_index.excise
    )
    new = TextNode(id_="whales", text="This short article is about whales.", metadata={"subject": "whales"})
    assert retriever.add([new]) == ["whales"]
    best = retriever.retrieve("whales")[0]
    assert (best.metadata["document_id"], best.metadata["subject"], best.text) == ("whales", "whales", new.text)
    retriever.delete(["whales", "astronomy-history"])
    left = documents_of(retriever.retrieve("the history of astronomy and of whales"))
    assert len(left) == 10
    assert not {"whales", "astronomy-history"} & set(left)


def test_what_is_no_index_is_refused(over_index: ExciseRetriever, tmp_path: Path) -> None:
    with pytest.raises(IndexDamagedError, match="nowhere"):
        ExciseRetriever.from_ragatouille(tmp_path / "nowhere", excise=over_index.excise)
    shutil.copy(__file__, tmp_path)
    with pytest.raises(IndexDamagedError):
        ExciseRetriever.from_ragatouille(str(tmp_path), excise=over_index.excise)
