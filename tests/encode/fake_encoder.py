"""An encoder without a model: unit vectors out of a text's hash, as many as it has words."""

from __future__ import annotations

import hashlib
import threading
from collections.abc import Sequence
from typing import Any

import torch

from excise_integrations.encode.maxsim import TokenVectors
from excise_integrations.encode.windows import WindowPolicy


class FakeEncoder:
    """Counts what it encodes; has every attribute of a backbone that a cache reads."""

    def __init__(self, label: str = "fake@0", *, dim: int = 32, dtype: torch.dtype = torch.bfloat16) -> None:
        self.label = label
        self.dim = dim
        self.dtype = dtype
        self.device = "cpu"
        self.windows = WindowPolicy(200, 1000)
        self.max_tokens = 512
        self.encoded: list[str] = []
        self.gate: threading.Event | None = None
        self.entered = threading.Event()
        self.fail: BaseException | None = None

    def encode_documents(self, texts: Sequence[str], *, progress: Any = None) -> list[TokenVectors]:
        self.entered.set()
        if self.gate is not None:
            assert self.gate.wait(10)
        if self.fail is not None:
            raise self.fail
        self.encoded.extend(texts)
        return [self.vectors(text) for text in texts]

    def vectors(self, text: str) -> TokenVectors:
        tokens = len(text.split())
        seed = int.from_bytes(hashlib.sha256(f"{self.label} {text}".encode()).digest()[:8], "big") >> 1
        generator = torch.Generator().manual_seed(seed)
        values = torch.randn((tokens, self.dim), generator=generator)
        windows = tuple(min(200, tokens - at) for at in range(0, tokens, 200)) or (0,)
        return TokenVectors(torch.nn.functional.normalize(values, dim=-1).to(self.dtype), windows)
