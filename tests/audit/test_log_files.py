"""The audit log's files: rotation, many writers, killed writers, a full disk."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest
from audit_results import make_silent

from excise_integrations import ExciseError
from excise_integrations.audit import AuditLog, read_log

pytest.importorskip("fcntl")

WRITER = """
import sys
sys.path.insert(0, {folder!r})
from audit_results import make_silent
from excise_integrations.audit import AuditLog
log = AuditLog(sys.argv[1], text="plain", max_bytes={max_bytes}, backups=1000)
for i in range(int(sys.argv[3])):
    log.write(make_silent(query=f"{{sys.argv[2]}}-{{i}}"))
    if i == 0:
        print("started", flush=True)
"""


def start(path: Path, name: str, count: int, max_bytes: int | None = None) -> subprocess.Popen[str]:
    code = WRITER.format(folder=str(Path(__file__).parent), max_bytes=max_bytes)
    return subprocess.Popen(
        [sys.executable, "-c", code, str(path), name, str(count)], stdout=subprocess.PIPE, text=True
    )


def queries(path: Path) -> list[str]:
    return [entry["query"] for entry in read_log(path)]


def write(log: AuditLog, *names: str) -> None:
    for name in names:
        log.write(make_silent(query=name))


def line_size(tmp_path: Path) -> int:
    log = AuditLog(tmp_path / "size.jsonl", text="plain")
    write(log, "0")
    return log.path.stat().st_size


def test_a_full_file_makes_room(tmp_path: Path) -> None:
    path = tmp_path / "a.jsonl"
    log = AuditLog(path, text="plain", max_bytes=2 * line_size(tmp_path), backups=2)
    write(log, *"0123456")
    names = {p.name: [json.loads(line)["query"] for line in p.open()] for p in tmp_path.glob("a.jsonl*")}
    del names["a.jsonl.lock"]
    assert names == {"a.jsonl.2": ["2", "3"], "a.jsonl.1": ["4", "5"], "a.jsonl": ["6"]}
    assert queries(path) == ["2", "3", "4", "5", "6"]


def test_a_line_larger_than_the_limit_stands_alone(tmp_path: Path) -> None:
    log = AuditLog(tmp_path / "a.jsonl", text="plain", max_bytes=10)
    write(log, *"012")
    assert queries(log.path) == ["0", "1", "2"]
    assert len(list(tmp_path.glob("a.jsonl.[0-9]"))) == 2


def test_a_gap_left_by_a_killed_rotation_costs_nothing(tmp_path: Path) -> None:
    log = AuditLog(tmp_path / "a.jsonl", text="plain", max_bytes=1, backups=3)
    write(log, *"0123")
    (tmp_path / "a.jsonl.1").rename(tmp_path / "kept")
    write(log, "4")
    assert queries(log.path) == ["0", "1", "3", "4"]


def test_a_torn_line_costs_only_itself(tmp_path: Path) -> None:
    log = AuditLog(tmp_path / "a.jsonl", text="plain")
    write(log, "0")
    with log.path.open("ab") as file:
        file.write(b'{"schema": "excise-log/1", "ti')
    write(log, "1")
    assert queries(log.path) == ["0", "1"]


def test_many_threads(tmp_path: Path) -> None:
    log = AuditLog(tmp_path / "a.jsonl", text="plain", max_bytes=5 * line_size(tmp_path), backups=1000)
    threads = [threading.Thread(target=write, args=(log, *(f"{t}-{i}" for i in range(15)))) for t in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    found = queries(log.path)
    assert sorted(found) == sorted(f"{t}-{i}" for t in range(8) for i in range(15))
    for t in range(8):
        assert [q for q in found if q.startswith(f"{t}-")] == [f"{t}-{i}" for i in range(15)]


def test_many_processes_while_a_reader_reads(tmp_path: Path) -> None:
    path = tmp_path / "a.jsonl"
    writers = [start(path, str(p), 60, max_bytes=7 * line_size(tmp_path)) for p in range(4)]
    seen = 0
    for writer in writers:
        assert writer.stdout is not None
        writer.stdout.readline()
    while any(w.poll() is None for w in writers):
        found = queries(path)
        # No rotation hides or repeats a line.
        assert len(found) == len(set(found)) >= seen
        seen = len(found)
        time.sleep(0.01)
    for writer in writers:
        assert writer.wait() == 0
        assert writer.stdout is not None
        writer.stdout.close()
    assert sorted(queries(path)) == sorted(f"{p}-{i}" for p in range(4) for i in range(60))


def test_a_killed_writer_leaves_whole_lines_and_no_lock(tmp_path: Path) -> None:
    path = tmp_path / "a.jsonl"
    writer = start(path, "k", 10**9)
    assert writer.stdout is not None
    writer.stdout.readline()
    time.sleep(0.05)
    writer.send_signal(signal.SIGKILL)
    writer.wait()
    writer.stdout.close()
    before = queries(path)
    write(AuditLog(path, text="plain"), "after")
    assert queries(path) == [*before, "after"]
    assert before == [f"k-{i}" for i in range(len(before))]


def test_a_full_disk_leaves_the_log_as_it_was(tmp_path: Path) -> None:
    # A limit on the file's size stops a write in the middle of a line, as a full disk does.
    code = """
import resource, sys
sys.path.insert(0, sys.argv[2])
from audit_results import make_silent
from excise_integrations import ExciseError
from excise_integrations.audit import AuditLog
log = AuditLog(sys.argv[1], text="plain")
log.write(make_silent(query="0"))
size = log.path.stat().st_size
resource.setrlimit(resource.RLIMIT_FSIZE, (size + 50, resource.RLIM_INFINITY))
try:
    log.write(make_silent(query="1"))
except ExciseError as error:
    assert "could not be written" in str(error)
    assert log.path.stat().st_size == size, log.path.stat().st_size
    resource.setrlimit(resource.RLIMIT_FSIZE, (resource.RLIM_INFINITY, resource.RLIM_INFINITY))
    log.write(make_silent(query="2"))
    print("refused")
"""
    path = tmp_path / "a.jsonl"
    done = subprocess.run(
        [sys.executable, "-c", code, str(path), str(Path(__file__).parent)], capture_output=True, text=True, check=False
    )
    assert done.stdout.strip() == "refused", done.stderr
    assert queries(path) == ["0", "2"]


def test_reading_goes_on_beside_a_writer_that_appends(tmp_path: Path) -> None:
    log = AuditLog(tmp_path / "a.jsonl", text="plain", max_bytes=3 * line_size(tmp_path), backups=9)
    write(log, *"01234")
    entries = read_log(log.path)
    first = next(entries)
    write(log, *"5678")
    assert [first["query"], *(e["query"] for e in entries)] == list("01234")


def test_a_reader_waits_while_a_writer_moves_files(tmp_path: Path) -> None:
    import fcntl

    log = AuditLog(tmp_path / "a.jsonl", text="plain")
    write(log, "0")
    found: list[str] = []
    reader = threading.Thread(target=lambda: found.extend(queries(log.path)))
    with (tmp_path / "a.jsonl.lock").open("rb") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        reader.start()
        reader.join(0.3)
        assert reader.is_alive()
    reader.join(30)
    assert found == ["0"]


def test_a_log_without_its_lock_file_can_be_read(tmp_path: Path) -> None:
    log = AuditLog(tmp_path / "a.jsonl", text="plain")
    write(log, "0")
    (tmp_path / "a.jsonl.lock").unlink()
    assert queries(log.path) == ["0"]
    assert not (tmp_path / "a.jsonl.lock").exists()


def test_a_folder_that_allows_nothing_is_an_error_of_ours(tmp_path: Path) -> None:
    (tmp_path / "a.jsonl.lock").mkdir()
    with pytest.raises(ExciseError, match="could not be written"):
        write(AuditLog(tmp_path / "a.jsonl"), "0")
