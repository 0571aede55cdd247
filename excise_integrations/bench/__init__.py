"""Measuring: suites, metrics and evaluation. Never imported at query time."""

from .evaluate import SuiteResult, evaluate_suite
from .queries import evaluate_queries
from .suites import Query, Suite, load_queries, load_suite

__all__ = ["Query", "Suite", "SuiteResult", "evaluate_queries", "evaluate_suite", "load_queries", "load_suite"]
