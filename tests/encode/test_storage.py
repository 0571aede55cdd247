from __future__ import annotations

from typing import Any

import pytest
import torch
from fake_encoder import FakeEncoder

from excise_integrations.encode.arena import BLOCK_BYTES, BlockArena
from excise_integrations.encode.cache import VectorCache
from excise_integrations.encode.maxsim import TokenVectors, maxsim
from excise_integrations.encode.storage import StoredVectors, keep


def test_arena_reuses_blocks_and_refuses_more_than_it_has() -> None:
    arena = BlockArena(4 * BLOCK_BYTES)
    first = arena.put(torch.full((1500,), 1, dtype=torch.uint8))
    second = arena.put(torch.full((2048,), 2, dtype=torch.uint8))
    assert arena.available == 0
    with pytest.raises(MemoryError):
        arena.put(torch.zeros(1, dtype=torch.uint8))
    arena.release(first)
    third = arena.put(torch.full((1025,), 3, dtype=torch.uint8))
    two, three = arena.get([second, third])
    assert two.tolist() == [2] * 2048
    assert three[:1025].tolist() == [3] * 1025
    assert arena.nbytes == 4 * BLOCK_BYTES


def test_arena_over_many_chunks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("excise_integrations.encode.arena._CHUNK_BLOCKS", 3)
    arena = BlockArena(10 * BLOCK_BYTES)
    data = [torch.randint(0, 255, (size,), dtype=torch.uint8) for size in (2500, 4000, 100, 2000)]
    items = [arena.put(d) for d in data]
    arena.release(items[1])
    items[1] = arena.put(data[1])
    for flat, want in zip(arena.get(items), data, strict=True):
        assert torch.equal(flat[: want.numel()], want)


@pytest.mark.parametrize(
    ("storage", "size", "loss"), [("float16", 2, 1e-3), ("bfloat16", 2, 1e-2), ("int8", 1 + 2 / 128, 1e-2)]
)
def test_smaller_forms_cost_what_they_say_and_lose_little(storage: Any, size: float, loss: float) -> None:
    encoder = FakeEncoder(dim=128, dtype=torch.float32)
    document = encoder.vectors("some words " * 50)
    stored = keep(document, storage)
    assert stored.layout.nbytes == stored.flat.numel() == int(100 * 128 * size)
    back = stored.restore(torch.float32)
    query = encoder.vectors("a query of some words").vectors
    assert 0 < (maxsim(query, [back]) - maxsim(query, [document])).abs().max() < loss * len(query)


def test_int8_has_no_systematic_error() -> None:
    document = FakeEncoder(dim=128, dtype=torch.float32).vectors("some words " * 500)
    back = keep(document, "int8").restore(torch.float32)
    lengths = (back.vectors * document.vectors).sum(dim=1)
    assert (lengths.mean() - 1).abs() < 1e-4


def test_zero_vectors_survive_int8() -> None:
    back = keep(TokenVectors(torch.zeros(2, 8), (2,)), "int8").restore(torch.float32)
    assert torch.equal(back.vectors, torch.zeros(2, 8))


def test_rows_are_self_checking() -> None:
    key = VectorCache.key("text", "space")
    stored = keep(FakeEncoder().vectors("a few words"), "int8")
    row = stored.to_row(key)
    back = StoredVectors.from_row(key, row)
    assert back.layout == stored.layout
    assert torch.equal(back.flat, stored.flat)
    with pytest.raises(ValueError, match="checksum"):
        StoredVectors.from_row(VectorCache.key("other", "space"), row)
    for at in range(0, len(row), 7):
        with pytest.raises(ValueError, match="checksum"):
            StoredVectors.from_row(key, row[:at] + bytes([row[at] ^ 1]) + row[at + 1 :])
    with pytest.raises(ValueError, match="checksum"):
        StoredVectors.from_row(key, row[:-1])
