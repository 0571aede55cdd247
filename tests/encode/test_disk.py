from __future__ import annotations

import multiprocessing
import os
import random
import signal
import sqlite3
import subprocess
import sys
import time
from pathlib import Path

import pytest
import torch
from fake_encoder import FakeEncoder

from excise_integrations.encode.cache import VectorCache
from excise_integrations.encode.disk import DiskCache
from excise_integrations.encode.storage import StoredVectors, keep
from excise_integrations.errors import InvalidInputError

ENCODER = FakeEncoder(dim=64)


def items(names: range | list[int], words: int = 20) -> dict[str, StoredVectors]:
    texts = [f"{i} " + "word " * (words - 1) for i in names]
    return {VectorCache.key(t, "space"): keep(ENCODER.vectors(t), "encoded") for t in texts}


def assert_holds(disk: DiskCache, some: dict[str, StoredVectors]) -> None:
    found = disk.get(list(some))
    assert set(found) == set(some)
    for key, value in some.items():
        assert found[key].layout == value.layout
        assert torch.equal(found[key].flat, value.flat)


def file_of(folder: Path) -> Path:
    (file,) = folder.glob("*.sqlite")
    return file


# --- what comes back ------------------------------------------------------------------------


def test_rows_outlive_the_object(tmp_path: Path) -> None:
    some = items(range(520))
    with DiskCache(tmp_path / "new" / "folder") as disk:
        disk.put(some)
        assert_holds(disk, some)
    again = DiskCache(tmp_path / "new" / "folder")
    assert_holds(again, some)
    other = items([1000])
    assert again.get(list(other)) == {}
    assert again.missing([*other, *some]) == list(other)
    assert again.stats().entries == 520


def test_a_cache_of_another_process_life_encodes_nothing(tmp_path: Path) -> None:
    texts = [f"document number {i}" for i in range(30)]
    first = VectorCache(disk=DiskCache(tmp_path))
    cold = first.encode(texts, ENCODER, fingerprint="f")
    encoder = FakeEncoder(dim=64)
    second = VectorCache(disk=DiskCache(tmp_path))
    warm = second.encode(texts, encoder, fingerprint="f")
    assert encoder.encoded == []
    assert all(torch.equal(a.vectors, b.vectors) for a, b in zip(cold, warm, strict=True))
    assert (second.stats().disk_hits, second.stats().misses) == (30, 0)
    second.encode(texts, encoder, fingerprint="f")
    assert second.stats().hits == 30
    # The form of storage, the index and the encoder are part of the key here too.
    VectorCache(storage="int8", disk=DiskCache(tmp_path)).encode(texts[:1], encoder, fingerprint="f")
    VectorCache(disk=DiskCache(tmp_path)).encode(texts[1:2], encoder, fingerprint="g")
    assert encoder.encoded == texts[:2]


def test_warm_fills_the_disk_beyond_memory(tmp_path: Path) -> None:
    encoder = FakeEncoder(dim=64)
    texts = [f"document number {i}" for i in range(300)]
    cache = VectorCache(50_000, disk=DiskCache(tmp_path))
    cache.encode(texts[:10], encoder)
    assert cache.warm(texts, encoder) == 290
    assert cache.disk is not None
    assert cache.disk.stats().entries == 300
    encoder.encoded.clear()
    assert VectorCache(0, disk=DiskCache(tmp_path)).warm(texts, encoder) == 0
    VectorCache(0, disk=DiskCache(tmp_path)).encode(texts, encoder)
    assert encoder.encoded == []


# --- the bound ------------------------------------------------------------------------------


def test_rows_and_file_stay_within_the_bound(tmp_path: Path) -> None:
    bound = 400_000
    disk = DiskCache(tmp_path, max_bytes=bound)
    rng = random.Random(0)
    for start in range(0, 500, 20):
        disk.put(items(range(start, start + 20), words=rng.randint(5, 60)))
        assert disk.stats().bytes <= bound
    assert disk.stats().evictions > 300
    assert disk.stats().bytes > 0.7 * bound
    disk.close()
    assert sum(f.stat().st_size for f in tmp_path.iterdir()) <= bound


def test_least_recently_used_goes_first_also_across_objects(tmp_path: Path) -> None:
    first = items(range(40))
    used = dict(list(first.items())[:5])
    with DiskCache(tmp_path, max_bytes=200_000) as disk:
        disk.put(first)  # a page each
        time.sleep(0.002)
        disk.get(list(used))
    other = DiskCache(tmp_path, max_bytes=200_000)
    other.put(items(range(100, 130)))
    assert_holds(other, used)
    assert len(other.get(list(first))) < 20
    assert_holds(other, items(range(100, 130)))


def test_what_is_larger_than_the_bound_is_left_out(tmp_path: Path) -> None:
    disk = DiskCache(tmp_path, max_bytes=50_000)
    small, big = items([1], words=10), items([2], words=500)
    disk.put({**big, **small})
    assert_holds(disk, small)
    assert disk.missing(list(big)) == list(big)
    for bound in (0, 20_000):
        none = DiskCache(tmp_path / str(bound), max_bytes=bound)
        none.put(small)
        assert none.get(list(small)) == {}


def test_clear_empties_the_file(tmp_path: Path) -> None:
    disk = DiskCache(tmp_path)
    disk.put(items(range(60)))
    disk.clear()
    disk.close()
    assert file_of(tmp_path).stat().st_size < 50_000
    assert disk.stats().entries == 0


# --- damage ---------------------------------------------------------------------------------


def test_a_damaged_row_is_dropped_and_encoded_again(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    texts = [f"document number {i}" for i in range(5)]
    cache = VectorCache(disk=DiskCache(tmp_path))
    cold = cache.encode(texts, ENCODER)
    assert cache.disk is not None
    cache.disk.close()
    with sqlite3.connect(file_of(tmp_path)) as connection:
        rows = connection.execute("SELECT rowid, row FROM vectors ORDER BY rowid").fetchall()
        spoilt = bytearray(rows[1][1])
        spoilt[-3] ^= 4
        connection.execute("UPDATE vectors SET row = ? WHERE rowid = ?", (bytes(spoilt), rows[1][0]))
        connection.execute("UPDATE vectors SET row = ? WHERE rowid = ?", (rows[0][1], rows[2][0]))  # another's row
        connection.execute("UPDATE vectors SET row = ? WHERE rowid = ?", (b"", rows[3][0]))
    connection.close()
    encoder = FakeEncoder(dim=64)
    again = VectorCache(disk=DiskCache(tmp_path))
    warm = again.encode(texts, encoder)
    assert encoder.encoded == texts[1:4]
    assert all(torch.equal(a.vectors, b.vectors) for a, b in zip(cold, warm, strict=True))
    assert again.disk is not None
    assert again.disk.stats().dropped == 3
    assert "damaged" in caplog.text
    encoder.encoded.clear()
    VectorCache(disk=DiskCache(tmp_path)).encode(texts, encoder)
    assert encoder.encoded == []


@pytest.mark.parametrize("how", ["garbage", "cut", "empty", "pages", "foreign"])
def test_a_damaged_file_is_begun_anew(tmp_path: Path, how: str) -> None:
    some = items(range(100))
    with DiskCache(tmp_path) as disk:
        disk.put(some)
    file = file_of(tmp_path)
    raw = bytearray(file.read_bytes())
    if how == "garbage":
        file.write_bytes(os.urandom(len(raw)))
    elif how == "cut":
        file.write_bytes(raw[: len(raw) // 2])
    elif how == "empty":
        file.write_bytes(b"")
    elif how == "pages":
        raw[4096:] = os.urandom(len(raw) - 4096)
        file.write_bytes(raw)
    else:
        file.unlink()
        with sqlite3.connect(file) as connection:
            connection.execute("CREATE TABLE vectors (something TEXT)")
        connection.close()
    disk = DiskCache(tmp_path)
    found = disk.get(list(some))
    assert all(torch.equal(found[key].flat, some[key].flat) for key in found)
    disk.put(some)
    assert_holds(disk, some)
    assert_holds(DiskCache(tmp_path), some)
    assert len(list(tmp_path.glob("*.sqlite"))) == 1


def test_every_flipped_byte_is_survived(tmp_path: Path) -> None:
    some = items(range(8), words=3)
    with DiskCache(tmp_path / "whole") as disk:
        disk.put(some)
    raw = file_of(tmp_path / "whole").read_bytes()
    rng = random.Random(0)
    for trial in range(60):
        spoilt = bytearray(raw)
        spoilt[rng.randrange(len(raw))] ^= 1 << rng.randrange(8)
        folder = tmp_path / str(trial)
        folder.mkdir()
        (folder / file_of(tmp_path / "whole").name).write_bytes(spoilt)
        with DiskCache(folder) as disk:
            found = disk.get(list(some))
            assert all(torch.equal(found[key].flat, some[key].flat) for key in found)
            disk.put({key: value for key, value in some.items() if key not in found})


def test_a_file_damaged_while_it_is_open(tmp_path: Path) -> None:
    some = items(range(300))
    disk, other = DiskCache(tmp_path), DiskCache(tmp_path)
    disk.put(some)
    assert_holds(other, some)
    disk.close()
    file = file_of(tmp_path)
    with file.open("r+b") as handle:
        handle.write(os.urandom(file.stat().st_size))
    new = items(range(300, 400))
    for each in (disk, other):
        each.get(list(new))
        each.put(new)
    assert_holds(DiskCache(tmp_path), new)


def test_a_disk_that_cannot_be_written_fails_no_query(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    folder = tmp_path / "gone"
    cache = VectorCache(disk=DiskCache(folder))
    folder.rmdir()
    folder.write_text("a file now")
    assert len(cache.encode(["a", "b"], ENCODER)) == 2
    assert "passed over" in caplog.text


def test_a_locked_file_is_passed_over(tmp_path: Path) -> None:
    disk = DiskCache(tmp_path)
    disk.put(items([0]))
    disk.close()
    disk._file._timeout = 0.05
    connection = sqlite3.connect(file_of(tmp_path), isolation_level=None)
    connection.execute("BEGIN EXCLUSIVE")
    disk.put(items([1]))
    connection.execute("ROLLBACK")
    connection.close()
    assert disk.stats().entries == 1
    disk.put(items([1]))
    assert disk.stats().entries == 2


@pytest.mark.parametrize("bad", [-1])
def test_settings_are_checked(tmp_path: Path, bad: int) -> None:
    with pytest.raises(InvalidInputError, match="max_bytes=-1"):
        DiskCache(tmp_path, max_bytes=bad)
    (tmp_path / "file").write_text("")
    with pytest.raises(InvalidInputError, match="file"):
        DiskCache(tmp_path / "file")


# --- processes ------------------------------------------------------------------------------

WRITER = """
import sys
sys.path[:0] = {path!r}
from test_disk import items
from excise_integrations.encode.disk import DiskCache
disk = DiskCache({folder!r}, max_bytes=600_000)
print("ready", flush=True)
start = {start}
while {endless} or start < {start} + 200:
    some = items(range(start, start + 10))
    disk.put(some)
    disk.get(list(some))
    start += 10
    print(start, flush=True)
disk.close()
"""


def writer(folder: Path, start: int, *, endless: bool) -> subprocess.Popen[str]:
    root = Path(__file__).parents[2]
    code = WRITER.format(path=[str(root), str(Path(__file__).parent)], folder=str(folder), start=start, endless=endless)
    return subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE, text=True)


def test_two_processes_and_one_that_is_killed(tmp_path: Path) -> None:
    victim = writer(tmp_path, 0, endless=True)
    others = [writer(tmp_path, 100_000, endless=False), writer(tmp_path, 200_000, endless=False)]
    assert victim.stdout is not None
    for _ in range(4):
        assert victim.stdout.readline()
    victim.send_signal(signal.SIGKILL)
    victim.wait(30)
    victim.stdout.close()
    for other in others:
        other.communicate(timeout=120)
        assert other.returncode == 0
    disk = DiskCache(tmp_path, max_bytes=600_000)
    last = [*range(100_190, 100_200), *range(200_190, 200_200)]
    assert len(disk.get(list(items(last)))) >= 10
    stats = disk.stats()
    assert stats.dropped == 0
    assert stats.entries > 100
    assert stats.bytes <= 600_000
    with sqlite3.connect(file_of(tmp_path)) as connection:
        assert connection.execute("PRAGMA integrity_check").fetchone() == ("ok",)
    connection.close()


def _child(disk: DiskCache, keys: list[str], results: multiprocessing.Queue[tuple[bool, int, bool]]) -> None:
    before = disk._file.is_open
    disk.put(items([2]))
    results.put((before, len(disk.get(keys)), disk._file.is_open))


@pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork here")
@pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning")
def test_a_fork_opens_the_file_for_itself(tmp_path: Path) -> None:
    disk = DiskCache(tmp_path)
    some = items([0, 1])
    disk.put(some)
    context = multiprocessing.get_context("fork")
    results = context.Queue()
    child = context.Process(target=_child, args=(disk, list(some), results))
    child.start()
    assert results.get(timeout=30) == (False, 2, True)
    child.join(30)
    assert_holds(disk, {**some, **items([2])})
