"""Measuring: suites, metrics and evaluation. Never imported at query time."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from .evaluate import SuiteResult, evaluate_suite
    from .queries import evaluate_queries
    from .run import run_suite
    from .significance import paired_bootstrap
    from .suites import Query, Suite, load_queries, load_suite, load_suites
    from .systems import SYSTEMS, System

_HOMES = {
    "SYSTEMS": "systems",
    "Query": "suites",
    "Suite": "suites",
    "SuiteResult": "evaluate",
    "System": "systems",
    "evaluate_queries": "queries",
    "evaluate_suite": "evaluate",
    "load_queries": "suites",
    "load_suite": "suites",
    "load_suites": "suites",
    "paired_bootstrap": "significance",
    "run_suite": "run",
}

__all__ = [
    "SYSTEMS",
    "Query",
    "Suite",
    "SuiteResult",
    "System",
    "evaluate_queries",
    "evaluate_suite",
    "load_queries",
    "load_suite",
    "load_suites",
    "paired_bootstrap",
    "run_suite",
]


def __getattr__(name: str) -> Any:
    # Lazily: the command line lists its commands without loading torch.
    if name in _HOMES:
        return getattr(import_module(f".{_HOMES[name]}", __name__), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
