"""Files and folders that a killed process leaves as they were or as they were to be."""

from __future__ import annotations

import contextlib
import ctypes
import os
import shutil
import sys
from pathlib import Path

__all__ = ["recover", "staging_folder", "swap", "write_text"]

_EXCHANGE = 2  # RENAME_EXCHANGE of linux/fs.h
_AT_CWD = -100


def write_text(path: Path, text: str) -> None:
    """Write a file of UTF-8 with Unix line ends: beside its place, synced, then renamed into it.

    A link stays one, and what it leads to is replaced; a device or a pipe is written to.

    Raises:
        OSError: the disk does not take it; what was there is as it was.
    """
    path = path.resolve()
    if path.exists() and not path.is_file():
        path.write_text(text, encoding="utf-8", newline="\n")
        return
    path.parent.mkdir(parents=True, exist_ok=True)
    temporary = path.with_name(f".{path.name}.{os.getpid()}")
    try:
        with temporary.open("w", encoding="utf-8", newline="\n") as handle:
            handle.write(text)
            handle.flush()
            os.fsync(handle.fileno())
        temporary.replace(path)
    finally:
        temporary.unlink(missing_ok=True)


def staging_folder(folder: Path) -> Path:
    """Return an empty folder beside ``folder`` to build its successor in; an older one is removed."""
    staging = folder.with_name(f".{folder.name}.new")
    shutil.rmtree(staging, ignore_errors=True)
    staging.mkdir(parents=True)
    return staging


def swap(folder: Path, successor: Path) -> None:
    """Put ``successor`` in the place of ``folder``, whose old contents, if any, are removed.

    Where the system can exchange two folders at once it does; elsewhere there is a moment with the
    old contents under ``.<name>.old`` only, which :func:`recover` ends.

    Raises:
        OSError: it cannot be renamed, or not be synced.
    """
    _sync(successor)
    if not folder.exists():
        successor.rename(folder)
        return
    old = folder.with_name(f".{folder.name}.old")
    shutil.rmtree(old, ignore_errors=True)
    if _exchange(folder, successor):
        successor.rename(old)
    else:
        folder.rename(old)
        successor.rename(folder)
    shutil.rmtree(old, ignore_errors=True)


def recover(folder: Path) -> None:
    """Put the old contents back if a process was killed between the two renames of :func:`swap`."""
    if folder.exists():
        return
    old = folder.with_name(f".{folder.name}.old")
    if old.is_dir():
        with contextlib.suppress(OSError):
            old.rename(folder)


def _exchange(first: Path, second: Path) -> bool:
    if sys.platform != "linux":
        return False
    try:
        rename = ctypes.CDLL(None, use_errno=True).renameat2
    except (OSError, AttributeError):
        return False
    return bool(rename(_AT_CWD, os.fsencode(first), _AT_CWD, os.fsencode(second), _EXCHANGE) == 0)


def _sync(folder: Path) -> None:
    for path in sorted(folder.rglob("*")):
        if path.is_file():
            with path.open("rb") as handle:
                os.fsync(handle.fileno())
    if sys.platform != "win32":
        for path in (*(p for p in folder.rglob("*") if p.is_dir()), folder):
            handle_ = os.open(path, os.O_RDONLY)
            try:
                os.fsync(handle_)
            finally:
                os.close(handle_)
