"""One SQLite file that threads and processes share, and that is begun anew when it is damaged."""

from __future__ import annotations

import contextlib
import logging
import os
import re
import sqlite3
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TypeVar

__all__ = ["SharedFile", "transaction"]

logger = logging.getLogger("excise_integrations")
T = TypeVar("T")

# What passes by itself or needs the owner of the machine; everything else means a damaged file.
_PASSING = ("locked", "busy", "full", "readonly", "read-only", "unable to open", "disk i/o")


class SharedFile:
    """A SQLite file ``NAME-N.sqlite`` in a folder, for a cache: losing it costs time and nothing else.

    A damaged file is left for number N + 1, never renamed: another process may hold it open, and its
    journal must not meet a new file of the same name.

    Args:
        folder: an existing folder.
        name: beginning of the file's name; holds the version of the schema.
        schema: statements that make the tables if they are not there.
    """

    def __init__(self, folder: Path, name: str, schema: str) -> None:
        self.folder = folder
        self._name = name
        self._schema = schema
        self._pattern = re.compile(re.escape(name) + r"-(\d+)\.sqlite\Z")
        self._lock = threading.RLock()
        self._connection: sqlite3.Connection | None = None
        self._number = 0
        self._process = os.getpid()
        self._inherited: list[sqlite3.Connection] = []
        self._logged: set[str] = set()
        # How long another process's write is waited for, in seconds.
        self._timeout = 5.0

    def run(self, work: Callable[[sqlite3.Connection], T], otherwise: T) -> T:
        """Do something with the file, one thread at a time.

        Args:
            work: gets the connection; may be called twice.
            otherwise: what is returned when the file cannot be used.

        Returns:
            What ``work`` returned. A damaged file is begun anew once; nothing else is tried, logged
            errors never reach the caller.
        """
        if self._process != os.getpid():
            self._after_fork()
        with self._lock:
            for attempt in range(2):
                try:
                    return work(self._open())
                except (sqlite3.Error, OSError) as error:
                    damaged = isinstance(error, sqlite3.Error) and not any(w in str(error).lower() for w in _PASSING)
                    self._log(error, damaged)
                    if not damaged:
                        break
                    if attempt == 0:
                        self._begin_anew()
        return otherwise

    @property
    def is_open(self) -> bool:
        """Whether this process has the file open."""
        return self._connection is not None and self._process == os.getpid()

    def close(self) -> None:
        """Close the file; the next :meth:`run` opens it again."""
        with self._lock:
            if self.is_open:
                self._disconnect()

    def _open(self) -> sqlite3.Connection:
        if self._connection is None:
            self._number = max(self._number, self._newest(), 1)
            connection = sqlite3.connect(
                str(self._path(self._number)), timeout=self._timeout, isolation_level=None, check_same_thread=False
            )
            try:
                connection.execute("PRAGMA page_size = 4096")
                connection.execute("PRAGMA journal_mode = WAL")
                # A power cut may lose the last rows, never spoil the file.
                connection.execute("PRAGMA synchronous = NORMAL")
                connection.execute("PRAGMA journal_size_limit = 0")
                connection.executescript(self._schema)
            except BaseException:
                connection.close()
                raise
            self._connection = connection
        return self._connection

    def _begin_anew(self) -> None:
        self._disconnect()
        damaged, newest = self._number, self._newest()
        # Another process may have begun the next one already.
        self._number = newest if newest > damaged else damaged + 1
        path = self._path(damaged)
        for file in (path, path.with_name(path.name + "-wal"), path.with_name(path.name + "-shm")):
            with contextlib.suppress(OSError):
                file.unlink()

    def _disconnect(self) -> None:
        if self._connection is not None:
            with contextlib.suppress(sqlite3.Error):
                self._connection.close()
            self._connection = None

    def _newest(self) -> int:
        found = (self._pattern.match(path.name) for path in self.folder.iterdir())
        return max((int(match[1]) for match in found if match), default=0)

    def _path(self, number: int) -> Path:
        return self.folder / f"{self._name}-{number}.sqlite"

    def _after_fork(self) -> None:
        # Neither a connection nor a lock that another thread held survives a fork, and closing the
        # parent's connection from here would harm it: it is kept and not touched.
        self._lock = threading.RLock()
        self._process = os.getpid()
        if self._connection is not None:
            self._inherited.append(self._connection)
            self._connection = None

    def _log(self, error: Exception, damaged: bool) -> None:
        level = logging.DEBUG if str(error) in self._logged and not damaged else logging.WARNING
        self._logged.add(str(error))
        end = "; it is begun anew." if damaged else "; it is passed over."
        kind = type(error).__name__
        logger.log(level, "The cache file in %s cannot be used (%s: %s)%s", self.folder, kind, error, end)


@contextlib.contextmanager
def transaction(connection: sqlite3.Connection) -> Iterator[None]:
    """Write all of it or nothing."""
    connection.execute("BEGIN IMMEDIATE")
    try:
        yield
    except BaseException:
        with contextlib.suppress(sqlite3.Error):
            connection.execute("ROLLBACK")
        raise
    connection.execute("COMMIT")
