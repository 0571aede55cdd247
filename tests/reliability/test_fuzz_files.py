"""Any file in the place of a manifest, a suite, documents or settings, and any arguments of the command line."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hostile import JSON, cases, texts
from hypothesis import example, given
from hypothesis import strategies as st
from pydantic import ValidationError
from tiny_adapters import save_toy
from typer.testing import CliRunner
from word_backbone import WordBackbone, word_excise

from excise_integrations import (
    AdapterError,
    Candidate,
    Excise,
    ExciseConfig,
    ExciseError,
    InvalidInputError,
    SuiteError,
)
from excise_integrations._cli.app import app
from excise_integrations._cli.sources import read_documents
from excise_integrations.audit import AuditLog
from excise_integrations.audit.report import Report
from excise_integrations.bench.rows import read_row
from excise_integrations.bench.suites import load_suite
from excise_integrations.encode import Backbone
from excise_integrations.first_stage._ragatouille_index import read_index
from excise_integrations.first_stage.memory import MemoryFirstStage
from excise_integrations.train.mining_files import load_documents
from excise_integrations.weights import load_adapter

WORDS: Any = WordBackbone()


def bytes_of(value: Any) -> bytes:
    return json.dumps(value).encode() if not isinstance(value, bytes) else value


FILES = st.binary(max_size=40) | JSON.map(bytes_of) | texts(3).map(lambda t: t.encode("utf-8", "surrogatepass"))


def changed(record: dict[str, Any]) -> st.SearchStrategy[bytes]:
    """A record with some fields replaced, dropped or added."""
    keys = st.sampled_from(sorted(record)) | texts(1)
    edits = st.dictionaries(keys, JSON | st.just("…drop"), min_size=1, max_size=3)

    def apply(edit: dict[str, Any]) -> bytes:
        new = {**record, **edit}
        return json.dumps({k: v for k, v in new.items() if v != "…drop"}).encode()

    return edits.map(apply)


# --- manifests --------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def adapter(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return save_toy(tmp_path_factory.mktemp("adapter") / "toy").folder


@pytest.fixture(scope="module")
def index(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("index") / "index"
    MemoryFirstStage.from_texts(["one document", "another one"], backbone=WORDS).save(folder)
    return folder


@cases(150)
@given(data=st.data())
def test_an_adapter_s_manifest(adapter: Path, data: st.DataObject) -> None:
    path = adapter / "manifest.json"
    whole = path.read_bytes()
    try:
        path.write_bytes(data.draw(FILES | changed(json.loads(whole))))
        try:
            loaded = load_adapter(adapter, "exclusion")
        except AdapterError:
            return
        # What still loads has verified files and nothing outside its folder.
        assert all((adapter / name).parent == adapter for name in loaded.manifest.files)
        assert {"adapter_config.json", "adapter_model.safetensors"} <= set(loaded.manifest.files)
    finally:
        path.write_bytes(whole)


@cases(150)
@given(data=st.data())
def test_an_index_s_manifest(index: Path, data: st.DataObject) -> None:
    path = index / "manifest.json"
    whole = path.read_bytes()
    try:
        path.write_bytes(data.draw(FILES | changed(json.loads(whole))))
        try:
            stage = MemoryFirstStage.load(index, backbone=WORDS)
        except ExciseError:
            return
        assert [c.text for c in stage.search("another one", 1)] == ["another one"]
    finally:
        path.write_bytes(whole)


def outcome(work: Callable[[], Any], allowed: type[Exception]) -> tuple[Any, str]:
    """Return what ``work`` returns and no message, or None and the message of the allowed error."""
    try:
        return work(), ""
    except allowed as error:
        return None, str(error)


# --- documents and suites ---------------------------------------------------------------------------

DOCUMENT = {"_id": "x", "title": "a title", "text": "a text", "metadata": {"a": 1}}
QUERY = {"_id": "q", "text": "pets, but not cats", "tier": "T1", "form": "short", "excluded": ["cats"]}
LINES = st.lists(FILES | changed(DOCUMENT) | changed(QUERY), max_size=4).map(b"\n".join)


@cases(150)
@given(lines=LINES)
def test_documents(tmp_path_factory: pytest.TempPathFactory, lines: bytes) -> None:
    path = tmp_path_factory.mktemp("documents") / "documents.jsonl"
    path.write_bytes(lines)
    found, message = outcome(lambda: read_documents(path), InvalidInputError)
    if found is None:
        assert str(path) in message
        return
    assert all(c.text.strip() for c in found)
    assert len({c.id for c in found}) == len(found)


@cases(150)
@given(corpus=LINES, queries=LINES, rows=FILES | st.just(b"query-id\tcorpus-id\tscore\nq\tx\t1"))
def test_suites(tmp_path_factory: pytest.TempPathFactory, corpus: bytes, queries: bytes, rows: bytes) -> None:
    folder = tmp_path_factory.mktemp("suite")
    (folder / "qrels").mkdir()
    good = json.dumps(DOCUMENT).encode() + b"\n", json.dumps(QUERY).encode() + b"\n"
    (folder / "corpus.jsonl").write_bytes(good[0] + corpus)
    (folder / "queries.jsonl").write_bytes(good[1] + queries)
    (folder / "qrels" / "dev.tsv").write_bytes(rows)
    suite, message = outcome(lambda: load_suite(folder), SuiteError)
    if suite is None:
        assert str(folder) in message
        return
    assert all(c.text.strip() for c in suite.documents)
    assert {q.id for q in suite.queries} == set(suite.qrels)


# Deeper than the interpreter goes, and shallow enough to be written by hand.
DEEP = "[" * 200_000


def test_files_that_nest_without_end(tmp_path: Path) -> None:
    (tmp_path / "qrels").mkdir()
    (tmp_path / "qrels" / "dev.tsv").write_text("query-id\tcorpus-id\tscore\nq\tx\t1\n")
    for name in ("corpus.jsonl", "queries.jsonl", "metadata.json", "pid_docid_map.json", "collection.json"):
        (tmp_path / name).write_text(DEEP)
    readers: list[Callable[[], object]] = [
        lambda: load_suite(tmp_path),
        lambda: read_documents(tmp_path / "corpus.jsonl"),
        lambda: load_documents(tmp_path),
        lambda: read_row(tmp_path / "queries.jsonl"),
        lambda: read_index(tmp_path),
    ]
    for read in readers:
        with pytest.raises(ExciseError, match=re.escape(str(tmp_path))):
            read()


def test_metadata_that_nest_without_end(tmp_path: Path) -> None:
    metadata: dict[str, Any] = {}
    for _ in range(200_000):
        metadata = {"a": metadata}
    names = ("cats", "dogs", "birds", "fish", "rabbits")
    deep = [Candidate(str(i), f"{name} are pets", metadata=metadata) for i, name in enumerate(names)]
    log = AuditLog(tmp_path / "audit.jsonl", text="plain", documents=True)
    result = word_excise(log=log).rerank("pets, but not cats", deep)
    assert [c.id for c in result.removed] == ["0"]
    report = Report(result)
    assert all("cats are pets" in text for text in (report.to_html(), report.to_markdown(), report.to_json()))
    with pytest.raises(InvalidInputError, match="metadata of document '0'"):
        MemoryFirstStage.from_candidates(deep, backbone=WORDS).save(tmp_path / "index")
    assert not list((tmp_path / "index").glob("*"))


# --- settings ---------------------------------------------------------------------------------------


@cases(150)
@given(st.dictionaries(st.sampled_from(sorted(ExciseConfig.model_fields)) | texts(1), JSON, max_size=4))
def test_settings(settings: dict[str, Any]) -> None:
    try:
        config = ExciseConfig(**settings)
    except (ValidationError, TypeError):
        return
    json.dumps(config.model_dump(), allow_nan=False)
    assert len(config.digest()) == 12


# --- the command line -------------------------------------------------------------------------------

OPTIONS = [
    "-k", "--exclude", "--no-exclude", "--filter", "--json", "--format", "--output", "--last", "--since", "--until",
    "--action", "--fired", "--silent", "--verdicts", "--help", "--", "-", "--backbone", "--detector", "--nonsense",
    "markdown", "html", "0", "-1", "7", "2026-01-01", "removed", "a=b", "=",
]  # fmt: skip
ARGUMENTS = st.lists(st.sampled_from(OPTIONS) | texts(2).filter(lambda t: "\x00" not in t), max_size=5)


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("place")
    (folder / "documents.jsonl").write_text(json.dumps(DOCUMENT) + "\n")
    (folder / "index").mkdir()
    return folder


@cases(50)
@example(command="search", rest=[], query="not \ud800")
@given(command=st.sampled_from(["search", "explain", "log", "index", ""]), rest=ARGUMENTS, query=texts(3))
def test_arguments(place: Path, command: str, rest: list[str], query: str) -> None:
    """Wrong usage ends with 2, an error of ours with 1 and one line, and nothing with a traceback."""
    words = word_excise()
    arguments = [command, str(place / "documents.jsonl"), query.replace("\x00", ""), *rest] if command else rest
    if command == "explain":
        # Words are found in a text by a real tokenizer only.
        arguments.insert(2, "--no-highlight")
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(place)
        patch.setattr(Excise, "from_pretrained", lambda *_, **__: words)
        patch.setattr(Backbone, "from_pretrained", lambda *_, **__: WORDS)
        result = CliRunner().invoke(app, arguments, prog_name="excise")
    assert result.exit_code in (0, 1, 2), (arguments, result.output)
    assert result.exception is None or isinstance(result.exception, SystemExit), (arguments, result.exception)
    assert "Traceback" not in result.output
