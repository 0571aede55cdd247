"""Load models without the notes of the libraries that load them."""

from __future__ import annotations

import contextlib
import logging
import re
import warnings
from collections.abc import Callable, Iterator
from typing import Any

from .fork_lock import ForkLock

__all__ = ["quiet_loading"]

# Both settings belong to the process: whoever comes second must not take the first one's for the user's.
_LOCK = ForkLock()
_MODELS = "transformers.modeling_utils"


def _says_something(record: logging.LogRecord) -> bool:
    """Tell whether a record is more than the report that a ColBERT checkpoint has a projection beside its model.

    The projection is read by its own module; any other key in the report is news.
    """
    message = re.sub(r"\x1b\[[0-9;]*m", "", record.getMessage())
    rows = re.findall(r"^(\S+) *\| *([A-Z]+)\b", message, re.MULTILINE)
    return "LOAD REPORT" not in message or rows != [("linear.weight", "UNEXPECTED")]


@contextlib.contextmanager
def quiet_loading() -> Iterator[None]:
    """Keep away bars of weights that are read in no time, the report of ColBERT's projection, and a warning of PEFT's.

    Bars of downloads stay, so do other warnings, and afterwards everything is as it was.
    """
    from transformers.utils.logging import set_tqdm_hook

    def without_bar(factory: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        return factory(*args, **{**kwargs, "disable": True})

    with _LOCK, warnings.catch_warnings():
        # PEFT asks every transformers model for a name that transformers has renamed.
        warnings.filterwarnings("ignore", message="`is_gradient_checkpointing` is deprecated", category=FutureWarning)
        before = set_tqdm_hook(without_bar)
        logging.getLogger(_MODELS).addFilter(_says_something)
        try:
            yield
        finally:
            logging.getLogger(_MODELS).removeFilter(_says_something)
            set_tqdm_hook(before)
