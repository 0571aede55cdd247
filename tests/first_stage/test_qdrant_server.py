"""The same over Qdrant's REST interface, with a synchronous and an asynchronous client."""

from __future__ import annotations

import asyncio
import pickle
from collections.abc import Iterator

import pytest
import torch
from qdrant_client import AsyncQdrantClient, QdrantClient
from qdrant_server import Server

from excise_integrations import Candidate, Excise, FirstStageError, IndexDamagedError, InvalidInputError
from excise_integrations.encode import Backbone
from excise_integrations.first_stage.memory import MemoryFirstStage
from excise_integrations.first_stage.qdrant import QdrantFirstStage

QUERY = "animals that people keep as pets, but not dogs"


@pytest.fixture
def server(request: pytest.FixtureRequest) -> Iterator[Server]:
    made = Server(request.node.name.replace("_", "-"))
    yield made
    made.local.close()


def opened(server: Server, backbone: Backbone) -> QdrantFirstStage:
    return QdrantFirstStage(QdrantClient(**server.options), "animals", backbone=backbone)


def filled(server: Server, animals: list[Candidate], backbone: Backbone) -> QdrantFirstStage:
    stage = QdrantFirstStage.create(
        QdrantClient(**server.options), "animals", backbone=backbone, collection_options={"shard_number": 3}
    )
    assert stage.add([a.text for a in animals], ids=[a.id for a in animals], metadatas=[{"n": i} for i in range(8)])
    return stage


def ids(candidates: list[Candidate]) -> list[str]:
    return [c.id for c in candidates]


def test_a_collection_on_a_server(server: Server, animals: list[Candidate], backbone: Backbone) -> None:
    stage = filled(server, animals, backbone)
    created = next(body for method, _, body in server.asked if method == "PUT")
    assert created["shard_number"] == 3
    assert created["vectors"]["tokens"]["multivector_config"] == {"comparator": "max_sim"}
    assert created["metadata"]["excise"]["vector_space"] == backbone.label
    memory = MemoryFirstStage.from_candidates(animals, backbone=backbone)
    reader = opened(server, backbone)
    assert reader.search("birds that speak", 8) == stage.search("birds that speak", 8)
    assert ids(reader.search("birds that speak", 8)) == ids(memory.search("birds that speak", 8))
    assert ids(reader.search("birds that speak", 8, filter={"n": 3})) == ["goldfish"]
    assert [ids(r) for r in reader.search_batch(["fish", "riding"], 1)] == [["goldfish"], ["horse"]]
    for ours, theirs in zip(reader.vectors(["dog", "cat"]), memory.vectors(["dog", "cat"]), strict=True):
        assert torch.equal(ours.vectors, theirs.vectors)
    before = reader.fingerprint
    with pytest.raises(InvalidInputError, match="'cat' is used twice"):
        stage.add(["again"], ids=["cat"])
    assert reader.fingerprint == before
    stage.delete(["cat"])
    assert reader.fingerprint != before
    assert (len(reader), sorted(reader.ids)) == (7, sorted(a.id for a in animals if a.id != "cat"))
    with pytest.raises(IndexDamagedError, match="no Qdrant collection 'plants'"):
        QdrantFirstStage(stage.client, "plants", backbone=backbone)


def test_the_asynchronous_client(server: Server, animals: list[Candidate], excise_rules: Excise) -> None:
    stage = filled(server, animals, excise_rules.backbone)

    async def main() -> list[Candidate]:
        stage.async_client = AsyncQdrantClient(**server.options)
        asked = len(server.asked)
        found = await asyncio.gather(*(stage.asearch("fish", 2) for _ in range(4)))
        assert [path for _, path, _ in server.asked[asked:]] == ["/collections/animals/points/query/batch"] * 4
        assert found == [stage.search("fish", 2)] * 4
        result = await excise_rules.asearch(QUERY, stage, k=3)
        assert ids(list(result.removed)) == ["dog"]
        server.fail = lambda method, path: "query" in path
        with pytest.raises(FirstStageError, match="overloaded"):
            await excise_rules.asearch(QUERY, stage)
        await stage.async_client.close()
        return found[0]

    assert ids(asyncio.run(main()))[0] == "goldfish"


def test_a_server_that_fails_is_named(server: Server, animals: list[Candidate], backbone: Backbone) -> None:
    stage = filled(server, animals, backbone)
    server.fail = lambda method, path: True
    for call in (
        lambda: stage.search("fish", 2),
        lambda: stage.vectors(["cat"]),
        lambda: stage.add(["new"], ids=["new"]),
        lambda: stage.delete(["cat"]),
        lambda: stage.fingerprint,
        lambda: stage.ids,
        lambda: len(stage),
        lambda: opened(server, backbone),
    ):
        with pytest.raises(FirstStageError, match=r"The Qdrant collection 'animals' could not be [^:]+: Unexpected"):
            call()
    server.fail = lambda method, path: method == "PUT"
    with pytest.raises(FirstStageError, match=r"0 of 1 are stored"):
        stage.add(["new"], ids=["new"])


def test_a_pickle_opens_the_collection_again(server: Server, animals: list[Candidate], excise_rules: Excise) -> None:
    stage = filled(server, animals, excise_rules.backbone)
    stage.async_client = AsyncQdrantClient(**server.options)
    thawed = pickle.loads(pickle.dumps(stage))
    assert thawed.client is not stage.client
    assert thawed.async_client is None
    assert thawed.fingerprint == stage.fingerprint
    thawed.delete(["cat"])
    assert len(stage) == 7


def test_both_frameworks_retrieve_from_it(server: Server, animals: list[Candidate], excise_rules: Excise) -> None:
    from langchain_core.documents import Document
    from llama_index.core.schema import TextNode

    from excise_integrations import langchain, llama_index

    stage = filled(server, animals, excise_rules.backbone)
    chain = langchain.ExciseRetriever(first_stage=stage, excise=excise_rules, k=3)
    engine = llama_index.ExciseRetriever(first_stage=stage, excise=excise_rules, similarity_top_k=3)
    expected = excise_rules.search(QUERY, stage, k=3)
    assert ids(list(expected.removed)) == ["dog"]
    for found in (chain.invoke(QUERY), asyncio.run(chain.ainvoke(QUERY))):
        assert [d.id for d in found] == ids(list(expected.candidates))
    for nodes in (engine.retrieve(QUERY), asyncio.run(engine.aretrieve(QUERY))):
        assert [n.node_id for n in nodes] == ids(list(expected.candidates))
    assert [d.metadata["n"] for d in chain.invoke("fish", filter={"n": 5})] == [5]
    query = llama_index.ExciseQuery("fish", filters=_only("n", 5))
    assert [n.metadata["n"] for n in engine.retrieve(query)] == [5]
    (added,) = chain.add([Document(page_content="Ferrets are slender animals that are kept as pets.")])
    assert added in stage.ids
    engine.add([TextNode(id_="canary", text="Canaries are small songbirds, kept as pets in cages.")])
    assert "canary" in {n.node_id for n in engine.retrieve("songbirds in a cage")}
    chain.delete([added])
    engine.delete(["canary"])
    assert len(stage) == 8


def _only(key: str, value: int):  # type: ignore[no-untyped-def]
    from llama_index.core.vector_stores import MetadataFilter, MetadataFilters

    return MetadataFilters(filters=[MetadataFilter(key=key, value=value)])
