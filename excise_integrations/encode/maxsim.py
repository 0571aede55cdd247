"""MaxSim over packed token vectors."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

__all__ = ["TokenVectors", "best_matches", "maxsim", "pack", "pack_windows", "sum_per_document"]


@dataclass(frozen=True)
class TokenVectors:
    """Token vectors of one text.

    Args:
        vectors: shape (tokens, dim), unit length.
        windows: tokens per window; a short text has one window. Sums to ``tokens``.
        tokens: the token strings, or empty when nobody needs them.
        token_ids: vocabulary ids beside ``tokens``, or empty.
    """

    vectors: Tensor
    windows: tuple[int, ...]
    tokens: tuple[str, ...] = ()
    token_ids: tuple[int, ...] = ()

    @property
    def nbytes(self) -> int:
        """Bytes held by the vectors."""
        return self.vectors.element_size() * self.vectors.nelement()


def pack(documents: Sequence[TokenVectors]) -> tuple[Tensor, Tensor, Tensor]:
    """Concatenate documents for :func:`best_matches`.

    Args:
        documents: at least one.

    Returns:
        The vectors (N, dim), the tokens per window (W,), and the windows per document (D,).
    """
    vectors = torch.cat([d.vectors for d in documents])
    windows = torch.tensor([w for d in documents for w in d.windows], dtype=torch.long)
    counts = torch.tensor([len(d.windows) for d in documents], dtype=torch.long)
    return vectors, windows, counts


def pack_windows(documents: Sequence[TokenVectors]) -> tuple[Tensor, Tensor, Tensor]:
    """Pad documents' windows into one dense block.

    Returns:
        The vectors (W, length, dim) with zeros for padding, the token mask (W, length), and the
        document of each window (W,).
    """
    pieces: list[Tensor] = []
    owner: list[int] = []
    for index, document in enumerate(documents):
        pieces.extend(torch.split(document.vectors, list(document.windows)))
        owner.extend([index] * len(document.windows))
    block = torch.nn.utils.rnn.pad_sequence(pieces, batch_first=True)
    lengths = torch.tensor([p.shape[0] for p in pieces])
    mask = torch.arange(block.shape[1])[None, :] < lengths[:, None]
    return block, mask.to(block.device), torch.tensor(owner, device=block.device)


# Windows that are converted to float32 at a time: about 2,000 tokens and their similarities stay in the cache.
_CHUNK_TOKENS = 2048


def best_matches(query: Tensor, block: Tensor, mask: Tensor) -> Tensor:
    """For each query token, its best similarity within each window.

    The products are taken in float32 whatever the stored type, as the in-memory first stage takes
    them: similarities rounded to bfloat16 (steps of 0.004) would tie documents that are not equal.

    Args:
        query: (tokens, dim).
        block, mask: as :func:`pack_windows` returns them.

    Returns:
        (windows, tokens) in float32. A window without tokens gives -1.
    """
    tokens = query.to(block.device).float().T.contiguous()
    step = max(1, _CHUNK_TOKENS // max(1, block.shape[1])) if block.device.type == "cpu" else max(1, block.shape[0])
    padding = ~mask[:, :, None]
    best = [
        torch.matmul(part.float(), tokens).masked_fill_(hidden, -1.0).amax(dim=1)
        for part, hidden in zip(torch.split(block, step), torch.split(padding, step), strict=True)
    ]
    return torch.cat(best)


def sum_per_document(values: Tensor, owner: Tensor, documents: int) -> Tensor:
    """Reduce per-window values (W,) to the best window of each document (D,)."""
    out = torch.full((documents,), float("-inf"), dtype=values.dtype, device=values.device)
    return out.scatter_reduce(0, owner, values, reduce="amax")


def maxsim(query: Tensor, documents: Sequence[TokenVectors]) -> Tensor:
    """Score documents by MaxSim, S(q, d) = Σ_t max_u ⟨v_t, v_u⟩ (paper, section 2).

    Args:
        query: (tokens, dim).
        documents: token vectors; a document's score is its best window's.

    Returns:
        (documents,) in float32.
    """
    block, mask, owner = pack_windows(documents)
    return sum_per_document(best_matches(query, block, mask).sum(dim=1), owner, len(documents))
