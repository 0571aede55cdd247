"""A lock that a forked process does not inherit locked."""

from __future__ import annotations

import os
import threading
import weakref

__all__ = ["ForkLock"]


class ForkLock:
    """A mutual exclusion for ``with``, free again in the child of a fork.

    A fork copies a lock as it is, but only the thread that forked: had another thread held it, the
    child would wait for ever. What that thread was changing may be half changed there; :attr:`torn`
    says so.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self.torn = False
        _LOCKS.add(self)

    def __enter__(self) -> None:
        self._lock.acquire()

    def __exit__(self, *exception: object) -> None:
        self._lock.release()

    def renew(self) -> None:
        """Forget whoever holds it; for the child of a fork, before it has threads."""
        self.torn = self.torn or self._lock.locked()
        self._lock = threading.Lock()


_LOCKS: weakref.WeakSet[ForkLock] = weakref.WeakSet()


def _after_fork() -> None:
    for lock in list(_LOCKS):
        lock.renew()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_after_fork)
