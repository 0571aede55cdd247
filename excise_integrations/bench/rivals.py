"""Re-rankers that a user could take instead, built offline around MiniLM for timing."""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Callable, Sequence
from importlib import import_module
from pathlib import Path
from typing import Any

import torch

from ..encode.minilm import find_minilm
from ..errors import MissingExtraError
from ..types import Candidate

__all__ = ["Rival", "colbert_rerank", "cross_encoder_rerank", "plain_encoder", "ragatouille_rerank"]

Rival = Callable[[str, Sequence[Candidate]], object]


def plain_encoder(dtype: torch.dtype = torch.float32) -> Callable[[str], object]:
    """Return MiniLM as sentence-transformers encodes one text: the least that any dense retriever does per query."""
    from sentence_transformers import SentenceTransformer

    encoder = SentenceTransformer(str(find_minilm()), device="cpu", local_files_only=True).to(dtype)
    return lambda text: encoder.encode(text, show_progress_bar=False)


def cross_encoder_rerank(dtype: torch.dtype = torch.float32) -> Rival:
    """Return LlamaIndex's ``SentenceTransformerRerank`` over a cross-encoder of MiniLM's size with random weights."""
    from transformers import AutoConfig, AutoModelForSequenceClassification, AutoTokenizer

    try:
        from llama_index.core.postprocessor import SentenceTransformerRerank
    except ImportError as error:
        raise MissingExtraError("llama-index-core", "llama-index") from error
    with tempfile.TemporaryDirectory() as folder:
        config: Any = AutoConfig.from_pretrained(str(find_minilm()), local_files_only=True, num_labels=1)
        model: Any = AutoModelForSequenceClassification
        model.from_config(config).save_pretrained(folder)
        AutoTokenizer.from_pretrained(str(find_minilm()), local_files_only=True).save_pretrained(folder)
        reranker: Any = SentenceTransformerRerank(model=folder, top_n=10, device="cpu")
    reranker._model.to(dtype)
    return _llama_index(reranker)


def colbert_rerank(dtype: torch.dtype = torch.float32) -> Rival:
    """Return LlamaIndex's ``ColbertRerank`` over MiniLM's own weights."""
    try:
        module = import_module("llama_index.postprocessor.colbert_rerank")
    except ImportError as error:
        raise MissingExtraError("llama-index-postprocessor-colbert-rerank", "bench") from error
    folder = str(find_minilm())
    reranker: Any = module.ColbertRerank(model=folder, tokenizer=folder, top_n=10, device="cpu")
    reranker._model.to(dtype)
    return _llama_index(reranker)


def ragatouille_rerank(dtype: torch.dtype = torch.float32) -> Rival:
    """Return RAGatouille's ``rerank``, without an index, over MiniLM's exported checkpoint."""
    from ..encode.export import export_minilm
    from ..first_stage.ragatouille import RAGPretrainedModel

    folder = Path(tempfile.mkdtemp())
    try:
        reranker: Any = RAGPretrainedModel.from_pretrained(str(export_minilm(folder / "minilm")), n_gpu=0, verbose=0)
    finally:
        shutil.rmtree(folder)
    reranker.model.inference_ckpt.to(dtype)

    def run(query: str, candidates: Sequence[Candidate]) -> object:
        return reranker.rerank(query=query, documents=[c.text for c in candidates], k=10)

    return run


def _llama_index(reranker: Any) -> Rival:
    from llama_index.core.schema import NodeWithScore, QueryBundle, TextNode

    def run(query: str, candidates: Sequence[Candidate]) -> object:
        nodes = [NodeWithScore(node=TextNode(id_=c.id, text=c.text), score=c.score) for c in candidates]
        return reranker.postprocess_nodes(nodes, query_bundle=QueryBundle(query))

    return run
