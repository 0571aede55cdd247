"""A learned readout of frozen vectors: whether a document is about an excluded topic."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from ..detect.spans import caller_detection
from ..encode.backbone import Backbone
from ..encode.cache import VectorCache
from ..encode.maxsim import TokenVectors
from ..errors import SuiteError
from .matches import encode_query
from .store import StoredCache, VectorStore
from .suites import Suite

__all__ = ["ReadoutGate", "readout", "train_gate"]

_STEPS = 300
_DECAY = 1e-3


@dataclass(frozen=True)
class ReadoutGate:
    """A logistic readout.

    Args:
        direction: (dim,).
        bias: a scalar.
    """

    direction: Tensor
    bias: Tensor

    def __call__(self, features: Tensor) -> Tensor:
        """Return the probability (documents,) that each document is about the topic of its features."""
        return torch.sigmoid(features @ self.direction + self.bias)


def readout(topic: Tensor, documents: Sequence[TokenVectors]) -> Tensor:
    """Return (documents, dim): the mean over a topic's tokens of their product with the token they match best.

    Args:
        topic: (tokens, dim), at least one token.
        documents: at least one; all windows of a document are read as one.
    """
    rows = []
    for document in documents:
        best = torch.matmul(topic.to(document.vectors.dtype), document.vectors.T).argmax(dim=1)
        rows.append((topic.float() * document.vectors[best].float()).mean(dim=0))
    return torch.stack(rows)


def train_gate(backbone: Backbone, suite: Suite, *, store: VectorStore | None = None, seed: int = 0) -> ReadoutGate:
    """Train the readout on the excluded against the relevant documents of a suite.

    Args:
        backbone: the frozen encoder.
        suite: its queries with a recorded topic, an excluded and a relevant document are the training pairs.
        store: where document vectors are kept.
        seed: of the start.

    Returns:
        The readout.

    Raises:
        SuiteError: the suite has no such query.
    """
    texts = {d.id: d.text for d in suite.documents}
    cache = VectorCache(0) if store is None else StoredCache(store)
    features: list[Tensor] = []
    labels: list[float] = []
    for query in suite.queries:
        judged = {d: s for d, s in suite.qrels[query.id].items() if d in texts and s != 0}
        if not query.excluded or min(judged.values(), default=0) > 0 or max(judged.values(), default=0) < 0:
            continue
        encoded = encode_query(backbone, query.text, caller_detection(query.text, query.excluded))
        # With two topics nobody says which one a document was excluded for.
        if len(encoded.topics) == 1 and encoded.topics[0].shape[0]:
            documents = cache.encode([texts[d] for d in judged], backbone)
            features.append(readout(encoded.topics[0], documents))
            labels.extend(float(s < 0) for s in judged.values())
    if not features:
        raise SuiteError(
            f"{suite.name}, split {suite.split!r}, has no query with one recorded topic, an excluded and a relevant "
            "document; the readout gate has nothing to learn from."
        )
    return _fit(torch.cat(features), torch.tensor(labels), seed)


def _fit(features: Tensor, labels: Tensor, seed: int) -> ReadoutGate:
    generator = torch.Generator().manual_seed(seed)
    scale = features.std().clamp_min(1e-6)
    features = features / scale
    direction = nn.Parameter(torch.randn(features.shape[1], generator=generator) * 0.01)
    bias = nn.Parameter(torch.zeros(()))
    optimiser = torch.optim.Adam([direction, bias], lr=0.05)
    weights = torch.where(labels > 0, (labels == 0).sum() / (labels > 0).sum().clamp_min(1), torch.tensor(1.0))
    for _ in range(_STEPS):
        optimiser.zero_grad()
        logits = features @ direction + bias
        loss = nn.functional.binary_cross_entropy_with_logits(logits, labels, weight=weights)
        loss = loss + _DECAY * direction.square().sum()
        loss.backward()  # type: ignore[no-untyped-call]
        optimiser.step()
    return ReadoutGate((direction.detach() / scale), bias.detach())
