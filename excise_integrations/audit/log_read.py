"""Reading the audit log."""

from __future__ import annotations

import contextlib
import json
import logging
import os
import re
from collections.abc import Iterator
from datetime import datetime, timezone
from pathlib import Path
from typing import Any, BinaryIO, get_args

from ..errors import ExciseError, InvalidInputError
from ..types import Action
from ._markup import visible
from .log import SCHEMA, locked

__all__ = ["describe", "read_log"]

logger = logging.getLogger("excise_integrations")


def read_log(
    path: str | os.PathLike[str],
    *,
    fired: bool | None = None,
    since: datetime | str | None = None,
    until: datetime | str | None = None,
    action: str | None = None,
) -> Iterator[dict[str, Any]]:
    """Read the entries of a log, oldest first, full files included, while others may be writing.

    What is read is the log as it was when the first entry was asked for. A line that is no entry
    (a writer was killed, the disk was damaged) is passed over with a warning.

    Args:
        path: the log's current file.
        fired: only queries that excluded something (True) or nothing (False).
        since, until: only entries from this moment on, or before that one; ISO 8601 or a datetime, UTC where it
            names no zone.
        action: only queries where at least one candidate met this action, e.g. ``"removed"``.

    Returns:
        An iterator of entries, see :meth:`excise_integrations.audit.AuditLog.entry`.

    Raises:
        InvalidInputError: there is no such log, or a filter cannot be used.
    """
    path = Path(path)
    actions = get_args(Action)
    if action is not None and action not in actions:
        raise InvalidInputError(f"action={action!r} is not one of {', '.join(map(repr, actions))}.")
    start, end = _moment("since", since), _moment("until", until)
    if not _files(path):
        raise InvalidInputError(f"There is no audit log at {str(path)!r}.")
    return _entries(path, fired, start, end, action)


def _entries(
    path: Path, fired: bool | None, start: datetime | None, end: datetime | None, action: str | None
) -> Iterator[dict[str, Any]]:
    with contextlib.ExitStack() as stack:
        # The lock is held only while the files are opened: then a rotation can neither hide nor repeat one.
        with _shared(path):
            files: list[tuple[Path, BinaryIO, int]] = []
            for name in _files(path):
                file: BinaryIO = stack.enter_context(name.open("rb"))
                files.append((name, file, os.fstat(file.fileno()).st_size))
        for name, file, size in files:
            for number, line in _lines(file, size):
                entry = _parse(name, number, line)
                if entry is not None and _matches(entry, fired, start, end, action):
                    yield entry


def _files(path: Path) -> list[Path]:
    """The log's files that exist, oldest first."""
    pattern = re.compile(re.escape(path.name) + r"\.(\d+)\Z")
    folder = path.parent
    numbers = []
    if folder.is_dir():
        numbers = [int(m.group(1)) for p in folder.iterdir() if (m := pattern.match(p.name))]
    names = [path.with_name(f"{path.name}.{n}") for n in sorted(numbers, reverse=True)]
    return [*names, *([path] if path.is_file() else [])]


@contextlib.contextmanager
def _shared(path: Path) -> Iterator[None]:
    with contextlib.ExitStack() as stack:
        # A log on a read-only disk has no writers.
        with contextlib.suppress(OSError, ExciseError):
            stack.enter_context(locked(path, shared=True))
        yield


def _lines(file: BinaryIO, size: int) -> Iterator[tuple[int, bytes]]:
    for number, line in enumerate(file, start=1):
        size -= len(line)
        if size < 0:
            # Written after the log was opened.
            return
        if line.strip():
            yield number, line


def _parse(name: Path, number: int, line: bytes) -> dict[str, Any] | None:
    try:
        entry = json.loads(line)
        if isinstance(entry, dict) and str(entry["schema"]).startswith(SCHEMA.partition("/")[0]):
            datetime.fromisoformat(entry["time"].replace("Z", "+00:00"))
            return entry
    except (ValueError, KeyError, AttributeError, RecursionError):
        pass
    logger.warning("%s, line %d is no entry of an audit log; it is passed over.", name, number)
    return None


def _matches(
    entry: dict[str, Any], fired: bool | None, start: datetime | None, end: datetime | None, action: str | None
) -> bool:
    moment = datetime.fromisoformat(entry["time"].replace("Z", "+00:00"))
    return (
        (fired is None or entry["detection"]["fired"] is fired)
        and (start is None or moment >= start)
        and (end is None or moment < end)
        and (action is None or any(v["action"] == action for v in entry["verdicts"]))
    )


def _moment(name: str, value: datetime | str | None) -> datetime | None:
    if value is None:
        return None
    try:
        moment = datetime.fromisoformat(value.replace("Z", "+00:00")) if isinstance(value, str) else value
        return moment.replace(tzinfo=timezone.utc) if moment.tzinfo is None else moment
    except (ValueError, AttributeError):
        raise InvalidInputError(
            f"{name}={value!r} is no moment; give a datetime or ISO 8601, e.g. '2026-01-31' or '2026-01-31T12:00:00Z'."
        ) from None


def describe(entry: dict[str, Any]) -> str:
    """Say in one line what an entry of the log records, safe to print on a terminal."""
    detection = entry["detection"]
    query = f"“{entry['query']}”" if "query" in entry else entry["query_hash"][:19] + "…"
    if entry.get("error"):
        what = f"failed ({entry['error']}); frozen ranking returned"
    elif not detection["fired"]:
        what = "silent" if detection["source"] == "detector" else "switched off by the caller"
    else:
        topics = ", ".join(f"“{s['text']}”" if "text" in s else s["text_hash"][:15] + "…" for s in detection["spans"])
        penalised = sum(v.get("penalty", 0) > 0 and v["action"] != "removed" for v in entry["verdicts"])
        what = f"excludes {topics}; {len(entry['removed'])} removed, {penalised} lowered"
    shadow = " (shadow)" if entry.get("shadow") else ""
    line = f"{entry['time']}  {query}  {what}; {len(entry['returned'])} of {len(entry['verdicts'])} returned{shadow}"
    return visible(" ".join(line.splitlines()).replace("\t", " "))
