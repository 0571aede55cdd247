"""From token vectors to the evidence of each excluded topic in each candidate (Algorithm 1, lines 5 and 6)."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from .encode.maxsim import TokenVectors, best_matches, pack_windows, sum_per_document

__all__ = [
    "STOP_WORDS",
    "content_mask",
    "count_words",
    "evidence_of",
    "opening_evidence",
    "pooled",
    "topic_mask",
    "wanted_mask",
]

_STOP_WORDS = (
    "a about above after all also am an and any are as at be because been before being below between both but by "
    "can could did do does doing down during each few for from further had has have having he her here hers him his "
    "how i if in into is it its itself just me more most my no nor not of off on once only or other our out over "
    "own please same she should so some such than that the their them then there these they this those through to "
    "too under until up very was we were what when where which while who whom why will with would you your s t ll "
    "ve re d m"
)
STOP_WORDS = frozenset(_STOP_WORDS.split())


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
        One boolean per token of ``topic``; all False only when every token is special, such as the
        unknown token that stands for a script or a sign outside the vocabulary.
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
        topics: (tokens, dim) per topic.
        documents: token vectors of the candidates.

    Returns:
        (documents, topics) in [-1, 1], float32. A topic without tokens gives the least evidence there is.
    """
    block, mask, owner = pack_windows(documents)
    matches = best_matches(torch.cat(list(topics)), block, mask)
    columns: list[Tensor] = []
    start = 0
    for topic in topics:
        part = matches[:, start : start + topic.shape[0]]
        start += topic.shape[0]
        # The mean over no token is not a number.
        windows = part.mean(dim=1) if topic.shape[0] else matches.new_full((matches.shape[0],), -1.0)
        columns.append(sum_per_document(windows, owner, len(documents)))
    return torch.stack(columns, dim=1).clamp(-1.0, 1.0)


def opening_evidence(topics: Sequence[Tensor], documents: Sequence[TokenVectors], tokens: int) -> Tensor:
    """Evidence of each topic in the first tokens of each document, its start marker included.

    Args:
        topics, documents: as for :func:`evidence_of`.
        tokens: how many, at least 1; never beyond the first window.

    Returns:
        (documents, topics) in [-1, 1], float32.
    """
    sizes = [min(tokens, d.windows[0]) for d in documents]
    openings = [TokenVectors(d.vectors[:size], (size,)) for d, size in zip(documents, sizes, strict=True)]
    return evidence_of(topics, openings)


def pooled(topics: Sequence[Tensor]) -> list[Tensor]:
    """Join the topics into the paper's one: a single mean over all tokens of Z."""
    return [torch.cat(list(topics))]


def wanted_mask(
    query: TokenVectors, topics: Sequence[TokenVectors], *, special: frozenset[str] | set[str]
) -> list[bool]:
    """Mark the query's tokens outside the excluded topics.

    Args:
        query: the encoded query.
        topics: the topics encoded by themselves; each hides its first occurrence that is still free.
        special: see :func:`content_mask`.

    Returns:
        One boolean per token of ``query``; all True when no word would be left.
    """
    keep = [True] * len(query.token_ids)
    ids = query.token_ids
    for topic in topics:
        body = [i for i, t in zip(topic.token_ids, topic.tokens, strict=True) if t not in special]
        for at in range(len(ids) - len(body) + 1 if body else 0):
            if list(ids[at : at + len(body)]) == body and all(keep[at : at + len(body)]):
                keep[at : at + len(body)] = [False] * len(body)
                break
    content = content_mask(query, special=special)
    return keep if any(k and c for k, c in zip(keep, content, strict=True)) else [True] * len(keep)


def count_words(query: TokenVectors, keep: Sequence[bool], *, special: frozenset[str] | set[str]) -> int:
    """Count the content words among the marked tokens of a query."""
    content = content_mask(query, special=special)
    rows = zip(content, keep, query.tokens, strict=True)
    return sum(c and k and not token.startswith("##") for c, k, token in rows)


def _bare(token: str) -> str:
    return token.removeprefix("##").strip("Ġ▁ ").lower()
