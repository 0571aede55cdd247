"""A RAGatouille index as a first stage: searching, opening from anywhere, refusing what is damaged."""

from __future__ import annotations

import asyncio
import copy
import importlib.util
import json
import pickle
import shutil
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
import torch
from ragatouille_fixtures import LONG, RagatouilleIndex, documents, projection

from excise_integrations.encode import Backbone, maxsim
from excise_integrations.encode.export import export_minilm
from excise_integrations.errors import FirstStageError, IndexDamagedError, InvalidInputError, MissingExtraError
from excise_integrations.first_stage import AsyncFirstStage, BatchFirstStage, FirstStage, VectorFirstStage
from excise_integrations.first_stage import _ragatouille_search as internals
from excise_integrations.first_stage.ragatouille import RagatouilleFirstStage

# 15 words, 60 tokens and more: RAGatouille itself reads 32 of them.
WORDY = (
    "counterrevolutionaries electroencephalographically immunohistochemistry deinstitutionalization "
    "otorhinolaryngological psychoneuroendocrinology spectrophotofluorometrically hypercholesterolemia "
    "thyroparathyroidectomized radioimmunoelectrophoresis about"
)


def rows(candidates: Any) -> list[tuple[str, float]]:
    return [(c.id, c.score) for c in candidates]


# --- searching ---------------------------------------------------------------------------------


def test_it_is_every_kind_of_first_stage(stage: RagatouilleFirstStage) -> None:
    for protocol in (FirstStage, BatchFirstStage, AsyncFirstStage, VectorFirstStage):
        assert isinstance(stage, protocol)


def test_candidates_are_passages_with_their_documents_metadata(stage: RagatouilleFirstStage) -> None:
    found = stage.search("history of jazz music", 3)
    best = found[0]
    assert [type(c.id) for c in found] == [str] * 3
    assert "jazz music, and in particular about history" in best.text
    assert dict(best.metadata) == {
        "subject": "jazz music",
        "aspect": "history",
        "tags": ["history"],
        "document_id": "music-history",
    }
    scores = [c.score for c in found]
    assert scores == sorted(scores, reverse=True)
    passages = [c for c in stage.search("river", 100) if c.metadata["document_id"] == LONG]
    assert len(passages) > 1
    assert len({c.id for c in passages}) == len(passages)


def test_metadata_handed_out_is_the_callers(stage: RagatouilleFirstStage) -> None:
    stage.search("history of jazz music", 1)[0].metadata["tags"].append("mine")
    assert stage.search("history of jazz music", 1)[0].metadata["tags"] == ["history"]


def test_the_tail_of_a_long_query_counts(stage: RagatouilleFirstStage) -> None:
    tokens = len(stage._searcher.checkpoint.query_tokenizer.tok(WORDY)["input_ids"])
    assert tokens > 32 > len(WORDY.split()) * 1.35
    tails = ("jazz music", "mountain hiking")
    for tail, found in zip(tails, stage.search_batch([f"{WORDY} {tail}" for tail in tails], 3), strict=True):
        assert found[0].metadata["subject"] == tail
    # And nothing is left of it for the next query.
    assert stage._searcher.checkpoint.query_tokenizer.query_maxlen == 32


def test_a_query_beyond_the_models_limit_is_searched_as_far_as_it_goes(
    stage: RagatouilleFirstStage, caplog: pytest.LogCaptureFixture
) -> None:
    assert len(stage.search("jazz music " * 400, 2)) == 2
    assert "cut at 508" in caplog.text


def test_k_candidates_come_back_as_long_as_there_are_any(stage: RagatouilleFirstStage) -> None:
    count = len(stage)
    for k in (1, count - 1, count, count + 1, 10_000):
        found = stage.search("prices of electric cars", k)
        assert len({c.id for c in found}) == len(found) == min(k, count)
    everything = stage.search("prices of electric cars", count)
    assert rows(everything)[:5] == rows(stage.search("prices of electric cars", 5))


def test_more_is_asked_for_when_the_index_is_too_big_to_score_whole(
    stage: RagatouilleFirstStage, monkeypatch: pytest.MonkeyPatch
) -> None:
    whole = rows(stage.search("astronomy for beginners", len(stage)))
    monkeypatch.setattr(internals, "_EXACT_UP_TO", 0)
    monkeypatch.setattr(internals, "_SCORED_AT_ONCE", 0)
    monkeypatch.setattr(internals.IndexSearcher, "_breadth", lambda self: 1)
    assert [i for i, _ in rows(stage.search("astronomy for beginners", len(stage)))] == [i for i, _ in whole]
    some = stage.search("astronomy for beginners", 5, filter={"subject": "house cats"})
    assert [c.metadata["subject"] for c in some] == ["house cats"] * 5


def test_filter(stage: RagatouilleFirstStage) -> None:
    found = stage.search("history of jazz music", 50, filter={"subject": "house cats"})
    assert sorted({c.metadata["subject"] for c in found}) == ["house cats"]
    assert len(found) == 5
    whole = {c.id: c.score for c in stage.search("history of jazz music", len(stage))}
    assert all(c.score == pytest.approx(whole[c.id], abs=1e-4) for c in found)
    both = stage.search("history of jazz music", 50, filter={"subject": "house cats", "aspect": "prices"})
    assert [c.metadata["document_id"] for c in both] == ["cats-prices"]
    assert [c.id for c in stage.search("cats", 50, filter={"document_id": "cats-prices"})] == [both[0].id]
    assert stage.search("cats", 5, filter={"subject": "nothing"}) == []
    assert stage.search("cats", 5, filter={"no such key": None}) == []
    assert rows(stage.search("cats", 5, filter={})) == rows(stage.search("cats", 5))


def test_one_passage_per_document(ragatouille_index: RagatouilleIndex, stage: RagatouilleFirstStage) -> None:
    single = RagatouilleFirstStage.from_index(ragatouille_index.path, one_per_document=True)
    for query in ("fish in the river", "jazz music"):
        best: dict[str, str] = {}
        for candidate in stage.search(query, len(stage)):
            best.setdefault(candidate.metadata["document_id"], candidate.id)
        assert [c.id for c in single.search(query, 10)] == list(best.values())[:10]
        assert len(single.search(query, 100)) == len(documents()[1])
    assert pickle.loads(pickle.dumps(single)).search("river", 100)[1].metadata["document_id"] != LONG


def test_batch_and_async_are_the_same_search(stage: RagatouilleFirstStage) -> None:
    queries = ["history of jazz music", f"{WORDY} contract law", "cats", "famous people in astronomy"]
    single = [rows(stage.search(query, 7)) for query in queries]
    for found, expected in zip(stage.search_batch(queries, 7), single, strict=True):
        assert [i for i, _ in rows(found)] == [i for i, _ in expected]
        assert [s for _, s in rows(found)] == pytest.approx([s for _, s in expected], abs=1e-4)
    assert stage.search_batch([], 7) == []

    async def together() -> list[Any]:
        return await asyncio.gather(*(stage.asearch(query, 7) for query in queries))

    assert [rows(found) for found in asyncio.run(together())] == single


def test_many_threads_get_what_one_gets(stage: RagatouilleFirstStage) -> None:
    work = [(f"{aspect} of {WORDY if n % 3 == 0 else 'cats'}", 1 + n % 40) for n, aspect in enumerate(["history"] * 24)]
    expected = [rows(stage.search(query, k)) for query, k in work]
    with ThreadPoolExecutor(8) as pool:
        found = list(pool.map(lambda job: rows(stage.search(*job)), work))
    assert found == expected


def test_vectors_are_the_ones_that_were_scored(stage: RagatouilleFirstStage) -> None:
    found = stage.search("prices of electric cars", 20)
    vectors = stage.vectors([c.id for c in found])
    (query,) = stage._searcher.query_vectors(["prices of electric cars"])
    torch.testing.assert_close(maxsim(query[0], vectors), torch.tensor([c.score for c in found]), atol=1e-3, rtol=0)
    own, lengths = stage._searcher.encode([c.text for c in found])
    assert [v.vectors.shape[0] for v in vectors] == lengths
    assert (torch.cat([v.vectors for v in vectors]) * own).sum(-1).mean() >= 0.98
    assert stage.vectors([]) == []


def test_vectors_come_from_the_checkpoint_where_the_index_is_too_coarse(
    ragatouille_index: RagatouilleIndex, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(internals, "_EXACT_ENOUGH", 1.1)
    coarse = RagatouilleFirstStage.from_index(ragatouille_index.path)
    (vectors,) = coarse.vectors(["3"])
    own, _ = coarse._searcher.encode([documents()[0][3]])
    torch.testing.assert_close(vectors.vectors, own)


def test_vectors_are_in_the_space_of_the_checkpoints_backbone(stage: RagatouilleFirstStage) -> None:
    backbone = Backbone.from_pretrained(stage.checkpoint)
    assert stage.vector_space == backbone.label
    (ours,), (theirs,) = stage.vectors(["0"]), backbone.encode_documents([documents()[0][0]])
    assert ours.vectors.shape == theirs.vectors.shape
    assert (ours.vectors * theirs.vectors.float()).sum(-1).mean() >= 0.98


@pytest.mark.parametrize("query", ["", "  \n", None])
def test_a_blank_query_is_refused(stage: RagatouilleFirstStage, query: Any) -> None:
    with pytest.raises(InvalidInputError, match="blank"):
        stage.search(query, 3)


@pytest.mark.parametrize("k", [0, -1, 2.5, True])
def test_a_senseless_k_is_refused(stage: RagatouilleFirstStage, k: Any) -> None:
    with pytest.raises(InvalidInputError, match="at least 1"):
        stage.search("cats", k)


def test_other_bad_arguments(stage: RagatouilleFirstStage) -> None:
    with pytest.raises(InvalidInputError, match="give a list of queries"):
        stage.search_batch("cats", 3)
    with pytest.raises(InvalidInputError, match="not a mapping"):
        stage.search("cats", 3, filter=["subject"])  # type: ignore[arg-type]
    for unknown in (str(len(stage)), "-1", "01", "x", ""):
        with pytest.raises(InvalidInputError, match="no passage"):
            stage.vectors([unknown])


# --- opening -----------------------------------------------------------------------------------


def test_a_renamed_index_opens_from_any_directory_by_any_path(
    ragatouille_index: RagatouilleIndex, stage: RagatouilleFirstStage, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    ragatouille_index.copy(tmp_path, "another name")
    monkeypatch.chdir(tmp_path)
    expected = rows(stage.search("cats", 5))
    for path in ("another name", Path("another name"), str(tmp_path / "another name") + "/"):
        opened = RagatouilleFirstStage.from_index(path)
        assert opened.path == tmp_path / "another name"
        assert opened.fingerprint == stage.fingerprint
        monkeypatch.chdir("/")
        assert rows(opened.search("cats", 5)) == expected
        monkeypatch.chdir(tmp_path)
    assert [p.name for p in tmp_path.iterdir()] == ["another name"]


def test_copies_share_and_pickles_reopen(stage: RagatouilleFirstStage) -> None:
    assert copy.copy(stage) is stage
    assert copy.deepcopy({"stage": stage})["stage"] is stage
    data = pickle.dumps(stage)
    assert len(data) < 2000
    assert rows(pickle.loads(data).search("cats", 5)) == rows(stage.search("cats", 5))


def test_integer_document_ids(ragatouille_index: RagatouilleIndex, tmp_path: Path) -> None:
    path = ragatouille_index.copy(tmp_path)
    owners = json.loads((path / "pid_docid_map.json").read_text())
    numbers = {name: number for number, name in enumerate(dict.fromkeys(owners.values()))}
    metadata = json.loads((path / "docid_metadata_map.json").read_text())
    (path / "pid_docid_map.json").write_text(json.dumps({pid: numbers[name] for pid, name in owners.items()}))
    (path / "docid_metadata_map.json").write_text(json.dumps({numbers[name]: m for name, m in metadata.items()}))
    best = RagatouilleFirstStage.from_index(path).search("history of jazz music", 1)[0]
    assert best.metadata["document_id"] == "0"
    assert best.metadata["subject"] == "jazz music"


def test_an_index_without_metadata(ragatouille_index: RagatouilleIndex, tmp_path: Path) -> None:
    path = ragatouille_index.copy(tmp_path)
    (path / "docid_metadata_map.json").unlink()
    best = RagatouilleFirstStage.from_index(path).search("history of jazz music", 1)[0]
    assert dict(best.metadata) == {"document_id": "music-history"}


def test_a_moved_checkpoint(ragatouille_index: RagatouilleIndex, tmp_path: Path) -> None:
    path = ragatouille_index.copy(tmp_path / "project" / "indexes")
    record = json.loads((path / "metadata.json").read_text())
    record["config"]["checkpoint"] = "models/minilm"
    (path / "metadata.json").write_text(json.dumps(record))
    with pytest.raises(FirstStageError, match=r"'models/minilm'.*checkpoint="):
        RagatouilleFirstStage.from_index(path)
    opened = RagatouilleFirstStage.from_index(path, checkpoint=ragatouille_index.checkpoint)
    assert opened.checkpoint == str(ragatouille_index.checkpoint)
    # A relative path is looked for beside the folders above the index, too.
    shutil.copytree(ragatouille_index.checkpoint, tmp_path / "project" / "models" / "minilm")
    assert RagatouilleFirstStage.from_index(path).checkpoint == str(tmp_path / "project" / "models" / "minilm")


def test_a_checkpoint_that_names_its_ancestor_on_the_hub(ragatouille_index: RagatouilleIndex, tmp_path: Path) -> None:
    checkpoint = Path(shutil.copytree(ragatouille_index.checkpoint, tmp_path / "c"))
    record = json.loads((checkpoint / "artifact.metadata").read_text())
    (checkpoint / "artifact.metadata").write_text(json.dumps({**record, "model_name": "somebody/not-there"}))
    path = ragatouille_index.copy(tmp_path)
    record = json.loads((path / "metadata.json").read_text())
    record["config"]["model_name"] = "somebody/not-there"
    (path / "metadata.json").write_text(json.dumps(record))
    opened = RagatouilleFirstStage.from_index(path, checkpoint=checkpoint)
    assert opened.search("history of jazz music", 1)[0].metadata["document_id"] == "music-history"


def test_a_link_to_an_index(ragatouille_index: RagatouilleIndex, tmp_path: Path) -> None:
    path = ragatouille_index.copy(tmp_path)
    (tmp_path / "link").symlink_to(path)
    opened = RagatouilleFirstStage.from_index(tmp_path / "link")
    opened.delete("cats-prices")
    assert RagatouilleFirstStage.from_index(path).fingerprint == opened.fingerprint
    assert (tmp_path / "link").is_symlink()


def test_a_checkpoint_that_is_not_the_indexs_own(ragatouille_index: RagatouilleIndex, tmp_path: Path) -> None:
    other = export_minilm(tmp_path / "other", projection=projection(seed=1))
    with pytest.raises(FirstStageError, match="was not built with the checkpoint"):
        RagatouilleFirstStage.from_index(ragatouille_index.path, checkpoint=other)
    narrow = export_minilm(tmp_path / "narrow", projection=projection(dim=64))
    with pytest.raises(FirstStageError, match=r"128 dimensions.*makes 64"):
        RagatouilleFirstStage.from_index(ragatouille_index.path, checkpoint=narrow)


def test_a_checkpoint_with_code_of_its_own_is_refused(ragatouille_index: RagatouilleIndex, tmp_path: Path) -> None:
    shutil.copytree(ragatouille_index.checkpoint, tmp_path / "c")
    config = json.loads((tmp_path / "c" / "config.json").read_text())
    (tmp_path / "c" / "config.json").write_text(json.dumps({**config, "auto_map": {"AutoModel": "evil.Model"}}))
    with pytest.raises(FirstStageError, match="auto_map"):
        RagatouilleFirstStage.from_index(ragatouille_index.path, checkpoint=tmp_path / "c")


@pytest.mark.parametrize("content", ['{"model_type": "be', "[" * 200_000, "3"])
def test_a_checkpoint_whose_configuration_cannot_be_read(
    ragatouille_index: RagatouilleIndex, tmp_path: Path, content: str
) -> None:
    shutil.copytree(ragatouille_index.checkpoint, tmp_path / "c")
    (tmp_path / "c" / "config.json").write_text(content)
    with pytest.raises(FirstStageError, match=r"config\.json cannot be read"):
        RagatouilleFirstStage.from_index(ragatouille_index.path, checkpoint=tmp_path / "c")


def test_no_index_at_all(ragatouille_index: RagatouilleIndex, tmp_path: Path) -> None:
    with pytest.raises(IndexDamagedError, match=r"no index at .*nowhere"):
        RagatouilleFirstStage.from_index(tmp_path / "nowhere")
    (tmp_path / "file").write_text("x")
    for path in (tmp_path, tmp_path / "file"):
        with pytest.raises(IndexDamagedError, match="not a RAGatouille index"):
            RagatouilleFirstStage.from_index(path)
    # One folder too high: say where the indexes are.
    ragatouille_index.copy(tmp_path / "root", "articles")
    with pytest.raises(IndexDamagedError, match=r"Below it there is: .*root/articles"):
        RagatouilleFirstStage.from_index(tmp_path / "root")


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("collection.json", None, "lacks collection.json"),
        ("0.codes.pt", None, "lacks 0.codes.pt"),
        ("ivf.pid.pt", None, "lacks ivf.pid.pt"),
        ("doclens.0.json", None, "lacks doclens.0.json"),
        ("collection.json", '["cut o', "cannot be read"),
        ("collection.json", "{}", "does not hold"),
        ("collection.json", "[]", "0 texts"),
        ("pid_docid_map.json", '{"a": "b"}', "no number"),
        ("metadata.json", "{}", "not the metadata"),
        ("metadata.json", None, "incomplete"),
        ("0.residuals.pt", "not a tensor", "could not be loaded"),
    ],
)
def test_a_damaged_file(
    ragatouille_index: RagatouilleIndex, tmp_path: Path, name: str, content: str | None, message: str
) -> None:
    path = ragatouille_index.copy(tmp_path)
    (path / name).unlink()
    if content is not None:
        (path / name).write_text(content)
    with pytest.raises(IndexDamagedError, match=message):
        RagatouilleFirstStage.from_index(path)


def test_a_model_without_an_index() -> None:
    with pytest.raises(InvalidInputError, match="not a RAGPretrainedModel"):
        RagatouilleFirstStage.from_model(object())


def test_a_missing_extra(ragatouille_index: RagatouilleIndex, monkeypatch: pytest.MonkeyPatch) -> None:
    find_spec = importlib.util.find_spec
    monkeypatch.delitem(sys.modules, "colbert", raising=False)
    monkeypatch.setattr(
        importlib.util, "find_spec", lambda name, *a: None if name == "colbert" else find_spec(name, *a)
    )
    with pytest.raises(MissingExtraError, match=r"'ragatouille' is not installed.*excise-integrations\[ragatouille\]"):
        RagatouilleFirstStage.from_index(ragatouille_index.path)
