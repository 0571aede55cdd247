"""Systems from outside that re-rank the frozen shortlist."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import cached_property
from importlib import import_module
from typing import Any

import torch

from ..encode.arithmetic import default_device
from ..errors import BackboneError
from ..first_stage._packed import top
from ..types import Candidate
from .external import MAX_TOKENS, External
from .model_files import find_folder, load_model, weights_label
from .prepared import Prepared
from .ranking import Progress, choose_dtype, passages_of

__all__ = ["CrossEncoderRanker", "PostprocessorRanker", "RerankersRanker"]


class _Shortlist:
    """What re-ranks the frozen shortlist, one query after the other."""

    label: str

    def load(self) -> None:
        """Load the weights; see :class:`~excise_integrations.bench.ranking.Ranker`."""
        _ = self._model

    @cached_property
    def _model(self) -> Any:
        raise NotImplementedError

    def order(self, query: str, row: Sequence[Candidate]) -> list[str]:
        """Return ids, best first; those of the shortlist that are missing follow in its order."""
        raise NotImplementedError

    def rank(self, prepared: Prepared, progress: Progress) -> list[list[str]]:
        """Re-rank every shortlist; see :class:`~excise_integrations.bench.ranking.Ranker`."""
        rankings: list[list[str]] = []
        for i, (query, row) in enumerate(zip(prepared.queries, prepared.shortlists, strict=True)):
            first = self.order(query.text, row) if row else []
            rankings.append([*first, *(c.id for c in row if c.id not in set(first))])
            if progress is not None:
                progress(i + 1, len(prepared.queries))
        return rankings


class CrossEncoderRanker(_Shortlist):
    """A cross-encoder of sentence-transformers, on documents or on passages of them.

    Args:
        external: which.
        download: whether weights may be fetched from the hub.
        passages: whether a document is scored by its best passage, rather than by its start.
    """

    def __init__(self, external: External, *, download: bool, passages: bool) -> None:
        self._external = external
        self._download = download
        self._passages = passages
        self.label = f"cross-encoder {weights_label(external.model)} passages={passages}"

    @cached_property
    def _model(self) -> Any:
        from sentence_transformers import CrossEncoder

        model: Any = load_model(
            self._external.model,
            "CrossEncoder",
            lambda m: CrossEncoder(m, device=default_device(), local_files_only=not self._download),
        )
        model.to(choose_dtype())
        model.max_seq_length = MAX_TOKENS
        return model

    def order(self, query: str, row: Sequence[Candidate]) -> list[str]:
        texts, owner = passages_of([c.text for c in row], self._passages)
        with torch.inference_mode():
            found = self._model.predict([(query, t) for t in texts], convert_to_tensor=True, show_progress_bar=False)
        scores = torch.full((len(row),), float("-inf"))
        scores = scores.scatter_reduce(0, owner, found.float().cpu().reshape(len(texts), -1)[:, -1], "amax")
        return [row[j].id for j in top(scores, len(row))]


class PostprocessorRanker(_Shortlist):
    """A LlamaIndex postprocessor.

    Args:
        label: names it and its weights.
        build: makes it; what it is given is a query and its shortlist.
    """

    def __init__(self, label: str, build: Callable[[], Callable[[str, Sequence[Candidate]], Any]]) -> None:
        self.label = label
        self._build = build

    @cached_property
    def _model(self) -> Any:
        return self._build()

    def order(self, query: str, row: Sequence[Candidate]) -> list[str]:
        return [n.node.node_id for n in self._model(query, row)]


class RerankersRanker(_Shortlist):
    """A model of the ``rerankers`` library.

    Args:
        external: which.
        download: whether weights may be fetched from the hub.
    """

    def __init__(self, external: External, *, download: bool) -> None:
        self._external = external
        self._download = download
        self.label = f"rerankers {weights_label(external.model)}"

    @cached_property
    def _model(self) -> Any:
        name = self._external.model
        try:
            library = import_module("rerankers")
        except ImportError as error:
            raise BackboneError("The library 'rerankers' is not installed: pip install rerankers") from error
        if not self._download and find_folder(name) is None:
            raise BackboneError(
                f"The model {name!r} is not on this machine; give a folder, or allow downloads (--download)."
            )
        model = library.Reranker(name)
        if model is None:
            raise BackboneError(f"The rerankers library did not load {name!r}.")
        return model

    def order(self, query: str, row: Sequence[Candidate]) -> list[str]:
        found = self._model.rank(query=query, docs=[c.text for c in row], doc_ids=[c.id for c in row])
        return [str(r.doc_id) for r in sorted(found, key=lambda r: -float(r.score))]
