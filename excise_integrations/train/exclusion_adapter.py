"""Train the exclusion adapter: LoRA under MaxSim with an exclusion contrast (paper, section 4)."""

from __future__ import annotations

import copy
import random
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any, Literal

import torch
from torch import Tensor, nn
from torch.nn import functional

from ..encode.backbone import Backbone
from ..encode.quiet import quiet_loading
from ..errors import InvalidInputError
from ..weights import Adapter, save_adapter
from .checkpoint import load_checkpoint, save_checkpoint
from .detector import lora_config, peft_config_json
from .triples import Triple, grouped_split

__all__ = ["LEARNING_RATES", "AdapterRecipe", "held_out_success", "select_learning_rate", "train_adapter"]

LEARNING_RATES = (5e-5, 1e-4, 2e-4, 5e-4, 1e-3)


@dataclass(frozen=True)
class AdapterRecipe:
    """How an exclusion adapter is trained.

    Args:
        rank: LoRA rank (paper: 8).
        epochs: passes over the triples (paper: 3).
        learning_rate: peak rate; see :func:`select_learning_rate`.
        batch_size: triples per step.
        document_tokens, query_tokens: what is read of a document and of a query.
        scale: multiplies the mean MaxSim before the softmax.
        contrast: weight of the exclusion contrast, the confusable document against the wanted one.
        evidence: weight of the evidence contrast: Z's own words must match the confusable document
            better than the wanted one, which is what demotion reads.
        anchor: weight of the distance that documents' token vectors keep from the frozen ones. Without it
            what tells ordinary documents apart is soon forgotten, and wanted documents leave the top ten.
        seed: of everything random.
    """

    rank: int = 8
    epochs: int = 3
    learning_rate: float = 5e-4
    batch_size: int = 16
    document_tokens: int = 128
    query_tokens: int = 96
    scale: float = 20.0
    contrast: float = 1.0
    evidence: float = 1.0
    anchor: float = 4.0
    seed: int = 0


def train_adapter(
    backbone: Backbone,
    triples: Sequence[Triple],
    folder: str | Path,
    *,
    recipe: AdapterRecipe | None = None,
    checkpoint: str | Path | None = None,
    resume: bool = False,
    max_minutes: float | None = None,
    progress: Callable[[str], None] = print,
    command: str = "",
    sources: dict[str, Any] | None = None,
) -> Adapter:
    """Train an exclusion adapter for a backbone and write its folder.

    Args:
        backbone: the frozen backbone; it is copied, never changed.
        triples: training triples.
        folder: where the adapter is written.
        recipe: see :class:`AdapterRecipe`.
        checkpoint: folder for a checkpoint after each epoch.
        resume: continue from ``checkpoint`` if it holds one.
        max_minutes: end early, after the step that passes this; the learning rate has not run down by then.
        progress: receives a line now and then.
        command, sources: for the manifest.

    Returns:
        The adapter.

    Raises:
        InvalidInputError: no triples.
    """
    recipe = recipe or AdapterRecipe()
    if not triples:
        raise InvalidInputError("There is no training triple.")
    trainer = _Trainer(backbone, recipe)
    trainer.run(triples, checkpoint=checkpoint, resume=resume, max_minutes=max_minutes, progress=progress)
    return save_adapter(
        folder,
        task="exclusion",
        backbone=backbone.name,
        backbone_sha256=backbone.weights_hash,
        tensors={"adapter_model.safetensors": trainer.state()},
        adapter_config=peft_config_json(trainer.lora, backbone.name),
        card=_card(backbone, recipe, len(triples)),
        rank=recipe.rank,
        settings=asdict(recipe),
        training_data={"triples": len(triples), **(sources or {})},
        metrics=trainer.log,
        command=command,
    )


def select_learning_rate(
    backbone: Backbone,
    triples: Sequence[Triple],
    *,
    recipe: AdapterRecipe | None = None,
    rates: Sequence[float] = LEARNING_RATES,
    limit: int = 400,
    held_out: float = 0.25,
    progress: Callable[[str], None] = print,
) -> tuple[float, dict[float, float]]:
    """Choose the learning rate by held-out success on a split grouped by wanted document.

    One epoch over at most ``limit`` triples per rate stands in for the paper's full runs; the
    argmax wins, ties go to the smaller rate.

    Returns:
        The rate, and the held-out success of each.
    """
    base = recipe or AdapterRecipe()
    pool = list(triples)
    random.Random(base.seed).shuffle(pool)
    train, held = grouped_split(pool[:limit], held_out, seed=base.seed)
    success: dict[float, float] = {}
    for rate in rates:
        trainer = _Trainer(backbone, replace(base, learning_rate=rate, epochs=1))
        trainer.run(train, progress=lambda _: None)
        success[rate] = held_out_success(trainer, held)
        progress(f"learning rate {rate:g}: held-out success {success[rate]:.3f} on {len(held)} triples")
    best = max(sorted(rates), key=lambda r: success[r])
    return best, success


@torch.no_grad()
def held_out_success(trainer: _Trainer, held: Sequence[Triple]) -> float:
    """Success@10 among the held-out documents.

    Returns:
        Share of triples whose wanted document is among the ten best of all held-out documents and
        outranks its confusable one.
    """
    parts = [held[start : start + 16] for start in range(0, len(held), 16)]
    documents = [trainer.documents([*(t.wanted for t in p), *(t.negative for t in p)]) for p in parts]
    right = 0
    for at, part in enumerate(parts):
        query = trainer.queries([t.query for t in part])
        scores = [_scores(query, block) for block in documents]
        n = len(part)
        own = scores[at]
        gold, negative = own[:, :n].diagonal(), own[:, n:].diagonal()
        better = sum((block > gold[:, None]).sum(dim=1) for block in scores)
        right += int(((gold > negative) & (better < 10)).sum())
    return right / max(1, len(held))


class _Trainer:
    def __init__(self, backbone: Backbone, recipe: AdapterRecipe) -> None:
        from peft import get_peft_model

        torch.manual_seed(recipe.seed)
        self.recipe = recipe
        # In evaluation mode: dropout would blur the frozen vectors that the anchor holds on to.
        self.encoder = copy.deepcopy(backbone.encoder).float().eval()
        for parameter in self.encoder.parameters():
            parameter.requires_grad_(False)
        transformer: Any = self.encoder[0]
        self.lora = lora_config(transformer.auto_model, recipe.rank)
        with quiet_loading():
            self.wrapped = get_peft_model(transformer.auto_model, self.lora)
        transformer.auto_model = self.wrapped
        self.trainable = {n: p for n, p in self.wrapped.named_parameters() if p.requires_grad}
        self.log: dict[str, Any] = {}

    def state(self) -> dict[str, Tensor]:
        from peft import get_peft_model_state_dict

        return {k: v.detach() for k, v in get_peft_model_state_dict(self.wrapped).items()}

    def run(
        self,
        triples: Sequence[Triple],
        *,
        checkpoint: str | Path | None = None,
        resume: bool = False,
        max_minutes: float | None = None,
        progress: Callable[[str], None] = print,
    ) -> None:
        recipe = self.recipe
        optimizer = torch.optim.AdamW(self.trainable.values(), lr=recipe.learning_rate, weight_decay=0.01)
        per_epoch = -(-len(triples) // recipe.batch_size)
        steps = per_epoch * recipe.epochs
        schedule = torch.optim.lr_scheduler.LambdaLR(
            optimizer, lambda s: min(1.0, (s + 1) / max(1, steps // 10)) * max(0.02, 1 - s / steps)
        )
        first = 0
        if resume and checkpoint is not None and (Path(checkpoint) / "state.json").is_file():
            first = load_checkpoint(checkpoint, self.trainable, optimizer, schedule)
            progress(f"resumed after epoch {first}")
        began = time.monotonic()
        for epoch in range(first, recipe.epochs):
            order = list(triples)
            random.Random(f"{recipe.seed}-{epoch}").shuffle(order)
            running = 0.0
            for step in range(per_epoch):
                batch = order[step * recipe.batch_size : (step + 1) * recipe.batch_size]
                loss = self._loss(batch)
                optimizer.zero_grad(set_to_none=True)
                loss.backward()  # type: ignore[no-untyped-call]
                nn.utils.clip_grad_norm_(self.trainable.values(), 1.0)
                optimizer.step()
                schedule.step()
                running += float(loss.detach())
                minutes = (time.monotonic() - began) / 60
                if step % 10 == 9:
                    progress(
                        f"epoch {epoch + 1} step {step + 1}/{per_epoch} loss {running / (step + 1):.4f} "
                        f"{minutes:.1f} min"
                    )
                if max_minutes is not None and minutes > max_minutes:
                    progress(f"stopped in epoch {epoch + 1} at step {step + 1}: {max_minutes} minutes have passed")
                    self.log["stopped"] = {"epoch": epoch + 1, "step": step + 1}
                    return
            self.log[f"epoch_{epoch + 1}"] = {"loss": running / per_epoch}
            if checkpoint is not None:
                save_checkpoint(checkpoint, self.trainable, optimizer, schedule, epoch + 1)

    def queries(self, texts: Sequence[str]) -> tuple[Tensor, Tensor]:
        """Return token vectors of queries and their mask."""
        return self._encode(self._features(texts, "query", self.recipe.query_tokens), "query")

    def documents(self, texts: Sequence[str]) -> tuple[Tensor, Tensor]:
        """Return token vectors of documents and their mask."""
        return self._encode(self._features(texts, "document", self.recipe.document_tokens), "document")

    def _features(self, texts: Sequence[str], task: Literal["query", "document"], max_length: int) -> dict[str, Any]:
        return dict(
            self.encoder.preprocess(
                list(texts), prompt=self.encoder.prompts.get(task), task=task, max_length=max_length
            )
        )

    def _encode(self, features: dict[str, Any], task: Literal["query", "document"]) -> tuple[Tensor, Tensor]:
        with torch.autocast("cpu", torch.bfloat16):
            out = self.encoder(dict(features), task=task)
        vectors = functional.normalize(out["token_embeddings"].float(), dim=-1)
        return vectors, out["attention_mask"].bool()

    def _evidence(self, batch: Sequence[Triple], documents: Tensor, mask: Tensor) -> Tensor | None:
        """Evidence of each topic in its own wanted and confusable document, (topics, 2)."""
        flat = [(i, topic) for i, t in enumerate(batch) for topic in t.topics]
        if not flat or not self.recipe.evidence:
            return None
        topics, topic_mask = self._encode(self._features([t for _, t in flat], "query", 32), "query")
        # The first and the last token are special.
        topic_mask = topic_mask.clone()
        lengths = topic_mask.sum(dim=1)
        topic_mask[:, 0] = False
        topic_mask[torch.arange(len(flat)), lengths - 1] = False
        own = torch.tensor([i for i, _ in flat])
        pair = torch.stack([own, own + len(batch)], dim=1)
        sims = torch.einsum("ztd,zpud->zptu", topics, documents[pair])
        sims = sims.masked_fill(~mask[pair][:, :, None, :], -1.0).amax(-1)
        keep = topic_mask[:, None, :].float()
        return (sims * keep).sum(-1) / keep.sum(-1).clamp(min=1)

    def _loss(self, batch: Sequence[Triple]) -> Tensor:
        recipe = self.recipe
        n = len(batch)
        features = self._features([t.wanted for t in batch] + [t.negative for t in batch], "document",
                                  recipe.document_tokens)  # fmt: skip
        documents, mask = self._encode(features, "document")
        scores = _scores(self.queries([t.query for t in batch]), (documents, mask))
        # Another query's document may answer this one too when both come from one group.
        same = torch.tensor([[a.group == b.group and i != j for j, b in enumerate(batch)] for i, a in enumerate(batch)])
        blocked = torch.cat([same, torch.zeros_like(same)], dim=1)
        loss = functional.cross_entropy((scores * recipe.scale).masked_fill(blocked, -1e4), torch.arange(n))
        gap = scores[:, :n].diagonal() - scores[:, n:].diagonal()
        loss = loss + recipe.contrast * functional.softplus(-recipe.scale * gap + 1.0).mean()
        evidence = self._evidence(batch, documents, mask)
        if evidence is not None:
            lead = evidence[:, 1] - evidence[:, 0]
            loss = loss + recipe.evidence * functional.softplus(-recipe.scale * (lead - 0.1)).mean()
        if recipe.anchor:
            with torch.no_grad(), self.wrapped.disable_adapter():
                frozen, _ = self._encode(features, "document")
            loss = loss + recipe.anchor * (1.0 - (documents * frozen).sum(-1))[mask].mean()
        return loss


def _scores(query: tuple[Tensor, Tensor], documents: tuple[Tensor, Tensor]) -> Tensor:
    """Mean MaxSim of each query with each document."""
    best = _matches(query[0], *documents)
    weight = query[1][:, None, :].float()
    return (best * weight).sum(-1) / weight.sum(-1)


def _matches(query: Tensor, documents: Tensor, mask: Tensor) -> Tensor:
    sims = torch.einsum("qtd,bud->qbtu", query, documents)
    return sims.masked_fill(~mask[None, :, None, :], -1.0).amax(-1)


def _card(backbone: Backbone, recipe: AdapterRecipe, triples: int) -> str:
    return (
        f"# Exclusion adapter for `{backbone.name}`\n\n"
        "Re-embeds the query, the excluded topics and the shortlist once an exclusion was detected, so that documents "
        "about an excluded topic come apart from those that answer the query.\n\n"
        f"- LoRA rank {recipe.rank}, {recipe.epochs} epochs over {triples} triples, learning rate "
        f"{recipe.learning_rate:g}; InfoNCE with in-batch and hard negatives, an exclusion contrast and an evidence "
        "contrast under MaxSim, anchored to the frozen vectors\n"
        "- data and metrics: `manifest.json`\n"
    )
