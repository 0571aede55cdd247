"""Run a function in a forked child: to its end, or until it is killed in the middle."""

from __future__ import annotations

import contextlib
import os
import random
import select
import signal
import sys
import time
import traceback
from collections.abc import Callable
from pathlib import Path
from typing import Any, NoReturn

Step = Callable[[int], None]


def run_in_child(work: Callable[[], object], *, seconds: float = 60) -> str:
    """Return the text of what ``work`` returned in a child, or of the traceback it ended with."""
    reader, writer = os.pipe()
    child = os.fork()
    if child == 0:
        os.close(reader)
        try:
            answer = str(work())
        except BaseException:
            answer = traceback.format_exc()
        _leave(writer, answer.encode("utf-8", "replace"))
    os.close(writer)
    try:
        return _read(reader, time.monotonic() + seconds).decode()
    finally:
        _reap(child, reader)


def killed(step: Step, *, rng: random.Random, longest: float = 0.05, first: int = 0) -> int:
    """Call ``step(first)``, ``step(first + 1)``, … in a child, kill it without warning, and say how many were done.

    The child may have done one step more than it could tell.
    """
    reader, writer = os.pipe()
    child = os.fork()
    if child == 0:
        os.close(reader)
        number = first
        with contextlib.suppress(BaseException):
            while True:
                step(number)
                os.write(writer, b".")
                number += 1
        _leave(writer, traceback.format_exc().encode())
    os.close(writer)
    try:
        # The first step may be long; the kill comes somewhere in a later one.
        ready, _, _ = select.select([reader], [], [], 60)
        assert ready, "the child did not finish its first step"
        time.sleep(rng.random() * longest)
        os.kill(child, signal.SIGKILL)
        os.waitpid(child, 0)
        told = _read(reader, time.monotonic() + 10)
        assert not told.strip(b"."), told.decode()
        return len(told)
    finally:
        _reap(child, reader)


def killed_when(happened: Callable[[], object], work: Callable[[], object], *, seconds: float = 120) -> None:
    """Run ``work`` in a child and kill it without warning as soon as ``happened()`` is true, before it ends."""
    child = os.fork()
    if child == 0:
        # What it prints is of no interest, and its parent's capture is not for it.
        nowhere = os.open(os.devnull, os.O_WRONLY)
        os.dup2(nowhere, 1)
        os.dup2(nowhere, 2)
        with contextlib.suppress(BaseException):
            work()
        os._exit(0)
    until = time.monotonic() + seconds
    try:
        while not happened():
            assert time.monotonic() < until, "nothing happened"
            assert os.waitpid(child, os.WNOHANG) == (0, 0), "the child ended before anything happened"
            time.sleep(0.002)
    finally:
        with contextlib.suppress(ProcessLookupError, ChildProcessError):
            os.kill(child, signal.SIGKILL)
            status = os.waitpid(child, 0)[1]
    assert os.WIFSIGNALED(status), "the child ended before it was killed"


def killed_before(change: int, work: Callable[[], object], below: Path) -> bool:
    """Run ``work`` in a child and kill it before its so-manieth change of files; False when it had fewer."""
    child = os.fork()
    if child == 0:
        try:
            sys.addaudithook(_Killer(change, below))
            work()
            os._exit(0)
        except BaseException:
            traceback.print_exc()
            os._exit(1)
    until = time.monotonic() + 60
    while (ended := os.waitpid(child, os.WNOHANG))[0] == 0:
        if time.monotonic() > until:
            os.kill(child, signal.SIGKILL)
            os.waitpid(child, 0)
            raise AssertionError("the child hangs")
        time.sleep(0.001)
    status = ended[1]
    assert status in (0, signal.SIGKILL), f"the child failed ({status})"
    return status != 0


class _Killer:
    """Ends this process before its so-manieth change of files below a folder; exchanges of folders count too."""

    def __init__(self, change: int, below: Path) -> None:
        self.left = change
        self.below = str(below)

    def __call__(self, event: str, arguments: tuple[Any, ...]) -> None:
        if event == "open":
            changes = bool(arguments[2] & (os.O_WRONLY | os.O_RDWR | os.O_CREAT)) and self._below(arguments[0])
        elif event in ("os.mkdir", "os.rename", "os.remove", "os.rmdir", "os.chmod"):
            changes = self._below(arguments[0])
        else:
            changes = event == "ctypes.call_function"
        if changes and not self.left:
            os.kill(os.getpid(), signal.SIGKILL)
        self.left -= changes

    def _below(self, path: Any) -> bool:
        # Within a folder that is being removed names stand alone.
        return not isinstance(path, int) and (os.fsdecode(path).startswith(self.below) or "/" not in os.fsdecode(path))


def _leave(writer: int, answer: bytes) -> NoReturn:
    with contextlib.suppress(BaseException):
        while answer:
            answer = answer[os.write(writer, answer) :]
    # Not sys.exit: the child must run none of the parent's exit handlers.
    os._exit(0)


def _read(reader: int, until: float) -> bytes:
    told = b""
    while True:
        ready, _, _ = select.select([reader], [], [], max(0.0, until - time.monotonic()))
        assert ready, f"the child did not end in time; it said {told[-500:]!r}"
        part = os.read(reader, 65536)
        if not part:
            return told
        told += part


def _reap(child: int, reader: int) -> None:
    os.close(reader)
    with contextlib.suppress(ProcessLookupError, ChildProcessError):
        os.kill(child, signal.SIGKILL)
        os.waitpid(child, 0)
