"""Replace an index folder by another so that a killed process leaves one of them whole."""

from __future__ import annotations

import contextlib
import ctypes
import os
import shutil
import sys
from collections.abc import Iterator
from pathlib import Path

from ..errors import FirstStageError

__all__ = ["locked", "recover", "staging_folder", "swap"]

_EXCHANGE = 2  # RENAME_EXCHANGE of linux/fs.h
_AT_CWD = -100


def staging_folder(folder: Path) -> Path:
    """Return an empty folder beside ``folder`` to build its successor in; an older one is removed."""
    staging = folder.with_name(f".{folder.name}.new")
    shutil.rmtree(staging, ignore_errors=True)
    staging.mkdir(parents=True)
    return staging


def swap(folder: Path, successor: Path) -> None:
    """Put ``successor`` in the place of ``folder`` and remove the old contents.

    Where the system can exchange two folders at once it does; elsewhere there is a moment with the
    old index under ``.<name>.old`` only, which :func:`recover` ends.
    """
    _sync(successor)
    old = folder.with_name(f".{folder.name}.old")
    shutil.rmtree(old, ignore_errors=True)
    if _exchange(folder, successor):
        successor.rename(old)
    else:
        folder.rename(old)
        successor.rename(folder)
    shutil.rmtree(old, ignore_errors=True)


def recover(folder: Path) -> None:
    """Put the old index back if a process was killed between the two renames of :func:`swap`."""
    old = folder.with_name(f".{folder.name}.old")
    if not folder.exists() and old.is_dir():
        with contextlib.suppress(OSError):
            old.rename(folder)


@contextlib.contextmanager
def locked(folder: Path) -> Iterator[None]:
    """Keep other processes from changing the same index meanwhile.

    Raises:
        FirstStageError: another process is changing it.
    """
    if sys.platform == "win32":
        yield
        return
    import fcntl

    # The lock is on the folder itself: it needs no file of its own and dies with its process.
    handle = os.open(folder, os.O_RDONLY)
    try:
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
            same = os.fstat(handle).st_ino == folder.stat().st_ino
        except OSError:
            same = False
        if not same:
            raise FirstStageError(f"Another process is changing the index {folder}; try again when it is done.")
        yield
    finally:
        os.close(handle)


def _exchange(first: Path, second: Path) -> bool:
    if sys.platform != "linux":
        return False
    try:
        rename = ctypes.CDLL(None, use_errno=True).renameat2
    except (OSError, AttributeError):
        return False
    return bool(rename(_AT_CWD, os.fsencode(first), _AT_CWD, os.fsencode(second), _EXCHANGE) == 0)


def _sync(folder: Path) -> None:
    for path in sorted(folder.iterdir()):
        if path.is_file():
            with path.open("rb") as handle:
                os.fsync(handle.fileno())
    if sys.platform != "win32":
        handle_ = os.open(folder, os.O_RDONLY)
        try:
            os.fsync(handle_)
        finally:
            os.close(handle_)
