"""Truncated and bit-flipped files: an error that names the file, or the damaged part is passed over."""

from __future__ import annotations

import random
import re
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from audit_results import make_silent
from ragatouille_fixtures import RagatouilleIndex
from tiny_adapters import save_toy
from word_backbone import WordBackbone, word_excise

from excise_integrations import AdapterError, Candidate, ExciseError
from excise_integrations.audit import AuditLog, read_log
from excise_integrations.bench.store import VectorStore
from excise_integrations.first_stage.memory import MemoryFirstStage
from excise_integrations.weights import load_adapter

WORDS: Any = WordBackbone()
ROUNDS = 60


def damage(path: Path, rng: random.Random) -> None:
    data = bytearray(path.read_bytes())
    kind = rng.choice(["flip", "truncate", "empty", "zeros", "longer"])
    at = rng.randrange(len(data))
    if kind == "flip":
        data[at] ^= 1 << rng.randrange(8)
    elif kind == "truncate":
        del data[at:]
    elif kind == "empty":
        data.clear()
    elif kind == "zeros":
        data[at : at + 64] = bytes(len(data[at : at + 64]))
    else:
        data += data[:at]
    path.write_bytes(data)


def after_damage(folder: Path, rounds: int, use: Callable[[Path], object], allowed: type[Exception]) -> tuple[int, int]:
    """Damage one file of a copy at a time; return how often it was refused and how often used all the same."""
    rng = random.Random(0)
    files = sorted(p.relative_to(folder) for p in folder.rglob("*") if p.is_file() and p.stat().st_size)
    refused = used = 0
    for at in range(rounds):
        copy = folder.with_name(f"{folder.name}-{at}")
        shutil.copytree(folder, copy)
        damage(copy / files[at % len(files)], rng)
        named = True
        try:
            use(copy)
            used += 1
        except allowed as error:
            named = str(copy) in str(error)
            refused += 1
        assert named
        shutil.rmtree(copy)
    return refused, used


def test_index(tmp_path: Path) -> None:
    stage = MemoryFirstStage.from_texts([f"document number {i}" for i in range(20)], backbone=WORDS)
    stage.save(tmp_path / "index")

    def use(folder: Path) -> None:
        # What is not refused is what was saved: a flip may hit a blank, or the version, of the manifest.
        assert MemoryFirstStage.load(folder, backbone=WORDS).fingerprint == stage.fingerprint

    refused, used = after_damage(tmp_path / "index", ROUNDS, use, ExciseError)
    assert refused > ROUNDS * 0.8
    assert refused + used == ROUNDS


def test_adapter(tmp_path: Path) -> None:
    digest = save_toy(tmp_path / "adapter").digest

    def use(folder: Path) -> None:
        adapter = load_adapter(folder, "exclusion")
        assert adapter.digest == digest
        assert bool((adapter.tensors("adapter_model.safetensors")["weight"] == 1.0).all())

    refused, used = after_damage(tmp_path / "adapter", ROUNDS, use, AdapterError)
    # The card is prose and is not hashed; of the manifest only what matters is.
    assert refused > ROUNDS * 0.6
    assert refused + used == ROUNDS


def test_cache(tmp_path: Path) -> None:
    """A query over a damaged cache gives the answer that it gives without one."""
    candidates = [Candidate(str(i), f"pets number {i} " + "and cats" * (i % 3 == 0)) for i in range(30)]
    query = "pets, but not cats"
    expected = word_excise(adapter=True).rerank(query, candidates)
    excise = word_excise(adapter=True, cache_dir=tmp_path / "cache")
    excise.rerank(query, candidates)
    assert excise.cache.disk is not None
    excise.cache.disk.close()

    def use(folder: Path) -> None:
        again = word_excise(adapter=True, cache_dir=folder)
        result = again.rerank(query, candidates)
        assert result.verdicts == expected.verdicts
        assert again.cache.disk is not None
        again.cache.disk.close()

    refused, used = after_damage(tmp_path / "cache", ROUNDS, use, ExciseError)
    assert (refused, used) == (0, ROUNDS)


def test_store_of_vectors(tmp_path: Path) -> None:
    """What was cut off or flipped is encoded again, document by document where the shard can be opened."""
    texts = [f"document {i}" for i in range(40)]
    VectorStore(tmp_path / "store").fill(texts, WORDS)
    (shard,) = (tmp_path / "store").glob("*/*.safetensors")
    size = shard.stat().st_size
    expected = WORDS.encode_documents(texts)
    whole = shard.read_bytes()
    for keep in (0, 1, 7, 8, 100, size // 2, size - 1):
        shard.write_bytes(whole[:keep])
        found = VectorStore(tmp_path / "store").encode(texts, WORDS)
        assert all(torch.equal(a.vectors, b.vectors) for a, b in zip(found, expected, strict=True))
    rng = random.Random(0)
    for _ in range(ROUNDS):
        for path in shard.parent.iterdir():
            path.unlink()
        at = rng.randrange(size)
        shard.write_bytes(whole[:at] + bytes([whole[at] ^ (1 << rng.randrange(8))]) + whole[at + 1 :])
        found = VectorStore(tmp_path / "store").encode(texts, WORDS)
        assert all(torch.equal(a.vectors, b.vectors) for a, b in zip(found, expected, strict=True))
        assert [a.windows for a in found] == [b.windows for b in expected]


def test_audit_log(tmp_path: Path) -> None:
    """Damage costs the lines that it touches, and says so; all others are read."""
    count = 30
    log = AuditLog(tmp_path / "log" / "audit.jsonl", text="plain")
    for i in range(count):
        log.write(make_silent(query=f"query number {i}"))
    whole = {f"query number {i}" for i in range(count)}
    lost: list[int] = []

    def use(folder: Path) -> None:
        found = [entry.get("query") for entry in read_log(folder / "audit.jsonl")]
        lost.append(len(whole - set(found)))
        # A flip inside a query makes another query of one entry.
        assert len(set(found) - whole) <= 1
        # And the damaged log takes further lines.
        AuditLog(folder / "audit.jsonl", text="plain").write(make_silent(query="after"))
        assert [e["query"] for e in read_log(folder / "audit.jsonl")][-1] == "after"

    (tmp_path / "log" / "audit.jsonl.lock").unlink()
    refused, used = after_damage(tmp_path / "log", ROUNDS, use, ExciseError)
    assert (refused, used) == (0, ROUNDS)
    assert sorted(lost)[ROUNDS // 3] <= 2


@pytest.mark.parametrize("name", ["pid_docid_map.json", "metadata.json", "collection.json"])
def test_a_half_copied_ragatouille_index_is_refused(tmp_path: Path, name: str) -> None:
    from excise_integrations.first_stage._ragatouille_index import read_index

    for part in ("pid_docid_map.json", "metadata.json", "collection.json"):
        (tmp_path / part).write_text('{"0": "a"}' if part.startswith("pid") else "{}")
    (tmp_path / name).write_text('{"0": "a')
    with pytest.raises(ExciseError, match=str(tmp_path)):
        read_index(tmp_path)


def test_a_ragatouille_index_whose_building_was_killed_is_refused(
    ragatouille_index: RagatouilleIndex, tmp_path: Path
) -> None:
    """RAGatouille writes file by file: one that lacks its last files, or the end of one, does not open."""
    from excise_integrations.first_stage.ragatouille import RagatouilleFirstStage

    files = sorted(ragatouille_index.path.iterdir(), key=lambda p: p.stat().st_mtime_ns)
    assert len(files) > 8
    # Its very last file is optional, so that nobody can tell when it is missing.
    assert files[-1].name == "docid_metadata_map.json"
    cuts = [(count, half) for count in range(len(files)) for half in (False, True)]
    cuts.remove((len(files) - 1, False))
    for count, half in cuts:
        folder = tmp_path / f"{count}-{half}"
        folder.mkdir()
        for path in files[: count + half]:
            shutil.copyfile(path, folder / path.name)
        if half:
            last = folder / files[count].name
            last.write_bytes(last.read_bytes()[: last.stat().st_size // 2])
        with pytest.raises(ExciseError, match=re.escape(str(folder))):
            RagatouilleFirstStage.from_index(folder, checkpoint=ragatouille_index.checkpoint)
