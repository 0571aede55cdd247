"""Windows over long documents (paper, document processing)."""

from __future__ import annotations

import re
from dataclasses import dataclass

from ..errors import InvalidInputError

__all__ = ["WindowPolicy", "split_windows"]

_WORD = re.compile(r"\S+")


@dataclass(frozen=True)
class WindowPolicy:
    """How a document is cut before it is encoded.

    Args:
        words: words per window, at least 1 (200 for short-context backbones, 512 for long ones).
        max_words: words of a document that are read at most (1,000, or 10,000).
    """

    words: int = 200
    max_words: int = 1000

    def __post_init__(self) -> None:
        if self.words < 1 or self.max_words < self.words:
            raise InvalidInputError(
                f"WindowPolicy(words={self.words}, max_words={self.max_words}): words must be at least 1 "
                "and max_words at least words."
            )


SHORT_CONTEXT = WindowPolicy(200, 1000)
LONG_CONTEXT = WindowPolicy(512, 10_000)
LONG_CONTEXT_TOKENS = 4096
"""From this context on, a backbone reads documents as :data:`LONG_CONTEXT` says."""


def split_windows(text: str, policy: WindowPolicy) -> list[str]:
    """Cut a text into windows of whole words, keeping the text between them as it is.

    Args:
        text: any text; a blank one gives one empty window.
        policy: window and document length in words.

    Returns:
        At least one window, in order.
    """
    # Bounds the work on a hostile text that is one endless word.
    text = text[: policy.max_words * 100]
    windows: list[str] = []
    start, count = 0, 0
    for number, match in enumerate(_WORD.finditer(text)):
        if number == policy.max_words:
            text = text[: match.start()]
            break
        if count == policy.words:
            windows.append(text[start : match.start()].rstrip())
            start, count = match.start(), 0
        count += 1
    windows.append(text[start:].rstrip())
    return windows
