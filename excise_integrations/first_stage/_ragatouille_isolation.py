"""Run colbert-ai and RAGatouille so that the process is afterwards what it was before."""

from __future__ import annotations

import contextlib
import logging
import multiprocessing
import os
import random
import shutil
import sys
import threading
import warnings
from collections.abc import Iterator
from typing import Any

__all__ = ["PROCESS_LOCK", "environment_kept", "isolated", "prints_logged", "process_state_kept", "random_state_kept"]

logger = logging.getLogger("excise_integrations")

# One at a time: imports with stand-ins, loads and builds change state of the process, and put it back.
PROCESS_LOCK = threading.RLock()


@contextlib.contextmanager
def isolated() -> Iterator[None]:
    """Run colbert-ai or RAGatouille without a trace: prints go to the log, global state is put back."""
    with (
        PROCESS_LOCK,
        process_state_kept(),
        random_state_kept(),
        prints_logged("stdout"),
        prints_logged("stderr"),
        _fresh_run(),
        warnings.catch_warnings(),
    ):
        for category in (FutureWarning, UserWarning):
            warnings.filterwarnings("ignore", category=category, module=r"(colbert|ragatouille|torch)\b")
        yield


@contextlib.contextmanager
def _fresh_run() -> Iterator[None]:
    # Every RAGPretrainedModel leaves its settings on a stack that others inherit from, index folder included.
    infra = sys.modules.get("colbert.infra")
    if infra is None:
        yield
        return
    run, config = infra.Run(), infra.RunConfig()
    config.assign_defaults()
    before, run.stack = run.stack, [config]
    try:
        yield
    finally:
        run.stack = before


@contextlib.contextmanager
def process_state_kept() -> Iterator[None]:
    """Keep the start method and the environment variables that importing and building change."""
    method = multiprocessing.get_start_method(allow_none=True)
    try:
        with environment_kept("CUDA_VISIBLE_DEVICES", "TOKENIZERS_PARALLELISM", "GIT_PYTHON_REFRESH"):
            if shutil.which("git") is None:
                os.environ.setdefault("GIT_PYTHON_REFRESH", "quiet")
            yield
    finally:
        if multiprocessing.get_start_method(allow_none=True) != method:
            # None is how the standard library itself forgets the method.
            multiprocessing.set_start_method(method, force=True)


@contextlib.contextmanager
def environment_kept(*names: str) -> Iterator[None]:
    """Keep these environment variables."""
    before = {name: os.environ.get(name) for name in names}
    try:
        yield
    finally:
        for name, value in before.items():
            if value is None:
                os.environ.pop(name, None)
            else:
                os.environ[name] = value


@contextlib.contextmanager
def random_state_kept() -> Iterator[None]:
    """Keep the state of the random generators of Python, NumPy and PyTorch."""
    import numpy
    import torch

    states = random.getstate(), numpy.random.get_state(), torch.get_rng_state()
    # Asking for the state would start CUDA where nobody has used it yet.
    used = torch.cuda.is_available() and torch.cuda.is_initialized()  # type: ignore[no-untyped-call]
    cuda = torch.cuda.get_rng_state_all() if used else None
    try:
        yield
    finally:
        random.setstate(states[0])
        numpy.random.set_state(states[1])
        torch.set_rng_state(states[2])
        if cuda is not None:
            torch.cuda.set_rng_state_all(cuda)


class _ThreadLog:
    """What this thread writes goes to the log; other threads keep the stream."""

    def __init__(self, stream: Any) -> None:
        self._stream = stream
        self._thread = threading.get_ident()

    def write(self, text: str) -> int:
        if threading.get_ident() != self._thread:
            # There is no stream in a process without a console.
            return len(text) if self._stream is None else int(self._stream.write(text))
        for line in text.replace("\r", "\n").split("\n"):
            if line.strip():
                logger.debug("%s", line.strip())
        return len(text)

    def flush(self) -> None:
        if threading.get_ident() != self._thread and self._stream is not None:
            self._stream.flush()

    def __getattr__(self, name: str) -> Any:
        return getattr(self._stream, name)


@contextlib.contextmanager
def prints_logged(name: str) -> Iterator[None]:
    """Log what this thread writes to ``sys.stdout`` or ``sys.stderr``."""
    before = getattr(sys, name)
    setattr(sys, name, _ThreadLog(before))
    try:
        yield
    finally:
        setattr(sys, name, before)
