"""The operator and its variants, from matches to a ranking."""

from __future__ import annotations

from dataclasses import dataclass

import torch

from ..config import ExciseConfig
from ..demotion import demote
from .matches import Matches, Pool

__all__ = ["Ranking", "by_score", "rank"]


@dataclass(frozen=True)
class Ranking:
    """A shortlist in a new order.

    Args:
        order: indices into the shortlist, best first.
        removed: indices that were removed.
    """

    order: tuple[int, ...]
    removed: tuple[int, ...] = ()


def by_score(scores: torch.Tensor) -> Ranking:
    """Rank by descending score; ties keep the shortlist's order."""
    return Ranking(tuple(torch.sort(scores, descending=True, stable=True).indices.tolist()))


def rank(
    matches: Matches, config: ExciseConfig, *, adapted: bool, pool: Pool = "mean", absolute: bool = False
) -> Ranking:
    """Rank a shortlist as Excise does, or with one thing changed.

    Args:
        matches: of the query with the shortlist.
        config: the settings; its ``k`` cuts the shortlist.
        adapted: whether the run has an exclusion adapter, for ``score_query="auto"``.
        pool: how a topic's tokens are pooled.
        absolute: take the absolute cut, whatever the size of the shortlist. It belongs to rules without removal.

    Returns:
        The ranking. Without a topic, it is by the score of the whole query.
    """
    matches = matches.first(config.k)
    if not matches.topics:
        return by_score(matches.score("full"))
    per_topic = config.demotion == "per_topic"
    scope = config.score_query
    if scope == "auto":
        scope = "full" if adapted or not per_topic else "wanted"
    scores = matches.score(scope)
    if config.score_scale == "mean" or (per_topic and matches.documents < config.min_shortlist):
        scores = scores / (matches.full if scope == "full" else matches.wanted).shape[1]
    wanted = None
    if matches.wanted_words >= config.dominance_words:
        wanted = matches.score("wanted") / matches.wanted.shape[1]
    opening = matches.opening if per_topic and config.opening_tokens else None
    # The absolute cut is the rule of small shortlists; then every shortlist is one.
    rule = config.model_copy(update={"min_shortlist": matches.documents + 1}) if absolute else config
    outcome = demote(scores, matches.evidence(pool, joined=not per_topic), rule, wanted=wanted, opening=opening)
    tail = sorted(outcome.removed, key=lambda i: -outcome.scores[i]) if config.removed == "last" else []
    return Ranking((*outcome.order, *tail), outcome.removed)
