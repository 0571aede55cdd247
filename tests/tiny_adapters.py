"""Adapters without training: random LoRA weights and heads that say what a test wants."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import torch

from excise_integrations.encode.minilm import MODEL_SHA256
from excise_integrations.weights import Adapter, save_adapter

_HIDDEN, _RANK = 384, 2
_MODULE = "encoder.layer.{layer}.attention.self.query"
_CONFIG: dict[str, Any] = {
    "peft_type": "LORA",
    "r": _RANK,
    "lora_alpha": 2 * _RANK,
    "lora_dropout": 0.0,
    "target_modules": [_MODULE.format(layer=5)],
    "bias": "none",
    "inference_mode": True,
}


def _lora(scale: float, seed: int, hidden: int = _HIDDEN) -> dict[str, torch.Tensor]:
    generator = torch.Generator().manual_seed(seed)
    name = f"base_model.model.{_MODULE.format(layer=5)}"
    return {
        f"{name}.lora_A.weight": torch.randn(_RANK, hidden, generator=generator),
        f"{name}.lora_B.weight": scale * torch.randn(hidden, _RANK, generator=generator),
    }


def save_exclusion(folder: Path, backbone_sha256: str, *, scale: float = 0.05, hidden: int = _HIDDEN) -> Path:
    """Write an exclusion adapter for MiniLM; with ``scale=0`` it changes nothing."""
    save_adapter(
        folder,
        task="exclusion",
        backbone="minilm",
        backbone_sha256=backbone_sha256,
        tensors={"adapter_model.safetensors": _lora(scale, 1, hidden)},
        adapter_config=_CONFIG,
        card="# A test's adapter\n",
        rank=_RANK,
    )
    return folder


def save_detector(
    folder: Path,
    *,
    query_bias: float = 0.0,
    inside_bias: float = 0.0,
    scale: float = 0.0,
    backbone_sha256: str = MODEL_SHA256,
    threshold: float | None = 0.5,
) -> Path:
    """Write a detector for MiniLM.

    With ``scale=0`` its heads are biases alone: the query's logit is ``query_bias`` plus the strongest
    token's, and every token's logit of lying inside a topic is ``inside_bias``.
    """
    generator = torch.Generator().manual_seed(2)
    heads = {
        "token_head.weight": scale * torch.randn(3, 2 * _HIDDEN, generator=generator),
        "token_head.bias": torch.tensor([0.0, -30.0, inside_bias]),
        "query_head.weight": scale * torch.randn(1, 2 * _HIDDEN, generator=generator),
        "query_head.bias": torch.tensor([query_bias]),
    }
    save_adapter(
        folder,
        task="detector",
        backbone="minilm",
        backbone_sha256=backbone_sha256,
        tensors={"adapter_model.safetensors": _lora(0.05, 3), "span_head.safetensors": heads},
        adapter_config=_CONFIG,
        card="# A test's detector\n",
        rank=_RANK,
        threshold=threshold,
    )
    return folder


def save_toy(folder: Path, *, value: float = 1.0, **settings: Any) -> Adapter:
    """Write an adapter of no backbone's; any argument of :func:`save_adapter` may be replaced."""
    arguments: dict[str, Any] = {
        "task": "exclusion",
        "backbone": "toy",
        "backbone_sha256": "a" * 64,
        "tensors": {"adapter_model.safetensors": {"weight": torch.full((4, 8), value)}},
        "adapter_config": {"peft_type": "LORA", "r": 2},
        "card": "# A toy\n",
        "rank": 2,
    }
    return save_adapter(folder, **{**arguments, **settings})
