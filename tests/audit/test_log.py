"""The audit log: what a line says, and what is left out of it."""

from __future__ import annotations

import copy
import json
import logging
import pickle
import stat
from dataclasses import replace
from datetime import datetime, timedelta, timezone
from pathlib import Path

import pytest
from audit_results import HOSTILE, QUERY, make_result, make_silent

from excise_integrations import Detection, ExciseError, ExciseResult, InvalidInputError, Span
from excise_integrations.audit import AuditLog, describe, read_log


def lines(path: Path) -> list[dict]:
    return [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]


def test_a_line_says_what_happened(fired: ExciseResult, tmp_path: Path) -> None:
    path = tmp_path / "new" / "audit.jsonl"
    AuditLog(path, text="plain").write(fired)
    (entry,) = lines(path)
    assert entry["schema"] == "excise-log/1"
    assert entry["query"] == QUERY
    assert entry["detection"]["spans"][0]["text"] == "domestic cat"
    assert entry["returned"] == ["dog", "kitten", "parrot"]
    assert entry["removed"] == ["cat"]
    first = entry["verdicts"][0]
    assert (first["id"], first["action"]) == ("cat", "removed")
    assert "rank" not in first
    assert entry["adapters"] == ["minilm/detector@0123456789ab"]
    assert entry["warnings"] == ["A warning for the reader."]
    assert "It is long" not in path.read_text()
    now = datetime.now(timezone.utc)
    assert entry["time"].endswith("Z")
    assert now - timedelta(minutes=5) < datetime.fromisoformat(entry["time"].replace("Z", "+00:00")) <= now


@pytest.mark.parametrize("key", [None, b"secret"])
def test_hashed_lines_hold_no_word_of_the_query(tmp_path: Path, key: bytes | None) -> None:
    detection = Detection(True, 0.9, (Span("zebra finches", 15, 28, 0.9),), "birds", warnings=("zebra",))
    result = make_result(
        query="birds, but not zebra finches",
        detection=detection,
        warnings=("zebra",),
        error="ValueError: zebra finches",
    )
    path = tmp_path / "audit.jsonl"
    AuditLog(path, key=key).write(result)
    text = path.read_text()
    for word in ("birds", "zebra", "finches"):
        assert word not in text
    (entry,) = lines(path)
    assert (entry["warnings"], entry["error"]) == (1, "ValueError")
    log = AuditLog(path, key=key)
    assert entry["query_hash"] == log.hash(result.query)
    assert entry["detection"]["spans"][0]["text_hash"] == log.hash("zebra finches")
    assert entry["query_hash"] != AuditLog(path, key=b"another").hash(result.query)


def test_an_error_without_a_type_is_not_quoted(tmp_path: Path) -> None:
    assert AuditLog(tmp_path / "a").entry(make_silent(error="zebra finches"))["error"] == "Error"


def test_documents_are_written_when_asked_for(fired: ExciseResult, tmp_path: Path) -> None:
    entry = AuditLog(tmp_path / "a.jsonl", text="plain", documents=True).entry(fired)
    assert entry["documents"]["cat"] == "A text about the cat. It is long."
    assert set(entry["documents"]) == {"cat", "dog", "kitten", "parrot"}


def test_hostile_texts_stay_one_line(hostile: ExciseResult, tmp_path: Path) -> None:
    path = tmp_path / "audit.jsonl"
    log = AuditLog(path, text="plain", documents=True)
    log.write(replace(hostile, query="a\nb\r\u2028" + HOSTILE, timings={"detect": float("nan")}))
    raw = path.read_bytes()
    assert raw.count(b"\n") == 1
    assert raw.isascii()
    (entry,) = read_log(path)
    assert entry["query"].startswith("a\nb\r\u2028</script>")
    line = describe(entry)
    assert "\n" not in line
    assert "\x1b" not in line
    assert "\u202e" not in line


def test_filters(tmp_path: Path) -> None:
    path = tmp_path / "audit.jsonl"
    log = AuditLog(path, text="plain")
    day = datetime(2026, 1, 1, tzinfo=timezone.utc)
    log.write(make_silent(query="one"), time=day)
    log.write(make_result(query="two"), time=day + timedelta(days=1))
    log.write(make_silent(query="three"), time=datetime(2026, 1, 3))
    log.write(make_result(query="four"), time=(day + timedelta(days=3)).astimezone(timezone(timedelta(hours=9))))

    def queries(**filters: object) -> list[str]:
        return [e["query"] for e in read_log(path, **filters)]  # type: ignore[arg-type]

    assert queries() == ["one", "two", "three", "four"]
    assert queries(fired=True) == ["two", "four"]
    assert queries(fired=False) == ["one", "three"]
    assert queries(action="removed") == ["two", "four"]
    assert queries(action="unchanged") == ["one", "three"]
    assert queries(since="2026-01-03") == ["three", "four"]
    assert queries(since=day + timedelta(days=1), until="2026-01-03T00:00:00Z") == ["two"]
    assert queries(since="2026-01-03T01:00:00+01:00", fired=False) == ["three"]


def test_lines_that_are_no_entry_are_passed_over_aloud(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    path = tmp_path / "audit.jsonl"
    log = AuditLog(path)
    log.write(make_silent())
    with path.open("ab") as file:
        file.write(b"\xff\xfe\n{}\n[1]\n\n")
        file.write(b'{"schema": "excise-log/1", "time": "yesterday"}\n')
        file.write(b"[" * 100_000 + b"\n")
    log.write(make_result())
    with caplog.at_level(logging.WARNING, "excise_integrations"):
        assert len(list(read_log(path))) == 2
    assert [f"line {n} is" in caplog.text for n in (2, 3, 4, 6, 7)] == [True] * 5
    assert "line 5" not in caplog.text


def test_describe(tmp_path: Path) -> None:
    log = AuditLog(tmp_path / "a", text="plain")
    at = datetime(2026, 1, 31, 12, tzinfo=timezone.utc)
    assert describe(log.entry(make_result(), time=at)) == (
        f"2026-01-31T12:00:00.000Z  “{QUERY}”  excludes “domestic cat”; 1 removed, 2 lowered; 3 of 5 returned"
    )
    assert "silent; 3 of 3 returned" in describe(log.entry(make_silent()))
    assert "switched off by the caller" in describe(log.entry(make_silent(detection=Detection(False, source="caller"))))
    assert "failed (E: x); frozen" in describe(log.entry(make_silent(error="E: x")))
    assert describe(log.entry(make_result(shadow=True))).endswith("(shadow)")
    assert "sha256:" in describe(AuditLog(tmp_path / "a").entry(make_result()))


@pytest.mark.parametrize(
    "arguments",
    [{"max_bytes": 0}, {"backups": 0}, {"text": "none"}, {"documents": True}, {"on_error": "ignore"}],
)
def test_arguments_are_checked(tmp_path: Path, arguments: dict[str, object]) -> None:
    with pytest.raises(InvalidInputError, match=next(iter(arguments))):
        AuditLog(tmp_path / "a", **arguments)  # type: ignore[arg-type]


def test_bad_paths_and_filters(tmp_path: Path) -> None:
    with pytest.raises(InvalidInputError, match="is a folder"):
        AuditLog(tmp_path)
    with pytest.raises(InvalidInputError, match="no audit log"):
        read_log(tmp_path / "none.jsonl")
    AuditLog(tmp_path / "a").write(make_silent())
    for filters in ({"action": "deleted"}, {"since": "yesterday"}, {"until": 3}):
        with pytest.raises(InvalidInputError, match=next(iter(filters))):
            read_log(tmp_path / "a", **filters)  # type: ignore[arg-type]


def test_what_cannot_be_written_raises_or_warns(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    (tmp_path / "file").write_text("")
    path = tmp_path / "file" / "audit.jsonl"
    with pytest.raises(ExciseError, match="could not be written"):
        AuditLog(path).write(make_silent())
    with caplog.at_level(logging.WARNING, "excise_integrations"):
        AuditLog(path, on_error="warn").write(make_silent())
    assert "could not be written" in caplog.text


def test_copies_write_to_the_same_log(tmp_path: Path) -> None:
    log = AuditLog(tmp_path / "a", key=b"k", max_bytes=10**6, fsync=True)
    for twin in (log, copy.deepcopy(log), pickle.loads(pickle.dumps(log))):
        twin.write(make_silent())
    entries = list(read_log(tmp_path / "a"))
    assert len(entries) == 3
    assert len({e["query_hash"] for e in entries}) == 1


def test_only_the_owner_reads_it(tmp_path: Path) -> None:
    AuditLog(tmp_path / "a").write(make_silent())
    assert stat.S_IMODE((tmp_path / "a").stat().st_mode) & 0o077 == 0
