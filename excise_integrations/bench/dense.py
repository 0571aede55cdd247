"""Dense retrieval: one vector a document, or one a passage, ranked by cosine."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import cached_property
from typing import Any

import torch
from torch import Tensor

from ..encode.arithmetic import default_device
from ..encode.maxsim import TokenVectors
from ..encode.windows import WindowPolicy
from .external import MAX_TOKENS, External
from .model_files import load_model, weights_label
from .prepared import Prepared
from .ranking import Progress, best_documents, choose_dtype, passages_of
from .store import VectorStore

__all__ = ["DenseRanker"]

_ENDLESS = 1 << 30


class DenseRanker:
    """A model of sentence-transformers over the whole corpus.

    Args:
        external: which.
        store: where vectors are kept between runs.
        download: whether weights may be fetched from the hub.
        passages: whether a document is scored by its best passage, rather than by its start.
    """

    def __init__(
        self, external: External, store: VectorStore | None, *, download: bool = False, passages: bool = False
    ) -> None:
        self._external = external
        self._passages = passages
        self._store = store
        self._encoder = _DenseEncoder(external, download=download)
        prompts = [external.query_prompt, external.document_prompt]
        self.label = f"{self._encoder.label} {prompts} passages={passages}"

    def load(self) -> None:
        """Load the weights; see :class:`~excise_integrations.bench.ranking.Ranker`."""
        _ = self._encoder.model

    def rank(self, prepared: Prepared, progress: Progress) -> list[list[str]]:
        """Rank the corpus; see :class:`~excise_integrations.bench.ranking.Ranker`."""
        documents, owner = passages_of([d.text for d in prepared.suite.documents], self._passages)
        vectors = self._embed([self._external.document_prompt + t for t in documents], progress)
        queries = self._encoder.encode([self._external.query_prompt + q.text for q in prepared.queries])
        scores = torch.full((len(prepared.queries), len(prepared.suite.documents)), float("-inf"))
        scores = scores.scatter_reduce(1, owner[None].expand(len(queries), -1), queries @ vectors.T, "amax")
        return best_documents(scores, prepared)

    def _embed(self, texts: Sequence[str], progress: Progress) -> Tensor:
        if self._store is not None:
            return torch.cat([v.vectors for v in self._store.encode(texts, self._encoder, progress=progress)])
        done = 0

        def report(count: int) -> None:
            nonlocal done
            done += count
            if progress is not None:
                progress(done, len(texts))

        return torch.cat([v.vectors for v in self._encoder.encode_documents(texts, progress=report)])


class _DenseEncoder:
    """A dense model as a store takes it: a text's only vector stands for its only token."""

    device = "cpu"
    dtype = torch.float32
    max_tokens = MAX_TOKENS
    windows = WindowPolicy(_ENDLESS, _ENDLESS)

    def __init__(self, external: External, *, download: bool) -> None:
        self._name = external.model
        self._download = download
        self.label = f"dense {weights_label(external.model)}"

    @cached_property
    def model(self) -> Any:
        from sentence_transformers import SentenceTransformer

        model: Any = load_model(
            self._name,
            "SentenceTransformer",
            lambda m: SentenceTransformer(m, device=default_device(), local_files_only=not self._download),
        )
        model.to(choose_dtype())
        config = getattr(getattr(model[0], "auto_model", None), "config", None)
        model.max_seq_length = min(MAX_TOKENS, int(getattr(config, "max_position_embeddings", MAX_TOKENS)))
        return model

    def encode(self, texts: Sequence[str]) -> Tensor:
        """Return one normalised vector a text, (texts, dim)."""
        vectors: Tensor = self.model.encode(
            list(texts), convert_to_tensor=True, normalize_embeddings=True, batch_size=32, show_progress_bar=False
        )
        return vectors.float().cpu()

    def encode_documents(
        self, texts: Sequence[str], *, progress: Callable[[int], None] | None = None
    ) -> list[TokenVectors]:
        out: list[TokenVectors] = []
        for start in range(0, len(texts), 256):
            vectors = self.encode(texts[start : start + 256])
            out.extend(TokenVectors(vector[None], (1,)) for vector in vectors)
            if progress is not None:
                progress(len(vectors))
        return out
