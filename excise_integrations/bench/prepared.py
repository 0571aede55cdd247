"""What every system reads of one suite: sampled queries, their shortlists, topics and matches."""

from __future__ import annotations

import hashlib
import json
import random
from collections.abc import Sequence
from functools import cached_property
from pathlib import Path
from typing import Literal

from .._assembly import at_threshold
from .._files import write_text
from ..encode.backbone import Backbone
from ..encode.cache import VectorCache
from ..encode.maxsim import TokenVectors
from ..first_stage.memory import MemoryFirstStage
from ..pipeline import Excise
from ..types import Candidate, Detection
from .evaluate import _detect, _first_stage, _shortlists
from .lexical import LexicalIndex
from .matches import EncodedQuery, Matches, encode_query, match
from .store import StoredCache, VectorStore
from .suites import Query, Suite
from .summary import Stage, step
from .systems import Topics

__all__ = ["Candidates", "Prepared", "Vectors", "sample", "suite_digest"]

Candidates = Literal["all", "judged"]
Vectors = Literal["encoder", "frozen"]


def sample(suite: Suite, limit: int | None, seed: int) -> tuple[Query, ...]:
    """Return at most ``limit`` of a suite's queries, drawn by a seed, in the suite's order."""
    if limit is None or limit >= len(suite.queries):
        return suite.queries
    chosen = set(random.Random(f"{seed} {suite.name}").sample(range(len(suite.queries)), limit))
    return tuple(q for i, q in enumerate(suite.queries) if i in chosen)


def suite_digest(suite: Suite) -> str:
    """Return a short hash of a suite's documents, queries and judgments: the version of its data."""
    digest = hashlib.sha256()
    for document in suite.documents:
        digest.update(json.dumps([document.id, document.text]).encode())
    for query in suite.queries:
        digest.update(json.dumps([query.id, query.text, query.excluded, dict(query.groups)]).encode())
        digest.update(json.dumps(suite.qrels[query.id], sort_keys=True).encode())
    return digest.hexdigest()[:12]


class Prepared:
    """The work on one suite that all systems share; every part is done when it is first asked for.

    Args:
        excise: the pipeline.
        suite: the suite.
        queries: those that are run.
        k: shortlist size, the largest of any system's.
        candidates: rank the corpus, or the judged documents of each query.
        store: where document vectors are kept between runs.
        saved: a file that keeps the shortlists; read only when there is a store.
        progress: see :data:`~excise_integrations.bench.summary.Stage`.
    """

    def __init__(
        self,
        excise: Excise,
        suite: Suite,
        queries: Sequence[Query],
        *,
        k: int,
        candidates: Candidates = "all",
        store: VectorStore | None = None,
        saved: Path | None = None,
        progress: Stage | None = None,
    ) -> None:
        self.excise = excise
        self.suite = suite
        self.queries = tuple(queries)
        self.k = k
        self.candidates: Candidates = candidates
        self.progress = progress
        self._store = store
        self._saved = saved if store is not None else None
        self._cache: VectorCache = VectorCache(1 << 40) if store is None else StoredCache(store)
        self._detections: dict[Topics, list[Detection]] = {}
        self._matches: dict[tuple[Topics, Vectors, int], Matches] = {}

    # --- first stage ------------------------------------------------------------------------

    @cached_property
    def shortlists(self) -> list[list[Candidate]]:
        """One shortlist of at most ``k`` candidates per query, best first."""
        documents = {d.id: d for d in self.suite.documents}
        key = self._key()
        if self._saved is not None and self._saved.is_file():
            try:
                found = json.loads(self._saved.read_text(encoding="utf-8"))
            except ValueError:
                found = {}
            if found.get("key") == key:
                return [
                    [Candidate(i, documents[i].text, score) for i, score in found["shortlists"][q.id]]
                    for q in self.queries
                ]
        rows = _shortlists(self._stage, self.suite, self.queries, self.k, self.candidates, self.progress)
        if self._saved is not None:
            content = {
                "key": key,
                "shortlists": {q.id: [[c.id, c.score] for c in r] for q, r in zip(self.queries, rows, strict=True)},
            }
            write_text(self._saved, json.dumps(content))
            # The store gives single documents; a whole corpus need not stay in memory.
            del self.__dict__["_stage"]
        return rows

    @cached_property
    def _stage(self) -> MemoryFirstStage:
        return _first_stage(self.excise, self.suite, self.queries, self.candidates, self._store, self.progress)

    def _key(self) -> str:
        facts = [
            suite_digest(self.suite),
            [q.id for q in self.queries],
            self.k,
            self.candidates,
            self.excise.backbone.label,
            str(self.excise.backbone.dtype),
        ]
        return hashlib.sha256(json.dumps(facts).encode()).hexdigest()

    # --- topics -----------------------------------------------------------------------------

    def detections(self, topics: Topics) -> list[Detection]:
        """Return one detection per query."""
        if topics not in self._detections:
            excise = self.excise
            if topics == "forced":
                excise = excise.with_config()
                excise.detector = at_threshold(excise.detector, 0.0)
            source: Literal["detected", "true"] = "true" if topics == "true" else "detected"
            self._detections[topics] = _detect(excise, self.queries, source, self.progress)
        return self._detections[topics]

    # --- vectors ----------------------------------------------------------------------------

    def encoder(self, vectors: Vectors) -> Backbone:
        """Return the frozen backbone, or the one that re-embeds."""
        return self.excise.backbone if vectors == "frozen" else self.excise.encoder

    def documents(self, index: int, vectors: Vectors, k: int | None = None) -> list[TokenVectors]:
        """Return the vectors of the first ``k`` candidates of a query."""
        row = self.shortlists[index][:k]
        encoder = self.encoder(vectors)
        if encoder.label == self.excise.backbone.label and "_stage" in self.__dict__:
            return self._stage.vectors([c.id for c in row])
        return self._cache.encode([c.text for c in row], encoder)

    def reembed(self, indices: Sequence[int]) -> None:
        """Re-embed the shortlists of queries in full batches, where there is an adapter and a store to keep them."""
        encoder = self.excise.encoder
        if self._store is not None and encoder.label != self.excise.backbone.label:
            texts = [c.text for i in indices for c in self.shortlists[i]]
            self._store.fill(texts, encoder, progress=step(self.progress, "re-embedding"))

    def encoded(self, index: int, topics: Topics, vectors: Vectors) -> EncodedQuery:
        """Return a query and its topics in an encoder's space."""
        return encode_query(self.encoder(vectors), self.queries[index].text, self.detections(topics)[index])

    def matches(self, index: int, topics: Topics, vectors: Vectors) -> Matches:
        """Return how a query and its topics match its whole shortlist."""
        if self.excise.exclusion is None:
            vectors = "frozen"
        key = (topics, vectors, index)
        if key not in self._matches:
            documents = self.documents(index, vectors)
            opening = self.excise.config.opening_tokens
            self._matches[key] = match(self.encoded(index, topics, vectors), documents, opening_tokens=opening)
        return self._matches[key]

    # --- words ------------------------------------------------------------------------------

    @cached_property
    def words(self) -> LexicalIndex:
        """The sparse index over the corpus."""
        return LexicalIndex([d.text for d in self.suite.documents])

    @cached_property
    def positions(self) -> dict[str, int]:
        """Document id → its position in :attr:`words`."""
        return {d.id: i for i, d in enumerate(self.suite.documents)}
