"""The audit log, the report and the disk cache as the pipeline drives them."""

from __future__ import annotations

import asyncio
import copy
import json
import pickle
import subprocess
import sys
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
from pipeline_fakes import AsyncStage, Raises, Stage, over
from tiny_adapters import save_exclusion
from typer.testing import CliRunner

from excise_integrations import (
    Candidate,
    DetectorError,
    Excise,
    ExciseError,
    FirstStageError,
    InvalidInputError,
)
from excise_integrations._cli.app import app
from excise_integrations.audit import AuditLog, Report, read_log
from excise_integrations.encode import Backbone
from excise_integrations.first_stage.memory import MemoryFirstStage

QUERY = "animals that people keep as pets, but not dogs"
PLAIN = "animals that people keep as pets"


@pytest.fixture
def log(tmp_path: Path) -> AuditLog:
    return AuditLog(tmp_path / "audit.jsonl", text="plain")


@pytest.fixture
def logged(excise_rules: Excise, log: AuditLog) -> Excise:
    return with_log(excise_rules, log)


def with_log(excise: Excise, log: AuditLog | None, detector: Any = None, **settings: Any) -> Excise:
    parts = {"detector": detector or excise.detector, "config": excise.config}
    return Excise(excise.backbone, **parts, log=log).with_config(**settings)


def lines(log: AuditLog) -> list[dict[str, Any]]:
    return list(read_log(log.path)) if log.path.exists() else []


# --- one line a query -----------------------------------------------------------------------------


def test_a_rerank_writes_what_it_returned(logged: Excise, log: AuditLog, animals: list[Candidate]) -> None:
    result = logged.rerank(QUERY, animals, k=3)
    (entry,) = lines(log)
    assert entry["query"] == QUERY
    assert [s["text"] for s in entry["detection"]["spans"]] == ["dogs"]
    assert entry["returned"] == [c.id for c in result.candidates]
    assert entry["removed"] == ["dog"]
    assert [v["id"] for v in entry["verdicts"]] == [c.id for c in animals]
    assert {v["id"]: v["action"] for v in entry["verdicts"]} == {v.id: v.action for v in result.verdicts.values()}
    assert (entry["config"], entry["adapters"]) == (logged.config.digest(), list(logged.adapters))
    assert entry["timings"] == pytest.approx(dict(result.timings))
    assert set(entry["timings"]) == {"detect", "encode", "compare"}


def test_every_way_in_writes_one_line(logged: Excise, log: AuditLog, animals: list[Candidate]) -> None:
    logged.rerank(PLAIN, animals)
    logged.rerank(PLAIN, animals, exclude=["dogs"])
    logged.rerank(QUERY, animals, exclude=[])
    logged.rerank(QUERY, [])
    logged.search(QUERY, Stage(animals))
    asyncio.run(logged.arerank(QUERY, animals))
    asyncio.run(logged.asearch(QUERY, Stage(animals)))
    asyncio.run(logged.asearch(QUERY, AsyncStage(animals)))
    logged.rerank(QUERY, animals, detection=logged.detect(QUERY))
    entries = lines(log)
    assert [e["detection"]["fired"] for e in entries] == [False, True, False, True, True, True, True, True, True]
    assert [e["detection"]["source"] for e in entries][:3] == ["detector", "caller", "caller"]
    logged.rerank_batch([QUERY, PLAIN, QUERY], [animals, animals, animals[:2]], exclude=[None, None, ["cats"]])
    batch = lines(log)[len(entries) :]
    assert [(e["query"], len(e["verdicts"])) for e in batch] == [(QUERY, 8), (PLAIN, 8), (QUERY, 2)]
    assert batch[2]["detection"]["source"] == "caller"
    # Detection alone ranks nothing.
    logged.detect(QUERY)
    logged.warmup()
    logged.rerank_batch([], [])
    assert len(lines(log)) == len(entries) + 3


def test_without_a_log_nothing_is_written(
    excise_rules: Excise, animals: list[Candidate], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    assert excise_rules.log is None
    excise_rules.rerank(QUERY, animals)
    assert list(tmp_path.iterdir()) == []


def test_shadow_mode_says_so(excise_rules: Excise, log: AuditLog, animals: list[Candidate]) -> None:
    result = with_log(excise_rules, log, mode="shadow").rerank(QUERY, animals)
    (entry,) = lines(log)
    assert entry["shadow"] is True
    assert entry["returned"] == [c.id for c in animals]
    assert entry["removed"] == ["dog"]
    assert result.report().to_dict()["shadow"] is True


# --- failures -------------------------------------------------------------------------------------


def test_a_query_that_fell_back_is_logged_with_its_error(
    excise_rules: Excise, log: AuditLog, animals: list[Candidate]
) -> None:
    secret = Raises(RuntimeError(f"cannot read {QUERY}"))
    with_log(excise_rules, log, secret, on_error="frozen").rerank(QUERY, animals)
    (entry,) = lines(log)
    assert entry["error"].startswith("DetectorError")
    assert entry["returned"] == [c.id for c in animals]
    hashed = AuditLog(log.path.with_name("hashed.jsonl"))
    excise = with_log(excise_rules, hashed, secret, on_error="frozen")
    excise.rerank(QUERY, animals)
    excise.rerank_batch([QUERY, PLAIN], [animals, animals])
    assert [e["error"] for e in lines(hashed)] == ["DetectorError"] * 3
    assert "keep" not in hashed.path.read_text()


def test_what_raises_leaves_no_line(excise_rules: Excise, log: AuditLog, animals: list[Candidate]) -> None:
    excise = with_log(excise_rules, log, Raises())
    with pytest.raises(DetectorError):
        excise.rerank(QUERY, animals)
    with pytest.raises(InvalidInputError):
        excise.rerank(" ", animals)
    with pytest.raises(FirstStageError):
        excise.search(QUERY, Stage(RuntimeError("down")))
    assert lines(log) == []


def test_a_log_that_cannot_be_written(
    excise_rules: Excise, animals: list[Candidate], tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    (tmp_path / "file").write_text("")
    impossible = tmp_path / "file" / "audit.jsonl"
    # A log of its own policy: on_error="frozen" is for what ranks.
    strict = with_log(excise_rules, AuditLog(impossible), on_error="frozen")
    with pytest.raises(ExciseError, match="could not be written"):
        strict.rerank(QUERY, animals)
    lax = with_log(excise_rules, AuditLog(impossible, on_error="warn"))
    assert [c.id for c in lax.rerank(QUERY, animals).removed] == ["dog"]
    assert "could not be written" in caplog.text


# --- many at once, copies -------------------------------------------------------------------------


def test_many_threads_lose_no_line(excise_rules: Excise, tmp_path: Path, animals: list[Candidate]) -> None:
    log = AuditLog(tmp_path / "audit.jsonl", text="plain", max_bytes=20_000, backups=200)
    excise = with_log(excise_rules, log)
    excise.rerank(QUERY, animals)
    queries = [f"{PLAIN}, number {i}, but not {'dogs' if i % 2 else 'cats'}" for i in range(80)]
    with ThreadPoolExecutor(16) as pool:
        results = list(pool.map(lambda query: excise.rerank(query, animals, k=4), queries))
    entries = lines(log)[1:]
    assert Counter(e["query"] for e in entries) == Counter(queries)
    removed = {r.query: [c.id for c in r.removed] for r in results}
    assert all(e["removed"] == removed[e["query"]] for e in entries)
    assert len(list(tmp_path.glob("audit.jsonl.[0-9]*"))) > 1


def test_copies_and_pickles_log_to_the_same_file(
    backbone: Backbone, log: AuditLog, animals: list[Candidate], tmp_path: Path
) -> None:
    cache = tmp_path / "cache"
    named = Excise.from_pretrained(
        "minilm", detector="rules", log=log, cache_dir=cache, cache_bytes=1_000_000, cache_storage="int8", floor=0.2
    )
    parts = Excise(backbone, detector=named.detector, log=log, cache_dir=cache, config=named.config)
    thawed = pickle.loads(pickle.dumps(named))
    assert (thawed.cache.max_bytes, thawed.cache.storage) == (1_000_000, "int8")
    assert [t.cache.disk.folder for t in (thawed, pickle.loads(pickle.dumps(parts)))] == [cache, cache]
    twins = [thawed, named.with_config(k=20), copy.deepcopy(named), pickle.loads(pickle.dumps(parts))]
    for number, twin in enumerate(twins, start=1):
        assert (twin.log.path, twin.log.text, twin.config.floor) == (log.path, "plain", 0.2)
        twin.rerank(QUERY, animals)
        assert len(lines(log)) == number
    silent = pickle.loads(pickle.dumps(Excise(backbone, detector=named.detector)))
    assert silent.log is None
    assert silent.cache.disk is None


# --- through the frameworks -----------------------------------------------------------------------


def test_langchain_writes_one_line_a_call(logged: Excise, log: AuditLog, animals: list[Candidate]) -> None:
    from langchain_core.documents import Document

    from excise_integrations.langchain import ExciseCompressor, ExciseRetriever

    stage = MemoryFirstStage.from_candidates(animals, backbone=logged.backbone)
    retriever = ExciseRetriever(first_stage=stage, excise=logged, k=3)
    found = retriever.invoke(QUERY)
    asyncio.run(retriever.ainvoke(PLAIN))
    retriever.batch([QUERY, PLAIN])
    documents = [Document(id=c.id, page_content=c.text) for c in animals]
    compressor = ExciseCompressor(excise=logged)
    compressor.compress_documents(documents, QUERY, exclude=["cats"])
    asyncio.run(compressor.acompress_documents(documents, QUERY))
    shadow = ExciseRetriever(first_stage=stage, excise=logged, k=3, mode="shadow")
    result = shadow.explain(QUERY)
    entries = lines(log)
    assert Counter(e["query"] for e in entries) == {QUERY: 5, PLAIN: 2}
    assert entries[0]["returned"] == [d.id for d in found]
    assert [e["shadow"] for e in entries] == [False] * 6 + [True]
    assert entries[-1]["config"] != entries[0]["config"]
    assert "dog" in {row["id"] for row in result.report().to_dict()["candidates"]}


def test_llama_index_writes_one_line_a_call(logged: Excise, log: AuditLog, animals: list[Candidate]) -> None:
    from llama_index.core.schema import NodeWithScore, TextNode

    from excise_integrations.llama_index import ExcisePostprocessor, ExciseQuery, ExciseRetriever

    stage = MemoryFirstStage.from_candidates(animals, backbone=logged.backbone)
    retriever = ExciseRetriever(first_stage=stage, excise=logged, similarity_top_k=3)
    found = retriever.retrieve(QUERY)
    asyncio.run(retriever.aretrieve(PLAIN))
    postprocessor = ExcisePostprocessor(excise=logged)
    nodes = [NodeWithScore(node=TextNode(id_=c.id, text=c.text), score=c.score) for c in animals]
    postprocessor.postprocess_nodes(nodes, ExciseQuery(PLAIN, exclude=["dogs"]))
    entries = lines(log)
    assert [e["query"] for e in entries] == [QUERY, PLAIN, PLAIN]
    assert entries[0]["returned"] == [n.node.node_id for n in found]
    assert entries[2]["detection"]["source"] == "caller"


def test_a_llama_index_postprocessor_never_sheds_its_log(log: AuditLog, tmp_path: Path) -> None:
    from excise_integrations.llama_index import ExcisePostprocessor

    excise = Excise.from_pretrained("minilm", detector="rules", log=log, cache_dir=tmp_path / "cache")
    logging = ExcisePostprocessor(excise=excise, top_n=3)
    thawed = pickle.loads(pickle.dumps(logging))
    assert thawed.excise.log.path == log.path
    with pytest.raises(InvalidInputError, match="cannot be rebuilt from names"):
        ExcisePostprocessor.from_dict(logging.to_dict())
    assert ExcisePostprocessor.from_dict(logging.to_dict(), excise=excise).excise.log is log
    with pytest.raises(InvalidInputError, match=r"Excise\.from_pretrained\(\.\.\., log=\.\.\.\)"):
        ExcisePostprocessor(log=log)
    # Without a log it is rebuilt from names, with its cache.
    plain = Excise.from_pretrained("minilm", detector="rules", cache_dir=tmp_path / "cache", cache_storage="int8")
    rebuilt = ExcisePostprocessor.from_dict(ExcisePostprocessor(excise=plain).to_dict()).excise
    assert (rebuilt.cache.disk.folder, rebuilt.cache.storage) == (tmp_path / "cache", "int8")


# --- the report -----------------------------------------------------------------------------------


def test_a_result_explains_itself_with_the_words_that_matched(logged: Excise, animals: list[Candidate]) -> None:
    result = logged.rerank(QUERY, animals)
    assert result.origin is logged
    report = result.report()
    assert isinstance(report, Report)
    rows = {row["id"]: row for row in report.to_dict()["candidates"]}
    marked = rows["dog"]["highlight"]
    words = {animals[1].text[w["start"] : w["end"]].lower() for w in marked["words"]}
    assert words & {"dog", "dogs"}
    assert "<mark" in report._repr_html_()
    assert json.loads(logged.explain(result).to_json())["candidates"] == report.to_dict()["candidates"]
    # Searching, waiting and batches give the same.
    for other in (
        logged.search(QUERY, Stage(animals)),
        asyncio.run(logged.arerank(QUERY, animals)),
        logged.rerank_batch([QUERY], [animals])[0],
    ):
        assert other.origin is logged


def test_a_result_outlives_its_pipeline(logged: Excise, animals: list[Candidate]) -> None:
    result = logged.rerank(QUERY, animals)
    thawed = pickle.loads(pickle.dumps(result))
    assert thawed == result
    assert thawed.origin is None
    assert len(pickle.dumps(result)) < 100_000
    bare = thawed.report().to_dict()
    assert all(not row.get("highlight") for row in bare["candidates"])
    # The pipeline that made it, or one with its settings, can mark the words again.
    assert logged.explain(thawed).to_dict()["candidates"] == result.report().to_dict()["candidates"]
    with pytest.raises(InvalidInputError, match="digest"):
        logged.with_config(k=7).explain(thawed)


def test_settings_of_a_copy_are_the_ones_reported(logged: Excise, animals: list[Candidate]) -> None:
    result = logged.with_config(floor=0.11).rerank(QUERY, animals)
    assert result.report().to_dict()["config"]["settings"]["floor"] == 0.11
    failed = over(logged, Raises(), on_error="frozen").rerank(QUERY, animals)
    assert "DetectorError" in failed.report().to_markdown()
    assert "DetectorError" in over(logged, Raises(), on_error="frozen").rerank(QUERY, []).report().to_html()


# --- `excise warm` and cache_dir ------------------------------------------------------------------

SECOND_PROCESS = """
import json, pickle, sys
from pathlib import Path
from excise_integrations.encode import Backbone
from excise_integrations.first_stage.memory import MemoryFirstStage

def refuse(self, texts, **settings):
    raise AssertionError(f"{len(texts)} documents were encoded")

Backbone.encode_documents = refuse
excise = pickle.loads(Path(sys.argv[1]).read_bytes())
stage = MemoryFirstStage.load(sys.argv[2], backbone=excise.backbone)
found = [excise.search(query, stage, k=3) for query in sys.argv[3:]]
stats = excise.cache_stats()
print(json.dumps({
    "removed": [[c.id for c in r.removed] for r in found],
    "adapters": excise.adapters,
    "stats": [stats.misses, stats.disk_hits, stats.hits],
}))
"""


def test_warmed_documents_are_encoded_in_no_later_process(
    tmp_path: Path, animals: list[Candidate], backbone: Backbone, log: AuditLog
) -> None:
    # It changes no vector, so that the ranking is the frozen one; its documents are its own all the same.
    adapter = save_exclusion(tmp_path / "adapter", backbone.weights_hash, scale=0.0)
    index = MemoryFirstStage.from_candidates(animals, backbone=backbone).save(tmp_path / "index")
    cache = tmp_path / "cache"
    warmed = CliRunner().invoke(app, ["warm", str(index), "--cache", str(cache), "--adapter", str(adapter), "--json"])
    assert warmed.exit_code == 0, warmed.output
    assert json.loads(warmed.stdout)["encoded"] == len(animals)
    excise = Excise.from_pretrained("minilm", detector="rules", adapter=adapter, cache_dir=cache, log=log)
    (tmp_path / "excise.pickle").write_bytes(pickle.dumps(excise))
    done = subprocess.run(
        [sys.executable, "-c", SECOND_PROCESS, str(tmp_path / "excise.pickle"), str(index), QUERY, QUERY],
        capture_output=True,
        text=True,
        timeout=300,
    )
    assert done.returncode == 0, done.stderr
    told = json.loads(done.stdout.splitlines()[-1])
    # The second query finds them in memory.
    assert told["stats"] == [0, len(animals), len(animals)]
    assert told["removed"] == [["dog"], ["dog"]]
    assert told["adapters"] == list(excise.adapters)
    assert [e["removed"] for e in lines(log)] == [["dog"], ["dog"]]
