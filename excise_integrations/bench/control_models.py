"""The models behind the fine-tuned controls: how each is fitted, how it scores, how it is written."""

from __future__ import annotations

import copy
from collections.abc import Sequence
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path
from typing import Any, Literal, Protocol

import torch
from torch import Tensor, nn

from ..encode.arithmetic import default_device
from ..encode.backbone import Backbone
from ..encode.minilm import find_minilm
from ..encode.quiet import quiet_loading
from .control_run import Run, autocast

__all__ = ["DOCUMENT_TOKENS", "QUERY_TOKENS", "Contrast", "CrossEncoderModel", "DenseModel", "LateModel", "Model"]

DOCUMENT_TOKENS = 128
QUERY_TOKENS = 96
_MAX_TOKENS = 512
_PAIR_TOKENS = 160
_RANDOM_EVERY = 4
Contrast = tuple[str, str, str]
"""A query, a document that answers it, and one that does not."""


class Model(Protocol):
    """One kind of control."""

    def fit(self, contrasts: Sequence[Contrast], run: Run) -> None:
        """Train on contrasts, in their order shuffled by the run's seed."""
        ...

    def scores(self, queries: Sequence[str], documents: Sequence[str]) -> Tensor:
        """Return the score of every document for every query, (queries, documents)."""
        ...

    def write(self, folder: Path, record: dict[str, Any]) -> None:
        """Write the model into a folder that is not there yet; ``record`` goes into an adapter's manifest."""
        ...


class DenseModel:
    """One vector a text, from MiniLM's weights."""

    def __init__(self) -> None:
        from sentence_transformers import SentenceTransformer

        self._model = SentenceTransformer(str(find_minilm()), device=default_device(), local_files_only=True)
        self._model.max_seq_length = DOCUMENT_TOKENS

    def fit(self, contrasts: Sequence[Contrast], run: Run) -> None:
        """Train by multiple negatives ranking."""
        from sentence_transformers import SentenceTransformerTrainer, SentenceTransformerTrainingArguments
        from sentence_transformers.sentence_transformer.losses import MultipleNegativesRankingLoss

        run.train(
            SentenceTransformerTrainer, SentenceTransformerTrainingArguments, model=self._model,
            rows=_columns(contrasts), loss=MultipleNegativesRankingLoss(self._model), **_in_batch(run),
        )  # fmt: skip

    def scores(self, queries: Sequence[str], documents: Sequence[str]) -> Tensor:
        """Return cosines."""
        with autocast():
            vectors = [
                self._model.encode(list(t), convert_to_tensor=True, normalize_embeddings=True)
                for t in (queries, documents)
            ]
        return (vectors[0] @ vectors[1].T).float().cpu()

    def write(self, folder: Path, record: dict[str, Any]) -> None:
        """Write a SentenceTransformer that reads as much as MiniLM can."""
        self._model.max_seq_length = _MAX_TOKENS
        self._model.save_pretrained(str(folder), create_model_card=False)


class CrossEncoderModel:
    """Query and document read together, from the weights of MiniLM's encoder."""

    def __init__(self) -> None:
        from sentence_transformers import CrossEncoder

        self._model = CrossEncoder(
            str(find_minilm()), num_labels=1, max_length=_PAIR_TOKENS, device=default_device(),
            local_files_only=True,
        )  # fmt: skip

    def fit(self, contrasts: Sequence[Contrast], run: Run) -> None:
        """Train by binary cross-entropy over the wanted, the confusable and, for every fourth, another document."""
        from datasets import Dataset  # type: ignore[import-untyped]
        from sentence_transformers.cross_encoder import CrossEncoderTrainer, CrossEncoderTrainingArguments
        from sentence_transformers.cross_encoder.losses import BinaryCrossEntropyLoss

        pairs = []
        for i, (query, wanted, negative) in enumerate(contrasts):
            other = contrasts[(i + 1) % len(contrasts)][1]
            pairs += [(query, wanted, 1.0), (query, negative, 0.0)]
            if i % _RANDOM_EVERY == 0 and other != wanted:
                pairs.append((query, other, 0.0))
        run.train(
            CrossEncoderTrainer, CrossEncoderTrainingArguments, model=self._model,
            rows=Dataset.from_dict({n: [p[i] for p in pairs] for i, n in enumerate(("query", "document", "label"))}),
            loss=BinaryCrossEntropyLoss(self._model),
            # As many steps as the retrievers take.
            per_device_train_batch_size=-(-run.batch_size * len(pairs) // len(contrasts)),
        )  # fmt: skip

    def scores(self, queries: Sequence[str], documents: Sequence[str]) -> Tensor:
        """Return the relevance of every pair."""
        pairs = [(q, d) for q in queries for d in documents]
        with autocast():
            found: Any = self._model.predict(pairs, convert_to_tensor=True, show_progress_bar=False)
        return found.float().cpu().reshape(len(queries), len(documents))  # type: ignore[no-any-return]

    def write(self, folder: Path, record: dict[str, Any]) -> None:
        """Write a CrossEncoder."""
        self._model.save_pretrained(str(folder), create_model_card=False)


class LateModel:
    """Late interaction: all weights of a backbone, or LoRA on both sides or on queries alone.

    Args:
        backbone: it is copied, never changed.
        kind: which weights are trained.
        rank: of LoRA.
    """

    def __init__(self, backbone: Backbone, kind: Literal["full", "lora", "query-only"], *, rank: int = 8) -> None:
        self._backbone = backbone
        self._kind = kind
        self._rank = rank
        self._model: Any = copy.deepcopy(backbone.encoder).float()
        transformer: Any = self._model[0]
        self._lengths = (transformer.query_length, transformer.document_length)
        transformer.query_length, transformer.document_length = QUERY_TOKENS, DOCUMENT_TOKENS
        self._model.requires_grad_(kind == "full")
        if kind == "full":
            return
        from peft import get_peft_model

        from ..train.detector import lora_config

        self._lora = lora_config(transformer.auto_model, rank)
        # The layers are put into the encoder's own transformer; this is the handle that switches them.
        with quiet_loading():
            self._wrapped: Any = get_peft_model(transformer.auto_model, self._lora)

    def fit(self, contrasts: Sequence[Contrast], run: Run) -> None:
        """Train by multiple negatives ranking under MaxSim."""
        from sentence_transformers import MultiVectorEncoderTrainer, MultiVectorEncoderTrainingArguments
        from sentence_transformers.multi_vector_encoder.losses import MultiVectorMultipleNegativesRankingLoss

        read: Any = _FrozenDocuments(self._model, self._wrapped) if self._kind == "query-only" else self._model
        run.train(
            MultiVectorEncoderTrainer, MultiVectorEncoderTrainingArguments, model=self._model,
            rows=_columns(contrasts), loss=MultiVectorMultipleNegativesRankingLoss(read), **_in_batch(run),
        )  # fmt: skip

    def scores(self, queries: Sequence[str], documents: Sequence[str]) -> Tensor:
        """Return MaxSim."""
        with autocast():
            asked = self._model.encode_query(list(queries))
            with self._documents():
                read = self._model.encode_document(list(documents))
        return torch.as_tensor(self._model.similarity(asked, read)).float().cpu()

    def write(self, folder: Path, record: dict[str, Any]) -> None:
        """Write a MultiVectorEncoder, or an adapter folder."""
        if self._kind == "full":
            transformer = self._model[0]
            transformer.query_length, transformer.document_length = self._lengths
            self._model.save_pretrained(str(folder), create_model_card=False)
            return
        from peft import get_peft_model_state_dict

        from ..train.detector import peft_config_json
        from ..weights import save_adapter

        save_adapter(
            folder,
            task="exclusion",
            backbone=self._backbone.name,
            backbone_sha256=self._backbone.weights_hash,
            tensors={
                "adapter_model.safetensors": {
                    name: value.detach().cpu() for name, value in get_peft_model_state_dict(self._wrapped).items()
                }
            },
            adapter_config=peft_config_json(self._lora, self._backbone.name),
            card=f"# Control `{self._kind}`\n\nA benchmark's fine-tuned control, not an exclusion adapter to use.\n",
            rank=self._rank,
            settings={k: v for k, v in record.items() if k not in ("command", "training_data")},
            training_data=record["training_data"],
            metrics={"held_out_success": record["held_out_success"]},
            command=record["command"],
        )

    def _documents(self) -> AbstractContextManager[Any]:
        return self._wrapped.disable_adapter() if self._kind == "query-only" else nullcontext()


class _FrozenDocuments(nn.Module):
    """An encoder that reads queries with its adapter, and documents as an index made without it holds them.

    A module, since the trainer finds the weights to train through the loss.
    """

    def __init__(self, model: nn.Module, wrapped: nn.Module) -> None:
        super().__init__()
        self.model = model
        self.wrapped: Any = wrapped

    def forward(self, features: dict[str, Any], task: str = "query", **more: Any) -> Any:
        """Encode one side."""
        if task == "query":
            return self.model(features, task=task, **more)
        self.model.eval()
        try:
            with torch.no_grad(), self.wrapped.disable_adapter():
                return self.model(features, task=task, **more)
        finally:
            self.model.train()


def _columns(contrasts: Sequence[Contrast]) -> Any:
    from datasets import Dataset

    names = ("query", "positive", "negative")
    return Dataset.from_dict({name: [c[i] for c in contrasts] for i, name in enumerate(names)})


def _in_batch(run: Run) -> dict[str, Any]:
    """Settings where a batch's other documents are negatives: none may stand in it twice."""
    from sentence_transformers.base.sampler import BatchSamplers

    return {"per_device_train_batch_size": run.batch_size, "batch_sampler": BatchSamplers.NO_DUPLICATES}
