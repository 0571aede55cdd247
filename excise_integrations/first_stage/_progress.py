"""Progress of long work, as callers ask for it."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager

__all__ = ["Progress", "reporter"]

Progress = bool | Callable[[int, int], None]
"""True for a progress bar on stderr, or a function called with documents done and in total."""


@contextmanager
def reporter(progress: Progress, total: int) -> Iterator[Callable[[int], None] | None]:
    """Turn a ``progress`` argument into what :meth:`Backbone.encode_documents` calls."""
    if callable(progress):
        done = 0

        def report(count: int) -> None:
            nonlocal done
            done += count
            progress(done, total)

        yield report
    elif progress:
        from tqdm.auto import tqdm  # type: ignore[import-untyped]

        with tqdm(total=total, desc="encoding", unit="doc") as bar:
            yield bar.update
    else:
        yield None
