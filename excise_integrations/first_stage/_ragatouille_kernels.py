"""colbert-ai's compiled kernels in plain PyTorch; the results are the same."""

from __future__ import annotations

from collections.abc import Iterator

import torch
from torch import Tensor
from torch.nn.functional import embedding

__all__ = [
    "decompress_residuals",
    "decompress_rows",
    "filter_pids",
    "packbits",
    "segmented_lookup",
    "segmented_maxsim",
]

_UNSEEN = -9999.0  # colbert-ai's value for a document none of whose centroids was kept
_ROWS = 1 << 18  # tokens at a time; bounds the memory of a wide search


def segmented_lookup(values: Tensor, pids: Tensor, lengths: Tensor, offsets: Tensor) -> Tensor:
    """Concatenate the rows ``offsets[i] : offsets[i] + lengths[i]`` of ``values``.

    Args:
        values: (N,) or (N, dim).
        pids: (P,); only there because the compiled kernel has it.
        lengths, offsets: (P,), aligned with ``pids``.

    Returns:
        (sum of lengths,) or (sum of lengths, dim).
    """
    return values[_rows(lengths, offsets)]


def segmented_maxsim(scores: Tensor, lengths: Tensor) -> Tensor:
    """MaxSim of packed documents, each query token's best counted from 0 upwards.

    Args:
        scores: (sum of lengths, query tokens).
        lengths: (documents,).

    Returns:
        (documents,).
    """
    return _segment_max(scores, lengths, 0.0).sum(1)


def filter_pids(
    pids: Tensor,
    centroid_scores: Tensor,
    codes: Tensor,
    doclens: Tensor,
    offsets: Tensor,
    kept: Tensor,
    ndocs: int,
) -> Tensor:
    """Narrow the candidates down by their centroids' scores, in two steps.

    Args:
        pids: (P,) int32 candidates.
        centroid_scores: (centroids, query tokens).
        codes: (tokens,) centroid of each document token.
        doclens, offsets: per passage of the index.
        kept: (centroids,) whether a centroid counts in the first step.
        ndocs: how many pass the first step; a quarter of them passes the second.

    Returns:
        (at most ``ndocs // 4``,) int32, best first.
    """
    every = torch.ones_like(kept)
    for mask, count in ((kept, ndocs), (every, ndocs // 4)):
        scores = torch.empty(pids.shape[0])
        start = 0
        for part in _split_by_rows(pids, doclens):
            index = part.long()
            lengths = doclens[index]
            found = codes[_rows(lengths, offsets[index])]
            values = embedding(found, centroid_scores).masked_fill_(~mask[found.long()][:, None], _UNSEEN)
            scores[start : start + part.shape[0]] = _segment_max(values, lengths, _UNSEEN).sum(1)
            start += part.shape[0]
        # Equal scores: the compiled kernel pops the larger id first.
        by_id = pids.argsort(descending=True)
        order = by_id[scores[by_id].argsort(descending=True, stable=True)]
        pids = pids[order[:count]]
    return pids.to(torch.int32)


def decompress_residuals(
    pids: Tensor,
    doclens: Tensor,
    offsets: Tensor,
    bucket_weights: Tensor,
    reversed_bit_map: Tensor,
    table: Tensor,
    residuals: Tensor,
    codes: Tensor,
    centroids: Tensor,
    dim: int,
    nbits: int,
) -> Tensor:
    """Return the vectors of passages: centroid plus the residual's bucket, not yet normalised.

    Args:
        pids: (P,) passages.
        doclens, offsets: per passage of the index.
        bucket_weights, reversed_bit_map, table: the codec's tables.
        residuals: (tokens, dim · nbits / 8) uint8.
        codes: (tokens,) int32.
        centroids: (centroids, dim).
        dim, nbits: of the index.

    Returns:
        (tokens of these passages, dim) float32.
    """
    index = pids.long()
    rows = _rows(doclens[index], offsets[index])
    return decompress_rows(residuals[rows], bucket_weights, reversed_bit_map, table, codes[rows], centroids, dim, nbits)


def decompress_rows(
    residuals: Tensor,
    bucket_weights: Tensor,
    reversed_bit_map: Tensor,
    table: Tensor,
    codes: Tensor,
    centroids: Tensor,
    dim: int,
    nbits: int,
) -> Tensor:
    """The same for rows already gathered, in the arithmetic of ``centroids``.

    Returns:
        (rows, dim).
    """
    # What each of the 256 bytes stands for: 8 / nbits values.
    lookup = bucket_weights[table.long()][reversed_bit_map.long()]
    # An embedding is several times faster than an index.
    out = embedding(residuals.int(), lookup).reshape(residuals.shape[0], dim)
    return out.add_(embedding(codes, centroids))


def packbits(bits: Tensor) -> Tensor:
    """Pack zeros and ones into bytes, first bit highest.

    Args:
        bits: (8 · n,) uint8.

    Returns:
        (n,) uint8.
    """
    weights = torch.tensor([128, 64, 32, 16, 8, 4, 2, 1], dtype=torch.uint8, device=bits.device)
    return (bits.reshape(-1, 8) * weights).sum(1, dtype=torch.uint8)


def _rows(lengths: Tensor, offsets: Tensor) -> Tensor:
    starts = lengths.cumsum(0) - lengths
    shift = torch.repeat_interleave(offsets - starts, lengths)
    return torch.arange(shift.shape[0], device=shift.device) + shift


def _segment_max(values: Tensor, lengths: Tensor, least: float) -> Tensor:
    owner = torch.repeat_interleave(torch.arange(lengths.shape[0], device=lengths.device), lengths)
    out = values.new_full((lengths.shape[0], values.shape[1]), least)
    return out.scatter_reduce_(0, owner[:, None].expand_as(values), values, "amax")


def _split_by_rows(pids: Tensor, doclens: Tensor) -> Iterator[Tensor]:
    ends = doclens[pids.long()].cumsum(0)
    start = 0
    while start < pids.shape[0]:
        base = int(ends[start - 1]) if start else 0
        stop = max(start + 1, int(torch.searchsorted(ends, base + _ROWS, right=True)))
        yield pids[start:stop]
        start = stop
