"""Run a function in a forked child: to its end, or until it is killed in the middle."""

from __future__ import annotations

import contextlib
import os
import random
import select
import signal
import time
import traceback
from collections.abc import Callable
from typing import NoReturn

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
