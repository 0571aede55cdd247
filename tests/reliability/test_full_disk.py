"""A disk that is full in the middle of a write: a documented error, and what was there stays."""

from __future__ import annotations

import contextlib
import json
import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from child_processes import run_in_child
from tiny_adapters import save_exclusion, save_toy
from typer.testing import CliRunner
from word_backbone import WordBackbone, word_excise

from excise_integrations import Candidate, ExciseError, FirstStageError
from excise_integrations._cli.app import app
from excise_integrations.bench.store import VectorStore
from excise_integrations.encode import Backbone
from excise_integrations.first_stage.memory import MemoryFirstStage
from excise_integrations.train.checkpoint import load_checkpoint, save_checkpoint
from excise_integrations.train.mining_files import write_folder
from excise_integrations.weights import load_adapter

resource = pytest.importorskip("resource")
pytestmark = [
    pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork"),
    pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning"),
]
WORDS: Any = WordBackbone()


@contextlib.contextmanager
def full_disk(room: int) -> Iterator[None]:
    """No file grows beyond ``room`` bytes, as on a disk that has no more; for a child process only."""
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (room, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))


def error_of(work: Callable[[], object], room: int) -> str:
    def run() -> str:
        with full_disk(room):
            try:
                work()
            except ExciseError as error:
                return f"{type(error).__name__}: {error}"
        return "no error"

    return run_in_child(run)


@pytest.mark.parametrize("room", [0, 10, 4096, 60_000])
def test_index(tmp_path: Path, room: int) -> None:
    stage = MemoryFirstStage.from_texts([f"document {i}" for i in range(300)], backbone=WORDS)
    stage.save(tmp_path / "index")
    other = MemoryFirstStage.from_texts([f"another {i}" for i in range(300)], backbone=WORDS)
    before = sorted(p.name for p in (tmp_path / "index").iterdir())
    told = error_of(lambda: other.save(tmp_path / "index"), room)
    assert told.startswith("FirstStageError"), told
    assert "was not written" in told
    assert MemoryFirstStage.load(tmp_path / "index", backbone=WORDS).fingerprint == stage.fingerprint
    assert sorted(p.name for p in (tmp_path / "index").iterdir()) == before
    # A new one leaves nothing that could be taken for an index.
    assert error_of(lambda: other.save(tmp_path / "new"), room).startswith("FirstStageError")
    with pytest.raises(FirstStageError):
        MemoryFirstStage.load(tmp_path / "new", backbone=WORDS)


@pytest.mark.parametrize("room", [0, 10, 200])
def test_adapter(tmp_path: Path, room: int) -> None:
    save_toy(tmp_path / "adapter", value=1.0)
    told = error_of(lambda: save_toy(tmp_path / "adapter", value=2.0), room)
    assert told.startswith("AdapterError"), told
    assert load_adapter(tmp_path / "adapter", "exclusion").tensors("adapter_model.safetensors")["weight"][0, 0] == 1.0
    assert [p.name for p in tmp_path.iterdir()] == ["adapter"]


@pytest.mark.parametrize("room", [0, 10, 400])
def test_checkpoint(tmp_path: Path, room: int) -> None:
    layer = torch.nn.Linear(30, 30)
    optimizer = torch.optim.AdamW(layer.parameters())
    schedule = torch.optim.lr_scheduler.LambdaLR(optimizer, lambda step: 1.0)
    layer(torch.ones(1, 30)).sum().backward()
    optimizer.step()
    parts = (dict(layer.named_parameters()), optimizer, schedule)
    save_checkpoint(tmp_path / "c", *parts, 1)
    before = sorted(p.name for p in (tmp_path / "c").iterdir())
    with torch.no_grad():
        layer.weight.zero_()
    told = error_of(lambda: save_checkpoint(tmp_path / "c", *parts, 2), room)
    assert told.startswith("AdapterError"), told
    assert sorted(p.name for p in (tmp_path / "c").iterdir()) == before
    assert load_checkpoint(tmp_path / "c", *parts) == 1
    assert bool((layer.weight != 0).any())


@pytest.mark.parametrize("room", [0, 10, 5000, 40_000])
def test_a_query_is_answered_although_its_cache_has_no_room(tmp_path: Path, room: int) -> None:
    candidates = [Candidate(str(i), f"document {i} about cats and more") for i in range(40)]
    candidates += [Candidate("dog", "only about dogs")]
    expected = word_excise(adapter=True).rerank("pets, but not cats", candidates)

    def ask() -> str:
        with full_disk(room):
            result = word_excise(adapter=True, cache_dir=tmp_path / "cache").rerank("pets, but not cats", candidates)
        return str([c.id for c in result.candidates])

    assert run_in_child(ask) == str([c.id for c in expected.candidates])
    # And with room again the same folder serves.
    excise = word_excise(adapter=True, cache_dir=tmp_path / "cache")
    assert excise.rerank("pets, but not cats", candidates).removed == expected.removed
    assert excise.cache.disk is not None
    assert excise.cache.disk.stats().entries == len(candidates)


def test_warming_says_that_there_was_no_room(
    tmp_path: Path, backbone: Backbone, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "documents.jsonl").write_text(
        "".join(json.dumps({"_id": str(i), "text": f"document {i}"}) + "\n" for i in range(20))
    )
    adapter = save_exclusion(tmp_path / "adapter", backbone.weights_hash)
    monkeypatch.setattr(Backbone, "from_pretrained", lambda *_, **__: backbone)
    command = ["warm", str(tmp_path / "documents.jsonl"), "--cache", str(tmp_path / "cache"), "--adapter", str(adapter)]

    def warm() -> str:
        with full_disk(40_000):
            result = CliRunner().invoke(app, command)
        return f"{result.exit_code} {result.stderr.splitlines()[-1]}"

    assert "1 Error: The cache" in (told := run_in_child(warm)), told
    assert "took 0 of 20 documents" in told
    # With room again it goes on.
    assert CliRunner().invoke(app, command).stdout.startswith("20 of 20 documents")


@pytest.mark.parametrize("room", [0, 10, 200])
def test_suite(tmp_path: Path, room: int) -> None:
    def write(text: str) -> None:
        contents = {"queries.jsonl": text * 50, "qrels/dev.tsv": text, "mark": text}
        write_folder(tmp_path / "suite", contents, marker="mark", what="a suite")

    write("old ")
    told = error_of(lambda: write("new and longer "), room)
    assert told.startswith("SuiteError"), told
    assert "was not written" in told
    assert [p.name for p in tmp_path.iterdir()] == ["suite"]
    assert (tmp_path / "suite" / "queries.jsonl").read_text() == "old " * 50


def test_a_store_of_vectors_keeps_its_whole_shards(tmp_path: Path) -> None:
    texts = [f"document {i}" for i in range(50)]
    VectorStore(tmp_path).encode(texts[:20], WORDS)

    assert error_of(lambda: VectorStore(tmp_path).encode(texts, WORDS), 2000).startswith("ExciseError")
    assert not list(tmp_path.glob("*/.*"))
    found = VectorStore(tmp_path).encode(texts, WORDS)
    assert all(torch.equal(a.vectors, b.vectors) for a, b in zip(found, WORDS.encode_documents(texts), strict=True))
