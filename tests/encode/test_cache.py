from __future__ import annotations

import copy
import gc
import pickle
import random
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import psutil
import pytest
import torch
from fake_encoder import FakeEncoder

from excise_integrations.encode.arena import BLOCK_BYTES
from excise_integrations.encode.cache import VectorCache
from excise_integrations.encode.disk import DiskCache
from excise_integrations.encode.maxsim import TokenVectors
from excise_integrations.encode.windows import WindowPolicy
from excise_integrations.errors import InvalidInputError

TEXTS = ["one", "two words", "three more words", "and here are five words"]


def same(left: list[TokenVectors], right: list[TokenVectors]) -> bool:
    return len(left) == len(right) and all(
        torch.equal(a.vectors, b.vectors) and a.vectors.dtype == b.vectors.dtype and a.windows == b.windows
        for a, b in zip(left, right, strict=True)
    )


def expected(encoder: FakeEncoder, texts: list[str]) -> list[TokenVectors]:
    return [encoder.vectors(text) for text in texts]


# --- what comes back ------------------------------------------------------------------------


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16])
def test_hits_are_bitwise_what_was_encoded(dtype: torch.dtype) -> None:
    encoder, cache = FakeEncoder(dtype=dtype), VectorCache()
    long = " ".join(f"w{i}" for i in range(450))
    texts = [*TEXTS, long]
    cold = cache.encode(texts, encoder)
    warm = cache.encode(texts[::-1], encoder)[::-1]
    assert same(cold, expected(encoder, texts))
    assert same(warm, cold)
    assert warm[-1].windows == (200, 200, 50)
    assert encoder.encoded == texts


def test_repeats_in_one_call_are_encoded_once_and_returned_in_order() -> None:
    encoder, cache = FakeEncoder(), VectorCache()
    order = ["two words", "one", "two words", "one", "one"]
    assert same(cache.encode(order, encoder), expected(encoder, order))
    assert sorted(encoder.encoded) == ["one", "two words"]
    assert cache.encode([], encoder) == []


def test_a_text_without_tokens_can_be_cached() -> None:
    encoder, cache = FakeEncoder(), VectorCache()
    for _ in range(2):
        (got,) = cache.encode(["  "], encoder)
        assert got.vectors.shape == (0, 32)
    assert len(encoder.encoded) == 1


def test_lone_surrogates_have_a_key() -> None:
    assert VectorCache.key("a\ud800", "s") != VectorCache.key("a\ud801", "s")


def test_key_parts_do_not_run_into_each_other() -> None:
    keys = {VectorCache.key("c", "a", "b"), VectorCache.key("bc", "a", ""), VectorCache.key("c", "ab", "")}
    assert len(keys) == 3


@pytest.mark.parametrize("change", ["label", "fingerprint", "dtype", "windows", "max_tokens", "text"])
def test_nothing_is_shared_between_different_encoders_indexes_or_texts(change: str) -> None:
    cache, encoder = VectorCache(), FakeEncoder()
    cache.encode(["some text"], encoder, fingerprint="index-1")
    other, fingerprint, text = FakeEncoder(), "index-1", "some text"
    if change == "label":
        other.label = "fake@0+adapter"
    elif change == "dtype":
        other.dtype = torch.float32
    elif change == "windows":
        other.windows = WindowPolicy(100, 1000)
    elif change == "max_tokens":
        other.max_tokens = 256
    elif change == "fingerprint":
        fingerprint = "index-2"
    else:
        text = "some text "
    cache.encode([text], other, fingerprint=fingerprint)
    assert other.encoded == [text]


# --- the bound ------------------------------------------------------------------------------


def test_least_recently_used_goes_first() -> None:
    encoder = FakeEncoder(dim=512, dtype=torch.float32)  # one token: two blocks
    cache = VectorCache(3 * (2 * BLOCK_BYTES + 768))
    cache.encode(["a"], encoder)
    cache.encode(["b"], encoder)
    cache.encode(["c"], encoder)
    cache.encode(["a"], encoder)
    cache.encode(["d"], encoder)
    assert cache.stats().evictions == 1
    encoder.encoded.clear()
    assert same(cache.encode(["a", "c", "d"], encoder), expected(encoder, ["a", "c", "d"]))
    assert encoder.encoded == []
    cache.encode(["b"], encoder)
    assert encoder.encoded == ["b"]


@pytest.mark.parametrize("budget", [0, 1, 5_000, 40_000, 200_000])
def test_the_count_never_exceeds_the_budget_and_the_vectors_stay_right(budget: int) -> None:
    encoder, cache, rng = FakeEncoder(dim=64), VectorCache(budget), random.Random(0)
    texts = [" ".join([f"d{i}"] * rng.choice([1, 3, 10, 60])) for i in range(60)]
    for _ in range(60):
        some = rng.sample(texts, 5)
        assert same(cache.encode(some, encoder), expected(encoder, some))
        assert cache.stats().bytes <= budget
    stats = cache.stats()
    assert stats.hits + stats.misses == 300
    assert (stats.hits > 0) == (budget > 1)


def test_a_document_larger_than_the_budget_drives_nothing_out() -> None:
    encoder, cache = FakeEncoder(dim=64), VectorCache(10_000)
    cache.encode(["small"], encoder)
    cache.encode(["word " * 500], encoder)
    cache.encode(["small"], encoder)
    assert encoder.encoded.count("small") == 1
    assert cache.stats().evictions == 0


def test_shorter_documents_do_not_starve_beside_idle_blocks() -> None:
    encoder = FakeEncoder(dim=64)
    budget = 400_000
    cache = VectorCache(budget)
    cache.encode([f"{i} " + "word " * 400 for i in range(20)], encoder)  # 51 KB each
    small = [f"short {i}" for i in range(200)]  # one block each: 358 KB with their bookkeeping
    cache.encode(small, encoder)
    cache.encode(small, encoder)
    encoder.encoded.clear()
    cache.encode(small, encoder)
    assert encoder.encoded == []
    assert cache.stats().bytes <= budget


@pytest.mark.parametrize(("tokens", "documents", "megabytes"), [((20, 400), 600, 12), ((1, 6), 4000, 6)])
def test_resident_memory_stays_within_the_budget_and_a_tenth(
    tokens: tuple[int, int], documents: int, megabytes: int
) -> None:
    # Lengths change while entries come and go, which makes a heap of separate tensors grow by a fifth.
    encoder = FakeEncoder(dim=128)
    block = torch.nn.functional.normalize(torch.randn(400, 128), dim=-1).to(torch.bfloat16)
    lengths = random.Random(1).choices(range(*tokens), k=documents)
    encoder.vectors = lambda text: TokenVectors(block[: lengths[int(text)]].clone(), (lengths[int(text)],))  # type: ignore[method-assign]
    budget = megabytes * 1024 * 1024
    cache = VectorCache(budget)
    process = psutil.Process()
    for fill in range(2):
        # The first fill and its clear bring the batches' own memory to a steady level.
        before = process.memory_info().rss
        for start in range(0, documents, 50):
            cache.encode([str(i) for i in range(start, start + 50)], encoder)
            encoder.encoded.clear()
        assert cache.stats().evictions > 0
        assert cache.stats().bytes > 0.9 * budget
        if fill:
            grown = process.memory_info().rss - before
            assert grown <= 1.1 * budget, f"{grown / budget:.2f} of the budget"
        cache.clear()
        gc.collect()
    assert process.memory_info().rss - before < 0.3 * budget  # given back to the system


# --- smaller forms --------------------------------------------------------------------------


@pytest.mark.parametrize("storage", ["float16", "bfloat16", "int8"])
def test_cold_and_warm_answers_are_the_same(storage: Any) -> None:
    encoder = FakeEncoder(dtype=torch.float32)
    cache, uncached = VectorCache(storage=storage), VectorCache(0, storage=storage)
    cold = cache.encode(TEXTS, encoder)
    assert same(cache.encode(TEXTS, encoder), cold)
    assert same(uncached.encode(TEXTS, encoder), cold)
    assert all(v.vectors.dtype == torch.float32 for v in cold)


def test_int8_holds_nearly_twice_as_many() -> None:
    counts = {}
    for storage in ("encoded", "int8"):
        encoder, cache = FakeEncoder(dim=128), VectorCache(300_000, storage=storage)  # type: ignore[arg-type]
        cache.encode([f"{i} " + "word " * 99 for i in range(40)], encoder)
        counts[storage] = cache.stats().entries
    assert counts["int8"] > 1.8 * counts["encoded"]


# --- many callers ---------------------------------------------------------------------------


def wait_for_hits(cache: VectorCache, count: int) -> None:
    end = time.monotonic() + 5
    while cache.stats().hits < count:
        assert time.monotonic() < end, "nobody waits for the first caller"
        time.sleep(0.001)


def test_two_callers_encode_a_document_once() -> None:
    encoder, cache = FakeEncoder(), VectorCache()
    encoder.gate = threading.Event()
    with ThreadPoolExecutor(6) as pool:
        first = pool.submit(cache.encode, ["shared", "first"], encoder)
        assert encoder.entered.wait(5)
        others = [pool.submit(cache.encode, ["shared"], encoder) for _ in range(5)]
        wait_for_hits(cache, 5)
        encoder.gate.set()
        assert same(first.result(5), expected(encoder, ["shared", "first"]))
        assert all(same(o.result(5), expected(encoder, ["shared"])) for o in others)
    assert encoder.encoded == ["shared", "first"]


def test_whoever_waits_for_a_failed_caller_tries_by_himself() -> None:
    failing, encoder, cache = FakeEncoder(), FakeEncoder(), VectorCache()
    failing.gate = threading.Event()
    failing.fail = KeyboardInterrupt()
    with ThreadPoolExecutor(2) as pool:
        first = pool.submit(cache.encode, ["shared"], failing)
        assert failing.entered.wait(5)
        second = pool.submit(cache.encode, ["shared"], encoder)
        wait_for_hits(cache, 1)
        failing.gate.set()
        assert same(second.result(5), expected(encoder, ["shared"]))
        with pytest.raises(KeyboardInterrupt):
            first.result(5)
    assert encoder.encoded == ["shared"]


def test_a_failure_leaves_nothing_behind() -> None:
    encoder, cache = FakeEncoder(), VectorCache()
    encoder.fail = RuntimeError("no")
    with pytest.raises(RuntimeError, match="no"):
        cache.encode(["a"], encoder)
    assert cache.stats().entries == cache.stats().misses == 0
    encoder.fail = None
    assert same(cache.encode(["a"], encoder), expected(encoder, ["a"]))


def test_many_threads_over_a_small_budget_get_the_right_vectors() -> None:
    encoder, cache = FakeEncoder(dim=64), VectorCache(60_000)
    texts = [" ".join([f"t{i}"] * (1 + i % 40)) for i in range(80)]

    def work(seed: int) -> bool:
        rng = random.Random(seed)
        for _ in range(25):
            some = rng.sample(texts, 7)
            if not same(cache.encode(some, encoder), expected(encoder, some)):
                return False
        return True

    with ThreadPoolExecutor(8) as pool:
        assert all(pool.map(work, range(8)))
    assert cache.stats().bytes <= 60_000


# --- warming, counters, copies --------------------------------------------------------------


def test_warm_encodes_ahead_and_reports_progress() -> None:
    encoder, cache = FakeEncoder(), VectorCache()
    cache.encode(["one"], encoder, fingerprint="f")
    seen: list[tuple[int, int]] = []
    encoder.encoded.clear()
    texts = [*TEXTS, "one"]
    count = cache.warm(texts, encoder, fingerprint="f", progress=lambda done, total: seen.append((done, total)))
    assert count == 3
    assert seen[0] == (1, 4)
    assert seen[-1] == (4, 4)
    encoder.encoded.clear()
    cache.encode(TEXTS, encoder, fingerprint="f")
    assert encoder.encoded == []
    assert cache.warm(TEXTS, encoder, fingerprint="f") == 0


def test_warm_stops_when_memory_is_full(caplog: pytest.LogCaptureFixture) -> None:
    encoder, cache = FakeEncoder(dim=64), VectorCache(100_000)
    texts = [f"document {i} " + "word " * 20 for i in range(1000)]
    assert cache.warm(texts, encoder) == len(encoder.encoded) == 256
    assert "full after 256 of 1000" in caplog.text


def test_counters() -> None:
    encoder, cache = FakeEncoder(), VectorCache()
    assert cache.stats().hit_rate == 0
    cache.encode(["a", "b", "a"], encoder)
    cache.encode(["a", "c"], encoder)
    stats = cache.stats()
    assert (stats.hits, stats.misses, stats.entries, stats.disk_hits) == (1, 3, 3, 0)
    assert stats.hit_rate == 0.25
    assert stats.bytes == 3 * (BLOCK_BYTES + 768)


def test_copies_are_empty_and_keep_the_settings(tmp_path: Path) -> None:
    cache = VectorCache(1000, storage="int8", disk=DiskCache(tmp_path, max_bytes=5000))
    for twin in (pickle.loads(pickle.dumps(cache)), copy.deepcopy(cache)):
        assert twin.max_bytes == 1000
        assert twin.storage == "int8"
        assert twin.disk.max_bytes == 5000
        assert twin.disk.folder == tmp_path


@pytest.mark.parametrize("bad", [{"max_bytes": -1}, {"storage": "int4"}])
def test_settings_are_checked(bad: dict[str, Any]) -> None:
    with pytest.raises(InvalidInputError, match=next(iter(bad.values())).__repr__()):
        VectorCache(**bad)
