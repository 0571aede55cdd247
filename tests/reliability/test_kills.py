"""SIGKILL in the middle of every command that writes: what was there is there, whole, or what is new is."""

from __future__ import annotations

import json
import os
import random
from pathlib import Path
from typing import Any

import pytest
import torch
from audit_results import make_silent
from child_processes import killed, killed_when
from tiny_adapters import save_toy
from typer.testing import CliRunner
from word_backbone import WordBackbone

from excise_integrations import Candidate
from excise_integrations._cli.app import app
from excise_integrations.audit import AuditLog, read_log
from excise_integrations.encode import Backbone
from excise_integrations.encode.cache import VectorCache
from excise_integrations.encode.disk import DiskCache
from excise_integrations.first_stage.memory import MemoryFirstStage
from excise_integrations.train.checkpoint import load_checkpoint, save_checkpoint
from excise_integrations.weights import load_adapter

pytestmark = [
    pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork"),
    pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning"),
]
WORDS: Any = WordBackbone()
ROUNDS = 12


def test_index(tmp_path: Path) -> None:
    """A search service that starts at any moment finds one of the two indexes, and its texts fit its vectors."""
    folder, rng = tmp_path / "index", random.Random(0)
    stages = [MemoryFirstStage.from_texts([f"{kind} number {i}" for i in range(300)], backbone=WORDS) for kind in "ab"]
    stages[0].save(folder)
    done = 0
    for _ in range(ROUNDS):
        done += killed(lambda number: stages[number % 2].save(folder) and None, rng=rng)
        found = MemoryFirstStage.load(folder, backbone=WORDS)
        assert found.fingerprint in [s.fingerprint for s in stages]
        (best, *_) = found.search("number 7", 3)
        assert "7" in best.text
    assert done >= ROUNDS
    stages[0].save(folder)
    assert MemoryFirstStage.load(folder, backbone=WORDS).fingerprint == stages[0].fingerprint


def test_the_index_command_goes_on_where_it_was_killed(tmp_path: Path, backbone: Backbone, monkeypatch: Any) -> None:
    source, cache, folder = tmp_path / "d.jsonl", tmp_path / "cache", tmp_path / "index"
    count = 1100
    source.write_text("".join(json.dumps({"_id": str(i), "text": f"number {i}"}) + "\n" for i in range(count)))
    monkeypatch.setattr(Backbone, "from_pretrained", lambda *_, **__: backbone)
    command = ["index", str(source), str(folder), "--cache", str(cache)]
    killed_when(lambda: list(cache.glob("*/*.safetensors")), lambda: CliRunner().invoke(app, command))
    assert not (folder / "manifest.json").exists()
    kept = list(cache.glob("*/*.safetensors"))
    assert kept
    before = {p: p.stat().st_mtime_ns for p in kept}
    result = CliRunner().invoke(app, command)
    assert result.exit_code == 0, result.output
    assert {p: p.stat().st_mtime_ns for p in kept} == before
    assert MemoryFirstStage.load(folder, backbone=backbone).search("number 1099", 1)[0].text == "number 1099"


def test_training_checkpoint(tmp_path: Path) -> None:
    folder, rng = tmp_path / "checkpoint", random.Random(1)

    def model() -> tuple[Any, Any, Any]:
        layer = torch.nn.Linear(200, 200)
        optimizer = torch.optim.AdamW(layer.parameters(), lr=0.1)
        return layer, optimizer, torch.optim.lr_scheduler.LambdaLR(optimizer, lambda step: 1.0)

    layer, optimizer, schedule = model()
    layer(torch.ones(1, 200)).sum().backward()
    optimizer.step()

    def save(epoch: int) -> None:
        with torch.no_grad():
            layer.weight.fill_(epoch)
        schedule.last_epoch = epoch
        save_checkpoint(folder, dict(layer.named_parameters()), optimizer, schedule, epoch)

    epoch = 1
    save(epoch)
    for _ in range(ROUNDS):
        done = killed(save, rng=rng, first=epoch + 1)
        again, optimizer2, schedule2 = model()
        found = load_checkpoint(folder, dict(again.named_parameters()), optimizer2, schedule2)
        # The last one that was finished, or the one after it; never none, never a mixture.
        assert epoch + done <= found <= epoch + done + 1
        assert schedule2.last_epoch == found
        assert bool((again.weight == found).all())
        epoch = found
    save(epoch + 1)
    assert len(list(folder.iterdir())) == 2


def test_a_damaged_checkpoint_is_refused(tmp_path: Path) -> None:
    from excise_integrations import AdapterError

    layer = torch.nn.Linear(4, 4)
    optimizer = torch.optim.AdamW(layer.parameters())
    schedule = torch.optim.lr_scheduler.LambdaLR(optimizer, lambda step: 1.0)
    parts = (dict(layer.named_parameters()), optimizer, schedule)
    save_checkpoint(tmp_path / "c", *parts, 3)
    (tensors,) = (tmp_path / "c").glob("*.safetensors")
    data = bytearray(tensors.read_bytes())
    data[-1] ^= 1
    tensors.write_bytes(data)
    with pytest.raises(AdapterError, match="cannot be resumed"):
        load_checkpoint(tmp_path / "c", *parts)


def test_adapter(tmp_path: Path) -> None:
    folder, rng = tmp_path / "adapter", random.Random(2)
    save_toy(folder, value=0.0)
    for _ in range(ROUNDS):
        done = killed(lambda number: save_toy(folder, value=float(number)) and None, rng=rng, first=1)
        value = float(load_adapter(folder, "exclusion").tensors("adapter_model.safetensors")["weight"][0, 0])
        assert done <= value <= done + 1


def test_warming(tmp_path: Path) -> None:
    encoder: Any = WordBackbone("adapter")
    texts = [f"document number {i} of many" for i in range(4000)]
    rng, entries = random.Random(3), 0

    def warm(number: int) -> None:
        # In parts, as the command does it within one call.
        VectorCache(0, disk=DiskCache(tmp_path)).warm(texts[number * 50 : number * 50 + 50], encoder)

    for _ in range(ROUNDS):
        done = killed(warm, rng=rng, first=entries // 50)
        left = DiskCache(tmp_path).stats().entries
        assert entries + done * 50 <= left
        entries = left - left % 50
        if entries >= len(texts):
            break
    encoder.encoded = 0
    cache = VectorCache(0, disk=DiskCache(tmp_path))
    have = DiskCache(tmp_path).stats().entries
    assert cache.warm(texts, encoder) == len(texts) - have == encoder.encoded
    expected = encoder.encode_documents(texts[:500])
    assert all(
        torch.equal(a.vectors, b.vectors) for a, b in zip(cache.encode(texts[:500], encoder), expected, strict=True)
    )


def test_audit_log(tmp_path: Path) -> None:
    """Every line that was acknowledged is there, once, in order, through rotations and kills."""
    path, rng = tmp_path / "audit.jsonl", random.Random(4)
    log = AuditLog(path, text="plain", max_bytes=6000, backups=10_000)
    expected = 0
    for _ in range(ROUNDS):
        expected += killed(lambda number: log.write(make_silent(query=str(number))), rng=rng, first=expected)
        found = [int(entry["query"]) for entry in read_log(path)]
        assert found == list(range(len(found)))
        assert expected <= len(found) <= expected + 1
        expected = len(found)
    assert len(list(tmp_path.glob("audit.jsonl.*"))) > 3


def test_documents_are_not_lost_when_an_index_is_extended(tmp_path: Path) -> None:
    """A service that adds one document a step and saves loses at most the one it was adding."""
    folder, rng = tmp_path / "index", random.Random(5)
    stage = MemoryFirstStage.from_candidates([Candidate("first", "the first document")], backbone=WORDS)
    stage.save(folder)
    for _ in range(4):
        stage = MemoryFirstStage.load(folder, backbone=WORDS)
        before = len(stage)

        def step(number: int, stage: MemoryFirstStage = stage) -> None:
            stage.add([f"document {number}"], ids=[f"{len(stage)}-{number}"])
            stage.save(folder)

        done = killed(step, rng=rng)
        assert before + done <= len(MemoryFirstStage.load(folder, backbone=WORDS)) <= before + done + 1
