"""Fit the linear projection of a backbone that was not trained for late interaction."""

from __future__ import annotations

import json
import random
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from ..encode.backbone import Backbone
from ..errors import InvalidInputError
from ..weights import Adapter, save_adapter

__all__ = ["fit_projection", "sample_pairs", "save_projection"]


def fit_projection(
    backbone: Backbone, queries: Sequence[str], documents: Sequence[str], dim: int
) -> tuple[Tensor, float]:
    """Return the orthonormal projection that keeps most of the token vectors' second moment.

    Queries and documents weigh the same, whatever their number of tokens. The projection is
    orthonormal, so similarities are kept as far as the kept directions carry them.

    Args:
        backbone: without a projection.
        queries, documents: texts to fit on; a few hundred of each suffice.
        dim: dimensions to keep, at most the backbone's.

    Returns:
        A (dim, hidden) tensor, and the share of the second moment that it keeps.
    """
    if not 1 <= dim <= backbone.dim:
        raise InvalidInputError(f"dim={dim} must lie between 1 and the backbone's {backbone.dim}.")
    q = torch.cat([v.vectors for v in backbone.encode_queries(queries)]).double()
    d = torch.cat([v.vectors for v in backbone.encode_documents(documents)]).double()
    moment = q.T @ q / len(q) + d.T @ d / len(d)
    values, vectors = torch.linalg.eigh(moment)
    order = values.argsort(descending=True)[:dim]
    matrix = vectors[:, order].T.contiguous()
    # An eigenvector's sign is arbitrary; fixing it makes the fit reproducible.
    flip = torch.sign(matrix.gather(1, matrix.abs().argmax(dim=1, keepdim=True)))
    return (matrix * flip).float(), float(values[order].sum() / values.sum())


def sample_pairs(folder: str | Path, *, queries: int, documents: int, seed: int = 0) -> tuple[list[str], list[str]]:
    """Draw queries and passages from ``query_passage.jsonl`` and ``medical_questions.jsonl`` of a folder."""
    rng = random.Random(seed)
    rows: list[tuple[str, str]] = []
    for name, text in (("query_passage.jsonl", "positive"), ("medical_questions.jsonl", "passage")):
        path = Path(folder) / name
        if not path.is_file():
            raise InvalidInputError(f"{path} does not exist; give the folder with the pairs.")
        lines = [json.loads(line) for line in path.read_text(encoding="utf-8").split("\n") if line.strip()]
        rng.shuffle(lines)
        rows += [(r["query"], r[text]) for r in lines[: max(queries, documents)]]
    rng.shuffle(rows)
    return [q for q, _ in rows[:queries]], [d for _, d in rows[:documents]]


def save_projection(
    folder: str | Path, matrix: Tensor, *, backbone: Backbone, kept: float, command: str, **metrics: Any
) -> Adapter:
    """Write a projection folder; see :func:`excise_integrations.weights.save_adapter`."""
    return save_adapter(
        folder,
        task="projection",
        backbone=backbone.name,
        backbone_sha256=backbone.weights_hash,
        tensors={"projection.safetensors": {"weight": matrix}},
        card=(
            f"# Projection for `{backbone.name}`\n\n"
            f"{matrix.shape[0]} orthonormal directions of its {matrix.shape[1]}-dimensional token vectors, fitted on "
            f"query-passage pairs; they keep {kept:.1%} of the vectors' second moment.\n"
        ),
        settings={"dim": matrix.shape[0]},
        metrics=metrics,
        command=command,
    )
