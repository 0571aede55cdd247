"""The forms that token vectors are kept in: as encoded, or smaller."""

from __future__ import annotations

import hashlib
import json
from dataclasses import dataclass
from typing import Literal, get_args

import torch
from torch import Tensor

from ..errors import InvalidInputError
from .maxsim import TokenVectors

__all__ = ["Layout", "Storage", "StoredVectors", "check_storage", "keep"]

Storage = Literal["encoded", "float16", "bfloat16", "int8"]
"""``"encoded"`` keeps the encoder's own arithmetic; ``"int8"`` keeps 8-bit steps and a scale per token vector."""

_DTYPES = {"float32": torch.float32, "float16": torch.float16, "bfloat16": torch.bfloat16, "int8": torch.int8}
_SIZES = {"float32": 4, "float16": 2, "bfloat16": 2, "int8": 1}
_CHECKSUM_BYTES = 16
_LENGTH_BYTES = 4


def check_storage(storage: str) -> None:
    """Raise :class:`InvalidInputError` unless ``storage`` is one of the four forms."""
    if storage not in get_args(Storage):
        raise InvalidInputError(f"storage={storage!r} is not one of {', '.join(map(repr, get_args(Storage)))}.")


@dataclass(frozen=True, slots=True)
class Layout:
    """What the bytes of a document's vectors mean.

    Args:
        dtype: name of the values' type; "int8" values are steps, with one float16 scale per token before them.
        dim: dimension of a vector.
        windows: tokens per window.
    """

    dtype: str
    dim: int
    windows: tuple[int, ...]

    @property
    def tokens(self) -> int:
        """Number of token vectors."""
        return sum(self.windows)

    @property
    def nbytes(self) -> int:
        """Number of bytes of scales and values."""
        return self.tokens * (self.dim * _SIZES[self.dtype] + (2 if self.dtype == "int8" else 0))


@dataclass(frozen=True)
class StoredVectors:
    """Token vectors of one document in the form they are kept in.

    Args:
        layout: what the bytes mean.
        flat: uint8, shape (layout.nbytes,).
    """

    layout: Layout
    flat: Tensor

    def restore(self, dtype: torch.dtype, device: str | torch.device = "cpu") -> TokenVectors:
        """Return the vectors in the arithmetic and on the device of an encoder."""
        layout, flat = self.layout, self.flat.to(device)
        shape = (layout.tokens, layout.dim)
        if layout.dtype != "int8":
            return TokenVectors(flat.view(_DTYPES[layout.dtype]).view(shape).to(dtype), layout.windows)
        cut = layout.tokens * 2
        scale, steps = flat[:cut].view(torch.float16), flat[cut:].view(torch.int8)
        # In float32, so that there is one rounding to the encoder's arithmetic and not two.
        return TokenVectors((steps.view(shape).float() * scale.float()[:, None]).to(dtype), layout.windows)

    def to_row(self, key: str) -> bytes:
        """Return a row for a file: a checksum over the key and what follows, a header, the bytes."""
        header = json.dumps([self.layout.dtype, self.layout.dim, self.layout.windows]).encode()
        body = len(header).to_bytes(_LENGTH_BYTES, "big") + header + self.flat.cpu().numpy().tobytes()
        return _checksum(key, body) + body

    @classmethod
    def from_row(cls, key: str, row: bytes) -> StoredVectors:
        """Read a row.

        Raises:
            ValueError: the row is damaged, cut short, or stands under another key.
        """
        body = row[_CHECKSUM_BYTES:]
        if row[:_CHECKSUM_BYTES] != _checksum(key, body):
            raise ValueError("its checksum does not match")
        start = _LENGTH_BYTES + int.from_bytes(body[:_LENGTH_BYTES], "big")
        dtype, dim, windows = json.loads(body[_LENGTH_BYTES:start])
        # Copied, because torch wants memory that it may write to.
        flat = torch.frombuffer(bytearray(body[start:]), dtype=torch.uint8) if len(body) > start else _nothing()
        return cls(Layout(dtype, dim, tuple(windows)), flat)


def keep(vectors: TokenVectors, storage: Storage) -> StoredVectors:
    """Turn vectors into the form they are kept in.

    Args:
        vectors: unit token vectors, (tokens, dim).
        storage: the form.

    Returns:
        The stored form, on the vectors' device; for "encoded" it shares their memory.
    """
    values = vectors.vectors
    dim = values.shape[1]
    if storage != "int8":
        values = values if storage == "encoded" else values.to(_DTYPES[storage])
        layout = Layout(str(values.dtype).removeprefix("torch."), dim, vectors.windows)
        return StoredVectors(layout, _bytes_of(values))
    values = values.float()
    # The scale is rounded first and the steps are counted in the rounded one, so that its error cancels.
    scale = (values.abs().amax(dim=1, keepdim=True) / 127).clamp_min(1e-6).half()
    steps = (values / scale.float()).round().clamp(-127, 127).to(torch.int8)
    return StoredVectors(Layout("int8", dim, vectors.windows), torch.cat([_bytes_of(scale), _bytes_of(steps)]))


def _checksum(key: str, body: bytes) -> bytes:
    return hashlib.blake2b(body, digest_size=_CHECKSUM_BYTES, key=bytes.fromhex(key)).digest()


def _bytes_of(tensor: Tensor) -> Tensor:
    return tensor.contiguous().view(torch.uint8).view(-1) if tensor.numel() else _nothing()


def _nothing() -> Tensor:
    return torch.empty(0, dtype=torch.uint8)
