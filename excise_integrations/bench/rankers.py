"""Rankings by systems from outside: over the whole corpus, or over the frozen shortlist."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Sequence
from functools import cached_property
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

import torch
from torch import Tensor

from ..encode.arithmetic import default_device, resolve_dtype
from ..errors import BackboneError, InvalidInputError
from ..first_stage._packed import top
from ..pipeline import Excise
from ..types import Candidate
from .external import External
from .prepared import Prepared, suite_digest
from .store import VectorStore

if TYPE_CHECKING:
    from ..encode.backbone import Backbone
    from ..weights import Adapter

__all__ = ["Ranker", "builtin_ranker", "external_ranker"]

_PASSAGE_WORDS = 350
_MAX_TOKENS = 512
Progress = Callable[[int, int], None] | None


class Ranker(Protocol):
    """Ranks documents for every query of a suite."""

    label: str
    """What its outcomes depend on besides the data: a name with a hash of the weights. It is known before
    :meth:`load`, so that a row which is there already costs no model."""

    def load(self) -> None:
        """Load the weights, once.

        Raises:
            AdapterError, BackboneError: they are not there or do not fit.
            MissingExtraError: a library is not installed.
        """
        ...

    def rank(self, prepared: Prepared, progress: Progress) -> list[list[str]]:
        """Return document ids, best first, per query."""
        ...


def builtin_ranker(name: str, store: VectorStore | None) -> Ranker:
    """Return the ranker of a row that needs no weights but MiniLM's; nothing is loaded yet.

    Raises:
        BackboneError: MiniLM's weights are not there.
        InvalidInputError: there is no such row.
    """
    from ..encode.minilm import find_minilm

    if name in ("dense", "dense-passages"):
        folder = str(find_minilm())
        return _Dense(External(name, "dense", folder), store, passages=name == "dense-passages")
    if name in ("bm25", "bm25-not"):
        return _Words(negate=name == "bm25-not")
    if name == "colbert-rerank":
        from .rivals import colbert_rerank

        return _Postprocessor("llama-index ColbertRerank, minilm", lambda: colbert_rerank(_dtype()))
    raise InvalidInputError(f"There is no ranker {name!r}.")


def external_ranker(external: External, store: VectorStore | None, *, download: bool = False) -> Ranker:
    """Return the ranker of a system from outside; nothing is loaded yet.

    Args:
        external: which.
        store: where vectors are kept between runs.
        download: whether weights may be fetched from the hub.
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
        self._external = external
        self._download = download
        self._passages = passages
        self._store = store
        self.label = f"dense {_weights_label(external.model)} {self._prompts()} passages={passages}"

    def load(self) -> None:
        _ = self._model

    @cached_property
    def _model(self) -> Any:
        from sentence_transformers import SentenceTransformer

        model: Any = _load(
            self._external.model,
            lambda m: SentenceTransformer(m, device=default_device(), local_files_only=not self._download),
        )
        model.to(_dtype())
        limit = getattr(getattr(model[0], "auto_model", None), "config", None)
        limit = int(getattr(limit, "max_position_embeddings", _MAX_TOKENS))
        model.max_seq_length = min(_MAX_TOKENS, limit)
        return model

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
        return _best(scores, prepared)


class _LateInteraction:
    """Late interaction with other weights: of the whole encoder, or LoRA on both sides or on queries only."""

    def __init__(self, external: External, store: VectorStore | None, *, download: bool) -> None:
        self._external = external
        self._download = download
        self._store = store
        self.label = f"{external.kind} {_weights_label(external.model)}"

    def load(self) -> None:
        _ = self._weights

    @cached_property
    def _weights(self) -> Backbone | Adapter:
        from ..encode.backbone import Backbone
        from ..weights import load_adapter

        if self._external.kind == "late-interaction":
            return Backbone.from_pretrained(self._external.model, offline=not self._download)
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


class _Shortlist:
    """What re-ranks the frozen shortlist, one query after the other."""

    label: str

    def load(self) -> None:
        _ = self._model

    @cached_property
    def _model(self) -> Any:
        raise NotImplementedError

    def order(self, query: str, row: Sequence[Candidate]) -> list[str]:
        """Return ids, best first; those of the shortlist that are missing follow in its order."""
        raise NotImplementedError

    def rank(self, prepared: Prepared, progress: Progress) -> list[list[str]]:
        rankings: list[list[str]] = []
        for i, (query, row) in enumerate(zip(prepared.queries, prepared.shortlists, strict=True)):
            first = self.order(query.text, row) if row else []
            rankings.append([*first, *(c.id for c in row if c.id not in set(first))])
            if progress is not None:
                progress(i + 1, len(prepared.queries))
        return rankings


class _CrossEncoder(_Shortlist):
    def __init__(self, external: External, *, download: bool, passages: bool) -> None:
        self._external = external
        self._download = download
        self._passages = passages
        self.label = f"cross-encoder {_weights_label(external.model)} passages={passages}"

    @cached_property
    def _model(self) -> Any:
        from sentence_transformers import CrossEncoder

        model: Any = _load(
            self._external.model,
            lambda m: CrossEncoder(m, device=default_device(), local_files_only=not self._download),
        )
        model.to(_dtype())
        model.max_seq_length = _MAX_TOKENS
        return model

    def order(self, query: str, row: Sequence[Candidate]) -> list[str]:
        texts, owner = _texts([c.text for c in row], self._passages)
        with torch.inference_mode():
            found = self._model.predict([(query, t) for t in texts], convert_to_tensor=True, show_progress_bar=False)
        scores = torch.full((len(row),), float("-inf"))
        scores = scores.scatter_reduce(0, owner, found.float().cpu().reshape(len(texts), -1)[:, -1], "amax")
        return [row[j].id for j in top(scores, len(row))]


class _Postprocessor(_Shortlist):
    """A LlamaIndex postprocessor."""

    def __init__(self, label: str, build: Callable[[], Callable[[str, Sequence[Candidate]], Any]]) -> None:
        self.label = label
        self._build = build

    @cached_property
    def _model(self) -> Any:
        return self._build()

    def order(self, query: str, row: Sequence[Candidate]) -> list[str]:
        return [n.node.node_id for n in self._model(query, row)]


class _Rerankers(_Shortlist):
    """A model of the ``rerankers`` library."""

    def __init__(self, external: External, *, download: bool) -> None:
        self._external = external
        self._download = download
        self.label = f"rerankers {_weights_label(external.model)}"

    @cached_property
    def _model(self) -> Any:
        name = self._external.model
        try:
            library = import_module("rerankers")
        except ImportError as error:
            raise BackboneError("The library 'rerankers' is not installed: pip install rerankers") from error
        if not self._download and not Path(name).exists():
            raise BackboneError(f"There is no folder {name!r}; give one, or allow downloads.")
        model = library.Reranker(name)
        if model is None:
            raise BackboneError(f"The rerankers library did not load {name!r}.")
        return model

    def order(self, query: str, row: Sequence[Candidate]) -> list[str]:
        found = self._model.rank(query=query, docs=[c.text for c in row], doc_ids=[c.id for c in row])
        return [str(r.doc_id) for r in sorted(found, key=lambda r: -float(r.score))]


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
    return resolve_dtype("auto", default_device())
