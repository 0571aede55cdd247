"""colbert-ai's searcher over one index: whole queries, full shortlists, frozen vectors."""

from __future__ import annotations

import copy
import importlib
import logging
import threading
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from ..encode.maxsim import TokenVectors
from ..errors import ExciseError, FirstStageError, IndexDamagedError
from ._ragatouille_compat import import_colbert
from ._ragatouille_index import IndexFiles
from ._ragatouille_isolation import isolated

__all__ = ["IndexSearcher"]

logger = logging.getLogger("excise_integrations")

_SHORTEST_QUERY = 32  # RAGatouille's; it pads every query to at least this many tokens
_SCORED_AT_ONCE = 1024
_EXACT_UP_TO = 4096  # passages that are scored one and all rather than searched for more of
_SAMPLE = 4
_BATCH = 32
_SAME_ENCODER = 0.5
_EXACT_ENOUGH = 0.98


class IndexSearcher:
    """An index in memory with its checkpoint. Many threads may use it, one at a time runs.

    Args:
        files: the checked files.
        checkpoint: folder of the checkpoint that it was built with.

    Raises:
        IndexDamagedError: the vectors on disk cannot be loaded or do not fit the texts.
        FirstStageError: the checkpoint cannot be loaded, or is not the one the index was built with.
    """

    def __init__(self, files: IndexFiles, checkpoint: Path) -> None:
        colbert = import_colbert()
        self._model: Any = importlib.import_module("colbert.modeling.colbert").ColBERT
        self.files = files
        # colbert-ai's tokenizers and settings change during a search.
        self._lock = threading.RLock()
        try:
            with isolated():
                # Its own configuration says what kind of model it is; the name of its ancestor would be looked up
                # on the hub.
                config = importlib.import_module("colbert.infra").ColBERTConfig(model_name=str(checkpoint))
                searcher = colbert.Searcher(
                    index=files.folder.name,
                    index_root=str(files.folder.parent),
                    checkpoint=str(checkpoint),
                    collection=files.texts,
                    config=config,
                    verbose=0,
                )
        except ExciseError:
            raise
        except Exception as error:
            raise IndexDamagedError(
                f"The index {files.folder} could not be loaded with the checkpoint {checkpoint}: {error}"
            ) from error
        self.checkpoint = searcher.checkpoint
        self.ranker = searcher.ranker
        self._config = searcher.config
        self._limit = int(self.checkpoint.bert.config.max_position_embeddings) - 4
        self._check_ids()
        self.fidelity = self._check_encoder(checkpoint)

    def __len__(self) -> int:
        return len(self.files.texts)

    # --- checks -----------------------------------------------------------------------------

    def _check_ids(self) -> None:
        ivf = self.ranker.ivf
        used = ivf.tensor[: int(ivf.lengths.sum())]
        if len(self.ranker.doclens) != len(self) or (used.numel() and int(used.max()) >= len(self)):
            raise IndexDamagedError(
                f"The index {self.files.folder} is damaged: its lists name passages that it does not have. Rebuild it "
                f"with RagatouilleFirstStage.repair({str(self.files.folder)!r})."
            )

    @property
    def exact(self) -> bool:
        """Whether the stored vectors are as good as the checkpoint's own."""
        return self.fidelity >= _EXACT_ENOUGH

    def _check_encoder(self, checkpoint: Path) -> float:
        """Return the mean cosine between stored vectors and the checkpoint's own; 0 where tokens were pooled."""
        if int(self.files.config.get("pool_factor") or 1) > 1:
            return 0.0
        step = max(1, len(self) // _SAMPLE)
        pids = list(range(0, len(self), step))[:_SAMPLE]
        fresh, lengths = self.encode([self.files.texts[pid] for pid in pids])
        stored, stored_lengths = self.stored(pids)
        pairs = [
            (ours, theirs)
            for ours, theirs in zip(torch.split(fresh, lengths), torch.split(stored, stored_lengths), strict=True)
            if ours.shape == theirs.shape
        ]
        cosine = float(torch.cat([(ours * theirs).sum(-1) for ours, theirs in pairs]).mean()) if pairs else 0.0
        if cosine < _SAME_ENCODER:
            raise FirstStageError(
                f"The index {self.files.folder} was not built with the checkpoint {checkpoint}: "
                + (f"their vectors agree by {cosine:.2f} only. " if pairs else "their token counts differ. ")
                + "Name the right one with checkpoint=."
            )
        return cosine

    # --- vectors ----------------------------------------------------------------------------

    def encode(self, texts: Sequence[str]) -> tuple[Tensor, list[int]]:
        """Encode passages with the checkpoint, cut as the index cuts them.

        Args:
            texts: at least one.

        Returns:
            (tokens, dim) in float32, and the tokens per passage.
        """
        order = sorted(range(len(texts)), key=lambda i: len(texts[i]))
        out: dict[int, Tensor] = {}
        for start in range(0, len(order), _BATCH):
            part = order[start : start + _BATCH]
            with self._lock, torch.inference_mode(), self._autocast():
                ids, mask = self.checkpoint.doc_tokenizer.tensorize([texts[i] for i in part])
                vectors, kept = self._model.doc(self.checkpoint, ids, mask, keep_dims="return_mask")
            for i, row, keep in zip(part, vectors.float().cpu(), kept.squeeze(-1).cpu(), strict=True):
                out[i] = row[keep]
        return torch.cat([out[i] for i in range(len(texts))]), [out[i].shape[0] for i in range(len(texts))]

    def stored(self, pids: Sequence[int]) -> tuple[Tensor, list[int]]:
        """Return what the index holds of these passages: (tokens, dim) in float32, and the tokens per passage."""
        with self._lock, torch.inference_mode():
            packed, lengths = self.ranker.lookup_pids(list(pids), out_device="cpu")
            return packed.float().cpu(), lengths.tolist()

    def vectors(self, pids: Sequence[int]) -> list[TokenVectors]:
        """Return the frozen vectors: the index's where they are exact enough, else the checkpoint's."""
        if not pids:
            return []
        packed, lengths = self.stored(pids) if self.exact else self.encode([self.files.texts[pid] for pid in pids])
        # Cloned outside of inference mode: a caller may want gradients.
        return [TokenVectors(part.clone(), (part.shape[0],)) for part in torch.split(packed, lengths)]

    def query_vectors(self, queries: Sequence[str]) -> list[Tensor]:
        """Encode whole queries, each as long as it is (and at least as long as RAGatouille makes it).

        Returns:
            (1, tokens, dim) per query; padding that counts for nothing is left out.
        """
        out: dict[int, Tensor] = {}
        with self._lock:
            by_length: dict[int, list[int]] = {}
            for position, query in enumerate(queries):
                by_length.setdefault(self._query_tokens(query), []).append(position)
            for length, positions in by_length.items():
                for start in range(0, len(positions), _BATCH):
                    part = positions[start : start + _BATCH]
                    out.update(zip(part, self._encode_queries([queries[p] for p in part], length), strict=True))
        return [out[position] for position in range(len(queries))]

    def _query_tokens(self, query: str) -> int:
        tokens = len(self.checkpoint.query_tokenizer.tok(query, verbose=False)["input_ids"]) + 1
        if tokens > self._limit:
            logger.warning("A query of %d tokens is cut at %d, the limit of the checkpoint.", tokens, self._limit)
        return min(self._limit, max(_SHORTEST_QUERY, int(len(query.split(" ")) * 1.35), tokens))

    def _encode_queries(self, queries: list[str], length: int) -> list[Tensor]:
        tokenizer = self.checkpoint.query_tokenizer
        before = tokenizer.query_maxlen
        tokenizer.query_maxlen = length
        # So that it does not print its first query.
        tokenizer.used = True
        try:
            with torch.inference_mode(), self._autocast():
                ids, mask = tokenizer.tensorize(queries)
                vectors = self._model.query(self.checkpoint, ids, mask).float().cpu()
        finally:
            tokenizer.query_maxlen = before
        return [row[row.norm(dim=-1) > 0.5].unsqueeze(0) for row in vectors]

    def _autocast(self) -> torch.autocast:
        return torch.autocast("cuda", enabled=True) if self.ranker.use_gpu else torch.autocast("cpu", enabled=False)

    # --- search -----------------------------------------------------------------------------

    def search(self, query: Tensor, k: int, allowed: Sequence[int] | None = None) -> list[tuple[int, float]]:
        """Return the best ``k`` passages, fewer only where there are no more.

        Args:
            query: (1, tokens, dim).
            k: at least 1.
            allowed: passages among which to search; None for all.
        """
        count = len(self) if allowed is None else len(allowed)
        k = min(k, count)
        if not k:
            return []
        if allowed is not None and count <= _SCORED_AT_ONCE:
            return self._score(query, allowed)[:k]
        keep = _filter(allowed, len(self)) if allowed is not None else None
        cells, ndocs = self._breadth(), max(4 * k, 1024)
        centroids = int(self.ranker.codec.centroids.shape[0])
        while True:
            found = self._rank(query, k, min(cells, centroids), ndocs, keep)
            if len(found) >= k:
                return found[:k]
            if count <= _EXACT_UP_TO:
                return self._score(query, range(len(self)) if allowed is None else allowed)[:k]
            if cells >= centroids and ndocs >= 4 * len(self):
                return found
            # It looks at too few centroids, or lets too few passages through.
            cells *= 4
            ndocs = 4 * len(self) if cells >= centroids else 4 * ndocs

    def search_documents(self, query: Tensor, k: int, allowed: Sequence[int] | None = None) -> list[tuple[int, float]]:
        """Return the best passages of ``k`` documents, one of each; arguments as for :meth:`search`."""
        asked = k
        while True:
            hits = self.search(query, asked, allowed)
            best: dict[str, tuple[int, float]] = {}
            for hit in hits:
                best.setdefault(self.files.document_ids[hit[0]], hit)
            if len(best) >= k or len(hits) < asked:
                return list(best.values())[:k]
            # Several passages of the same documents were among them.
            asked *= 2

    def _breadth(self) -> int:
        # As RAGatouille chooses.
        return 8 if len(self) < 10_000 else 4 if len(self) < 100_000 else 16

    def _threshold(self, k: int) -> float:
        if len(self) < 100_000:
            return 0.4 if len(self) < 10_000 else 0.45
        return 0.5 if k <= 10 else 0.45 if k <= 100 else 0.4

    def _rank(
        self, query: Tensor, k: int, cells: int, ndocs: int, keep: Callable[[Tensor], Tensor] | None
    ) -> list[tuple[int, float]]:
        # A copy for this search: colbert-ai's own settings stay as they are.
        config: Any = copy.copy(self._config)
        config.ncells = cells
        config.ndocs = ndocs
        config.centroid_score_threshold = self._threshold(k)
        config.query_maxlen = query.shape[1]
        with self._lock:
            pids, scores = self.ranker.rank(config, query, filter_fn=keep)
        return list(zip(pids, scores, strict=True))

    def _score(self, query: Tensor, pids: Sequence[int]) -> list[tuple[int, float]]:
        found: list[tuple[int, float]] = []
        for start in range(0, len(pids), _SCORED_AT_ONCE):
            part = list(pids[start : start + _SCORED_AT_ONCE])
            with self._lock:
                found += zip(*self.ranker.rank(self._config, query, pids=part), strict=True)
        return sorted(found, key=lambda hit: (-hit[1], hit[0]))


def _filter(allowed: Sequence[int], count: int) -> Callable[[Tensor], Tensor]:
    mask = torch.zeros(count, dtype=torch.bool)
    mask[torch.tensor(allowed, dtype=torch.long)] = True

    def keep(pids: Tensor) -> Tensor:
        return pids[mask.to(pids.device)[pids.long()]]

    return keep
