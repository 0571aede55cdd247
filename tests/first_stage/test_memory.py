"""Exact MaxSim in memory, its changes, and its files."""

from __future__ import annotations

import asyncio
import copy
import json
import pickle
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import pytest
import torch

from excise_integrations.encode import Backbone, TokenVectors, WindowPolicy, maxsim
from excise_integrations.errors import FirstStageError, IndexDamagedError, InvalidInputError
from excise_integrations.first_stage.base import AsyncFirstStage, BatchFirstStage, VectorFirstStage
from excise_integrations.first_stage.memory import MemoryFirstStage
from excise_integrations.types import Candidate

TEXTS = [
    "The otter hunts crabs along the river bank at dusk.",
    "A violin maker carves the scroll from a single block of maple.",
    "Sourdough bread rises slowly because wild yeast works at its own pace.",
    "Glaciers grind rock into a fine flour that turns lakes turquoise.",
    "The cellist tunes the lowest string before the rehearsal.",
    "Beavers fell trees and dam streams, which floods the meadow.",
]
METADATAS = [{"topic": t, "page": i} for i, t in enumerate(["animal", "music", "food", "ice", "music", "animal"])]


@pytest.fixture(scope="module")
def stage(backbone: Backbone) -> MemoryFirstStage:
    return MemoryFirstStage.from_texts(TEXTS, metadatas=METADATAS, backbone=backbone)


def ids(candidates: Sequence[Candidate]) -> list[str]:
    return [c.id for c in candidates]


def test_search_is_exact_maxsim_over_the_backbones_vectors(stage: MemoryFirstStage, backbone: Backbone) -> None:
    query = "string instruments"
    found = stage.search(query, 6)
    expected = maxsim(
        backbone.encode_queries([query])[0].vectors.float(),
        [replace(v, vectors=v.vectors.float()) for v in stage.vectors([str(i) for i in range(6)])],
    )
    assert {c.id: c.score for c in found} == pytest.approx({str(i): float(s) for i, s in enumerate(expected)}, abs=1e-4)
    assert [c.score for c in found] == sorted((c.score for c in found), reverse=True)
    assert set(ids(found)[:2]) == {"1", "4"}
    assert found[0].text == TEXTS[int(found[0].id)]
    assert found[0].metadata["topic"] == "music"


def test_it_is_every_kind_of_first_stage(stage: MemoryFirstStage) -> None:
    assert isinstance(stage, BatchFirstStage)
    assert isinstance(stage, AsyncFirstStage)
    assert isinstance(stage, VectorFirstStage)
    assert stage.vector_space == stage.backbone.label
    assert len(stage) == 6


def test_batch_and_async_agree_with_search(stage: MemoryFirstStage) -> None:
    queries = ["bread", "mountain lakes and ice in summer", "animals that live by the water"]
    single = [stage.search(q, 3) for q in queries]
    assert [ids(r) for r in stage.search_batch(queries, 3)] == [ids(r) for r in single]
    assert asyncio.run(stage.asearch(queries[0], 3)) == single[0]
    assert stage.search_batch([], 3) == []


def test_many_queries_and_documents_cross_every_chunk(backbone: Backbone) -> None:
    generator = torch.Generator().manual_seed(0)

    def document(*windows: int) -> TokenVectors:
        v = torch.randn(sum(windows), backbone.dim, generator=generator)
        return TokenVectors(torch.nn.functional.normalize(v, dim=1).to(backbone.dtype), windows)

    shapes = [(7,), (300, 5), (1,), (2500,), (40, 40, 40), (2048,), (3,)] * 2
    documents = [document(*shape) for shape in shapes]
    candidates = [Candidate(f"d{i}", "text") for i in range(len(documents))]
    big = MemoryFirstStage.from_candidates(candidates, vectors=documents, backbone=backbone)
    queries = [f"query number {i} about " + "many different things " * (i % 5) for i in range(24)]
    for query, found in zip(queries, big.search_batch(queries, len(candidates)), strict=True):
        encoded = backbone.encode_queries([query])[0].vectors.float()
        for candidate in found[:: len(found) // 4]:
            vectors = documents[int(candidate.id[1:])]
            exact = max(
                float((piece.float() @ encoded.T).amax(0).sum()) for piece in vectors.vectors.split(vectors.windows)
            )
            assert candidate.score == pytest.approx(exact, abs=0.15)  # the batch pads the query
        assert len(found) == len(candidates)
    exact_again = {c.id: c.score for c in big.search(queries[3], 100)}
    alone = maxsim(
        backbone.encode_queries([queries[3]])[0].vectors.float(),
        [replace(d, vectors=d.vectors.float()) for d in documents],
    )
    assert exact_again == pytest.approx({f"d{i}": float(s) for i, s in enumerate(alone)}, abs=1e-3)
    for given, kept in zip(documents, big.vectors(ids(candidates)), strict=True):
        assert kept.windows == given.windows
        assert torch.equal(kept.vectors, given.vectors)


def test_a_long_document_counts_by_its_best_window(backbone: Backbone) -> None:
    short = Backbone(
        backbone.encoder, name="minilm", weights_hash=backbone.weights_hash, windows=WindowPolicy(words=8, max_words=80)
    )
    long_text = " ".join([TEXTS[2]] * 2 + [TEXTS[1]])
    stage = MemoryFirstStage.from_texts([long_text, "A violin string snapped."], backbone=short)
    windows = stage.vectors(["0"])[0].windows
    assert len(windows) > 2
    pieces = stage.vectors(["0"])[0].vectors.split(windows)
    query = short.encode_queries(["maple violin scroll"])[0].vectors.float()
    best = max(float((p.float() @ query.T).amax(0).sum()) for p in pieces)
    found = {c.id: c.score for c in stage.search("maple violin scroll", 2)}
    assert found["0"] == pytest.approx(best, abs=1e-4)


def test_equal_scores_keep_the_order_of_insertion(backbone: Backbone) -> None:
    texts = [TEXTS[i % 3] for i in range(40)]
    names = [f"n{(i * 7) % 40}" for i in range(40)]
    stage = MemoryFirstStage.from_texts(texts, ids=names, backbone=backbone)
    found = stage.search("otter", 40)
    for text in TEXTS[:3]:
        assert [c.id for c in found if c.text == text] == [n for n, t in zip(names, texts, strict=True) if t == text]
    assert ids(stage.search("otter", 5)) == ids(found)[:5]


def test_filter_keeps_only_what_carries_the_metadata(stage: MemoryFirstStage) -> None:
    assert set(ids(stage.search("bread", 10, filter={"topic": "animal"}))) == {"0", "5"}
    assert ids(stage.search("bread", 10, filter={"topic": "animal", "page": 5})) == ["5"]
    assert stage.search("bread", 10, filter={"colour": "red"}) == []
    assert stage.search("bread", 10, filter={"colour": None}) == []
    assert len(stage.search("bread", 10, filter={})) == 6
    with pytest.raises(InvalidInputError, match="mapping"):
        stage.search("bread", 10, filter=["topic"])  # type: ignore[arg-type]


def test_fewer_results_than_k(stage: MemoryFirstStage) -> None:
    assert len(stage.search("bread", 1000)) == 6
    assert len(stage.search("bread", 2)) == 2


@pytest.mark.parametrize("k", [0, -1, True, 2.0])
def test_bad_k(stage: MemoryFirstStage, k: int) -> None:
    with pytest.raises(InvalidInputError, match="k="):
        stage.search("bread", k)


@pytest.mark.parametrize("query", ["", "  \n", None])
def test_blank_query(stage: MemoryFirstStage, query: str) -> None:
    with pytest.raises(InvalidInputError, match="blank"):
        stage.search(query, 3)


def test_bad_documents_are_refused_and_nothing_is_added(backbone: Backbone) -> None:
    stage = MemoryFirstStage.from_texts(TEXTS[:2], ids=["a", "b"], backbone=backbone)
    before = stage.fingerprint
    with pytest.raises(InvalidInputError, match="'b'"):
        stage.add(["new", "another"], ids=["c", "b"])
    with pytest.raises(InvalidInputError, match="'c'"):
        stage.add(["new", "another"], ids=["c", "c"])
    with pytest.raises(InvalidInputError, match=r"'d'.*blank"):
        stage.add(["new", " \t"], ids=["c", "d"])
    with pytest.raises(InvalidInputError, match="not a string"):
        stage.add(["new"], ids=[7])  # type: ignore[list-item]
    with pytest.raises(InvalidInputError, match="2 texts but 1 ids"):
        stage.add(["new", "another"], ids=["c"])
    with pytest.raises(InvalidInputError, match="one string"):
        stage.add("new")
    with pytest.raises(InvalidInputError, match="dimension"):
        stage.from_candidates([Candidate("x", "y")], vectors=[], backbone=backbone)
    with pytest.raises(InvalidInputError, match="'zz'"):
        stage.delete(["a", "zz"])
    with pytest.raises(InvalidInputError, match="'zz'"):
        stage.vectors(["zz"])
    assert stage.fingerprint == before
    assert stage.ids == ["a", "b"]


def test_add_and_delete_leave_what_a_fresh_build_would(backbone: Backbone, stage: MemoryFirstStage) -> None:
    grown = MemoryFirstStage(backbone)
    assert grown.search("bread", 3) == []
    assert grown.add(TEXTS[:1]) == ["0"]
    assert grown.add(["something to throw away", *TEXTS[1:4]], ids=["x", "1", "2", "3"])[0] == "x"
    assert grown.add([TEXTS[4]], ids=["5"]) == ["5"]
    assert grown.add([TEXTS[5], "and more"]) == ["6", "7"]
    grown.delete(["x", "7"])
    assert grown.ids == ["0", "1", "2", "3", "5", "6"]
    for query in ("music", "bread and yeast"):
        assert [c.text for c in grown.search(query, 6)] == [c.text for c in stage.search(query, 6)]
        assert [c.score for c in grown.search(query, 6)] == pytest.approx(
            [c.score for c in stage.search(query, 6)], abs=0.05
        )


def test_fingerprint_changes_with_everything_a_search_depends_on(backbone: Backbone) -> None:
    def built(**change: object) -> str:
        candidate = Candidate(**{"id": "a", "text": "one", "metadata": {"x": 1}, **change})  # type: ignore[arg-type]
        vectors = [TokenVectors(torch.ones(1, backbone.dim, dtype=backbone.dtype), (1,))]
        return MemoryFirstStage.from_candidates([candidate], vectors=vectors, backbone=backbone).fingerprint

    variants = [built(), built(id="b"), built(text="two"), built(metadata={"x": 2})]
    assert len(set(variants)) == 4
    assert built() == variants[0]


def test_candidates_metadata_is_not_the_callers_object(backbone: Backbone) -> None:
    mine = {"topic": "animal"}
    stage = MemoryFirstStage.from_texts(TEXTS[:1], metadatas=[mine], backbone=backbone)
    mine["topic"] = "changed"
    assert stage.search("otter", 1)[0].metadata["topic"] == "animal"


def test_copies_and_pickles_search_alike_and_change_apart(stage: MemoryFirstStage) -> None:
    twin = copy.deepcopy(stage)
    assert twin.backbone is stage.backbone
    twin.delete(["0"])
    assert len(stage) == 6
    thawed = pickle.loads(pickle.dumps(stage))
    assert thawed.search("bread", 3) == stage.search("bread", 3)
    thawed.add(["one more"])
    assert len(thawed) == 7


def test_progress_reaches_the_total(backbone: Backbone, capsys: pytest.CaptureFixture[str]) -> None:
    seen: list[tuple[int, int]] = []
    MemoryFirstStage.from_texts(TEXTS, backbone=backbone, progress=lambda done, total: seen.append((done, total)))
    assert seen[-1] == (6, 6)
    assert seen == sorted(seen)
    MemoryFirstStage.from_texts(TEXTS, backbone=backbone, progress=True)
    captured = capsys.readouterr()
    assert "6/6" in captured.err
    assert captured.out == ""


# --- files ------------------------------------------------------------------------------


def test_save_and_load_keep_everything(stage: MemoryFirstStage, tmp_path: Path) -> None:
    odd = copy.deepcopy(stage)
    text = "naïve \u2028 text \ud800 with\r\nodd characters 🦦"
    odd.add([text], ids=["ü/1"], metadatas=[{"deep": {"list": [1, None]}}])
    folder = odd.save(tmp_path / "deep" / "index")
    again = MemoryFirstStage.load(folder, backbone=odd.backbone)
    assert again.fingerprint == odd.fingerprint
    assert again.search("odd characters", 7) == odd.search("odd characters", 7)
    assert again.search("x", 9, filter={"deep": {"list": [1, None]}})[0].text == text
    assert [p.name for p in folder.iterdir() if p.name.startswith(".")] == []


def test_saving_again_replaces_the_old_index(stage: MemoryFirstStage, tmp_path: Path) -> None:
    folder = stage.save(tmp_path / "index")
    stage.save(folder)
    assert len(MemoryFirstStage.load(folder, backbone=stage.backbone)) == 6
    smaller = copy.deepcopy(stage)
    smaller.delete(["3"])
    smaller.save(folder)
    assert MemoryFirstStage.load(folder, backbone=stage.backbone).ids == smaller.ids
    assert len(list(folder.iterdir())) == 3


def test_an_empty_collection_can_be_saved(backbone: Backbone, tmp_path: Path) -> None:
    folder = MemoryFirstStage(backbone).save(tmp_path / "index")
    assert MemoryFirstStage.load(folder, backbone=backbone).search("bread", 3) == []


def test_a_failed_save_leaves_the_old_index(
    stage: MemoryFirstStage, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = stage.save(tmp_path / "index")
    changed = copy.deepcopy(stage)
    changed.add(["new"], metadatas=[{"when": object()}], ids=["new"])
    with pytest.raises(InvalidInputError, match=r"'new'.*JSON"):
        changed.save(folder)
    changed.delete(["new", "1"])
    replaced = Path.replace

    def die_at_the_manifest(self: Path, target: Path) -> Path:
        if self.name == "manifest.json":
            raise KeyboardInterrupt
        return replaced(self, target)

    with monkeypatch.context() as patch:
        patch.setattr(Path, "replace", die_at_the_manifest)
        with pytest.raises(KeyboardInterrupt):
            changed.save(folder)
    assert MemoryFirstStage.load(folder, backbone=stage.backbone).ids == stage.ids
    changed.save(folder)
    assert MemoryFirstStage.load(folder, backbone=stage.backbone).ids == changed.ids


def test_a_folder_with_something_else_is_refused(stage: MemoryFirstStage, tmp_path: Path) -> None:
    (tmp_path / "precious.txt").write_text("keep me")
    with pytest.raises(FirstStageError, match="not empty"):
        stage.save(tmp_path)
    with pytest.raises(FirstStageError, match="is a file"):
        stage.save(tmp_path / "precious.txt")
    (tmp_path / "manifest.json").write_text('{"task": "detector"}')
    with pytest.raises(IndexDamagedError, match="not the manifest"):
        stage.save(tmp_path)
    assert (tmp_path / "precious.txt").read_text() == "keep me"


def test_damaged_indexes_are_named(stage: MemoryFirstStage, tmp_path: Path) -> None:
    backbone = stage.backbone
    with pytest.raises(IndexDamagedError, match="no such folder"):
        MemoryFirstStage.load(tmp_path / "nowhere", backbone=backbone)
    with pytest.raises(IndexDamagedError, match="not a memory index"):
        MemoryFirstStage.load(tmp_path, backbone=backbone)
    folder = stage.save(tmp_path / "index")
    vectors = next(folder.glob("vectors-*"))
    content = vectors.read_bytes()
    vectors.write_bytes(content[:-1] + bytes([content[-1] ^ 1]))
    with pytest.raises(IndexDamagedError, match="sha256"):
        MemoryFirstStage.load(folder, backbone=backbone)
    vectors.unlink()
    with pytest.raises(IndexDamagedError, match="lacks"):
        MemoryFirstStage.load(folder, backbone=backbone)
    vectors.write_bytes(content)
    manifest = json.loads((folder / "manifest.json").read_text())
    for change in ({"documents": 5}, {"vectors_file": "../x"}, {"format": 2}):
        (folder / "manifest.json").write_text(json.dumps({**manifest, **change}))
        with pytest.raises(IndexDamagedError):
            MemoryFirstStage.load(folder, backbone=backbone)
    (folder / "manifest.json").write_text(json.dumps(manifest))
    assert len(MemoryFirstStage.load(folder, backbone=backbone)) == 6


def test_an_index_of_another_backbone_is_refused(stage: MemoryFirstStage, tmp_path: Path) -> None:
    folder = stage.save(tmp_path / "index")
    other = copy.copy(stage.backbone)
    other.weights_hash = "0" * 64
    with pytest.raises(FirstStageError, match="was built with minilm@"):
        MemoryFirstStage.load(folder, backbone=other)
