"""Published benchmarks, from the files as they are distributed to a suite of the benchmark format."""

from __future__ import annotations

from .formats import FORMATS, import_suite
from .records import Collection, Judgment, Passage, Question, write_collection

__all__ = ["FORMATS", "Collection", "Judgment", "Passage", "Question", "import_suite", "write_collection"]
