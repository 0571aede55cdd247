"""Documents as Qdrant's points and back, and filters in Qdrant's words."""

from __future__ import annotations

import json
import math
import re
import uuid
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import torch

from ..encode.maxsim import TokenVectors
from ..errors import InvalidInputError, MissingExtraError
from ..types import Candidate
from ._snapshot import check_documents, check_lists

try:
    from qdrant_client import models
except ImportError as error:
    raise MissingExtraError("qdrant-client", "qdrant") from error

__all__ = [
    "VECTOR",
    "batches",
    "checked",
    "documents",
    "models",
    "point",
    "point_id",
    "ranked",
    "request",
    "to_filter",
    "token_vectors",
]

VECTOR = "tokens"
"""Name of the multivector of a point."""
_NAMESPACE = uuid.UUID("5a7c4a52-54b1-4d2e-9d55-2d8f4b1f6a10")
# What a Qdrant server keeps in one multivector.
_MAX_NUMBERS = 1024 * 1024
# Some 12 MB as JSON; a server refuses 32.
_BATCH_NUMBERS = 1024 * 1024
_BATCH_POINTS = 256
_PLAIN_KEY = re.compile(r"[A-Za-z0-9_-]+")


def documents(
    texts: Sequence[str], ids: Sequence[str] | None, metadatas: Sequence[Mapping[str, Any]] | None
) -> list[Candidate]:
    """Return texts as documents that Qdrant can hold; without ids they get random ones.

    Raises:
        InvalidInputError: lists of different lengths, a blank text, a repeated id, metadata that is no JSON.
    """
    texts = check_lists(texts, ids, metadatas)
    # Several writers cannot agree on numbers.
    names = [str(uuid.uuid4()) for _ in texts] if ids is None else ids
    records = metadatas or [{}] * len(texts)
    return checked([Candidate(i, t, None, m or {}) for i, t, m in zip(names, texts, records, strict=True)])


def checked(new: list[Candidate], vectors: Sequence[TokenVectors] | None = None) -> list[Candidate]:
    """Return documents with their metadata as plain JSON types; raise as :func:`documents`."""
    check_documents(new)
    if vectors is not None and len(vectors) != len(new):
        raise InvalidInputError(f"There are {len(new)} candidates but {len(vectors)} vectors; give one per candidate.")
    seen: set[str] = set()
    out = []
    for document in new:
        if document.id in seen:
            raise InvalidInputError(f"The id {document.id!r} is used twice; ids must be unique within a collection.")
        seen.add(document.id)
        try:
            metadata = json.loads(json.dumps(dict(document.metadata), allow_nan=False))
            json.dumps([document.id, document.text, metadata], ensure_ascii=False).encode()
        except (TypeError, ValueError, RecursionError) as error:
            raise InvalidInputError(
                f"The document {document.id!r} cannot be sent as JSON ({error}). Use valid Unicode, and in the "
                "metadata strings, numbers, booleans, None, lists and dicts."
            ) from error
        out.append(Candidate(document.id, document.text, None, metadata))
    return out


def point_id(document_id: str) -> str:
    """Return the id of a document's point: Qdrant takes only numbers and UUIDs."""
    return str(uuid.uuid5(_NAMESPACE, document_id))


def point(document: Candidate, vectors: TokenVectors) -> models.PointStruct:
    """Return a document as a point.

    Raises:
        InvalidInputError: it has more token vectors than Qdrant keeps in one point.
    """
    tokens, dim = vectors.vectors.shape
    if tokens * dim > _MAX_NUMBERS:
        raise InvalidInputError(
            f"The document {document.id!r} has {tokens} token vectors of {dim} numbers, more than the {_MAX_NUMBERS} "
            "numbers that Qdrant keeps in one point. Cut it into passages."
        )
    # A multivector cannot be empty; the windows tell that there is nothing in it.
    matrix = vectors.vectors.float().cpu() if tokens else torch.zeros(1, dim)
    payload = {
        "id": document.id,
        "text": document.text,
        "metadata": dict(document.metadata),
        "windows": list(vectors.windows),
        "mark": uuid.uuid4().hex,
    }
    return models.PointStruct(id=point_id(document.id), vector={VECTOR: matrix.tolist()}, payload=payload)


def batches(new: Sequence[Candidate], vectors: Sequence[TokenVectors]) -> Iterator[list[models.PointStruct]]:
    """Yield documents as points, in lists that fit into one request."""
    batch: list[models.PointStruct] = []
    size = 0
    for document, encoded in zip(new, vectors, strict=True):
        numbers = encoded.vectors.nelement()
        if batch and (size + numbers > _BATCH_NUMBERS or len(batch) == _BATCH_POINTS):
            yield batch
            batch, size = [], 0
        batch.append(point(document, encoded))
        size += numbers
    if batch:
        yield batch


def request(
    query: torch.Tensor, k: int, filter: models.Filter | None, params: models.SearchParams | None
) -> models.QueryRequest:
    """Return the request for the top ``k`` of a query, given its (tokens, dim) vectors."""
    return models.QueryRequest(
        query=query.float().tolist(),
        using=VECTOR,
        filter=filter,
        params=params,
        limit=k,
        with_payload=["id", "text", "metadata"],
    )


def ranked(found: Sequence[models.ScoredPoint]) -> list[Candidate]:
    """Return points that were found as candidates, best first; equal scores by id."""
    out = []
    for item in found:
        payload = item.payload or {}
        out.append(Candidate(payload["id"], payload["text"], float(item.score), payload["metadata"]))
    return sorted(out, key=lambda c: (-(c.score or 0.0), c.id))


def token_vectors(record: models.Record, dtype: torch.dtype, device: str) -> TokenVectors:
    """Return the vectors of a point."""
    windows = tuple((record.payload or {})["windows"])
    matrix: Any = record.vector[VECTOR]  # type: ignore[call-overload, index]
    return TokenVectors(torch.tensor(matrix)[: sum(windows)].to(device, dtype), windows)


def to_filter(filter: object) -> models.Filter | None:
    """Return metadata that must be equal, key by key, as Qdrant's filter; one of Qdrant's own passes.

    Raises:
        InvalidInputError: it is neither, or a key or a value cannot be matched.
    """
    if filter is None or isinstance(filter, models.Filter):
        return filter
    if not isinstance(filter, Mapping):
        raise InvalidInputError(
            f"filter={filter!r} is neither a mapping of metadata keys to values nor a qdrant_client.models.Filter."
        )
    return models.Filter(must=[_condition(key, value) for key, value in filter.items()]) if filter else None


def _condition(key: object, value: object) -> models.FieldCondition | models.IsNullCondition:
    if not isinstance(key, str) or not key or '"' in key:
        raise InvalidInputError(f"The filter's key {key!r} cannot be used; Qdrant takes a string without quotes.")
    path = f"metadata.{key}" if _PLAIN_KEY.fullmatch(key) else f'metadata."{key}"'
    if value is None:
        return models.IsNullCondition(is_null=models.PayloadField(key=path))
    if isinstance(value, float) and math.isfinite(value):
        return models.FieldCondition(key=path, range=models.Range(gte=value, lte=value))
    if isinstance(value, (str, int)):
        return models.FieldCondition(key=path, match=models.MatchValue(value=value))
    raise InvalidInputError(
        f"The filter wants {key!r} to be {value!r}; Qdrant matches strings, numbers, booleans and None. Give a "
        "qdrant_client.models.Filter for anything else."
    )
