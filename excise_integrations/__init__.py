"""Exclusion-aware re-ranking for late-interaction (ColBERT) retrieval.

The public face: everything a caller needs is importable from here; nothing heavy is imported
until it is used.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from .errors import (
    AdapterError,
    BackboneError,
    DetectorError,
    ExciseError,
    FirstStageError,
    IndexDamagedError,
    InvalidInputError,
    MissingExtraError,
    SuiteError,
)
from .types import Candidate, Detection, ExciseResult, Span, Verdict
from .version import __version__

if TYPE_CHECKING:
    from .config import ExciseConfig
    from .pipeline import Excise

__all__ = [
    "AdapterError",
    "BackboneError",
    "Candidate",
    "Detection",
    "DetectorError",
    "Excise",
    "ExciseConfig",
    "ExciseError",
    "ExciseResult",
    "FirstStageError",
    "IndexDamagedError",
    "InvalidInputError",
    "MissingExtraError",
    "Span",
    "SuiteError",
    "Verdict",
    "__version__",
]

_LAZY = {"Excise": "pipeline", "ExciseConfig": "config"}


def __getattr__(name: str) -> Any:
    if name in _LAZY:
        from importlib import import_module

        value = getattr(import_module(f".{_LAZY[name]}", __name__), name)
        globals()[name] = value
        return value
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted(set(globals()) | set(__all__))
