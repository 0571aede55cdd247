"""Load models without the notes of the libraries that load them."""

from __future__ import annotations

import contextlib
import warnings
from collections.abc import Callable, Iterator
from typing import Any

from .fork_lock import ForkLock

__all__ = ["quiet_loading"]

# Both settings belong to the process: whoever comes second must not take the first one's for the user's.
_LOCK = ForkLock()


@contextlib.contextmanager
def quiet_loading() -> Iterator[None]:
    """Keep away the bars of weights that are read in no time, and a warning about PEFT's own code.

    Bars of downloads stay, so do other warnings, and afterwards everything is as it was.
    """
    from transformers.utils import logging

    def without_bar(factory: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        return factory(*args, **{**kwargs, "disable": True})

    with _LOCK, warnings.catch_warnings():
        # PEFT asks every transformers model for a name that transformers has renamed.
        warnings.filterwarnings("ignore", message="`is_gradient_checkpointing` is deprecated", category=FutureWarning)
        before = logging.set_tqdm_hook(without_bar)
        try:
            yield
        finally:
            logging.set_tqdm_hook(before)
