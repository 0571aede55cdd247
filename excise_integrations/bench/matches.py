"""Similarities of one query and its excluded topics with its shortlist, from which every rule is computed."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

import torch
from torch import Tensor

from .._scoring import _outside
from ..encode.backbone import Backbone
from ..encode.maxsim import TokenVectors, best_matches, pack_windows, sum_per_document
from ..evidence import count_words, opening_evidence, topic_mask, wanted_mask
from ..types import Detection

__all__ = ["EncodedQuery", "Matches", "Pool", "encode_query", "match"]

Pool = Literal["mean", "max", "top2"]


@dataclass(frozen=True)
class EncodedQuery:
    """A query and its topics in an encoder's space.

    Args:
        full: (tokens, dim) of the whole query.
        wanted: (tokens, dim) of what stands outside the excluded topics.
        topics: (tokens, dim) of each topic's content tokens.
        wanted_words: content words among ``wanted``.
    """

    full: Tensor
    wanted: Tensor
    topics: tuple[Tensor, ...]
    wanted_words: int


def encode_query(encoder: Backbone, query: str, detection: Detection) -> EncodedQuery:
    """Encode a query as the pipeline does when it fires.

    Args:
        encoder: frozen, or with the exclusion adapter.
        query: the query.
        detection: its spans are the topics; none is allowed.
    """
    spans = detection.spans if detection.fired else ()
    encoded = encoder.encode_queries([query, *(s.text for s in spans)])
    special = encoder.special_tokens
    outside = _outside(query, detection, encoder.encode_ids) if spans else []
    keep = wanted_mask(encoded[0], encoded[1:], special=special)
    return EncodedQuery(
        full=encoded[0].vectors,
        wanted=encoded[0].vectors[torch.tensor(keep)],
        topics=tuple(t.vectors[torch.tensor(topic_mask(t, outside, special=special))] for t in encoded[1:]),
        wanted_words=count_words(encoded[0], keep, special=special),
    )


@dataclass(frozen=True)
class Matches:
    """Best similarities of query tokens within each window of a shortlist.

    Args:
        full: (windows, tokens of the query).
        wanted: (windows, tokens outside the topics).
        topics: (windows, tokens) per topic.
        owner: (windows,) which candidate a window belongs to, ascending.
        documents: how many candidates there are.
        wanted_words: content words among the wanted tokens.
        opening: (documents, topics) evidence in the candidates' openings; None where no rule reads it.
    """

    full: Tensor
    wanted: Tensor
    topics: tuple[Tensor, ...]
    owner: Tensor
    documents: int
    wanted_words: int
    opening: Tensor | None = None

    def first(self, k: int) -> Matches:
        """Return the matches with the first ``k`` candidates."""
        if k >= self.documents:
            return self
        keep = self.owner < k
        topics = tuple(t[keep] for t in self.topics)
        opening = None if self.opening is None else self.opening[:k]
        return Matches(self.full[keep], self.wanted[keep], topics, self.owner[keep], k, self.wanted_words, opening)

    def score(self, scope: Literal["full", "wanted"]) -> Tensor:
        """Return MaxSim (documents,): the sum over the query's tokens in the best window."""
        return self.per_document((self.full if scope == "full" else self.wanted).sum(dim=1))

    def evidence(self, pool: Pool = "mean", *, joined: bool = False) -> Tensor:
        """Return the evidence (documents, topics) of each topic, or (documents, 1) of all their tokens.

        Args:
            pool: how a topic's tokens are pooled.
            joined: take all topics for one, as the paper does.
        """
        parts = [torch.cat(self.topics, dim=1)] if joined else list(self.topics)
        columns = [self.per_document(_pool(p, pool)) for p in parts]
        return torch.stack(columns, dim=1).clamp(-1.0, 1.0)

    def per_document(self, windows: Tensor) -> Tensor:
        """Reduce (windows,) to each candidate's best window."""
        return sum_per_document(windows, self.owner, self.documents)


def match(query: EncodedQuery, documents: Sequence[TokenVectors], *, opening_tokens: int = 0) -> Matches:
    """Compare a query with at least one candidate; see :attr:`ExciseConfig.opening_tokens`."""
    block, mask, owner = pack_windows(documents)
    topics: tuple[Tensor, ...] = ()
    if query.topics:
        # In one product, as the pipeline takes it: the same numbers to the last bit.
        joined = best_matches(torch.cat(query.topics), block, mask)
        topics = torch.split(joined, [t.shape[0] for t in query.topics], dim=1)
    return Matches(
        full=best_matches(query.full, block, mask),
        wanted=best_matches(query.wanted, block, mask),
        topics=topics,
        owner=owner,
        documents=len(documents),
        wanted_words=query.wanted_words,
        opening=opening_evidence(query.topics, documents, opening_tokens) if topics and opening_tokens else None,
    )


def _pool(matches: Tensor, pool: Pool) -> Tensor:
    tokens = matches.shape[1]
    if not tokens:
        return matches.new_full((matches.shape[0],), -1.0)
    if pool == "max":
        return matches.amax(dim=1)
    if pool == "top2":
        return matches.topk(min(2, tokens), dim=1).values.mean(dim=1)
    return matches.mean(dim=1)
