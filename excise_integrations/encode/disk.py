"""Token vectors on disk, shared by processes: a cache that survives a restart."""

from __future__ import annotations

import contextlib
import logging
import os
import sqlite3
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ..errors import InvalidInputError
from .disk_file import SharedFile, transaction
from .storage import StoredVectors

__all__ = ["DiskCache", "DiskStats"]

logger = logging.getLogger("excise_integrations")

# With the version of the schema, so that other versions of the package neither read nor spoil it.
_NAME = "excise-vectors-v1"
_PAGE_BYTES = 4096
# Of the two indexes, per row.
_ROW_OVERHEAD = 160
_KEYS_PER_QUERY = 500
# Uses are written with the next vectors, or once so many have gathered: a hit must not cost a write.
_MAX_UNWRITTEN_USES = 4096
_SCHEMA = """
CREATE TABLE IF NOT EXISTS vectors (key BLOB PRIMARY KEY, row BLOB NOT NULL, size INTEGER NOT NULL, used INTEGER NOT NULL);
CREATE INDEX IF NOT EXISTS by_use ON vectors (used, size);
"""  # noqa: E501


@dataclass(frozen=True)
class DiskStats:
    """What a disk cache holds, and how many rows this object evicted or dropped as damaged."""

    entries: int
    bytes: int
    evictions: int
    dropped: int


class DiskCache:
    """Least-recently-used rows in SQLite, bounded in bytes; several processes may share the folder.

    A killed process leaves whole rows only. Every row carries a checksum: a damaged row is dropped
    and its document is encoded again; a damaged file is replaced by a new one. A full or
    read-only disk is logged and never fails a query. The folder must be on a local file system.

    Args:
        folder: where the file lies; made when it does not exist, for its owner only. Whoever can write to it
            can change what is removed from results: a warning is logged when everybody can.
        max_bytes: bound of the file, at least 0; below some 50 kB it holds nothing. A journal of about
            one batch stands beside it while it is open.

    Raises:
        InvalidInputError: the bound is negative, or the folder cannot be made.
    """

    def __init__(self, folder: str | Path, *, max_bytes: int = 4 * 1024**3) -> None:
        if max_bytes < 0:
            raise InvalidInputError(f"max_bytes={max_bytes} is negative; give the size of the disk cache in bytes.")
        self.folder = Path(folder)
        self.max_bytes = max_bytes
        try:
            # Vectors tell about the texts they were made of, and decide what is removed: the owner's alone.
            self.folder.mkdir(mode=0o700, parents=True, exist_ok=True)
            _warn_of_strangers(self.folder)
        except OSError as error:
            raise InvalidInputError(
                f"The cache folder {self.folder} cannot be made ({error.strerror}); give another one."
            ) from error
        self._file = SharedFile(self.folder, _NAME, _SCHEMA)
        self._used: dict[str, int] = {}
        self._evictions = self._dropped = 0

    # --- use --------------------------------------------------------------------------------

    def get(self, keys: Sequence[str]) -> dict[str, StoredVectors]:
        """Return the rows that are there and whole.

        Args:
            keys: sha256 in hexadecimal digits.
        """

        def read(connection: sqlite3.Connection) -> dict[str, StoredVectors]:
            found: dict[str, StoredVectors] = {}
            damaged: list[str] = []
            for part in _parts(keys):
                marks = ",".join("?" * len(part))
                rows = connection.execute(
                    f"SELECT key, row FROM vectors WHERE key IN ({marks})", [bytes.fromhex(k) for k in part]
                )
                for raw, row in rows:
                    key = bytes(raw).hex()
                    try:
                        found[key] = StoredVectors.from_row(key, row)
                    except (ValueError, TypeError, KeyError) as error:
                        logger.warning("Row %s of the cache %s is damaged (%s); dropped.", key[:12], self.folder, error)
                        damaged.append(key)
            if damaged:
                self._dropped += len(damaged)
                # On a read-only disk the row stays and is passed over again.
                with contextlib.suppress(sqlite3.OperationalError), transaction(connection):
                    connection.executemany("DELETE FROM vectors WHERE key = ?", [(bytes.fromhex(k),) for k in damaged])
            self._used.update(dict.fromkeys(found, _now()))
            if len(self._used) > _MAX_UNWRITTEN_USES:
                with contextlib.suppress(sqlite3.OperationalError), transaction(connection):
                    self._write_uses(connection)
            return found

        return self._file.run(read, {})

    def missing(self, keys: Sequence[str]) -> list[str]:
        """Return those of the keys that have no row, in order, without reading any vectors."""

        def look(connection: sqlite3.Connection) -> list[str]:
            there: set[str] = set()
            for part in _parts(keys):
                marks = ",".join("?" * len(part))
                rows = connection.execute(
                    f"SELECT key FROM vectors WHERE key IN ({marks})", [bytes.fromhex(k) for k in part]
                )
                there.update(bytes(raw).hex() for (raw,) in rows)
            return [key for key in keys if key not in there]

        return self._file.run(look, list(keys))

    def put(self, items: Mapping[str, StoredVectors]) -> None:
        """Write rows, all of them or none, evicting those that were not used for the longest time.

        Args:
            items: rows by key. Those that do not fit within the bound are left out.
        """
        rows: list[tuple[bytes, bytes, int, int]] = []
        new = 0
        for key, value in items.items():
            row = value.to_row(key)
            # Whole pages: a row shares its last one at best.
            size = -(-len(row) // _PAGE_BYTES) * _PAGE_BYTES + _ROW_OVERHEAD
            if new + size <= self.max_bytes:
                new += size
                rows.append((bytes.fromhex(key), row, size, _now()))

        def write(connection: sqlite3.Connection) -> None:
            with transaction(connection):
                self._write_uses(connection)
                if self._make_room(connection, new):
                    connection.executemany("INSERT OR IGNORE INTO vectors VALUES (?, ?, ?, ?)", rows)

        if rows:
            self._file.run(write, None)

    def stats(self) -> DiskStats:
        """Return the number of rows, the bytes of the file that are in use, and the counters of this object."""

        def count(connection: sqlite3.Connection) -> tuple[int, int]:
            return connection.execute("SELECT COUNT(*) FROM vectors").fetchone()[0], _bytes_used(connection)

        entries, size = self._file.run(count, (0, 0))
        return DiskStats(entries, size, self._evictions, self._dropped)

    def clear(self) -> None:
        """Delete every row."""

        def delete(connection: sqlite3.Connection) -> None:
            with transaction(connection):
                connection.execute("DELETE FROM vectors")
            connection.execute("VACUUM")

        self._file.run(delete, None)

    def close(self) -> None:
        """Write what is left to write and close the file; the next use opens it again."""

        def last(connection: sqlite3.Connection) -> None:
            with transaction(connection):
                self._write_uses(connection)

        if self._used and self._file.is_open:
            self._file.run(last, None)
        self._file.close()

    def __enter__(self) -> DiskCache:
        return self

    def __exit__(self, *exception: object) -> None:
        self.close()

    def __getstate__(self) -> dict[str, Any]:
        return {"folder": str(self.folder), "max_bytes": self.max_bytes}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__init__(state["folder"], max_bytes=state["max_bytes"])  # type: ignore[misc]

    # --- rows -------------------------------------------------------------------------------

    def _write_uses(self, connection: sqlite3.Connection) -> None:
        used, self._used = self._used, {}
        connection.executemany(
            "UPDATE vectors SET used = max(used, ?) WHERE key = ?", [(at, bytes.fromhex(k)) for k, at in used.items()]
        )

    def _make_room(self, connection: sqlite3.Connection, new: int) -> bool:
        """Delete what was not used for the longest time; False when even an empty file leaves no room."""
        excess = _bytes_used(connection) + new - self.max_bytes
        if excess > 0:
            # A little more than needed, so that not every write evicts.
            excess += self.max_bytes // 50
        # Rows share pages, so that deleting them may free less than their size.
        while excess > 0:
            oldest: list[tuple[int]] = []
            freed = 0
            for row, size in connection.execute("SELECT rowid, size FROM vectors ORDER BY used"):
                oldest.append((row,))
                freed += size
                if freed >= excess:
                    break
            if not oldest:
                return False
            connection.executemany("DELETE FROM vectors WHERE rowid = ?", oldest)
            self._evictions += len(oldest)
            excess = _bytes_used(connection) + new - self.max_bytes
        return True


def _warn_of_strangers(folder: Path) -> None:
    if os.name == "posix" and folder.stat().st_mode & 0o002:
        logger.warning(
            "Everybody can write to the cache folder %s, and so change the vectors that decide what is removed; "
            "take that right away (chmod o-w), or give another folder.", folder,
        )  # fmt: skip


def _bytes_used(connection: sqlite3.Connection) -> int:
    pages = connection.execute("PRAGMA page_count").fetchone()[0]
    free = connection.execute("PRAGMA freelist_count").fetchone()[0]
    return int(pages - free) * _PAGE_BYTES


def _parts(keys: Sequence[str]) -> Iterator[Sequence[str]]:
    return (keys[at : at + _KEYS_PER_QUERY] for at in range(0, len(keys), _KEYS_PER_QUERY))


def _now() -> int:
    return time.time_ns() // 1000
