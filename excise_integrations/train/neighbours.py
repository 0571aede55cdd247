"""Which documents of a corpus a first stage would confuse."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import torch
from torch import Tensor

from ..encode.backbone import Backbone
from ..encode.cache import VectorCache
from ..encode.maxsim import TokenVectors, maxsim
from ..errors import InvalidInputError

__all__ = ["Neighbours", "pool", "pool_documents", "pool_queries"]

_SLICE = 256
# The first window says what a document is about; the rest would cost most of the encoding.
_WORDS = 200
_BAND_SAMPLE = 256


def pool(documents: Sequence[TokenVectors]) -> Tensor:
    """Return the unit mean of each document's token vectors, (documents, dim) in float32."""
    return torch.nn.functional.normalize(torch.stack([d.vectors.float().mean(dim=0) for d in documents]), dim=-1)


def pool_documents(
    texts: Sequence[str], backbone: Backbone, *, progress: Callable[[int, int], None] | None = None
) -> Tensor:
    """Encode documents' first 200 words and pool them.

    Args:
        texts: documents, none blank.
        backbone: the encoder.
        progress: called with the documents done and the total.

    Returns:
        (documents, dim) in float32, unit length.
    """
    parts: list[Tensor] = []
    order = sorted(range(len(texts)), key=lambda i: len(texts[i]))
    for start in range(0, len(order), _SLICE):
        parts.append(pool(backbone.encode_documents([shorten(texts[i]) for i in order[start : start + _SLICE]])))
        if progress is not None:
            progress(min(start + _SLICE, len(order)), len(order))
    vectors = torch.cat(parts)
    out = torch.empty_like(vectors)
    out[torch.tensor(order)] = vectors
    return out


def pool_queries(texts: Sequence[str], backbone: Backbone) -> Tensor:
    """Encode queries and pool them, (queries, dim) in float32."""
    return pool(backbone.encode_queries(texts))


def shorten(text: str) -> str:
    """Return a text's first 200 words."""
    return " ".join(text.split()[:_WORDS])


class Neighbours:
    """Nearest documents within a band of similarity: close enough to be confused, too far to say the same.

    Args:
        vectors: pooled documents, (documents, dim), unit length.
        count: how many of the nearest are looked at, at least 1.
        band: lowest and highest similarity; None takes what the corpus has: from the median of
            the fifth neighbours up to the 97th percentile of the nearest ones.
        rescore: a symmetric similarity for the nearest, instead of the pooled one; see :meth:`by_maxsim`.

    Raises:
        InvalidInputError: the band is empty, or fewer than two documents.
    """

    def __init__(
        self,
        vectors: Tensor,
        *,
        count: int = 40,
        band: tuple[float, float] | None = None,
        rescore: Callable[[int, Sequence[int]], list[float]] | None = None,
    ) -> None:
        if vectors.shape[0] < 2:
            raise InvalidInputError(f"{vectors.shape[0]} documents have no neighbours; at least 2 are needed.")
        if count < 1:
            raise InvalidInputError(f"count={count} neighbours; at least 1 is needed.")
        if band is not None and not -1 <= band[0] < band[1] <= 1:
            raise InvalidInputError(f"The band {band!r} must rise and lie within -1 and 1.")
        self._vectors = vectors
        self._count = min(count, vectors.shape[0] - 1)
        self._rescore = rescore
        self.band = band or self._usual_band()

    @staticmethod
    def by_maxsim(
        texts: Sequence[str], backbone: Backbone, cache: VectorCache
    ) -> Callable[[int, Sequence[int]], list[float]]:
        """Return a ``rescore`` by MaxSim per token, averaged over both directions.

        Args:
            texts: the documents, in the order of the vectors.
            backbone, cache: encode each document once.
        """

        def rescore(row: int, others: Sequence[int]) -> list[float]:
            encoded = cache.encode([shorten(texts[i]) for i in (row, *others)], backbone)
            one, rest = encoded[0], encoded[1:]
            forth = maxsim(one.vectors, rest) / one.vectors.shape[0]
            back = [float(maxsim(other.vectors, [one])[0]) / other.vectors.shape[0] for other in rest]
            return [(float(f) + b) / 2 for f, b in zip(forth, back, strict=True)]

        return rescore

    def within(self, rows: Sequence[int]) -> list[list[tuple[int, float]]]:
        """Return, per row, its neighbours within the band, most similar first, with their similarity."""
        low, high = self.band
        return [[(i, s) for i, s in found if low <= s <= high] for found in self._nearest(rows)]

    def ranks(self, queries: Tensor, rows: Sequence[int]) -> list[int]:
        """Return the rank from 1 of one document for each query, among all by pooled similarity."""
        similarity = queries @ self._vectors.T
        own = similarity.gather(1, torch.tensor(list(rows))[:, None])
        return [int(r) for r in (similarity > own).sum(dim=1) + 1]

    def _nearest(self, rows: Sequence[int]) -> list[list[tuple[int, float]]]:
        index = torch.tensor(list(rows))
        similarity = self._vectors[index] @ self._vectors.T
        similarity[torch.arange(len(index)), index] = -2.0
        values, places = similarity.topk(self._count, dim=1)
        out: list[list[tuple[int, float]]] = []
        for row, near, scores in zip(rows, places.tolist(), values.tolist(), strict=True):
            if self._rescore is not None:
                scores = self._rescore(row, near)
            out.append(sorted(zip(near, scores, strict=True), key=lambda pair: (-pair[1], pair[0])))
        return out

    def _usual_band(self) -> tuple[float, float]:
        total = self._vectors.shape[0]
        # Rescoring is dear, and a few documents tell enough.
        sample = min(_BAND_SAMPLE if self._rescore is None else _BAND_SAMPLE // 8, total)
        rows = [i * total // sample for i in range(sample)]
        found = self._nearest(rows)
        first = torch.tensor([row[0][1] for row in found])
        last = torch.tensor([row[min(4, len(row) - 1)][1] for row in found])
        low, high = float(last.median()), float(first.quantile(0.97))
        return (low, high) if low < high else (low - 1e-6, high + 1e-6)
