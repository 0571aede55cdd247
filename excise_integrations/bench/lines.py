"""Reading the files of suites and runs: what cannot be read is said with the file, and the line where there is one."""

from __future__ import annotations

import csv
import json
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from ..errors import SuiteError

__all__ = ["json_lines", "numbered_lines", "reading"]


@contextmanager
def reading(path: Path, kind: str = "text in UTF-8") -> Iterator[None]:
    """Turn what goes wrong while a file is read into a :class:`~excise_integrations.SuiteError` that names it.

    Args:
        path: the file.
        kind: what it should be.

    Raises:
        SuiteError: it cannot be read, or is not what it should be.
    """
    try:
        yield
    except OSError as error:
        raise SuiteError(f"{path} cannot be read: {error.strerror or error}.") from None
    except (csv.Error, UnicodeDecodeError, json.JSONDecodeError, RecursionError) as error:
        # A JSONDecodeError says the line itself.
        raise SuiteError(f"{path}: not {kind} ({error}).") from None


def numbered_lines(path: Path) -> Iterator[tuple[int, str]]:
    """Yield each line's number and its text, blank lines left out.

    Raises:
        SuiteError: the file cannot be read, or a line is not UTF-8.
    """
    with reading(path), path.open("rb") as handle:
        for number, raw in enumerate(handle, start=1):
            try:
                line = raw.decode("utf-8-sig" if number == 1 else "utf-8").rstrip("\r\n")
            except UnicodeDecodeError as error:
                raise SuiteError(f"{path}, line {number}: not UTF-8 ({error.reason}).") from None
            if line.strip():
                yield number, line


def json_lines(path: Path) -> Iterator[tuple[int, dict[str, Any]]]:
    """Yield each line's number and its object, blank lines left out.

    Raises:
        SuiteError: the file cannot be read, or a line is no JSON object.
    """
    for number, line in numbered_lines(path):
        try:
            record = json.loads(line)
        except (ValueError, RecursionError) as error:
            raise SuiteError(f"{path}, line {number}: not JSON ({error}).") from None
        if not isinstance(record, dict):
            raise SuiteError(f"{path}, line {number}: a JSON object is needed, not {type(record).__name__}.")
        yield number, record
