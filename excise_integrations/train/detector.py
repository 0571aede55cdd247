"""Train the detector: LoRA on MiniLM's layers, a token head and a query head (paper, section 3)."""

from __future__ import annotations

import json
import math
import random
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, nn
from torch.nn import functional

from ..detect.lora import load_transformer, model_text
from ..detect.tagger import BEGIN, INSIDE, OUTSIDE, SpanTagger
from ..encode.minilm import MODEL_SHA256
from ..encode.quiet import quiet_loading
from ..errors import InvalidInputError
from ..weights import Adapter, load_adapter, save_adapter
from .checkpoint import load_checkpoint, save_checkpoint
from .examples import Example, digest

if TYPE_CHECKING:
    from peft import LoraConfig

__all__ = ["DetectorRecipe", "lora_config", "peft_config_json", "train_detector"]


@dataclass(frozen=True)
class DetectorRecipe:
    """How a detector is trained.

    Args:
        rank: LoRA rank (paper: 8).
        epochs: passes over the set.
        learning_rate: peak rate of the LoRA weights; the heads take twice that.
        batch_tokens: padded tokens per step.
        max_length: tokens of a query that are read.
        margin: by how much a pair's positive should beat its negative, in logits.
        mask: share of tokens hidden from the network at each step, against learning queries by heart.
        seed: of everything random.
    """

    rank: int = 8
    epochs: int = 6
    learning_rate: float = 5e-4
    batch_tokens: int = 1024
    max_length: int = 128
    margin: float = 4.0
    mask: float = 0.06
    seed: int = 0


@dataclass(frozen=True)
class _Encoded:
    ids: list[int]
    content: list[bool]
    labels: list[int]
    label: int
    pair: str


def train_detector(
    examples: Sequence[Example],
    folder: str | Path,
    *,
    recipe: DetectorRecipe | None = None,
    path: str | Path | None = None,
    start: str | Path | None = None,
    checkpoint: str | Path | None = None,
    resume: bool = False,
    max_minutes: float | None = None,
    on_epoch: Callable[[int, SpanTagger, Any], dict[str, Any]] | None = None,
    progress: Callable[[str], None] = print,
    command: str = "",
    sources: dict[str, int] | None = None,
) -> Adapter:
    """Train a detector and write its adapter folder.

    Args:
        examples: the training set.
        folder: where the adapter is written.
        recipe: see :class:`DetectorRecipe`.
        path: a folder with the weights of MiniLM.
        start: a detector to start from, of the same or a lower rank.
        checkpoint: folder for a checkpoint after each epoch; None keeps none.
        resume: continue from ``checkpoint`` if it holds one.
        max_minutes: stop after the epoch that passes this.
        on_epoch: called with (epoch, tagger, tokenizer); what it returns goes into the manifest.
        progress: receives a line now and then.
        command: the command that reproduces this, for the manifest.
        sources: examples per source, for the manifest.

    Returns:
        The adapter, with no threshold yet: see ``excise calibrate``.
    """
    from peft import get_peft_model

    recipe = recipe or DetectorRecipe()
    if not examples:
        raise InvalidInputError("There is no training example.")
    torch.manual_seed(recipe.seed)
    model, tokenizer = load_transformer(path)
    lora = lora_config(model, recipe.rank, dropout=0.05)
    with quiet_loading():
        wrapped = get_peft_model(model, lora)
    tagger = SpanTagger(wrapped, model.config.hidden_size)
    if start is not None:
        _start_from(load_adapter(start, "detector"), wrapped, tagger)
    data = [_encode(e, tokenizer, recipe.max_length) for e in examples]
    optimizer, trainable = _optimizer(tagger, recipe)
    steps = sum(1 for _ in _batches(data, recipe, random.Random(0))) * recipe.epochs
    schedule = torch.optim.lr_scheduler.LambdaLR(optimizer, lambda s: _rate(s, steps))
    first = 0
    if resume and checkpoint is not None and (Path(checkpoint) / "state.json").is_file():
        first = load_checkpoint(checkpoint, trainable, optimizer, schedule)
        progress(f"resumed after epoch {first}")
    metrics: dict[str, Any] = {}
    began = time.monotonic()
    for epoch in range(first, recipe.epochs):
        order = random.Random(f"{recipe.seed}-{epoch}")
        tagger.train()
        running, seen = 0.0, 0
        for step, batch in enumerate(_batches(data, recipe, order)):
            loss = _loss(tagger, batch, tokenizer, recipe)
            optimizer.zero_grad(set_to_none=True)
            loss.backward()  # type: ignore[no-untyped-call]
            nn.utils.clip_grad_norm_(trainable.values(), 1.0)
            optimizer.step()
            schedule.step()
            running, seen = running + float(loss.detach()), seen + 1
            if step % 50 == 49:
                minutes = (time.monotonic() - began) / 60
                progress(f"epoch {epoch + 1} step {step + 1} loss {running / seen:.4f} {minutes:.1f} min")
                running, seen = 0.0, 0
        if checkpoint is not None:
            save_checkpoint(checkpoint, trainable, optimizer, schedule, epoch + 1)
        tagger.eval()
        if on_epoch is not None:
            metrics[f"epoch_{epoch + 1}"] = on_epoch(epoch + 1, tagger, tokenizer)
        if max_minutes is not None and (time.monotonic() - began) / 60 > max_minutes:
            progress(f"stopped after epoch {epoch + 1}: {max_minutes} minutes have passed")
            break
    tensors = {name: p.detach() for name, p in _lora_state(wrapped).items()}
    config = peft_config_json(lora, "sentence-transformers/all-MiniLM-L6-v2")
    return save_adapter(
        folder,
        task="detector",
        backbone="minilm",
        backbone_sha256=MODEL_SHA256,
        tensors={"adapter_model.safetensors": tensors, "span_head.safetensors": tagger.head_state()},
        adapter_config=config,
        card=_card(recipe, examples),
        rank=recipe.rank,
        settings=asdict(recipe),
        training_data={"examples": len(examples), "sha256": digest(examples), "sources": sources or {}},
        metrics=metrics,
        command=command,
    )


def _start_from(adapter: Adapter, wrapped: Any, tagger: SpanTagger) -> None:
    """Copy a trained adapter into the first rows of a wider one; the added rows change nothing yet."""
    from peft import get_peft_model_state_dict, set_peft_model_state_dict

    state = {k: v.clone() for k, v in get_peft_model_state_dict(wrapped).items()}
    for name, old in adapter.tensors("adapter_model.safetensors").items():
        rows, columns = old.shape
        state[name][:rows, :columns] = old
    set_peft_model_state_dict(wrapped, state)
    tagger.load_heads(adapter.tensors("span_head.safetensors"))


def lora_config(model: nn.Module, rank: int, *, dropout: float = 0.0) -> LoraConfig:
    """Return LoRA on the linear layers of a transformer's blocks (embeddings and poolers left out), scaled by 2."""
    from peft import LoraConfig

    names = [n for n, m in model.named_modules() if isinstance(m, nn.Linear)]
    targets = [n for n in names if any(part.isdigit() for part in n.split("."))]
    return LoraConfig(r=rank, lora_alpha=2 * rank, lora_dropout=dropout, target_modules=targets)


def peft_config_json(lora: Any, base: str) -> dict[str, Any]:
    """Return PEFT's ``adapter_config.json`` with sorted sets and without paths of this machine."""
    config: dict[str, Any] = json.loads(
        json.dumps(lora.to_dict(), default=lambda v: sorted(v) if isinstance(v, set) else str(v))
    )
    config["base_model_name_or_path"] = base
    config["inference_mode"] = True
    return config


def _encode(example: Example, tokenizer: Any, max_length: int) -> _Encoded:
    encoded = tokenizer(
        model_text(example.text),
        truncation=True,
        max_length=max_length,
        return_offsets_mapping=True,
        return_attention_mask=False,
    )
    labels: list[int] = []
    content: list[bool] = []
    opened: set[int] = set()
    for a, b in encoded["offset_mapping"]:
        word = a < b and any(c.isalnum() for c in example.text[a:b])
        content.append(word)
        inside = next((s for s, (x, y) in enumerate(example.spans) if a < b and x <= a and b <= y), None)
        if inside is None:
            labels.append(OUTSIDE)
        else:
            labels.append(INSIDE if inside in opened else BEGIN)
            opened.add(inside)
    return _Encoded(encoded["input_ids"], content, labels, example.label, example.pair)


def _batches(data: Sequence[_Encoded], recipe: DetectorRecipe, rng: random.Random) -> Iterator[list[_Encoded]]:
    """Batches of like length; the members of a pair stay together."""
    groups: dict[str, list[_Encoded]] = {}
    for item in data:
        groups.setdefault(item.pair, []).append(item)
    order = list(groups.values())
    rng.shuffle(order)
    chunk = 600
    batches: list[list[_Encoded]] = []
    for start in range(0, len(order), chunk):
        part = sorted(order[start : start + chunk], key=lambda g: max(len(i.ids) for i in g))
        batch: list[_Encoded] = []
        longest = 0
        for group in part:
            size = max(longest, *(len(i.ids) for i in group))
            if batch and size * (len(batch) + len(group)) > recipe.batch_tokens:
                batches.append(batch)
                batch, size = [], max(len(i.ids) for i in group)
            batch.extend(group)
            longest = size
        if batch:
            batches.append(batch)
    rng.shuffle(batches)
    yield from batches


def _loss(tagger: SpanTagger, batch: Sequence[_Encoded], tokenizer: Any, recipe: DetectorRecipe) -> Tensor:
    pad = tokenizer.pad_token_id
    length = max(len(i.ids) for i in batch)
    ids = torch.tensor([i.ids + [pad] * (length - len(i.ids)) for i in batch])
    attention = torch.tensor([[1] * len(i.ids) + [0] * (length - len(i.ids)) for i in batch])
    content = torch.tensor([i.content + [False] * (length - len(i.ids)) for i in batch])
    labels = torch.tensor([i.labels + [-100] * (length - len(i.ids)) for i in batch])
    target = torch.tensor([float(i.label) for i in batch])
    hidden = content & (torch.rand(ids.shape) < recipe.mask)
    ids = ids.masked_fill(hidden, tokenizer.mask_token_id)
    with torch.autocast("cpu", torch.bfloat16):
        out = tagger(ids, attention, content)
    token_loss = functional.cross_entropy(out.tokens.transpose(1, 2), labels, ignore_index=-100, reduction="none")
    # Mean per query first, so that a long query weighs no more than a short one.
    per_query = token_loss.sum(dim=1) / (labels != -100).sum(dim=1)
    query_loss = functional.binary_cross_entropy_with_logits(out.query, target * 0.98 + 0.01)
    return 4.0 * per_query.mean() + query_loss + 0.25 * _margin(out.query, batch, recipe.margin)


def _margin(logits: Tensor, batch: Sequence[_Encoded], margin: float) -> Tensor:
    """Within a pair the positive must beat the negative: the topic and the words are the same."""
    at: dict[str, tuple[list[int], list[int]]] = {}
    for i, item in enumerate(batch):
        at.setdefault(item.pair, ([], []))[item.label].append(i)
    gaps = [logits[p] - logits[n] for negatives, positives in at.values() for p in positives for n in negatives]
    if not gaps:
        return logits.new_zeros(())
    return functional.softplus(margin - torch.stack(gaps)).mean()


def _optimizer(tagger: SpanTagger, recipe: DetectorRecipe) -> tuple[torch.optim.Optimizer, dict[str, nn.Parameter]]:
    trainable = {n: p for n, p in tagger.named_parameters() if p.requires_grad}
    heads = [p for n, p in trainable.items() if "_head" in n]
    lora = [p for n, p in trainable.items() if "_head" not in n]
    groups = [
        {"params": lora, "lr": recipe.learning_rate, "weight_decay": 0.01},
        {"params": heads, "lr": 2 * recipe.learning_rate, "weight_decay": 0.01},
    ]
    return torch.optim.AdamW(groups), trainable


def _rate(step: int, steps: int) -> float:
    warm = max(1, steps // 20)
    if step < warm:
        return (step + 1) / warm
    return 0.02 + 0.98 * 0.5 * (1 + math.cos(math.pi * (step - warm) / max(1, steps - warm)))


def _lora_state(wrapped: Any) -> dict[str, Tensor]:
    from peft import get_peft_model_state_dict

    state: dict[str, Tensor] = get_peft_model_state_dict(wrapped)
    return state


def _card(recipe: DetectorRecipe, examples: Sequence[Example]) -> str:
    positive = sum(e.label for e in examples)
    return (
        "# Detector for `minilm`\n\n"
        "Marks the words of an English query that name an excluded topic; silent when nothing is excluded.\n\n"
        f"- base: sentence-transformers/all-MiniLM-L6-v2 (Apache-2.0), frozen; LoRA rank {recipe.rank} on every "
        "attention and feed-forward matrix of its six layers, a token head and a query head\n"
        f"- training set: {len(examples)} queries, {positive} of them exclude something; its hash and its sources are "
        "in `manifest.json`\n"
        "- threshold and metrics: `manifest.json`\n"
    )
