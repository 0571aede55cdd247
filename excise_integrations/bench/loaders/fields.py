"""Fields of records, and files of records, with errors that name the place."""

from __future__ import annotations

import csv
import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from ...errors import SuiteError
from ..lines import json_lines, reading

__all__ = ["find_file", "id_field", "read_array", "read_records", "text_field"]


def find_file(folder: Path, *names: str) -> Path:
    """Return the first file of these names within a folder.

    Raises:
        SuiteError: the folder or every file is missing; says what was looked for.
    """
    if not folder.is_dir():
        raise SuiteError(f"{folder} is no folder.")
    for name in names:
        if (folder / name).is_file():
            return folder / name
    raise SuiteError(f"{folder} has no {' and no '.join(names)}.")


def read_array(path: Path) -> list[Any]:
    """Read a JSON array.

    Raises:
        SuiteError: the file cannot be read or holds something else.
    """
    with reading(path, "JSON in UTF-8"):
        found = json.loads(path.read_text(encoding="utf-8-sig"))
    if not isinstance(found, list):
        raise SuiteError(f"{path}: a JSON array is needed, not {type(found).__name__}.")
    return found


def read_records(path: Path) -> Iterator[tuple[str, dict[str, Any]]]:
    """Yield (place, record) from a CSV file, a JSON array, or JSON lines, whatever the file's name says.

    Raises:
        SuiteError: the file cannot be read, or a record is not an object.
    """
    if path.suffix == ".csv":
        yield from _csv(path)
    elif path.suffix == ".json" and _starts_array(path):
        for number, record in enumerate(read_array(path), start=1):
            if not isinstance(record, dict):
                raise SuiteError(f"{path}, entry {number}: a JSON object is needed, not {type(record).__name__}.")
            yield f"{path}, entry {number}", record
    else:
        for number, record in json_lines(path):
            yield f"{path}, line {number}", record


def text_field(record: Mapping[str, Any], *keys: str, where: str, required: bool = True) -> str:
    """Return the first of these fields that is there.

    Raises:
        SuiteError: none is there though it is required, or it is no string; an empty text is for
            :func:`~.records.write_collection` to judge.
    """
    for key in keys:
        value = record.get(key)
        if value is not None:
            if not isinstance(value, str):
                raise SuiteError(f"{where}: {key!r} must be a string, not {value!r}.")
            return value
    if required:
        raise SuiteError(f"{where}: there is no {' or '.join(map(repr, keys))}.")
    return ""


def id_field(record: Mapping[str, Any], key: str, *, where: str) -> str:
    """Return an id, a string or a whole number.

    Raises:
        SuiteError: it is missing or something else.
    """
    value = record.get(key)
    if isinstance(value, bool) or not isinstance(value, (str, int)):
        raise SuiteError(f"{where}: {key!r} must be a string or a whole number, not {value!r}.")
    return str(value)


def _csv(path: Path) -> Iterator[tuple[str, dict[str, Any]]]:
    with reading(path, "a CSV file in UTF-8"), path.open(encoding="utf-8-sig", newline="") as handle:
        reader = csv.DictReader(handle)
        for record in reader:
            where = f"{path}, line {reader.line_num}"
            if None in record or None in record.values():
                raise SuiteError(f"{where}: {len(reader.fieldnames or ())} fields are needed.")
            yield where, record


def _starts_array(path: Path) -> bool:
    with reading(path), path.open(encoding="utf-8-sig") as handle:
        return handle.read(4096).lstrip().startswith("[")
