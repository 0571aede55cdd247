"""The LlamaIndex retriever, postprocessor and query, through LlamaIndex's own interfaces."""

from __future__ import annotations

import asyncio
import copy
import dataclasses
import json
import pickle
import threading
from typing import TYPE_CHECKING, Any

import pytest

pytest.importorskip("llama_index.core")

from llama_index.core import VectorStoreIndex
from llama_index.core.base.base_retriever import BaseRetriever
from llama_index.core.bridge.pydantic import Field
from llama_index.core.callbacks import CallbackManager, CBEventType, LlamaDebugHandler
from llama_index.core.embeddings import MockEmbedding
from llama_index.core.instrumentation import get_dispatcher  # type: ignore[attr-defined]
from llama_index.core.instrumentation.event_handlers import BaseEventHandler
from llama_index.core.node_parser import SentenceSplitter
from llama_index.core.postprocessor import SimilarityPostprocessor
from llama_index.core.retrievers import VectorIndexRetriever
from llama_index.core.schema import (
    Document,
    IndexNode,
    MetadataMode,
    NodeRelationship,
    NodeWithScore,
    QueryBundle,
    RelatedNodeInfo,
    TextNode,
)
from llama_index.core.tools import RetrieverTool
from llama_index.core.vector_stores import FilterCondition, FilterOperator, MetadataFilter, MetadataFilters

from excise_integrations import Candidate, Excise, ExciseError, FirstStageError, InvalidInputError
from excise_integrations.detect.rules import RulesDetector
from excise_integrations.first_stage.memory import MemoryFirstStage
from excise_integrations.llama_index import ExcisePostprocessor, ExciseQuery, ExciseRetriever, excluding

if TYPE_CHECKING:
    from collections.abc import Sequence

    from excise_integrations.types import Detection

WANTED = "small mammals kept as pets"
NOT_CATS = "small mammals kept as pets, but not cats"
LATIN = {"cat": "felis", "dog": "canis"}


def only(key: str, value: str) -> MetadataFilters:
    return MetadataFilters(filters=[MetadataFilter(key=key, value=value)])


def ids(nodes: list[NodeWithScore]) -> list[str]:
    return [n.node.node_id for n in nodes]


def audit(node: NodeWithScore) -> dict[str, Any]:
    found = node.node.metadata["excise"]
    assert isinstance(found, dict)
    return found


class Fixed(BaseRetriever):
    """Returns the nodes that it was given, and remembers the bundles; it has no asynchronous way."""

    def __init__(self, nodes: list[NodeWithScore]) -> None:
        self.nodes = nodes
        self.bundles: list[QueryBundle] = []
        super().__init__()

    def _retrieve(self, query_bundle: QueryBundle) -> list[NodeWithScore]:
        self.bundles.append(query_bundle)
        return self.nodes


class Broken(BaseRetriever):
    def _retrieve(self, query_bundle: QueryBundle) -> list[NodeWithScore]:
        raise RuntimeError("the store is down")


class Waiting(BaseRetriever):
    """Returns once the event loop has set its event: never, when it is run on the loop itself."""

    def __init__(self, nodes: list[NodeWithScore]) -> None:
        self.nodes = nodes
        self.go = threading.Event()
        super().__init__()

    def _retrieve(self, query_bundle: QueryBundle) -> list[NodeWithScore]:
        assert self.go.wait(timeout=10), "the event loop was blocked"
        return self.nodes


@pytest.fixture(scope="module")
def stages() -> list[MemoryFirstStage]:
    """Keeps the one stage of this file: encoding costs more than searching."""
    return []


@pytest.fixture
def stage(stages: list[MemoryFirstStage], animals: list[Candidate], excise_rules: Excise) -> MemoryFirstStage:
    if not stages:
        metadatas = [{"kind": "animal", "legs": "0" if c.id == "goldfish" else "some"} for c in animals]
        stages.append(
            MemoryFirstStage.from_texts(
                [c.text for c in animals],
                ids=[c.id for c in animals],
                metadatas=metadatas,
                backbone=excise_rules.backbone,
            )
        )
    return stages[0]


@pytest.fixture
def retriever(stage: MemoryFirstStage, excise_rules: Excise) -> ExciseRetriever:
    return ExciseRetriever(first_stage=stage, excise=excise_rules, similarity_top_k=5)


@pytest.fixture
def nodes(animals: list[Candidate]) -> list[NodeWithScore]:
    return [NodeWithScore(node=TextNode(id_=c.id, text=c.text, metadata={"n": 1}), score=c.score) for c in animals]


# --- the retriever ------------------------------------------------------------------------------


def test_a_silent_query_returns_the_first_stages_list(retriever: ExciseRetriever, stage: MemoryFirstStage) -> None:
    expected = stage.search(WANTED, 5)
    found = retriever.retrieve(WANTED)
    assert [(n.node.node_id, n.score, n.node.get_content()) for n in found] == [
        (c.id, c.score, c.text) for c in expected
    ]
    assert [audit(n)["action"] for n in found] == ["unchanged"] * 5
    assert {k: v for k, v in found[0].node.metadata.items() if k != "excise"} == dict(expected[0].metadata)


def test_an_excluded_topic_leaves_and_the_audit_says_why(retriever: ExciseRetriever) -> None:
    assert "cat" in ids(retriever.retrieve(WANTED))
    found = retriever.retrieve(NOT_CATS)
    assert len(found) == 5
    assert "cat" not in ids(found)
    top = audit(found[0])
    assert json.loads(json.dumps(top)) == top
    assert top["fired"] is True
    assert top["source"] == "detector"
    assert NOT_CATS[top["spans"][0]["start"] : top["spans"][0]["end"]] == "cats"
    assert [audit(n)["rank"] for n in found] == [1, 2, 3, 4, 5]
    assert [n.score for n in found] == [audit(n)["score"] for n in found]
    scores = [n.get_score() for n in found]
    assert scores == sorted(scores, reverse=True)
    result = retriever.explain(NOT_CATS)
    assert [c.id for c in result.removed] == ["cat"]
    assert result.verdicts["cat"].action == "removed"


def test_the_callers_topics_win_and_an_empty_list_switches_off(retriever: ExciseRetriever) -> None:
    named = retriever.retrieve(ExciseQuery(WANTED, exclude=["rabbits"]))
    assert "rabbit" not in ids(named)
    assert audit(named[0])["source"] == "caller"
    off = retriever.retrieve(ExciseQuery(NOT_CATS, exclude=[]))
    assert "cat" in ids(off)
    assert {audit(n)["action"] for n in off} == {"unchanged"}
    assert "cat" not in ids(retriever.retrieve(ExciseQuery(NOT_CATS)))


def test_topics_can_stand_for_every_query(stage: MemoryFirstStage, excise_rules: Excise) -> None:
    standing = ExciseRetriever(first_stage=stage, excise=excise_rules, similarity_top_k=5, exclude=["rabbits"])
    assert "rabbit" not in ids(standing.retrieve(WANTED))
    assert "rabbit" in ids(standing.retrieve(ExciseQuery(WANTED, exclude=[])))
    with excluding(["hamsters"]):
        assert "rabbit" in ids(standing.retrieve(WANTED))


def test_it_returns_exactly_the_number_asked_for(stage: MemoryFirstStage, excise_rules: Excise) -> None:
    three = ExciseRetriever(first_stage=stage, excise=excise_rules, similarity_top_k=3)
    assert len(three.retrieve(NOT_CATS)) == 3
    three.similarity_top_k = 50
    assert len(three.retrieve(NOT_CATS)) == 7
    assert len(ExciseRetriever(first_stage=stage, excise=excise_rules, k=2).retrieve(NOT_CATS)) == 2


def test_filters_reach_the_first_stage(retriever: ExciseRetriever) -> None:
    assert ids(retriever.retrieve(ExciseQuery(WANTED, filters=only("legs", "0")))) == ["goldfish"]
    both = MetadataFilters(filters=[only("legs", "0"), only("kind", "plant")])
    assert retriever.retrieve(ExciseQuery(WANTED, filters=both)) == []


@pytest.mark.parametrize(
    "filters",
    [
        MetadataFilters(filters=[MetadataFilter(key="legs", value="0", operator=FilterOperator.NE)]),
        MetadataFilters(
            filters=[MetadataFilter(key="a", value="0"), MetadataFilter(key="b", value="1")],
            condition=FilterCondition.OR,
        ),
        MetadataFilters(filters=[only("legs", "0"), only("legs", "some")]),
    ],
)
def test_filters_a_first_stage_cannot_take_are_refused(retriever: ExciseRetriever, filters: MetadataFilters) -> None:
    with pytest.raises(InvalidInputError, match=r"legs|equalities"):
        retriever.retrieve(ExciseQuery(WANTED, filters=filters))


def test_asynchronous_retrieval_gives_the_same(retriever: ExciseRetriever) -> None:
    query = ExciseQuery(NOT_CATS, filters=only("legs", "some"))
    expected, found = retriever.retrieve(query), asyncio.run(retriever.aretrieve(query))
    assert [(n.node_id, n.score) for n in found] == [(n.node_id, n.score) for n in expected]
    assert [c.id for c in asyncio.run(retriever.aexplain(query)).removed] == ["cat"]


def test_asynchronous_retrieval_does_not_block_the_loop(nodes: list[NodeWithScore], excise_rules: Excise) -> None:
    base = Waiting(nodes)

    async def main() -> list[NodeWithScore]:
        task = asyncio.create_task(ExciseRetriever(base_retriever=base, excise=excise_rules).aretrieve(NOT_CATS))
        await asyncio.sleep(0.05)
        base.go.set()
        return await task

    assert "cat" not in ids(asyncio.run(main()))


def test_removed_nodes_can_stay_at_the_end(stage: MemoryFirstStage, excise_rules: Excise) -> None:
    last = ExciseRetriever(first_stage=stage, excise=excise_rules, similarity_top_k=8, removed="last")
    found = last.retrieve(NOT_CATS)
    assert ids(found)[-1] == "cat"
    assert audit(found[-1])["action"] == "removed"
    scores = [n.get_score(raise_error=True) for n in found]
    assert scores == sorted(scores, reverse=True)
    assert ids(SimilarityPostprocessor(similarity_cutoff=-1e9).postprocess_nodes(found)) == ids(found)


def test_shadow_mode_returns_the_frozen_ranking_with_verdicts(stage: MemoryFirstStage, excise_rules: Excise) -> None:
    shadow = ExciseRetriever(first_stage=stage, excise=excise_rules, similarity_top_k=8, mode="shadow")
    found = shadow.retrieve(NOT_CATS)
    assert [(n.node_id, n.score) for n in found] == [(c.id, c.score) for c in stage.search(NOT_CATS, 8)]
    assert {n.node_id: audit(n)["action"] for n in found}["cat"] == "removed"


def test_neither_prompts_nor_embeddings_see_the_audit(retriever: ExciseRetriever) -> None:
    node = retriever.retrieve(NOT_CATS)[0].node
    assert "excise" in node.get_content(MetadataMode.ALL)
    for mode in (MetadataMode.LLM, MetadataMode.EMBED):
        assert "kind: animal" in node.get_content(mode)
        assert "excise" not in node.get_content(mode)


@pytest.mark.parametrize("frame", ["{}\n\n", "\ninput is {}\n", "{0}\ninput is {0}\n"])
def test_the_retriever_tools_frame_is_taken_off(retriever: ExciseRetriever, frame: str) -> None:
    expected = retriever.retrieve(NOT_CATS)
    found = retriever.retrieve(frame.format(NOT_CATS))
    assert [(n.node_id, n.score) for n in found] == [(n.node_id, n.score) for n in expected]
    assert audit(found[0])["spans"] == audit(expected[0])["spans"]


def test_it_works_as_a_tool(retriever: ExciseRetriever) -> None:
    tool = RetrieverTool.from_defaults(retriever)
    expected = ids(retriever.retrieve(NOT_CATS))
    for output in (tool.call(NOT_CATS), tool.call(input=NOT_CATS), asyncio.run(tool.acall(input=NOT_CATS))):
        assert ids(output.raw_output) == expected
        assert "excise" not in output.content


@pytest.mark.parametrize("query", ["", "   ", "\n", "\ninput is \n"])
def test_a_blank_query_is_refused(retriever: ExciseRetriever, query: str) -> None:
    with pytest.raises(InvalidInputError, match="blank"):
        retriever.retrieve(query)


# --- construction -------------------------------------------------------------------------------


def test_from_texts_needs_nothing_else(excise_rules: Excise) -> None:
    texts = ["Cats hunt mice.", "Dogs guard houses.", "Parrots can talk."]
    retriever = ExciseRetriever.from_texts(
        texts, metadatas=[{"n": i} for i in range(3)], excise=excise_rules, k=2, removal=False, progress=False
    )
    assert retriever.excise.config.removal is False
    found = retriever.retrieve("who catches mice?")
    assert (found[0].node_id, found[0].node.get_content(), found[0].metadata["n"]) == ("0", texts[0], 0)
    assert len(found) == 2


def test_from_nodes_returns_copies_of_the_nodes(excise_rules: Excise) -> None:
    source = {NodeRelationship.SOURCE: RelatedNodeInfo(node_id="doc")}
    given = [
        TextNode(id_="a", text="It hunts mice.", metadata={"title": "Cat"}, relationships=source),
        TextNode(id_="b", text="It guards houses.", metadata={"title": "Dog"}, excluded_llm_metadata_keys=["title"]),
        Document(id_="c", text="Parrots can talk.", metadata={"title": "Bird"}),
        IndexNode(id_="d", text="Fish swim.", index_id="elsewhere"),
    ]
    before = copy.deepcopy(given)
    found = {
        n.node_id: n.node
        for n in ExciseRetriever.from_nodes(given, excise=excise_rules, progress=False).retrieve("animals")
    }
    assert given == before
    assert list(given[0].metadata) == ["title"]
    for node in given:
        twin = found[node.node_id]
        assert twin is not node
        assert isinstance(twin, type(node))
        assert twin.class_name() == node.class_name()
        # Fusion retrievers tell nodes apart by their hash.
        assert twin.hash == node.hash
        assert twin.get_content(MetadataMode.LLM) == node.get_content(MetadataMode.LLM)
        assert twin.get_content(MetadataMode.EMBED) == node.get_content(MetadataMode.EMBED)
        assert set(twin.metadata) == {*node.metadata, "excise"}
        assert pickle.loads(pickle.dumps(twin)).metadata == twin.metadata
    assert found["a"].ref_doc_id == "doc"
    assert isinstance(found["d"], IndexNode)
    assert found["d"].index_id == "elsewhere"


def test_from_nodes_scores_the_text_that_an_embedding_sees(excise_rules: Excise) -> None:
    given = [
        TextNode(id_="a", text="It hunts mice.", metadata={"title": "The domestic cat"}),
        TextNode(id_="b", text="It hunts mice.", metadata={"title": "The owl"}),
    ]
    found = ExciseRetriever.from_nodes(given, excise=excise_rules, progress=False).retrieve("owls")
    assert ids(found) == ["b", "a"]


def test_from_documents_cuts_and_keeps_passages_of_one_document_apart(excise_rules: Excise) -> None:
    document = Document(id_="pets", text="Cats hunt mice at night. " * 30 + "Parrots imitate the human voice. " * 30)
    retriever = ExciseRetriever.from_documents(
        [document],
        transformations=[SentenceSplitter(chunk_size=60, chunk_overlap=0)],
        excise=excise_rules,
        similarity_top_k=4,
        progress=False,
    )
    found = retriever.retrieve("birds that speak")
    assert len(set(ids(found))) == 4
    assert {n.node.ref_doc_id for n in found} == {"pets"}
    assert "Parrots" in found[0].text
    whole = ExciseRetriever.from_documents([document], transformations=[], excise=excise_rules, progress=False)
    assert ids(whole.retrieve("birds that speak")) == ["pets"]


def test_a_removed_passage_takes_its_siblings_along_when_documents_are_the_unit(
    animals: list[Candidate], excise_rules: Excise
) -> None:
    texts = {**{c.id: c.text for c in animals}, "cat-2": "Small carnivorous pets such as these sleep most of the day."}
    given = [
        TextNode(
            id_=name,
            text=text,
            relationships={NodeRelationship.SOURCE: RelatedNodeInfo(node_id=name.removesuffix("-2"))},
        )
        for name, text in texts.items()
    ]

    def found(unit: str) -> list[str]:
        retriever = ExciseRetriever.from_nodes(given, excise=excise_rules, progress=False, unit=unit)
        return ids(retriever.retrieve(NOT_CATS))

    assert "cat" not in found("passage")
    assert "cat-2" in found("passage")
    assert not {"cat", "cat-2"} & set(found("document"))


def test_it_can_be_added_to_and_deleted_from(excise_rules: Excise) -> None:
    retriever = ExciseRetriever.from_nodes(
        [TextNode(id_="a", text="Cats hunt mice."), TextNode(id_="b", text="Dogs guard houses.")],
        excise=excise_rules,
        progress=False,
    )
    parrot = TextNode(id_="c", text="They can talk.", metadata={"title": "Parrots"})
    assert retriever.add([parrot]) == ["c"]
    best = retriever.retrieve("parrots")[0]
    assert (best.node_id, best.text, best.metadata["title"]) == ("c", "They can talk.", "Parrots")
    retriever.delete(["a"])
    assert set(ids(retriever.retrieve("animals"))) == {"b", "c"}
    retriever.add([TextNode(id_="a", text="Ants dig tunnels.")])
    assert {n.node_id: n.text for n in retriever.retrieve("tunnels")}["a"] == "Ants dig tunnels."
    with pytest.raises(InvalidInputError, match=r"\['ab'\]"):
        retriever.delete("ab")
    with pytest.raises(InvalidInputError, match="retriever, which has no method add"):
        ExciseRetriever(base_retriever=Fixed([]), excise=excise_rules).add([parrot])


def test_settings_replace_those_of_a_given_pipeline(stage: MemoryFirstStage, excise_rules: Excise) -> None:
    retriever = ExciseRetriever(first_stage=stage, excise=excise_rules, removal=False)
    assert retriever.excise.config.removal is False
    assert excise_rules.config.removal is True
    assert retriever.excise.backbone is excise_rules.backbone


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({}, "first_stage or base_retriever"),
        ({"first_stage": True, "base_retriever": True}, "first_stage or base_retriever"),
        ({"first_stage": "index"}, "first_stage='index'"),
        ({"base_retriever": "index"}, "base_retriever='index'"),
        ({"first_stage": True, "similarity_top_k": 0}, "similarity_top_k=0"),
        ({"first_stage": True, "similarity_top_k": True}, "similarity_top_k=True"),
        ({"first_stage": True, "k": 0}, "similarity_top_k=0"),
        ({"first_stage": True, "shortlist": 0}, "greater than or equal to 1"),
        ({"first_stage": True, "exclude": "cats"}, r"\['cats'\]"),
        ({"first_stage": True, "colour": "red"}, "colour"),
        ({"first_stage": True, "removed": "never"}, "never"),
        ({"first_stage": True, "model": "minilm"}, "model='minilm' and excise"),
        ({"first_stage": True, "excise": "minilm"}, "excise='minilm'"),
    ],
)
def test_impossible_arguments_are_refused(
    stage: MemoryFirstStage, excise_rules: Excise, arguments: dict[str, Any], message: str
) -> None:
    real: dict[str, Any] = {"first_stage": stage, "base_retriever": Fixed([])}
    given: dict[str, Any] = {k: real[k] if v is True and k in real else v for k, v in arguments.items()}
    with pytest.raises(InvalidInputError, match=message):
        ExciseRetriever(**{"excise": excise_rules, **given})


def test_bad_collections_are_refused(excise_rules: Excise) -> None:
    with pytest.raises(InvalidInputError, match="'b'"):
        ExciseRetriever.from_documents([Document(id_="b", text=" ")], excise=excise_rules)
    with pytest.raises(InvalidInputError, match="'a'"):
        ExciseRetriever.from_nodes([TextNode(id_="a", text="x"), TextNode(id_="a", text="y")], excise=excise_rules)
    with pytest.raises(InvalidInputError, match="str"):
        ExciseRetriever.from_nodes(["text"], excise=excise_rules)  # type: ignore[list-item]


# --- over another retriever ---------------------------------------------------------------------


def test_any_retriever_makes_the_shortlist(nodes: list[NodeWithScore], excise_rules: Excise) -> None:
    base = Fixed(nodes)
    before = copy.deepcopy(nodes)
    retriever = ExciseRetriever(base_retriever=base, excise=excise_rules, similarity_top_k=4)
    silent = retriever.retrieve(WANTED)
    assert [(n.node_id, n.score) for n in silent] == [(n.node_id, n.score) for n in nodes[:4]]
    found = retriever.retrieve(ExciseQuery(WANTED, exclude=["cats"]))
    assert len(found) == 4
    assert "cat" not in ids(found)
    assert found[0].metadata["n"] == 1
    assert nodes == before
    assert not any("excise" in n.metadata for n in nodes)
    # The exclusion is for Excise alone.
    assert type(base.bundles[-1]) is QueryBundle
    assert type(base.bundles[-1].query_str) is str
    assert base.bundles[-1].query_str == WANTED


def test_only_the_top_of_a_longer_list_is_the_shortlist(nodes: list[NodeWithScore], excise_rules: Excise) -> None:
    retriever = ExciseRetriever(base_retriever=Fixed(nodes), excise=excise_rules, k=3, shortlist=3, total_cap=0)
    assert len(retriever.explain(NOT_CATS).verdicts) == 3


def vector_retriever(nodes: list[NodeWithScore], **arguments: Any) -> VectorIndexRetriever:
    for n in nodes:
        n.node.metadata["latin"] = LATIN.get(n.node_id, "other")
    # Constant embeddings: every node ties.
    index = VectorStoreIndex([n.node for n in nodes], embed_model=MockEmbedding(embed_dim=4))
    return VectorIndexRetriever(index, **arguments)


def test_a_vector_retriever_is_asked_for_a_whole_shortlist(nodes: list[NodeWithScore], excise_rules: Excise) -> None:
    base = vector_retriever(nodes, similarity_top_k=2)
    query = ExciseQuery(NOT_CATS)
    retriever = ExciseRetriever(base_retriever=base, excise=excise_rules, similarity_top_k=7)
    for found in (retriever.retrieve(query), asyncio.run(retriever.aretrieve(query))):
        assert len(found) == 7
        assert "cat" not in ids(found)
    assert base.similarity_top_k == 2
    assert query.embedding is None


def test_filters_join_those_of_the_retriever(nodes: list[NodeWithScore], excise_rules: Excise) -> None:
    not_a_dog = MetadataFilters(filters=[MetadataFilter(key="latin", value="canis", operator=FilterOperator.NE)])
    base = vector_retriever(nodes, filters=not_a_dog, similarity_top_k=excise_rules.config.k)
    retriever = ExciseRetriever(base_retriever=base, excise=excise_rules)
    assert "dog" not in ids(retriever.retrieve(WANTED))
    assert ids(retriever.retrieve(ExciseQuery(WANTED, filters=only("latin", "felis")))) == ["cat"]
    assert retriever.retrieve(ExciseQuery(WANTED, filters=only("latin", "canis"))) == []
    assert base._filters == not_a_dog
    with pytest.raises(InvalidInputError, match="Fixed takes none"):
        ExciseRetriever(base_retriever=Fixed(nodes), excise=excise_rules).retrieve(
            ExciseQuery(WANTED, filters=only("latin", "felis"))
        )


def test_a_failing_or_useless_retriever_is_named(nodes: list[NodeWithScore], excise_rules: Excise) -> None:
    with pytest.raises(FirstStageError, match="Broken failed: RuntimeError: the store is down"):
        ExciseRetriever(base_retriever=Broken(), excise=excise_rules).retrieve(WANTED)
    with pytest.raises(FirstStageError, match="Broken failed"):
        asyncio.run(ExciseRetriever(base_retriever=Broken(), excise=excise_rules).aretrieve(WANTED))
    nodes[1].node.set_content(" ")
    nodes[1].node.metadata.clear()
    with pytest.raises(FirstStageError, match="'dog'"):
        ExciseRetriever(base_retriever=Fixed(nodes), excise=excise_rules).retrieve(WANTED)
    assert ExciseRetriever(base_retriever=Fixed([]), excise=excise_rules).retrieve(NOT_CATS) == []


# --- the query ----------------------------------------------------------------------------------


def test_a_query_survives_copies() -> None:
    query = ExciseQuery(WANTED, exclude=["cats"], filters=only("kind", "animal"))
    for twin in (
        dataclasses.replace(query),
        copy.deepcopy(query),
        pickle.loads(pickle.dumps(query)),
        ExciseQuery.from_json(query.to_json()),
    ):
        assert twin == query
        assert isinstance(twin, ExciseQuery)
    assert isinstance(query, QueryBundle)
    assert str(query) == WANTED


@pytest.mark.parametrize("keep", ["replace", "same text"])
def test_a_query_survives_transforms_that_keep_the_text(retriever: ExciseRetriever, keep: str) -> None:
    query = ExciseQuery(WANTED, exclude=["rabbits"], filters=only("legs", "some"))
    other = dataclasses.replace(query, query_str=WANTED + "!") if keep == "replace" else QueryBundle(query.query_str)
    found = ids(retriever.retrieve(other))
    assert "rabbit" not in found
    assert "goldfish" not in found
    assert "rabbit" in ids(retriever.retrieve(WANTED))


def test_excluding_holds_inside_its_block_only(retriever: ExciseRetriever) -> None:
    with excluding(["rabbits"], filters=only("legs", "some")):
        assert "rabbit" not in ids(retriever.retrieve(WANTED))
        assert "rabbit" not in ids(asyncio.run(retriever.aretrieve(WANTED)))
        with excluding(["hamsters"]):
            inner = ids(retriever.retrieve(WANTED))
            assert "rabbit" in inner
            assert not {"hamster", "goldfish"} & set(inner)
        with excluding(None, filters=only("legs", "0")):
            assert retriever.explain(WANTED).detection.source == "caller"
        # The query itself knows best.
        assert {"rabbit"} < set(ids(retriever.retrieve(ExciseQuery(WANTED, exclude=[]))))
    assert "rabbit" in ids(retriever.retrieve(WANTED))


def test_excluding_does_not_leak_between_tasks(retriever: ExciseRetriever) -> None:
    async def ask(topic: str) -> list[str]:
        with excluding([topic]):
            await asyncio.sleep(0)
            return ids(await retriever.aretrieve(WANTED))

    async def main() -> tuple[list[str], list[str]]:
        return await asyncio.gather(ask("rabbits"), ask("hamsters"))

    no_rabbit, no_hamster = asyncio.run(main())
    assert "rabbit" not in no_rabbit
    assert "hamster" in no_rabbit
    assert "rabbit" in no_hamster
    assert "hamster" not in no_hamster


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"exclude": "cats"}, r"\['cats'\]"),
        ({"exclude": [" "]}, "non-blank"),
        ({"filters": {"a": 1}}, "MetadataFilters"),
    ],
)
def test_impossible_requests_are_refused_at_once(arguments: dict[str, Any], message: str) -> None:
    with pytest.raises(InvalidInputError, match=message):
        ExciseQuery(WANTED, **arguments)
    with pytest.raises(InvalidInputError, match=message), excluding(**{"exclude": None, **arguments}):
        pass


# --- the postprocessor --------------------------------------------------------------------------


class _Events(BaseEventHandler):
    names: list[str] = Field(default_factory=list)
    events: list[Any] = Field(default_factory=list)

    @classmethod
    def class_name(cls) -> str:
        return "_Events"

    def handle(self, event: Any, **_: Any) -> None:
        if event.class_name().startswith("ReRank"):
            self.names.append(event.class_name())
            self.events.append(event)


@pytest.fixture
def events() -> Any:
    handler = _Events()
    root = get_dispatcher()
    root.add_event_handler(handler)
    yield handler
    root.event_handlers.remove(handler)


@pytest.fixture
def postprocessor(excise_rules: Excise) -> ExcisePostprocessor:
    return ExcisePostprocessor(excise=excise_rules, top_n=4)


PAIR = ["ReRankStartEvent", "ReRankEndEvent"]


def test_the_postprocessor_reranks_copies(
    postprocessor: ExcisePostprocessor, nodes: list[NodeWithScore], events: _Events
) -> None:
    before = copy.deepcopy(nodes)
    found = postprocessor.postprocess_nodes(nodes, query_str=NOT_CATS)
    assert len(found) == 4
    assert "cat" not in ids(found)
    assert nodes == before
    assert events.names == PAIR
    start, end = events.events
    assert (start.top_n, start.model_name, len(start.nodes)) == (4, "minilm", 8)
    assert ids(end.nodes) == ids(found)
    silent = postprocessor.postprocess_nodes(nodes, QueryBundle(WANTED))
    assert [(n.node_id, n.score) for n in silent] == [(n.node_id, n.score) for n in nodes[:4]]


def test_the_postprocessor_takes_the_callers_topics_and_filters(
    postprocessor: ExcisePostprocessor, nodes: list[NodeWithScore]
) -> None:
    query = ExciseQuery(WANTED, exclude=["dogs"], filters=only("n", "1"))
    assert postprocessor.postprocess_nodes(nodes, query) == []
    for n in nodes:
        n.node.metadata["n"] = "1" if n.node_id in ("cat", "dog", "parrot", "horse", "rabbit") else "2"
    assert set(ids(postprocessor.postprocess_nodes(nodes, query))) == {"cat", "parrot", "horse", "rabbit"}
    with excluding(["dogs"]):
        assert "dog" not in ids(postprocessor.postprocess_nodes(nodes, query_str=WANTED))


def test_the_postprocessor_works_behind_a_tools_retriever(
    postprocessor: ExcisePostprocessor, nodes: list[NodeWithScore]
) -> None:
    tool = RetrieverTool.from_defaults(Fixed(nodes), node_postprocessors=[postprocessor])
    expected = ids(postprocessor.postprocess_nodes(nodes, query_str=NOT_CATS))
    assert ids(tool.call(input=NOT_CATS).raw_output) == expected


def test_a_second_pass_is_warned_of(
    retriever: ExciseRetriever, postprocessor: ExcisePostprocessor, caplog: pytest.LogCaptureFixture
) -> None:
    postprocessor.postprocess_nodes(retriever.retrieve(WANTED), query_str=WANTED)
    assert not caplog.records
    postprocessor.postprocess_nodes(retriever.retrieve(NOT_CATS), query_str=NOT_CATS)
    assert "second pass" in caplog.text


def test_the_postprocessor_returns_all_without_top_n(excise_rules: Excise, nodes: list[NodeWithScore]) -> None:
    everything = ExcisePostprocessor(excise=excise_rules)
    assert len(everything.postprocess_nodes(nodes, query_str=WANTED)) == 8
    assert len(everything.postprocess_nodes(nodes, query_str=NOT_CATS)) == 7


def test_the_postprocessor_reads_the_metadata_that_an_embedding_would(excise_rules: Excise) -> None:
    titles = ["The domestic cat", "The dog", "The horse", "The parrot", "The ant"]
    shortlist = [
        NodeWithScore(node=TextNode(id_=t, text="They live in houses.", metadata={"title": t}), score=1.0)
        for t in titles
    ]
    found = ExcisePostprocessor(excise=excise_rules).postprocess_nodes(
        shortlist, ExciseQuery("animals in houses", exclude=["domestic cat"])
    )
    assert titles[0] not in ids(found)


def test_the_asynchronous_postprocessor_does_not_block_the_loop(
    excise_rules: Excise, nodes: list[NodeWithScore], events: _Events
) -> None:
    go = threading.Event()

    class Slow:
        def detect(self, queries: Sequence[str]) -> list[Detection]:
            assert go.wait(timeout=10), "the event loop was blocked"
            return RulesDetector().detect(queries)

    slow = ExcisePostprocessor(excise=Excise(excise_rules.backbone, detector=Slow()))

    async def main() -> list[NodeWithScore]:
        task = asyncio.create_task(slow.apostprocess_nodes(nodes, query_str=NOT_CATS))
        await asyncio.sleep(0.05)
        go.set()
        return await task

    assert "cat" not in ids(asyncio.run(main()))
    assert events.names == PAIR


def test_events_come_in_pairs_on_every_path(
    postprocessor: ExcisePostprocessor, nodes: list[NodeWithScore], events: _Events
) -> None:
    assert postprocessor.postprocess_nodes([], query_str=NOT_CATS) == []
    assert events.names == PAIR
    with pytest.raises(InvalidInputError, match="blank"):
        postprocessor.postprocess_nodes(nodes, query_str=" ")
    assert events.names == PAIR * 2
    with pytest.raises(InvalidInputError, match="'cat' occurs twice"):
        postprocessor.postprocess_nodes([nodes[0], nodes[0]], query_str=WANTED)
    assert events.names == PAIR * 3
    with pytest.raises(InvalidInputError, match="query_bundle"):
        postprocessor.postprocess_nodes(nodes)
    with pytest.raises(InvalidInputError, match="TextNode"):
        postprocessor.postprocess_nodes([nodes[0].node], query_str=WANTED)  # type: ignore[list-item]
    assert events.names == PAIR * 3
    assert postprocessor.postprocess_nodes([]) == []
    assert events.names == PAIR * 4


def test_a_later_callback_manager_hears_the_reranking(
    postprocessor: ExcisePostprocessor, nodes: list[NodeWithScore]
) -> None:
    heard = LlamaDebugHandler(print_trace_on_end=False)
    postprocessor.callback_manager = CallbackManager([heard])
    postprocessor.postprocess_nodes(nodes, query_str=NOT_CATS)
    (pair,) = heard.get_event_pairs(CBEventType.RERANKING)
    start, end = (event.payload or {} for event in pair)
    assert start["query_str"] == NOT_CATS
    assert len(end["nodes"]) == 4
    with pytest.raises(ExciseError):
        postprocessor.postprocess_nodes(nodes, query_str=" ")
    assert len(heard.get_event_pairs(CBEventType.RERANKING)) == 2


@pytest.fixture
def loads(monkeypatch: pytest.MonkeyPatch, excise_rules: Excise) -> list[tuple[str, dict[str, Any]]]:
    """Every load of a pipeline, by name and arguments; none really happens."""
    seen: list[tuple[str, dict[str, Any]]] = []

    def load(name: str, **arguments: Any) -> Excise:
        seen.append((name, arguments))
        return excise_rules.with_config(**arguments["config"].model_dump())

    monkeypatch.setattr(Excise, "from_pretrained", load)
    return seen


def test_heavy_parts_are_loaded_at_first_use(
    nodes: list[NodeWithScore], loads: list[tuple[str, dict[str, Any]]]
) -> None:
    made = ExcisePostprocessor("minilm", top_n=3, exclude=["cats"], detector="rules", removed="last")
    data = json.loads(json.dumps(made.to_dict()))
    twins = [made, ExcisePostprocessor.from_dict(data), pickle.loads(pickle.dumps(made)), copy.deepcopy(made)]
    assert loads == []
    for twin in twins:
        assert twin.to_dict() == made.to_dict()
        assert len(twin.postprocess_nodes(nodes, query_str=NOT_CATS)) == 3
        assert "cat" not in ids(twin.postprocess_nodes(nodes, query_str=WANTED))
        assert twin.excise.config.removed == "last"
    assert [(name, arguments["detector"]) for name, arguments in loads] == [("minilm", "rules")] * 4


def test_a_pipeline_that_is_there_is_named_and_loaded_again(
    excise_rules: Excise, nodes: list[NodeWithScore], loads: list[tuple[str, dict[str, Any]]]
) -> None:
    made = ExcisePostprocessor(excise=excise_rules, removal=False)
    assert made.excise.backbone is excise_rules.backbone
    assert copy.deepcopy(made).excise.backbone is excise_rules.backbone
    assert loads == []
    twin = pickle.loads(pickle.dumps(made))
    assert twin.excise.config.removal is False
    assert [(name, arguments["detector"]) for name, arguments in loads] == [("minilm", "rules")]


class Never:
    """A detector of the user's own."""

    def detect(self, queries: Sequence[str]) -> list[Detection]:
        return [d for d in RulesDetector().detect([WANTED]) for _ in queries]


def test_a_pipeline_of_ones_own_must_be_given_again(excise_rules: Excise, nodes: list[NodeWithScore]) -> None:
    own = Excise(excise_rules.backbone, detector=Never())
    made = ExcisePostprocessor(excise=own, top_n=2)
    data = made.to_dict()
    with pytest.raises(InvalidInputError, match=r"from_dict\(data, excise=\.\.\.\)"):
        ExcisePostprocessor.from_dict(data)
    twin = ExcisePostprocessor.from_dict(data, excise=own)
    assert ids(twin.postprocess_nodes(nodes, query_str=NOT_CATS)) == ["cat", "dog"]
    pickled = pickle.loads(pickle.dumps(made))
    assert isinstance(pickled.excise.detector, Never)


def test_settings_set_later_are_obeyed(postprocessor: ExcisePostprocessor, nodes: list[NodeWithScore]) -> None:
    postprocessor.top_n = 8
    postprocessor.config = postprocessor.config.model_copy(update={"removed": "last"})
    assert ids(postprocessor.postprocess_nodes(nodes, query_str=NOT_CATS))[-1] == "cat"


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"top_n": 0}, "top_n=0"),
        ({"top_n": -1}, "top_n=-1"),
        ({"colour": "red"}, "colour"),
        ({"mode": "loud"}, "loud"),
        ({"load": {"colour": "red"}}, "colour"),
        ({"detector": Never()}, "cannot be written down"),
        ({"model": None}, "cannot be rebuilt"),
    ],
)
def test_impossible_postprocessors_are_refused(arguments: dict[str, Any], message: str) -> None:
    with pytest.raises(InvalidInputError, match=message):
        ExcisePostprocessor(**arguments)


def test_a_pipeline_cannot_be_given_and_loaded(excise_rules: Excise) -> None:
    with pytest.raises(InvalidInputError, match="both given"):
        ExcisePostprocessor(excise=excise_rules, detector="lora")
