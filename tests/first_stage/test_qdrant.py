"""MaxSim in Qdrant: what is found, filters, changes, errors, copies."""

from __future__ import annotations

import asyncio
import copy
import pickle
import sys
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
import torch
from qdrant_client import AsyncQdrantClient, QdrantClient, models

from excise_integrations import (
    Candidate,
    Excise,
    FirstStageError,
    IndexDamagedError,
    InvalidInputError,
    MissingExtraError,
)
from excise_integrations.encode import Backbone, TokenVectors, WindowPolicy
from excise_integrations.first_stage.base import AsyncFirstStage, BatchFirstStage, VectorFirstStage
from excise_integrations.first_stage.memory import MemoryFirstStage
from excise_integrations.first_stage.qdrant import QdrantFirstStage

TEXTS = [
    "The otter hunts crabs along the river bank at dusk.",
    "A violin maker carves the scroll from a single block of maple.",
    "Sourdough bread rises slowly because wild yeast works at its own pace.",
    "Glaciers grind rock into a fine flour that turns lakes turquoise.",
    "The cellist tunes the lowest string before the rehearsal.",
    "Beavers fell trees and dam streams, which floods the meadow.",
]
METADATAS = [{"topic": t, "page": i} for i, t in enumerate(["animal", "music", "food", "ice", "music", "animal"])]
IDS = [str(i) for i in range(6)]


@pytest.fixture(scope="module")
def stage(backbone: Backbone) -> QdrantFirstStage:
    return QdrantFirstStage.from_texts(TEXTS, ids=IDS, metadatas=METADATAS, backbone=backbone)


@pytest.fixture(scope="module")
def memory(backbone: Backbone) -> MemoryFirstStage:
    return MemoryFirstStage.from_texts(TEXTS, metadatas=METADATAS, backbone=backbone)


@pytest.fixture
def client() -> Iterator[QdrantClient]:
    made = QdrantClient(":memory:")
    yield made
    made.close()


def ids(candidates: Sequence[Candidate]) -> list[str]:
    return [c.id for c in candidates]


# --- search ---------------------------------------------------------------------------------------


def test_it_finds_what_memory_finds(stage: QdrantFirstStage, memory: MemoryFirstStage) -> None:
    for query in ("string instruments", "mountain lakes and ice in summer", "animals that live by the water"):
        found, expected = stage.search(query, 6), memory.search(query, 6)
        assert ids(found) == ids(expected)
        assert [c.score for c in found] == pytest.approx([c.score for c in expected], abs=1e-3)
        assert [(c.text, dict(c.metadata)) for c in found] == [(c.text, dict(c.metadata)) for c in expected]
    assert len(stage.search("bread", 2)) == 2
    assert len(stage.search("bread", 1000)) == 6


def test_it_is_every_kind_of_first_stage(stage: QdrantFirstStage, backbone: Backbone) -> None:
    assert isinstance(stage, BatchFirstStage)
    assert isinstance(stage, AsyncFirstStage)
    assert isinstance(stage, VectorFirstStage)
    assert stage.vector_space == backbone.label
    assert stage.checkpoint == "minilm"
    assert len(stage) == 6
    assert sorted(stage.ids) == IDS


def test_batch_and_async_agree_with_search(stage: QdrantFirstStage) -> None:
    queries = ["bread", "mountain lakes and ice in summer", "animals that live by the water"]
    single = [stage.search(q, 3) for q in queries]
    assert [ids(r) for r in stage.search_batch(queries, 3)] == [ids(r) for r in single]
    assert stage.search_batch([], 3) == []
    assert asyncio.run(stage.asearch(queries[0], 3)) == single[0]


def test_the_asynchronous_client_is_used(stage: QdrantFirstStage, monkeypatch: pytest.MonkeyPatch) -> None:
    async def main() -> list[list[Candidate]]:
        client = AsyncQdrantClient(":memory:")
        config = stage.client.get_collection(stage.collection).config.params
        await client.create_collection(stage.collection, config.vectors)
        records, _ = stage.client.scroll(stage.collection, limit=100, with_vectors=True)
        points = [models.PointStruct(id=r.id, vector=r.vector, payload=r.payload) for r in records]
        await client.upsert(stage.collection, points)
        twin = copy.copy(stage)
        twin.async_client = client
        twin.search = None  # type: ignore[method-assign, assignment]
        found = [await twin.asearch("bread", 3), await twin.asearch("bread", 9, filter={"topic": "animal"})]
        found += await asyncio.gather(*(twin.asearch(text, 1) for text in TEXTS))
        with pytest.raises(InvalidInputError, match="blank"):
            await twin.asearch(" ", 3)
        await client.delete_collection(stage.collection)
        with pytest.raises(FirstStageError, match="could not be searched"):
            await twin.asearch("bread", 3)
        await client.close()
        return found

    first, filtered, *rest = asyncio.run(main())
    assert first == stage.search("bread", 3)
    assert set(ids(filtered)) == {"0", "5"}
    assert [ids(r) for r in rest] == [[i] for i in IDS]


def test_filters(stage: QdrantFirstStage) -> None:
    assert set(ids(stage.search("bread", 10, filter={"topic": "animal"}))) == {"0", "5"}
    assert ids(stage.search("bread", 10, filter={"topic": "animal", "page": 5})) == ["5"]
    assert stage.search("bread", 10, filter={"colour": "red"}) == []
    assert stage.search("bread", 10, filter={"colour": None}) == []
    assert len(stage.search("bread", 10, filter={})) == 6
    either = models.FieldCondition(key="metadata.topic", match=models.MatchAny(any=["ice", "food"]))
    assert set(ids(stage.search("bread", 10, filter=models.Filter(must=[either])))) == {"2", "3"}
    found = stage.search_batch(["bread", "ice"], 10, filter={"topic": "music"})
    assert [set(ids(r)) for r in found] == [{"1", "4"}] * 2


def test_filters_of_every_kind(client: QdrantClient, backbone: Backbone) -> None:
    odd = {"a.b": "dotted", "ä ö": 1, "real": 2.5, "yes": True, "none": None, "many": ["x", "y"], "deep": {"in": 3}}
    stage = QdrantFirstStage.from_texts(
        TEXTS[:2], ids=["odd", "plain"], metadatas=[odd, {"yes": False, "real": 1}], client=client, backbone=backbone
    )
    for key in ("a.b", "ä ö", "real", "yes", "none"):
        assert ids(stage.search("otter", 9, filter={key: odd[key]})) == ["odd"], key
    assert ids(stage.search("otter", 9, filter={"real": 1.0, "yes": False})) == ["plain"]
    assert ids(stage.search("otter", 9, filter={"many": "y"})) == ["odd"]
    assert stage.search("otter", 1, filter={"yes": True})[0].metadata == odd
    bad: list[Any] = [{"deep": {"in": 3}}, {"many": ["x", "y"]}, {"real": float("nan")}, {1: 2}, {'a"b': 1}, {"": 1}]
    for filter in bad:
        with pytest.raises(InvalidInputError, match=r"filter"):
            stage.search("otter", 9, filter=filter)
    with pytest.raises(InvalidInputError, match="mapping"):
        stage.search("otter", 9, filter=["topic"])


@pytest.mark.parametrize("k", [0, -1, True, 2.0])
def test_bad_k(stage: QdrantFirstStage, k: int) -> None:
    with pytest.raises(InvalidInputError, match="k="):
        stage.search("bread", k)


def test_blank_query(stage: QdrantFirstStage) -> None:
    for query in ("", "  \n", None):
        with pytest.raises(InvalidInputError, match="blank"):
            stage.search(query, 3)  # type: ignore[arg-type]


def test_equal_scores_go_by_id(client: QdrantClient, backbone: Backbone) -> None:
    names = [f"n{(i * 7) % 40:02d}" for i in range(40)]
    stage = QdrantFirstStage.from_texts([TEXTS[i % 2] for i in range(40)], ids=names, client=client, backbone=backbone)
    found = stage.search("otter", 40)
    assert ids(found)[:20] == sorted(n for i, n in enumerate(names) if i % 2 == 0)
    assert ids(found)[20:] == sorted(n for i, n in enumerate(names) if i % 2)


# --- vectors --------------------------------------------------------------------------------------


def test_vectors_come_back_as_they_were_stored(stage: QdrantFirstStage, memory: MemoryFirstStage) -> None:
    order = ["4", "0", "4"]
    for ours, theirs in zip(stage.vectors(order), memory.vectors(order), strict=True):
        assert ours.windows == theirs.windows
        assert ours.vectors.dtype == theirs.vectors.dtype
        assert torch.equal(ours.vectors, theirs.vectors)
    assert stage.vectors([]) == []
    with pytest.raises(InvalidInputError, match=r"'zz'.*has 6"):
        stage.vectors(["1", "zz"])
    with pytest.raises(InvalidInputError, match="one string"):
        stage.vectors("12")


def test_windows_and_documents_without_tokens(client: QdrantClient, backbone: Backbone) -> None:
    short = Backbone(
        backbone.encoder, name="minilm", weights_hash=backbone.weights_hash, windows=WindowPolicy(words=8, max_words=80)
    )
    stage = QdrantFirstStage.from_texts([" ".join(TEXTS)], ids=["long"], client=client, backbone=short)
    (stored,) = stage.vectors(["long"])
    (fresh,) = short.encode_documents([" ".join(TEXTS)])
    assert len(stored.windows) > 3
    assert stored.windows == fresh.windows
    assert torch.equal(stored.vectors, fresh.vectors)
    empty = TokenVectors(torch.zeros(0, backbone.dim, dtype=backbone.dtype), (0,))
    other = QdrantFirstStage.from_candidates(
        [Candidate("signs", "…"), Candidate("otter", TEXTS[0])],
        vectors=[empty, *backbone.encode_documents(TEXTS[:1])],
        client=client, collection="other", backbone=backbone,
    )  # fmt: skip
    assert ids(other.search("otter", 2)) == ["otter", "signs"]
    assert other.vectors(["signs"])[0].vectors.shape == (0, backbone.dim)


def test_vectors_are_fetched_once_and_anew_when_written_anew(
    client: QdrantClient, backbone: Backbone, monkeypatch: pytest.MonkeyPatch
) -> None:
    stage = QdrantFirstStage.from_texts(TEXTS, ids=IDS, client=client, backbone=backbone)
    fetched: list[int] = []
    retrieve = client.retrieve

    def counting(name: str, points: Sequence[Any], **options: Any) -> Any:
        if options["with_vectors"]:
            fetched.append(len(points))
        return retrieve(name, points, **options)

    monkeypatch.setattr(client, "retrieve", counting)
    before = stage.vectors(["0", "1"])
    assert fetched == [2]
    stage.add(["Something else."], ids=["new"])
    assert torch.equal(stage.vectors(["1", "2"])[0].vectors, before[1].vectors)
    assert fetched == [2, 1]
    QdrantFirstStage(client, "documents", backbone=backbone).add([TEXTS[5]], ids=["1"], existing="replace")
    after = stage.vectors(["0", "1", "5"])
    assert torch.equal(after[0].vectors, before[0].vectors)
    assert torch.equal(after[1].vectors, backbone.encode_documents([TEXTS[5]])[0].vectors)
    assert fetched == [2, 1, 2]
    stage.delete(["0"])
    with pytest.raises(InvalidInputError, match="'0'"):
        stage.vectors(["0"])
    bare = QdrantFirstStage(client, "documents", backbone=backbone, cache_bytes=0)
    assert [v.windows for v in bare.vectors(["1"]) + bare.vectors(["1"])] == [after[1].windows] * 2
    assert fetched == [2, 1, 2, 1, 1]


def test_excise_ranks_with_the_frozen_vectors(
    excise_rules: Excise, client: QdrantClient, animals: list[Candidate], monkeypatch: pytest.MonkeyPatch
) -> None:
    query = "animals that people keep as pets, but not dogs"
    stage = QdrantFirstStage.from_candidates(animals, client=client, backbone=excise_rules.backbone)
    expected = excise_rules.search(query, MemoryFirstStage.from_candidates(animals, backbone=excise_rules.backbone))
    monkeypatch.setattr(Backbone, "encode_documents", None)
    for result in (excise_rules.search(query, stage), asyncio.run(excise_rules.asearch(query, stage))):
        assert ids(result.removed) == ids(expected.removed) == ["dog"]
        assert ids(result.candidates) == ids(expected.candidates)


# --- change ---------------------------------------------------------------------------------------


def test_add_and_delete(client: QdrantClient, backbone: Backbone, memory: MemoryFirstStage) -> None:
    grown = QdrantFirstStage.create(client, "grown", backbone=backbone)
    assert grown.search("bread", 3) == []
    assert len(grown) == 0
    (random,) = grown.add(["something to throw away"])
    assert grown.add(TEXTS, ids=IDS, metadatas=METADATAS) == IDS
    grown.delete([random])
    assert grown.add([]) == []
    grown.delete([])
    assert sorted(grown.ids) == IDS
    assert ids(grown.search("bread and yeast", 6)) == ids(memory.search("bread and yeast", 6))


def test_ids_that_are_there_already(client: QdrantClient, backbone: Backbone) -> None:
    stage = QdrantFirstStage.from_texts(TEXTS[:2], ids=["a", "b"], client=client, backbone=backbone)
    with pytest.raises(InvalidInputError, match=r"'b' is used twice.*existing='skip'"):
        stage.add(["new", "other"], ids=["c", "b"])
    assert sorted(stage.ids) == ["a", "b"]
    assert stage.add([TEXTS[2], "other"], ids=["c", "b"], existing="skip") == ["c", "b"]
    assert {c.id: c.text for c in stage.search("x", 9)} == {"a": TEXTS[0], "b": TEXTS[1], "c": TEXTS[2]}
    stage.add([TEXTS[3]], ids=["b"], metadatas=[{"new": True}], existing="replace")
    assert {c.id: c.text for c in stage.search("x", 9)}["b"] == TEXTS[3]
    assert ids(stage.search("glaciers", 1, filter={"new": True})) == ["b"]
    with pytest.raises(InvalidInputError, match="existing='perhaps'"):
        stage.add(["new"], ids=["d"], existing="perhaps")  # type: ignore[arg-type]


def test_bad_documents_are_refused_and_nothing_is_added(client: QdrantClient, backbone: Backbone) -> None:
    stage = QdrantFirstStage.from_texts(TEXTS[:2], ids=["a", "b"], client=client, backbone=backbone)
    before = stage.fingerprint
    bad: list[tuple[list[str], dict[str, Any], str]] = [
        (["new", "another"], {"ids": ["c", "c"]}, "'c' is used twice"),
        (["new", " \t"], {"ids": ["c", "d"]}, r"'d'.*blank"),
        (["new"], {"ids": [7]}, "not a string"),
        (["new", "another"], {"ids": ["c"]}, "2 texts but 1 ids"),
        (["new"], {"metadatas": []}, "1 texts but 0 metadatas"),
        (["new"], {"ids": ["c"], "metadatas": [{"when": object()}]}, r"'c'.*JSON"),
        (["new"], {"ids": ["c"], "metadatas": [{"x": float("nan")}]}, r"'c'.*JSON"),
        (["lone \ud800 surrogate"], {"ids": ["c"]}, r"'c'.*Unicode"),
    ]
    for texts, arguments, message in bad:
        with pytest.raises(InvalidInputError, match=message):
            stage.add(texts, **arguments)
    with pytest.raises(InvalidInputError, match="one string"):
        stage.add("new")
    with pytest.raises(InvalidInputError, match="'zz'"):
        stage.delete(["a", "zz"])
    with pytest.raises(InvalidInputError, match="one string"):
        stage.delete("ab")
    with pytest.raises(InvalidInputError, match="1 candidates but 0 vectors"):
        QdrantFirstStage.from_candidates([Candidate("x", "y")], vectors=[], client=client, collection="new")
    assert not client.collection_exists("new")
    assert stage.fingerprint == before
    assert sorted(stage.ids) == ["a", "b"]


def test_metadata_is_not_the_callers_object(client: QdrantClient, backbone: Backbone) -> None:
    mine = {"topic": ["animal"]}
    stage = QdrantFirstStage.from_texts(TEXTS[:1], metadatas=[mine], client=client, backbone=backbone)
    mine["topic"].append("changed")
    stage.search("otter", 1)[0].metadata["topic"].append("changed too")
    assert stage.search("otter", 1)[0].metadata["topic"] == ["animal"]


def random_vectors(backbone: Backbone, *tokens: int) -> list[TokenVectors]:
    generator = torch.Generator().manual_seed(0)
    made = [torch.nn.functional.normalize(torch.randn(t, backbone.dim, generator=generator), dim=1) for t in tokens]
    return [TokenVectors(v.to(backbone.dtype), (v.shape[0],)) for v in made]


def test_big_uploads_go_in_batches_with_progress(
    client: QdrantClient, backbone: Backbone, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    sizes: list[int] = []
    upsert = client.upsert

    def counting(name: str, points: list[models.PointStruct], **options: Any) -> Any:
        numbers = sum(len(p.vector["tokens"]) * backbone.dim for p in points)  # type: ignore[call-overload, index, arg-type]
        assert numbers <= 1024 * 1024
        sizes.append(len(points))
        return upsert(name, points, **options)

    monkeypatch.setattr(client, "upsert", counting)
    tokens = [3] * 300 + [4000, 4000, 4000]
    candidates = [Candidate(f"d{i}", "text") for i in range(len(tokens))]
    seen: list[tuple[int, int]] = []
    stage = QdrantFirstStage.from_candidates(
        candidates,
        vectors=random_vectors(backbone, *tokens),
        client=client,
        backbone=backbone,
        progress=lambda done, total: seen.append((done, total)),
    )
    assert len(stage) == sum(sizes) == 303
    assert len(sizes) > 2
    assert seen[-1] == (303, 303)
    assert [done for done, _ in seen] == [sum(sizes[: i + 1]) for i in range(len(sizes))]
    stage.add(TEXTS[:2], progress=True)
    captured = capsys.readouterr()
    assert "2/2" in captured.err
    assert captured.out == ""


def test_a_document_that_no_point_can_hold(client: QdrantClient, backbone: Backbone) -> None:
    stage = QdrantFirstStage.create(client, "big", backbone=backbone)
    tokens = 1024 * 1024 // backbone.dim + 1
    with pytest.raises(InvalidInputError, match=r"'huge'.*Cut it into passages"):
        QdrantFirstStage.from_candidates(
            [Candidate("huge", "text")],
            vectors=[TokenVectors(torch.zeros(tokens, backbone.dim), (tokens,))],
            client=client,
            backbone=backbone,
        )
    assert len(stage) == 0


def test_an_upload_that_breaks_off_can_be_taken_up(
    client: QdrantClient, backbone: Backbone, monkeypatch: pytest.MonkeyPatch
) -> None:
    stage = QdrantFirstStage.create(client, "broken", backbone=backbone)
    before = stage.fingerprint
    upsert, calls = client.upsert, 0

    def failing(*args: Any, **options: Any) -> Any:
        nonlocal calls
        calls += 1
        # A writer that is killed here leaves no old fingerprint.
        assert stage.fingerprint != before
        if calls == 2:
            raise ConnectionError("the server went away")
        return upsert(*args, **options)

    monkeypatch.setattr(client, "upsert", failing)
    texts = [f"{TEXTS[i % 6]} {i}" for i in range(300)]
    names = [f"t{i}" for i in range(300)]
    monkeypatch.setattr(backbone, "encode_documents", lambda texts: random_vectors(backbone, *([2] * len(texts))))
    with pytest.raises(FirstStageError, match=r"256 of 300 are stored.*the server went away"):
        stage.add(texts, ids=names)
    assert len(stage) == 256
    assert stage.fingerprint != before
    assert stage.add(texts, ids=names, existing="skip") == names
    assert len(stage) == 300


# --- collections ----------------------------------------------------------------------------------


def test_fingerprint_changes_with_the_collection_for_everybody(client: QdrantClient, backbone: Backbone) -> None:
    writer = QdrantFirstStage.from_texts(TEXTS[:2], ids=["a", "b"], client=client, backbone=backbone)
    reader = QdrantFirstStage(client, "documents", backbone=backbone)
    seen = [reader.fingerprint]
    assert writer.fingerprint == seen[0] == reader.fingerprint
    writer.add(["new"], ids=["c"])
    seen.append(reader.fingerprint)
    writer.add(["newer"], ids=["c"], existing="replace")
    seen.append(reader.fingerprint)
    writer.delete(["c"])
    seen.append(reader.fingerprint)
    assert len(set(seen)) == 4
    assert len(reader) == 2


def test_opening_what_is_not_there_or_not_ours(client: QdrantClient, backbone: Backbone) -> None:
    with pytest.raises(IndexDamagedError, match=r"no Qdrant collection 'nowhere'.*create"):
        QdrantFirstStage(client, "nowhere", backbone=backbone)
    client.create_collection("theirs", models.VectorParams(size=4, distance=models.Distance.COSINE))
    with pytest.raises(IndexDamagedError, match="does not say which encoder"):
        QdrantFirstStage(client, "theirs", backbone=backbone)
    with pytest.raises(FirstStageError, match="'theirs' already"):
        QdrantFirstStage.create(client, "theirs", backbone=backbone)
    QdrantFirstStage.create(client, "ours", backbone=backbone)
    other = copy.copy(backbone)
    other.weights_hash = "0" * 64
    with pytest.raises(FirstStageError, match="was filled with minilm@"):
        QdrantFirstStage(client, "ours", backbone=other)
    with pytest.raises(FirstStageError, match="could not be made"):
        QdrantFirstStage.create(client, "new", backbone=backbone, collection_options={"no_such": 1})


def test_options_reach_qdrant(client: QdrantClient, backbone: Backbone) -> None:
    stage = QdrantFirstStage.create(
        client, "tuned", backbone=backbone, search_params={"exact": True},
        vector_options={"on_disk": True, "datatype": models.Datatype.FLOAT16},
    )  # fmt: skip
    params: Any = client.get_collection("tuned").config.params.vectors
    assert (params["tokens"].on_disk, params["tokens"].datatype) == (True, models.Datatype.FLOAT16)
    assert params["tokens"].multivector_config.comparator == models.MultiVectorComparator.MAX_SIM
    assert stage.search_params is not None
    assert stage.search_params.exact is True
    assert stage.search("bread", 3) == []


def test_a_folder_outlives_its_client(tmp_path: Path, backbone: Backbone) -> None:
    folder = tmp_path / "qdrant"
    stage = QdrantFirstStage.from_texts(TEXTS, ids=IDS, client=folder, collection="kept", backbone=backbone)
    with ThreadPoolExecutor(4) as pool:
        # Also from threads that did not open it.
        list(pool.map(lambda i: stage.add([f"more of {i}"], ids=[f"more {i}"]), range(8)))
    expected, fingerprint = stage.search("bread", 3), stage.fingerprint
    with pytest.raises(FirstStageError, match="cannot be opened"):
        QdrantFirstStage(str(folder), "kept", backbone=backbone)
    stage.client.close()
    again = QdrantFirstStage(folder, "kept")  # the backbone by its name
    assert (len(again), again.fingerprint) == (14, fingerprint)
    assert again.search("bread", 3) == expected
    again.client.close()


def test_many_threads(client: QdrantClient, backbone: Backbone) -> None:
    stage = QdrantFirstStage.from_texts(TEXTS, ids=IDS, client=client, backbone=backbone)

    def work(i: int) -> list[str]:
        if i % 4 == 0:
            stage.add([f"Something else entirely, number {i}"], ids=[f"x{i}"])
            stage.delete([f"x{i}"])
        return ids(stage.search(TEXTS[i % 6], 1))

    with ThreadPoolExecutor(8) as pool:
        assert list(pool.map(work, range(48))) == [[IDS[i % 6]] for i in range(48)]
    assert sorted(stage.ids) == IDS


def test_copies_share_the_collection_and_the_model(stage: QdrantFirstStage) -> None:
    for twin in (copy.copy(stage), copy.deepcopy(stage)):
        assert twin.backbone is stage.backbone
        assert twin.client is stage.client
        assert ids(twin.search("bread", 2)) == ids(stage.search("bread", 2))
    with pytest.raises(InvalidInputError, match="use a Qdrant server"):
        pickle.dumps(stage)


def test_without_the_client_the_extra_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("qdrant", "_qdrant_points", "_qdrant_collection"):
        monkeypatch.delitem(sys.modules, f"excise_integrations.first_stage.{name}")
    monkeypatch.setitem(sys.modules, "qdrant_client", None)
    with pytest.raises(MissingExtraError, match=r"excise-integrations\[qdrant\]"):
        import excise_integrations.first_stage.qdrant  # noqa: F401
