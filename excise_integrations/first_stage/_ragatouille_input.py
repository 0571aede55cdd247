"""Check what a caller wants to add to an index."""

from __future__ import annotations

import json
import uuid
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

from ..errors import InvalidInputError

__all__ = ["check_documents", "check_metadata"]


def check_documents(documents: Sequence[str], ids: Sequence[str | int] | None) -> tuple[list[str], list[str]]:
    """Check new documents.

    Returns:
        Their texts and their ids as strings, made up where none are given.

    Raises:
        InvalidInputError: a text or an id is blank, an id comes twice, or the lists differ in length.
    """
    if isinstance(documents, str) or isinstance(ids, str):
        raise InvalidInputError("add takes a list of documents and a list of ids.")
    texts = list(documents)
    if not texts:
        raise InvalidInputError("There is no document to add.")
    names = [str(uuid.uuid4()) for _ in texts] if ids is None else [str(id) for id in ids]
    if len(names) != len(texts):
        raise InvalidInputError(f"{len(texts)} documents but {len(names)} ids were given.")
    for name, text in zip(names, texts, strict=True):
        if not isinstance(text, str) or not text.strip():
            raise InvalidInputError(f"The document {name!r} has no text.")
        if not name.strip():
            raise InvalidInputError(f"The id {name!r} is blank.")
    if twice := [name for name, count in Counter(names).items() if count > 1]:
        raise InvalidInputError(f"The ids {twice[:5]} are given twice.")
    return texts, names


def check_metadata(names: Sequence[str], metadata: Sequence[Mapping[str, Any]] | None) -> dict[str, Mapping[str, Any]]:
    """Check the metadata of new documents.

    Returns:
        Document id → metadata; empty when there is none.

    Raises:
        InvalidInputError: there are more or fewer than documents, or one cannot be stored as JSON.
    """
    if metadata is None:
        return {}
    if len(metadata) != len(names):
        raise InvalidInputError(f"{len(names)} documents but {len(metadata)} metadata were given.")
    for name, entry in zip(names, metadata, strict=True):
        try:
            json.dumps(dict(entry))
        except (TypeError, ValueError) as error:
            raise InvalidInputError(f"The metadata of {name!r} is not a mapping of JSON types: {error}") from error
    return dict(zip(names, metadata, strict=True))
