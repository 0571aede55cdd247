"""Rankings by systems from outside: over the whole corpus, or over the frozen shortlist."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Sequence
from importlib import import_module
from pathlib import Path
from typing import Any, Protocol

import torch
from torch import Tensor

from ..encode.arithmetic import resolve_dtype
from ..errors import BackboneError, InvalidInputError
from ..first_stage._packed import top
from ..pipeline import Excise
from .external import External
from .prepared import Prepared, suite_digest
from .store import VectorStore

__all__ = ["Ranker", "builtin_ranker", "external_ranker"]

_PASSAGE_WORDS = 350
_MAX_TOKENS = 512
Progress = Callable[[int, int], None] | None


class Ranker(Protocol):
    """Ranks documents for every query of a suite."""

    label: str
    """What its outcomes depend on besides the data: a name with a hash of the weights."""

    def rank(self, prepared: Prepared, progress: Progress) -> list[list[str]]:
        """Return document ids, best first, per query."""
        ...


def builtin_ranker(name: str, store: VectorStore | None) -> Ranker:
    """Return the ranker of a row that needs no weights but MiniLM's.

    Raises:
        InvalidInputError: there is no such row.
        MissingExtraError: what it is made of is not installed.
    """
    from ..encode.minilm import find_minilm

    if name in ("dense", "dense-passages"):
        folder = str(find_minilm())
        return _Dense(External(name, "dense", folder), store, passages=name == "dense-passages")
    if name in ("bm25", "bm25-not"):
        return _Words(negate=name == "bm25-not")
    if name == "colbert-rerank":
        from .rivals import colbert_rerank

        return _Reranker("llama-index ColbertRerank, minilm", colbert_rerank(_dtype()))
    raise InvalidInputError(f"There is no ranker {name!r}.")


def external_ranker(external: External, store: VectorStore | None, *, download: bool = False) -> Ranker:
    """Load a system from outside.

    Args:
        external: which.
        store: where vectors are kept between runs.
        download: whether weights may be fetched from the hub.

    Raises:
        BackboneError, AdapterError: its weights are not there or do not fit.
        MissingExtraError: a library is not installed.
    """
    if external.kind in ("dense", "dense-passages"):
        return _Dense(external, store, download=download, passages=external.kind == "dense-passages")
    if external.kind in ("cross-encoder", "cross-encoder-passages"):
        return _CrossEncoder(external, download=download, passages=external.kind == "cross-encoder-passages")
    if external.kind == "rerankers":
        return _Rerankers(external, download=download)
    return _LateInteraction(external, store, download=download)


class _Dense:
    def __init__(
        self, external: External, store: VectorStore | None, *, download: bool = False, passages: bool = False
    ) -> None:
        from sentence_transformers import SentenceTransformer

        self._external = external
        self._model: Any = _load(
            external.model, lambda m: SentenceTransformer(m, device=_device(), local_files_only=not download)
        )
        self._model.to(_dtype())
        limit = getattr(getattr(self._model[0], "auto_model", None), "config", None)
        limit = int(getattr(limit, "max_position_embeddings", _MAX_TOKENS))
        self._model.max_seq_length = min(_MAX_TOKENS, limit)
        self._passages = passages
        self._store = store
        self.label = f"dense {_weights_label(external.model)} {self._prompts()} passages={passages}"

    def rank(self, prepared: Prepared, progress: Progress) -> list[list[str]]:
        documents, owner = _texts([d.text for d in prepared.suite.documents], self._passages)
        vectors = self._embedded(documents, f"{suite_digest(prepared.suite)}", progress)
        queries = self._encode([self._external.query_prompt + q.text for q in prepared.queries], None)
        scores = torch.full((len(prepared.queries), len(prepared.suite.documents)), float("-inf"))
        scores = scores.scatter_reduce(1, owner[None].expand(len(queries), -1), queries @ vectors.T, "amax")
        return _best(scores, prepared)

    def _prompts(self) -> list[str]:
        return [self._external.query_prompt, self._external.document_prompt]

    def _embedded(self, texts: Sequence[str], data: str, progress: Progress) -> Tensor:
        from safetensors.torch import load_file, save_file

        path = None
        if self._store is not None:
            name = hashlib.sha256(json.dumps([self.label, data]).encode()).hexdigest()[:20]
            path = self._store.folder / "dense" / f"{name}.safetensors"
            if path.is_file():
                return load_file(str(path))["vectors"]
        vectors = self._encode([self._external.document_prompt + t for t in texts], progress)
        if path is not None:
            path.parent.mkdir(parents=True, exist_ok=True)
            temporary = path.with_suffix(".partial")
            save_file({"vectors": vectors}, str(temporary))
            temporary.replace(path)
        return vectors

    def _encode(self, texts: Sequence[str], progress: Progress) -> Tensor:
        parts = []
        for start in range(0, len(texts), 256):
            part = list(texts[start : start + 256])
            parts.append(self._model.encode(part, convert_to_tensor=True, normalize_embeddings=True, batch_size=32))
            if progress is not None:
                progress(min(start + 256, len(texts)), len(texts))
        return torch.cat(parts).float().cpu()


class _Words:
    """BM25; with ``negate`` the words that the cue rules find are NOT terms."""

    def __init__(self, negate: bool) -> None:
        self._negate = negate
        self.label = "bm25, NOT by the cue rules" if negate else "bm25"

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
        return _best(scores, prepared)


class _LateInteraction:
    """Late interaction with other weights: of the whole encoder, or LoRA on both sides or on queries only."""

    def __init__(self, external: External, store: VectorStore | None, *, download: bool) -> None:
        from ..encode.backbone import Backbone
        from ..weights import Adapter, load_adapter

        self._external = external
        self._store = store
        self.label = f"{external.kind} {_weights_label(external.model)}"
        self._backbone: Backbone | None = None
        self._adapter: Adapter | None = None
        if external.kind == "late-interaction":
            self._backbone = Backbone.from_pretrained(external.model, offline=not download)
        else:
            self._adapter = load_adapter(external.model, "exclusion")

    def rank(self, prepared: Prepared, progress: Progress) -> list[list[str]]:
        from ..detect.rules import RulesDetector
        from ..first_stage.memory import MemoryFirstStage

        encoder = self._backbone
        if encoder is None:
            assert self._adapter is not None
            encoder = prepared.excise.backbone.with_adapter(self._adapter)
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


class _CrossEncoder:
    def __init__(self, external: External, *, download: bool, passages: bool) -> None:
        from sentence_transformers import CrossEncoder

        self._model: Any = _load(
            external.model, lambda m: CrossEncoder(m, device=_device(), local_files_only=not download)
        )
        self._model.to(_dtype())
        self._model.max_seq_length = _MAX_TOKENS
        self._passages = passages
        self.label = f"cross-encoder {_weights_label(external.model)} passages={passages}"

    def rank(self, prepared: Prepared, progress: Progress) -> list[list[str]]:
        rankings: list[list[str]] = []
        for i, (query, row) in enumerate(zip(prepared.queries, prepared.shortlists, strict=True)):
            if not row:
                rankings.append([])
                continue
            texts, owner = _texts([c.text for c in row], self._passages)
            pairs = [(query.text, text) for text in texts]
            with torch.inference_mode():
                found = self._model.predict(pairs, convert_to_tensor=True, show_progress_bar=False)
            scores = torch.full((len(row),), float("-inf"))
            scores = scores.scatter_reduce(0, owner, found.float().cpu().reshape(len(texts), -1)[:, -1], "amax")
            rankings.append([row[j].id for j in top(scores, len(row))])
            if progress is not None:
                progress(i + 1, len(prepared.queries))
        return rankings


class _Reranker:
    """A LlamaIndex postprocessor over the frozen shortlist."""

    def __init__(self, label: str, rerank: Callable[[str, Sequence[Any]], Any]) -> None:
        self.label = label
        self._rerank = rerank

    def rank(self, prepared: Prepared, progress: Progress) -> list[list[str]]:
        rankings = []
        for i, (query, row) in enumerate(zip(prepared.queries, prepared.shortlists, strict=True)):
            first = [n.node.node_id for n in self._rerank(query.text, row)] if row else []
            rankings.append([*first, *(c.id for c in row if c.id not in set(first))])
            if progress is not None:
                progress(i + 1, len(prepared.queries))
        return rankings


class _Rerankers:
    """A model of the ``rerankers`` library."""

    def __init__(self, external: External, *, download: bool) -> None:
        try:
            library = import_module("rerankers")
        except ImportError as error:
            raise BackboneError("The library 'rerankers' is not installed: pip install rerankers") from error
        if not download and not Path(external.model).exists():
            raise BackboneError(f"There is no folder {external.model!r}; give one, or allow downloads.")
        self._model: Any = library.Reranker(external.model)
        if self._model is None:
            raise BackboneError(f"The rerankers library did not load {external.model!r}.")
        self.label = f"rerankers {_weights_label(external.model)}"

    def rank(self, prepared: Prepared, progress: Progress) -> list[list[str]]:
        rankings = []
        for i, (query, row) in enumerate(zip(prepared.queries, prepared.shortlists, strict=True)):
            ids = [c.id for c in row]
            found = self._model.rank(query=query.text, docs=[c.text for c in row], doc_ids=list(ids)) if row else ()
            order = [str(r.doc_id) for r in sorted(found, key=lambda r: -float(r.score))]
            rankings.append([*order, *(i for i in ids if i not in set(order))])
            if progress is not None:
                progress(i + 1, len(prepared.queries))
        return rankings


# --- parts ------------------------------------------------------------------------------


def _load(model: str, load: Callable[[str], Any]) -> Any:
    try:
        return load(model)
    except Exception as error:
        raise BackboneError(
            f"The model {model!r} cannot be loaded: {error}. Give a folder that holds it, or allow downloads."
        ) from error


def _weights_label(model: str) -> str:
    """Name a model by its weights where they are in a folder, by its id otherwise."""
    folder = Path(model)
    if not folder.is_dir():
        return model
    digest = hashlib.sha256()
    for path in sorted(folder.rglob("*.safetensors")):
        digest.update(path.relative_to(folder).as_posix().encode())
        with path.open("rb") as handle:
            while block := handle.read(1 << 20):
                digest.update(block)
    return f"{folder.name}@{digest.hexdigest()[:12]}"


def _texts(texts: Sequence[str], passages: bool) -> tuple[list[str], Tensor]:
    """Return the texts, or their passages, with the index of the text that each belongs to."""
    out: list[str] = []
    owner: list[int] = []
    for i, text in enumerate(texts):
        words = text.split()
        parts = [text]
        if passages and len(words) > _PASSAGE_WORDS:
            parts = [" ".join(words[at : at + _PASSAGE_WORDS]) for at in range(0, len(words), _PASSAGE_WORDS)]
        out.extend(parts)
        owner.extend([i] * len(parts))
    return out, torch.tensor(owner)


def _best(scores: Tensor, prepared: Prepared) -> list[list[str]]:
    """Return the ids of the best documents per query, among its candidates."""
    ids = [d.id for d in prepared.suite.documents]
    if prepared.candidates == "judged":
        places = {d: i for i, d in enumerate(ids)}
        rows = []
        for query, row in zip(prepared.queries, scores, strict=True):
            judged = [places[d] for d in prepared.suite.qrels[query.id] if d in places]
            rows.append([ids[judged[j]] for j in top(row[torch.tensor(judged)], len(judged))] if judged else [])
        return rows
    return [[ids[i] for i in top(row, min(prepared.k, len(ids)))] for row in scores]


def _dtype() -> torch.dtype:
    """Arithmetic as our own encoders choose it, so that none is slower or coarser for it."""
    return resolve_dtype("auto", _device())


def _device() -> str:
    return "cuda" if torch.cuda.is_available() else "cpu"
