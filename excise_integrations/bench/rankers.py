"""Rankings by systems from outside, by name; BM25 and late interaction over the whole corpus among them."""

from __future__ import annotations

from functools import cached_property
from typing import TYPE_CHECKING

import torch

from ..errors import InvalidInputError
from ..pipeline import Excise
from .dense import DenseRanker
from .external import External
from .model_files import load_model, weights_label
from .prepared import Prepared
from .ranking import Progress, Ranker, best_documents, choose_dtype
from .shortlist_rankers import CrossEncoderRanker, PostprocessorRanker, RerankersRanker
from .store import VectorStore

if TYPE_CHECKING:
    from ..encode.backbone import Backbone
    from ..weights import Adapter

__all__ = ["Ranker", "builtin_ranker", "external_ranker"]


def builtin_ranker(name: str, store: VectorStore | None) -> Ranker:
    """Return the ranker of a row that needs no weights but MiniLM's; nothing is loaded yet.

    Raises:
        BackboneError: MiniLM's weights are not there.
        InvalidInputError: there is no such row.
    """
    from ..encode.minilm import find_minilm

    if name in ("dense", "dense-passages"):
        folder = str(find_minilm())
        return DenseRanker(External(name, "dense", folder), store, passages=name == "dense-passages")
    if name in ("bm25", "bm25-not"):
        return _Words(negate=name == "bm25-not")
    if name == "colbert-rerank":
        from .rivals import colbert_rerank

        return PostprocessorRanker("llama-index ColbertRerank, minilm", lambda: colbert_rerank(choose_dtype()))
    raise InvalidInputError(f"There is no ranker {name!r}.")


def external_ranker(external: External, store: VectorStore | None, *, download: bool = False) -> Ranker:
    """Return the ranker of a system from outside; nothing is loaded yet.

    Args:
        external: which.
        store: where vectors are kept between runs.
        download: whether weights may be fetched from the hub.
    """
    if external.kind in ("dense", "dense-passages"):
        return DenseRanker(external, store, download=download, passages=external.kind == "dense-passages")
    if external.kind in ("cross-encoder", "cross-encoder-passages"):
        return CrossEncoderRanker(external, download=download, passages=external.kind == "cross-encoder-passages")
    if external.kind == "rerankers":
        return RerankersRanker(external, download=download)
    return _LateInteraction(external, store, download=download)


class _Words:
    """BM25; with ``negate`` the words that the cue rules find are NOT terms."""

    def __init__(self, negate: bool) -> None:
        self._negate = negate
        self.label = "bm25, NOT by the cue rules" if negate else "bm25"

    def load(self) -> None:
        pass

    def rank(self, prepared: Prepared, progress: Progress) -> list[list[str]]:
        from ..detect.rules import RulesDetector
        from .lexical import content_words

        index = prepared.words
        texts = [set(content_words(d.text)) for d in prepared.suite.documents] if self._negate else []
        found = RulesDetector().detect([q.text for q in prepared.queries]) if self._negate else []
        scores = torch.zeros(len(prepared.queries), len(prepared.suite.documents))
        for i, query in enumerate(prepared.queries):
            topics = [set(content_words(s.text)) for s in found[i].spans] if self._negate else []
            unwanted = {w for topic in topics for w in topic}
            words = [w for w in content_words(query.text) if w not in unwanted]
            scores[i] = torch.from_numpy(index.scores(words)).float()
            for d, text in enumerate(texts if topics else ()):
                if any(topic <= text for topic in topics):
                    scores[i, d] = float("-inf")
            if progress is not None:
                progress(i + 1, len(prepared.queries))
        return best_documents(scores, prepared)


class _LateInteraction:
    """Late interaction with other weights: of the whole encoder, or LoRA on both sides or on queries only."""

    def __init__(self, external: External, store: VectorStore | None, *, download: bool) -> None:
        self._external = external
        self._download = download
        self._store = store
        self.label = f"{external.kind} {weights_label(external.model)}"

    def load(self) -> None:
        _ = self._weights

    @cached_property
    def _weights(self) -> Backbone | Adapter:
        from ..encode.backbone import Backbone
        from ..weights import load_adapter

        if self._external.kind == "late-interaction":
            return load_model(
                self._external.model,
                "MultiVectorEncoder",
                lambda m: Backbone.from_pretrained(m, offline=not self._download),
            )
        return load_adapter(self._external.model, "exclusion")

    def rank(self, prepared: Prepared, progress: Progress) -> list[list[str]]:
        from ..detect.rules import RulesDetector
        from ..first_stage.memory import MemoryFirstStage
        from ..weights import Adapter

        weights = self._weights
        encoder = prepared.excise.backbone.with_adapter(weights) if isinstance(weights, Adapter) else weights
        if prepared.candidates == "judged" and self._external.kind == "query-adapter":
            raise InvalidInputError("A query adapter ranks a corpus; with judged candidates it is not run.")
        if self._external.kind == "query-adapter":
            documents = prepared.suite.documents
            frozen = prepared.excise.backbone
            texts = [d.text for d in documents]
            vectors = self._store.encode(texts, frozen) if self._store else frozen.encode_documents(texts)
            stage = MemoryFirstStage.from_candidates(documents, vectors=vectors, backbone=encoder)
            return [[c.id for c in r] for r in stage.search_batch([q.text for q in prepared.queries], prepared.k)]
        other = Prepared(
            Excise(encoder, detector=RulesDetector()), prepared.suite, prepared.queries, k=prepared.k,
            candidates=prepared.candidates, store=self._store, progress=prepared.progress,
        )  # fmt: skip
        return [[c.id for c in row] for row in other.shortlists]
