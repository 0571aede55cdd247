"""Near-duplicates by MinHash: documents that say the same are no confusable pair, and leak if one is judged."""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Any

from ..errors import InvalidInputError, MissingExtraError

__all__ = ["NearDuplicates"]

_WORD = re.compile(r"\w+")
_PERMUTATIONS = 128
_SHINGLE = 3


class NearDuplicates:
    """Estimated Jaccard similarity of three-word shingles.

    Args:
        threshold: documents at or above it are near-duplicates, in (0, 1].
        forbidden: texts whose near-duplicates are found by :meth:`is_forbidden`.

    Raises:
        InvalidInputError: the threshold is out of range.
        MissingExtraError: datasketch is not installed.
    """

    def __init__(self, threshold: float, forbidden: Iterable[str] = ()) -> None:
        if not 0 < threshold <= 1:
            raise InvalidInputError(f"The near-duplicate threshold {threshold} must be above 0 and at most 1.")
        try:
            import datasketch  # type: ignore[import-untyped]
        except ImportError as error:
            raise MissingExtraError("datasketch", "train") from error
        self.threshold = threshold
        self._module: Any = datasketch
        self._signatures: dict[str, Any] = {}
        self._forbidden = [self._sign(text) for text in forbidden]
        self._index: Any = datasketch.MinHashLSH(threshold=threshold, num_perm=_PERMUTATIONS)
        for number, signature in enumerate(self._forbidden):
            self._index.insert(str(number), signature)

    def same(self, left: str, right: str) -> bool:
        """Whether two texts are near-duplicates of each other."""
        return float(self._sign(left).jaccard(self._sign(right))) >= self.threshold

    def is_forbidden(self, text: str) -> bool:
        """Whether a text is a near-duplicate of a forbidden one."""
        signature = self._sign(text)
        near = self._index.query(signature)
        return any(float(signature.jaccard(self._forbidden[int(i)])) >= self.threshold for i in near)

    def _sign(self, text: str) -> Any:
        if text not in self._signatures:
            words = _WORD.findall(text.casefold())
            shingles = {" ".join(words[i : i + _SHINGLE]) for i in range(max(1, len(words) - _SHINGLE + 1))}
            # Its own seed, so that signatures are the same in every process.
            signature = self._module.MinHash(num_perm=_PERMUTATIONS, seed=1)
            signature.update_batch([s.encode() for s in sorted(shingles)])
            self._signatures[text] = signature
        return self._signatures[text]
