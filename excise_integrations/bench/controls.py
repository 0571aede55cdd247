"""Train the fine-tuned controls: other systems on the triples of the exclusion adapter (paper, section 4)."""

from __future__ import annotations

import copy
import json
import random
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, Literal, get_args

import torch
from torch import Tensor, nn

from ..encode.backbone import Backbone
from ..errors import InvalidInputError, MissingExtraError
from ..train.triples import Triple, grouped_split
from .rows import write_text

__all__ = ["FULL_RATES", "LORA_RATES", "Control", "train_control"]

Control = Literal["dense", "cross-encoder", "full", "lora", "query-only"]
FULL_RATES = (1e-5, 2e-5, 5e-5, 1e-4, 2e-4)
LORA_RATES = (5e-5, 1e-4, 2e-4, 5e-4, 1e-3)
_DOCUMENT_TOKENS = 128
_QUERY_TOKENS = 96
_OTHERS = 30


def train_control(
    kind: Control,
    triples: Sequence[Triple],
    folder: str | Path,
    *,
    backbone: Backbone,
    ordinary: Sequence[tuple[str, str]] = (),
    rates: Sequence[float] | None = None,
    limit: int = 400,
    held_out: float = 0.25,
    epochs: int = 1,
    batch_size: int = 16,
    rank: int = 8,
    seed: int = 0,
    command: str = "",
    progress: Callable[[str], None] = print,
) -> Path:
    """Train a control, choosing its learning rate as the exclusion adapter's is chosen, and write its folder.

    Retrievers are trained by multiple negatives ranking with the confusable document as the hard negative; the
    cross-encoder by binary cross-entropy over the wanted, the confusable and a random document. The rate is the
    argmax of the held-out success after one epoch over at most ``limit`` triples, split by wanted document; ties go
    to the smaller; then everything is trained on.

    Args:
        kind: ``"dense"`` and ``"cross-encoder"`` start from MiniLM's weights; ``"full"`` changes all of the
            backbone's, ``"lora"`` an adapter on both sides, ``"query-only"`` one on queries alone.
        triples: training triples.
        folder: where the result is written: a SentenceTransformer, a CrossEncoder, a MultiVectorEncoder checkpoint,
            or an adapter folder.
        backbone: of the last three kinds.
        ordinary: (query, passage) pairs without an exclusion, mixed in as a rehearsal; as many as there are triples
            at most.
        rates: learning rates to choose from; by default the paper's five. A single one is taken as it is.
        limit: triples for choosing the rate.
        held_out: share of those that is held out.
        epochs: of the last training.
        batch_size: triples per step.
        rank: of LoRA.
        seed: of everything random.
        command: for the folder's record.
        progress: receives a line now and then.

    Returns:
        The folder.

    Raises:
        InvalidInputError: an unknown kind, or no triple.
        MissingExtraError: ``accelerate`` or ``datasets`` is not installed.
    """
    if kind not in get_args(Control):
        raise InvalidInputError(f"{kind!r} is no control. There are {', '.join(get_args(Control))}.")
    if not triples:
        raise InvalidInputError("There is no training triple.")
    for package in ("accelerate", "datasets"):
        try:
            __import__(package)
        except ImportError as error:
            raise MissingExtraError(package, "train") from error
    rates = rates or (LORA_RATES if kind in ("lora", "query-only") else FULL_RATES)
    pool = list(triples)
    random.Random(seed).shuffle(pool)
    train, held = grouped_split(pool[:limit], held_out, seed=seed)
    success: dict[str, float] = {}
    best = rates[0]
    for rate in sorted(rates) if len(rates) > 1 else ():
        model = _build(kind, backbone, rank, seed)
        model.fit(train, (), rate=rate, epochs=1, batch_size=batch_size, seed=seed)
        success[f"{rate:g}"] = _held_out_success(model, held, seed)
        progress(f"learning rate {rate:g}: held-out success {success[f'{rate:g}']:.3f} on {len(held)} triples")
        if success[f"{rate:g}"] > success.get(f"{best:g}", -1.0):
            best = rate
    model = _build(kind, backbone, rank, seed)
    clock = time.monotonic()
    pairs = random.Random(seed).sample(list(ordinary), min(len(ordinary), len(pool)))
    model.fit(pool, pairs, rate=best, epochs=epochs, batch_size=batch_size, seed=seed)
    progress(f"trained {kind} at {best:g} in {(time.monotonic() - clock) / 60:.1f} minutes")
    record = {
        "control": kind, "triples": len(pool), "ordinary": len(pairs), "learning_rate": best, "epochs": epochs,
        "batch_size": batch_size, "held_out_success": success, "seed": seed, "command": command,
        "document_tokens": _DOCUMENT_TOKENS, "query_tokens": _QUERY_TOKENS,
    }  # fmt: skip
    model.save(Path(folder), record)
    return Path(folder)


class _Model:
    """One kind of control: how it is fitted, how it scores, how it is written."""

    def fit(
        self,
        triples: Sequence[Triple],
        ordinary: Sequence[tuple[str, str]],
        *,
        rate: float,
        epochs: int,
        batch_size: int,
        seed: int,
    ) -> None:
        raise NotImplementedError

    def scores(self, queries: Sequence[str], documents: Sequence[str]) -> Tensor:
        raise NotImplementedError

    def save(self, folder: Path, record: dict[str, Any]) -> None:
        raise NotImplementedError


def _build(kind: Control, backbone: Backbone, rank: int, seed: int) -> _Model:
    torch.manual_seed(seed)
    if kind == "dense":
        return _Dense()
    if kind == "cross-encoder":
        return _CrossEncoder()
    return _Late(kind, backbone, rank)


def _arguments(kind: type[Any], rate: float, epochs: int, batch_size: int, seed: int, **more: Any) -> Any:
    from sentence_transformers.base.sampler import BatchSamplers

    return kind(
        output_dir=".", per_device_train_batch_size=batch_size, learning_rate=rate, num_train_epochs=epochs,
        warmup_steps=0.1, bf16=torch.cuda.is_available() or _cpu_bf16(), use_cpu=not torch.cuda.is_available(),
        seed=seed, report_to="none", save_strategy="no", logging_strategy="epoch", dataloader_pin_memory=False,
        batch_sampler=BatchSamplers.NO_DUPLICATES, **more,
    )  # fmt: skip


def _cpu_bf16() -> bool:
    from ..encode.arithmetic import resolve_dtype

    return resolve_dtype("auto", "cpu") == torch.bfloat16


def _contrasts(triples: Sequence[Triple], ordinary: Sequence[tuple[str, str]], seed: int) -> Any:
    """Columns of queries, wanted and confusable documents; an ordinary query's confusable is another's passage."""
    from datasets import Dataset  # type: ignore[import-untyped]

    rows = [(t.query, t.wanted, t.negative) for t in triples]
    rng = random.Random(seed)
    for query, passage in ordinary:
        other = passage
        while other == passage and len(ordinary) > 1:
            other = rng.choice(ordinary)[1]
        rows.append((query, passage, other))
    rng.shuffle(rows)
    return Dataset.from_dict({n: [r[i] for r in rows] for i, n in enumerate(("query", "positive", "negative"))})


class _Dense(_Model):
    def __init__(self) -> None:
        from sentence_transformers import SentenceTransformer

        from ..encode.minilm import find_minilm

        self.model = SentenceTransformer(str(find_minilm()), device="cpu", local_files_only=True)
        self.model.max_seq_length = _DOCUMENT_TOKENS

    def fit(
        self,
        triples: Sequence[Triple],
        ordinary: Sequence[tuple[str, str]],
        *,
        rate: float,
        epochs: int,
        batch_size: int,
        seed: int,
    ) -> None:
        from sentence_transformers import SentenceTransformerTrainer, SentenceTransformerTrainingArguments
        from sentence_transformers.sentence_transformer.losses import MultipleNegativesRankingLoss

        SentenceTransformerTrainer(
            model=self.model,
            args=_arguments(SentenceTransformerTrainingArguments, rate, epochs, batch_size, seed),
            train_dataset=_contrasts(triples, ordinary, seed),
            loss=MultipleNegativesRankingLoss(self.model),
        ).train()

    def scores(self, queries: Sequence[str], documents: Sequence[str]) -> Tensor:
        q, d = (
            self.model.encode(list(t), convert_to_tensor=True, normalize_embeddings=True) for t in (queries, documents)
        )
        return q @ d.T

    def save(self, folder: Path, record: dict[str, Any]) -> None:
        self.model.max_seq_length = 512
        self.model.save_pretrained(str(folder), create_model_card=False)
        _write_record(folder, record)


class _CrossEncoder(_Model):
    def __init__(self) -> None:
        from sentence_transformers import CrossEncoder

        from ..encode.minilm import find_minilm

        self.model = CrossEncoder(
            str(find_minilm()), num_labels=1, max_length=_DOCUMENT_TOKENS + _QUERY_TOKENS, device="cpu",
            local_files_only=True,
        )  # fmt: skip

    def fit(
        self,
        triples: Sequence[Triple],
        ordinary: Sequence[tuple[str, str]],
        *,
        rate: float,
        epochs: int,
        batch_size: int,
        seed: int,
    ) -> None:
        from datasets import Dataset
        from sentence_transformers.cross_encoder import CrossEncoderTrainer, CrossEncoderTrainingArguments
        from sentence_transformers.cross_encoder.losses import BinaryCrossEntropyLoss

        rng = random.Random(seed)
        rows = [
            (r["query"], text, label)
            for r in _contrasts(triples, ordinary, seed)
            for text, label in ((r["positive"], 1.0), (r["negative"], 0.0), (rng.choice(triples).wanted, 0.0))
            if label or text != r["positive"]
        ]
        names = ("query", "document", "label")
        CrossEncoderTrainer(
            model=self.model,
            # Of one query three rows at most stand together: as many steps as the others take.
            args=_arguments(CrossEncoderTrainingArguments, rate, epochs, 2 * batch_size, seed),
            train_dataset=Dataset.from_dict({n: [r[i] for r in rows] for i, n in enumerate(names)}),
            loss=BinaryCrossEntropyLoss(self.model),
        ).train()

    def scores(self, queries: Sequence[str], documents: Sequence[str]) -> Tensor:
        pairs = [(q, d) for q in queries for d in documents]
        found = self.model.predict(pairs, convert_to_tensor=True, show_progress_bar=False)
        return torch.as_tensor(found).reshape(len(queries), len(documents))

    def save(self, folder: Path, record: dict[str, Any]) -> None:
        self.model.save_pretrained(str(folder))
        _write_record(folder, record)


class _Late(_Model):
    def __init__(self, kind: Control, backbone: Backbone, rank: int) -> None:
        self.kind = kind
        self.backbone = backbone
        self.rank = rank
        # The trainer's encoder: in float32, its own copy.
        self.model = copy.deepcopy(backbone.encoder).float()
        transformer: Any = self.model[0]
        self._lengths = (transformer.query_length, transformer.document_length)
        transformer.query_length, transformer.document_length = _QUERY_TOKENS, _DOCUMENT_TOKENS
        self.lora: Any = None
        if kind == "full":
            for parameter in self.model.parameters():
                parameter.requires_grad_(True)
            return
        from peft import LoraConfig, get_peft_model

        from ..train.detector import lora_targets

        for parameter in self.model.parameters():
            parameter.requires_grad_(False)
        self.lora = LoraConfig(
            r=rank, lora_alpha=2 * rank, lora_dropout=0.0, target_modules=lora_targets(transformer.auto_model)
        )
        transformer.auto_model = get_peft_model(transformer.auto_model, self.lora)

    @property
    def _adapted(self) -> Any:
        return self.model[0].auto_model

    def fit(
        self,
        triples: Sequence[Triple],
        ordinary: Sequence[tuple[str, str]],
        *,
        rate: float,
        epochs: int,
        batch_size: int,
        seed: int,
    ) -> None:
        from sentence_transformers import MultiVectorEncoderTrainer, MultiVectorEncoderTrainingArguments
        from sentence_transformers.multi_vector_encoder.losses import MultiVectorMultipleNegativesRankingLoss

        read: Any = _FrozenDocuments(self.model, self._adapted) if self.kind == "query-only" else self.model
        MultiVectorEncoderTrainer(
            model=self.model,
            args=_arguments(MultiVectorEncoderTrainingArguments, rate, epochs, batch_size, seed),
            train_dataset=_contrasts(triples, ordinary, seed),
            loss=MultiVectorMultipleNegativesRankingLoss(read),
        ).train()
        self.model.eval()

    def scores(self, queries: Sequence[str], documents: Sequence[str]) -> Tensor:
        from ..encode.maxsim import maxsim

        reader = Backbone(copy.deepcopy(self.model), name=self.backbone.name, weights_hash="")
        encoded = reader.encode_queries(list(queries))
        vectors = (self.backbone if self.kind == "query-only" else reader).encode_documents(list(documents))
        return torch.stack([maxsim(q.vectors, vectors) for q in encoded])

    def save(self, folder: Path, record: dict[str, Any]) -> None:
        if self.lora is None:
            transformer: Any = self.model[0]
            transformer.query_length, transformer.document_length = self._lengths
            self.model.save_pretrained(str(folder))
            _write_record(folder, record)
            return
        from peft import get_peft_model_state_dict

        from ..train.detector import peft_config_json
        from ..weights import save_adapter

        save_adapter(
            folder,
            task="exclusion",
            backbone=self.backbone.name,
            backbone_sha256=self.backbone.weights_hash,
            tensors={
                "adapter_model.safetensors": {
                    k: v.detach() for k, v in get_peft_model_state_dict(self._adapted).items()
                }
            },
            adapter_config=peft_config_json(self.lora, self.backbone.name),
            card=f"# Control `{self.kind}`\n\nA benchmark's fine-tuned control, not an exclusion adapter to use.\n",
            rank=self.rank,
            settings={k: v for k, v in record.items() if k != "command"},
            training_data={"triples": record["triples"], "ordinary": record["ordinary"]},
            metrics={"held_out_success": record["held_out_success"]},
            command=record["command"],
        )


class _FrozenDocuments(nn.Module):
    """An encoder that reads queries with its adapter and documents without."""

    def __init__(self, model: nn.Module, adapted: Any) -> None:
        super().__init__()
        self.model = model
        self.adapted = adapted

    def forward(self, features: dict[str, Any], task: str = "query", **more: Any) -> Any:
        """Encode one side."""
        if task == "query":
            return self.model(features, task=task, **more)
        with torch.no_grad(), self.adapted.disable_adapter():
            return self.model(features, task=task, **more)


@torch.no_grad()
def _held_out_success(model: _Model, held: Sequence[Triple], seed: int) -> float:
    """Share of triples whose wanted document outranks its confusable one and is among the ten best.

    Each ranks its own two documents and the wanted documents of ``_OTHERS`` others, drawn once.
    """
    others = random.Random(seed).sample(list(held), min(_OTHERS, len(held)))
    right = 0
    for triple in held:
        documents = [triple.wanted, triple.negative, *(o.wanted for o in others if o.group != triple.group)]
        scores = model.scores([triple.query], documents)[0].float()
        right += bool(scores[0] > scores[1] and int((scores > scores[0]).sum()) < 10)
    return right / max(1, len(held))


def _write_record(folder: Path, record: dict[str, Any]) -> None:
    write_text(folder / "control.json", json.dumps(record, indent=2) + "\n")
