"""Memory in equal blocks, so that a cache of documents of many lengths does not fragment the heap."""

from __future__ import annotations

import mmap
from array import array
from collections.abc import Sequence

import torch
from torch import Tensor

__all__ = ["BLOCK_BYTES", "BlockArena"]

BLOCK_BYTES = 1024
# Memory is taken from the system in chunks, so that a large budget costs nothing before it is used.
_CHUNK_BLOCKS = 16 * 1024


class BlockArena:
    """Bounded memory in blocks of :data:`BLOCK_BYTES`; an item lies in whichever blocks are free.

    Separate tensors of changing sizes leave holes in the heap: after churn the process holds a fifth
    more than the tensors. Blocks leave none. Not safe among threads; the cache's lock guards it.

    Args:
        max_bytes: the bound, at least 0.
    """

    def __init__(self, max_bytes: int) -> None:
        self._limit = max_bytes // BLOCK_BYTES
        self._chunks: list[Tensor] = []
        self._free = array("q")
        self._touched = 0

    @staticmethod
    def blocks(nbytes: int) -> int:
        """Return how many blocks an item of this size takes."""
        return -(-nbytes // BLOCK_BYTES)

    @property
    def available(self) -> int:
        """Blocks that can still be taken."""
        return self._limit - self._touched + len(self._free)

    @property
    def free(self) -> int:
        """Blocks that were given back and hold nothing."""
        return len(self._free)

    @property
    def nbytes(self) -> int:
        """Bytes of every block ever used since the last :meth:`clear`: the system keeps those in memory."""
        return self._touched * BLOCK_BYTES

    def put(self, flat: Tensor) -> array[int]:
        """Copy an item into free blocks.

        Args:
            flat: uint8, (bytes,); needs no more blocks than are :attr:`available`.

        Returns:
            The numbers of its blocks, in order.
        """
        count = self.blocks(flat.numel())
        if count > self.available:
            raise MemoryError(f"{count} blocks were asked for, {self.available} are left; release some first.")
        reused = min(count, len(self._free))
        taken = self._free[len(self._free) - reused :]
        del self._free[len(self._free) - reused :]
        taken.extend(range(self._touched, self._touched + count - reused))
        self._touched += count - reused
        while self._touched > len(self._chunks) * _CHUNK_BLOCKS:
            size = min(_CHUNK_BLOCKS, self._limit - len(self._chunks) * _CHUNK_BLOCKS)
            self._chunks.append(_memory(size))
        padded = torch.zeros(count * BLOCK_BYTES, dtype=torch.uint8)
        padded[: flat.numel()] = flat
        rows = padded.view(count, BLOCK_BYTES)
        numbers = _numbers(taken)
        for index, where in self._parts(numbers):
            self._chunks[index][numbers[where] - index * _CHUNK_BLOCKS] = rows[where]
        return taken

    def get(self, items: Sequence[array[int]]) -> list[Tensor]:
        """Copy items out, all in one pass.

        Args:
            items: block numbers as :meth:`put` returned them.

        Returns:
            Per item its blocks as uint8, (blocks · BLOCK_BYTES,).
        """
        joined = array("q")
        for item in items:
            joined.extend(item)
        numbers = _numbers(joined)
        found = self._parts(numbers)
        if len(found) == 1:
            index = found[0][0]
            rows = self._chunks[index].index_select(0, numbers - index * _CHUNK_BLOCKS)
        else:
            rows = torch.empty((len(numbers), BLOCK_BYTES), dtype=torch.uint8)
            for index, where in found:
                rows[where] = self._chunks[index].index_select(0, numbers[where] - index * _CHUNK_BLOCKS)
        parts: list[Tensor] = []
        start = 0
        for item in items:
            parts.append(rows[start : start + len(item)].view(-1))
            start += len(item)
        return parts

    def release(self, item: array[int]) -> None:
        """Give an item's blocks back."""
        self._free.extend(item)

    def clear(self) -> None:
        """Give all memory back to the system."""
        self._chunks.clear()
        self._free = array("q")
        self._touched = 0

    def _parts(self, numbers: Tensor) -> list[tuple[int, Tensor]]:
        """Return, per chunk that holds any of the numbered blocks, which of them it holds."""
        if len(self._chunks) == 1:
            return [(0, torch.arange(len(numbers)))]
        owner = numbers // _CHUNK_BLOCKS
        return [(index, (owner == index).nonzero().flatten()) for index in sorted(set(owner.tolist()))]


def _memory(blocks: int) -> Tensor:
    # Straight from the system: pages that no block touches stay there, and all go back when the chunk does.
    size = blocks * BLOCK_BYTES
    if hasattr(mmap, "MAP_PRIVATE"):
        # Private, so that a forked process gets a copy of its own.
        memory = mmap.mmap(-1, size, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
    else:
        memory = mmap.mmap(-1, size)
    return torch.frombuffer(memory, dtype=torch.uint8).view(blocks, BLOCK_BYTES)


def _numbers(item: array[int]) -> Tensor:
    # A copy: the array may grow again, and its memory move.
    return torch.frombuffer(item, dtype=torch.long).clone() if item else torch.empty(0, dtype=torch.long)
