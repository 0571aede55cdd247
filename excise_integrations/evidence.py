"""From token vectors to the evidence of each excluded topic in each candidate (Algorithm 1, lines 5 and 6)."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from .encode.maxsim import TokenVectors, best_matches, pack_windows, sum_per_document

__all__ = ["STOP_WORDS", "content_mask", "evidence_of", "pooled", "topic_mask"]

STOP_WORDS = frozenset(
    "a about above after all also am an and any are as at be because been before being below between both but by can "
    "could did do does doing down during each few for from further had has have having he her here hers him his how i "
    "if in into is it its itself just me more most my no nor not of off on once only or other our out over own please "
    "same she should so some such than that the their them then there these they this those through to too under "
    "until up very was we were what when where which while who whom why will with would you your s t ll ve re d m".split()
)


def content_mask(vectors: TokenVectors, *, special: frozenset[str] | set[str]) -> list[bool]:
    """Mark the tokens that carry meaning: no special tokens, no punctuation, no stop words.

    Args:
        vectors: with token strings.
        special: token strings that are never content (``[CLS]``, prompts, padding).

    Returns:
        One boolean per token. If only stop words remain they count; if nothing remains, all False.
    """
    words = [t not in special and any(c.isalnum() for c in t) for t in vectors.tokens]
    content = [w and _bare(t) not in STOP_WORDS for w, t in zip(words, vectors.tokens, strict=True)]
    return content if any(content) else words


def topic_mask(topic: TokenVectors, outside: Sequence[int], *, special: frozenset[str] | set[str]) -> list[bool]:
    """Mark the tokens of a topic that evidence is averaged over.

    Args:
        topic: the topic encoded by itself.
        outside: vocabulary ids of the query's words outside every excluded span; they are not
            evidence of the topic unless nothing else is left.
        special: see :func:`content_mask`.

    Returns:
        One boolean per token of ``topic``, at least one True when it has any token that is not special.
    """
    content = content_mask(topic, special=special)
    shared = set(outside)
    own = [c and i not in shared for c, i in zip(content, topic.token_ids, strict=True)]
    for mask in (own, content):
        if any(mask):
            return mask
    return [t not in special for t in topic.tokens]


def evidence_of(topics: Sequence[Tensor], documents: Sequence[TokenVectors]) -> Tensor:
    """Evidence e = mean over a topic's tokens t of max_u ⟨v_t, v_u⟩, for each document's best window.

    Args:
        topics: (tokens, dim) per topic, at least one token each.
        documents: token vectors of the candidates.

    Returns:
        (documents, topics) in [-1, 1], float32.
    """
    block, mask, owner = pack_windows(documents)
    matches = best_matches(torch.cat(list(topics)), block, mask)
    columns = [
        sum_per_document(part.mean(dim=1), owner, len(documents))
        for part in matches.split([t.shape[0] for t in topics], dim=1)
    ]
    return torch.stack(columns, dim=1).clamp(-1.0, 1.0)


def pooled(topics: Sequence[Tensor]) -> list[Tensor]:
    """Join the topics into the paper's one: a single mean over all tokens of Z."""
    return [torch.cat(list(topics))]


def _bare(token: str) -> str:
    return token.removeprefix("##").strip("Ġ▁ ").lower()
