"""The audit log: one JSON line per query, appended by any number of threads and processes."""

from __future__ import annotations

import contextlib
import hashlib
import hmac
import json
import logging
import os
import re
from collections.abc import Iterator
from datetime import datetime, timezone
from pathlib import Path
from typing import Any, Literal

from ..errors import ExciseError, InvalidInputError
from ..types import ExciseResult
from ..version import __version__
from .record import detection_record, plain, plain_text, timestamp, verdict_record

__all__ = ["SCHEMA", "AuditLog"]

logger = logging.getLogger("excise_integrations")

SCHEMA = "excise-log/1"
DEFAULT_MAX_BYTES = 64 * 1024 * 1024
DEFAULT_BACKUPS = 10
_OMITTED: tuple[object, ...] = (None, [])
_ERROR_TYPE = re.compile(r"[A-Za-z_]\w*(?=:)", re.ASCII)


class AuditLog:
    """Append a line for every result to a file, and start a new file when it is full.

    A full ``audit.jsonl`` becomes ``audit.jsonl.1``, what was ``.1`` becomes ``.2``, and so on; the oldest
    beyond ``backups`` is deleted. A lock on ``audit.jsonl.lock`` keeps threads and processes apart, on one
    machine or on a network file system with working ``flock``. A line is written whole or not at all;
    what a killed process left unfinished is closed off by the next writer. Files are readable by their
    owner only. Instances hold no open file: they can be shared, copied, pickled and used after a fork.

    Args:
        path: the file; its folder is made when it is missing.
        max_bytes: size at which a new file is started; None never starts one. A longer line stands alone.
        backups: full files kept beside the current one, at least 1.
        text: ``"hash"`` writes the SHA-256 of the query and of each topic, ``"plain"`` their words.
        key: secret that turns the hashes into HMACs. Without it, whoever reads the log can test guesses,
            and topics are short enough to be guessed.
        documents: whether the texts of returned and removed candidates are written too; needs ``text="plain"``.
        fsync: whether a line is on the disk, not only with the operating system, before :meth:`write` returns.
        on_error: whether a line that cannot be written raises, or warns through ``logging`` and is lost.

    Raises:
        InvalidInputError: an argument is out of range, or ``path`` is a folder.
    """

    def __init__(
        self,
        path: str | os.PathLike[str],
        *,
        max_bytes: int | None = DEFAULT_MAX_BYTES,
        backups: int = DEFAULT_BACKUPS,
        text: Literal["hash", "plain"] = "hash",
        key: bytes | None = None,
        documents: bool = False,
        fsync: bool = False,
        on_error: Literal["raise", "warn"] = "raise",
    ) -> None:
        self.path = Path(path)
        if self.path.is_dir():
            raise InvalidInputError(f"The audit log {str(self.path)!r} is a folder; give a file, e.g. 'audit.jsonl'.")
        if max_bytes is not None and max_bytes < 1:
            raise InvalidInputError(f"max_bytes={max_bytes!r} must be at least 1, or None for one endless file.")
        if backups < 1:
            raise InvalidInputError(f"backups={backups!r} must be at least 1: with none a full log would be lost.")
        if text not in ("hash", "plain"):
            raise InvalidInputError(f"text={text!r} is not one of 'hash', 'plain'.")
        if documents and text != "plain":
            raise InvalidInputError("documents=True writes texts; it needs text='plain'.")
        if on_error not in ("raise", "warn"):
            raise InvalidInputError(f"on_error={on_error!r} is not one of 'raise', 'warn'.")
        self.max_bytes = max_bytes
        self.backups = backups
        self.text = text
        self.key = key
        self.documents = documents
        self.fsync = fsync
        self.on_error = on_error

    def write(self, result: ExciseResult, *, time: datetime | None = None) -> None:
        """Append one line.

        Args:
            result: what to log.
            time: when it happened; None means now.

        Raises:
            ExciseError: the line cannot be written and ``on_error="raise"``. The log is then as it was.
        """
        try:
            line = json.dumps(self.entry(result, time=time), allow_nan=False, separators=(",", ":")).encode() + b"\n"
            self._append(line)
        except OSError as error:
            message = (
                f"The audit log {str(self.path)!r} could not be written: {error}. Make room, mend its permissions, or "
                "give another path."
            )
            if self.on_error == "raise":
                raise ExciseError(message) from error
            logger.warning("%s", message)

    def entry(self, result: ExciseResult, *, time: datetime | None = None) -> dict[str, Any]:
        """Return what :meth:`write` writes, as JSON types.

        Ids of candidates are always written as they are. What a verdict lacks is left out of it. With
        ``text="hash"`` warnings and errors, which may quote the query, are reduced to their number and type.
        """
        detection = detection_record(result.detection)
        entry: dict[str, Any] = {
            "schema": SCHEMA,
            "time": timestamp(_utc(time) if time is not None else None),
            "version": __version__,
        }
        if self.text == "plain":
            entry["query"] = plain_text(result.query)
        else:
            entry["query_hash"] = self.hash(result.query)
            del detection["wanted"]
            for span in detection["spans"]:
                span["text_hash"] = self.hash(span.pop("text"))
        entry |= {
            "detection": detection,
            "returned": [plain_text(c.id) for c in result.candidates],
            "removed": [plain_text(c.id) for c in result.removed],
            "verdicts": [
                {k: v for k, v in verdict_record(verdict).items() if v not in _OMITTED}
                for verdict in result.verdicts.values()
            ],
            "floor": plain(result.floor),
            "config": result.config,
            "adapters": list(result.adapters),
            "timings": plain(result.timings),
            "shadow": result.shadow,
        }
        if self.text == "plain":
            entry["warnings"] = [plain_text(w) for w in result.warnings]
            entry["error"] = plain(result.error)
        else:
            entry["warnings"] = len(result.warnings)
            entry["error"] = None if result.error is None else _error_type(result.error)
        if self.documents:
            entry["documents"] = {plain_text(c.id): plain_text(c.text) for c in (*result.candidates, *result.removed)}
        return entry

    def hash(self, text: str) -> str:
        """Return what stands for a text: ``sha256:…``, or ``hmac-sha256:…`` when there is a key."""
        data = plain_text(text).encode()
        if self.key is not None:
            return "hmac-sha256:" + hmac.new(self.key, data, hashlib.sha256).hexdigest()
        return "sha256:" + hashlib.sha256(data).hexdigest()

    # --- files ----------------------------------------------------------------------------

    def _append(self, line: bytes) -> None:
        self.path.parent.mkdir(parents=True, exist_ok=True)
        with locked(self.path):
            # Opened for each line: another process may have renamed the file since the last one.
            file = os.open(self.path, _FLAGS, 0o600)
            try:
                size = os.fstat(file).st_size
                if self.max_bytes is not None and size and size + len(line) > self.max_bytes:
                    os.close(file)
                    file = -1
                    self._rotate()
                    file = os.open(self.path, _FLAGS, 0o600)
                    size = 0
                _write_whole(file, line, size)
                if self.fsync:
                    os.fsync(file)
            finally:
                if file >= 0:
                    os.close(file)

    def _rotate(self) -> None:
        names = [self.path, *(backup(self.path, n) for n in range(1, self.backups + 1))]
        # A rotation that was killed leaves a gap; only what stands before it has to move.
        last = next((n for n in range(1, len(names)) if not names[n].exists()), len(names) - 1)
        for n in range(last, 0, -1):
            os.replace(names[n - 1], names[n])


_FLAGS = os.O_RDWR | os.O_CREAT | os.O_APPEND | getattr(os, "O_CLOEXEC", 0)


def backup(path: Path, number: int) -> Path:
    """Return the name of a full file."""
    return path.with_name(f"{path.name}.{number}")


@contextlib.contextmanager
def locked(path: Path, *, shared: bool = False) -> Iterator[None]:
    """Hold the log's lock, for writing or (``shared``) for reading.

    Raises:
        ExciseError: this platform has no ``fcntl``.
    """
    try:
        import fcntl
    except ImportError as error:
        raise ExciseError("The audit log needs fcntl locks, which this platform does not have.") from error
    # A file of its own, never renamed; opened each time, so that a fork shares no lock with its parent.
    flags = os.O_RDONLY if shared else os.O_RDWR | os.O_CREAT
    lock = os.open(f"{path}.lock", flags | getattr(os, "O_CLOEXEC", 0), 0o600)
    try:
        fcntl.flock(lock, fcntl.LOCK_SH if shared else fcntl.LOCK_EX)
        yield
    finally:
        os.close(lock)


def _write_whole(file: int, line: bytes, size: int) -> None:
    if size and os.pread(file, 1, size - 1) != b"\n":
        # A writer was killed in the middle of its line.
        line = b"\n" + line
    try:
        written = 0
        while written < len(line):
            written += os.write(file, line[written:])
    except BaseException:
        os.ftruncate(file, size)
        raise


def _error_type(error: str) -> str:
    # It comes first ("DetectorError: …"); what follows may quote the query.
    match = _ERROR_TYPE.match(error)
    return match.group() if match else "Error"


def _utc(moment: datetime) -> datetime:
    return moment.replace(tzinfo=timezone.utc) if moment.tzinfo is None else moment
