"""A backbone without a model: a word is a vector, the same in every text, and evidence can be told by reading."""

from __future__ import annotations

import functools
import re
import time
import zlib
from collections.abc import Callable, Sequence
from typing import Any

import torch

from excise_integrations import Excise
from excise_integrations.detect import resolve
from excise_integrations.encode.maxsim import TokenVectors
from excise_integrations.encode.windows import WindowPolicy

_WORD = re.compile(r"\w+")
_DIM = 64


@functools.lru_cache(maxsize=200_000)
def _vector(word: str, space: str) -> torch.Tensor:
    generator = torch.Generator().manual_seed(zlib.crc32(f"{space} {word}".encode("utf-8", "replace")))
    return torch.nn.functional.normalize(torch.randn(_DIM, generator=generator), dim=0)


class WordBackbone:
    """Has every attribute of a backbone that the pipeline, the caches and the first stages read."""

    def __init__(self, adapter: str | None = None, *, seconds_per_document: float = 0.0) -> None:
        self.name = "words"
        self.adapter = adapter
        self.label = f"words@0{'+' + adapter if adapter else ''}"
        self.dim = _DIM
        self.dtype = torch.float32
        self.device = "cpu"
        self.windows = WindowPolicy(200, 1000)
        self.max_tokens = 512
        self.special_tokens = frozenset({"[CLS]"})
        self.encoded = 0
        self._seconds = seconds_per_document

    def _words(self, text: str) -> list[str]:
        return ["[CLS]", *(w.lower() for w in _WORD.findall(text)[: self.max_tokens - 1])]

    def _vectors(self, words: list[str]) -> torch.Tensor:
        return torch.stack([_vector(word, self.adapter or "") for word in words])

    def encode_queries(self, texts: Sequence[str], *, batch_size: int = 32) -> list[TokenVectors]:
        out = []
        for text in texts:
            words = self._words(text)
            out.append(TokenVectors(self._vectors(words), (len(words),), tuple(words), tuple(self.encode_ids(text, 1))))
        return out

    def encode_documents(
        self, texts: Sequence[str], *, progress: Callable[[int], None] | None = None
    ) -> list[TokenVectors]:
        out = []
        for text in texts:
            time.sleep(self._seconds)
            words = self._words(text)
            out.append(TokenVectors(self._vectors(words), (len(words),)))
            if progress is not None:
                progress(1)
        self.encoded += len(texts)
        return out

    def encode_ids(self, text: str, special: int = 0) -> list[int]:
        words = self._words(text)[0 if special else 1 :]
        return [zlib.crc32(word.encode("utf-8", "replace")) for word in words]

    def token_count(self, text: str) -> int:
        return len(_WORD.findall(text)) + 1


def word_excise(*, adapter: bool = False, encoder: Any = None, **settings: Any) -> Excise:
    """An Excise over words with the rules detector."""
    exclusion: Any = encoder or (WordBackbone("adapter") if adapter else None)
    parts = {name: settings.pop(name) for name in ("cache_bytes", "cache_dir", "log") if name in settings}
    backbone: Any = WordBackbone()
    return Excise(backbone, detector=resolve("rules"), exclusion=exclusion, **parts).with_config(**settings)
