"""The operator: from evidence to a ranking (paper, Algorithm 1).

Pure tensors in, a frozen record out: no model, no text, no I/O.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from .config import ExciseConfig
from .errors import InvalidInputError
from .types import Action

__all__ = ["Outcome", "cut_of", "demote", "soft_penalty"]

_ROUNDING = 1e-9


@dataclass(frozen=True)
class Outcome:
    """What the operator decided about a shortlist of n candidates.

    Args:
        order: indices of the candidates that stay, best first.
        removed: indices of the removed candidates, ascending.
        scores: final score per candidate, always finite; a removed candidate's is what it would have been.
        penalties: what was subtracted, per candidate (≥ 0).
        actions: per candidate.
        deciding: index of the topic that decides about each candidate: for a removed one the topic that
            removed it, otherwise the topic whose cut its evidence exceeds most.
        cuts: cut per topic.
        protected: index of the protected candidate, or None when nothing was demoted.
        demoted: whether any topic's evidence reached the floor.
    """

    order: tuple[int, ...]
    removed: tuple[int, ...]
    scores: tuple[float, ...]
    penalties: tuple[float, ...]
    actions: tuple[Action, ...]
    deciding: tuple[int, ...]
    cuts: tuple[float, ...]
    protected: int | None
    demoted: bool


def cut_of(evidence: Tensor, config: ExciseConfig) -> float:
    """Return the evidence above which a candidate is penalised (Algorithm 1, line 12).

    Args:
        evidence: (n,) evidence of one topic.
        config: ``cut_width``, ``absolute_cut``, ``floor`` and ``min_shortlist`` are read.

    Returns:
        mean + κ · sd with the sample standard deviation, or the absolute cut below ``min_shortlist``.
    """
    if evidence.numel() >= max(config.min_shortlist, 2):
        return float(evidence.mean() + config.cut_width * evidence.std(unbiased=True))
    return config.floor if config.absolute_cut is None else config.absolute_cut


def soft_penalty(evidence: Tensor, cut: float, config: ExciseConfig) -> Tensor:
    """Return λ · max(0, e − cut) per candidate (Algorithm 1, line 13); zeros when it is switched off."""
    if not config.soft_penalty:
        return torch.zeros_like(evidence)
    excess = torch.relu(evidence - cut)
    # The mean of equal values can lie a rounding error below them; flat evidence must penalise nobody.
    return config.penalty_scale * torch.where(excess > _ROUNDING, excess, torch.zeros_like(excess))


def demote(
    scores: Tensor,
    evidence: Tensor,
    config: ExciseConfig,
    *,
    wanted: Tensor | None = None,
    opening: Tensor | None = None,
) -> Outcome:
    """Apply the demotion rule to a shortlist.

    With ``config.demotion == "paper"`` this is Algorithm 1 from line 7 on, for the one column of
    evidence that it knows. With ``"per_topic"`` every column is a topic with its own floor, cut and
    removals, and a candidate's penalty is its largest over the topics. Two things differ from the paper's
    rule besides: the removals of a topic go to the candidates that would rank highest among those that are
    clearly about it, since a document far down the list does no harm; and the guard protects the top
    candidate that is not above any cut, since the top one without the strongest match is often a second
    document about the excluded topic.

    Args:
        scores: (n,) re-embedded MaxSim, in frozen order.
        evidence: (n, topics) in [-1, 1], in frozen order.
        config: the constants.
        wanted: (n,) mean MaxSim of the query's tokens outside the excluded topics, or None. With "per_topic"
            it tells a document about the excluded topic from one about the wanted that mentions it: the
            further a candidate is ahead on the wanted words, the more evidence its removal takes.
        opening: (n, topics) evidence in the candidates' openings, or None. With "per_topic" a candidate that
            names the topic further on, but does not open with it as others do, is removed less easily.

    Returns:
        The outcome. Ties keep the frozen order.

    Raises:
        InvalidInputError: shapes do not match, a value is not finite, or "paper" got several columns.
    """
    n = scores.shape[0]
    if evidence.ndim != 2 or evidence.shape[0] != n:
        raise InvalidInputError(f"evidence has shape {tuple(evidence.shape)}; ({n}, topics) is needed.")
    if config.demotion == "paper" and evidence.shape[1] != 1:
        raise InvalidInputError(
            f"demotion='paper' has one evidence over all excluded tokens, {evidence.shape[1]} columns were given."
        )
    if opening is not None and opening.shape != evidence.shape:
        raise InvalidInputError(f"opening has shape {tuple(opening.shape)}; {tuple(evidence.shape)} is needed.")
    for name, value in (("scores", scores), ("evidence", evidence), ("opening", opening)):
        if value is not None and not torch.isfinite(value).all():
            raise InvalidInputError(f"{name} holds a value that is not finite; the candidates cannot be ranked.")
    scores = scores.double()
    evidence = evidence.double()
    topics = evidence.shape[1]
    if n == 0 or topics == 0:
        return _undemoted(scores, evidence, config)

    active = [t for t in range(topics) if float(evidence[:, t].max()) >= config.floor]
    cuts = [cut_of(evidence[:, t], config) for t in range(topics)]
    if not active:
        return _undemoted(scores, evidence, config, cuts)

    penalties = torch.zeros(n, topics, dtype=scores.dtype)
    for t in active:
        penalties[:, t] = soft_penalty(evidence[:, t], cuts[t], config)
    penalty = penalties.amax(dim=1)
    final = scores - penalty

    strongest = {t: _rank(evidence[:, t])[0] for t in active}
    quiet = [all(float(evidence[i, t]) <= cuts[t] for t in active) for i in range(n)]
    protected = _protected(scores, final, set(strongest.values()), quiet, config)
    shares = _shares(n, wanted, quiet, config)
    about, opened = (evidence, set()) if config.demotion == "paper" else _about(evidence, opening, config)
    chosen = _removable(evidence, about, final, cuts, strongest, active, config, shares, opened)
    removed = {i: by for i, by in chosen.items() if i != protected}

    margins = evidence - torch.tensor(cuts, dtype=evidence.dtype)
    inactive = [t for t in range(topics) if t not in active]
    margins[:, inactive] = float("-inf")
    for i, by in removed.items():
        # The verdict names the topic that removed a candidate, even where another one penalises it more.
        margins[i, [t for t in range(topics) if t not in by]] = float("-inf")
    deciding = margins.argmax(dim=1).tolist()
    order = tuple(i for i in _rank(final) if i not in removed)
    return Outcome(
        order=order,
        removed=tuple(sorted(removed)),
        scores=tuple(final.tolist()),
        penalties=tuple(penalty.tolist()),
        actions=tuple(_action(i, penalty, removed, protected) for i in range(n)),
        deciding=tuple(deciding),
        cuts=tuple(cuts),
        protected=protected,
        demoted=True,
    )


def _rank(values: Tensor) -> list[int]:
    """Indices by descending value; ties keep the given order."""
    return torch.sort(values, descending=True, stable=True).indices.tolist()


def _undemoted(scores: Tensor, evidence: Tensor, config: ExciseConfig, cuts: Sequence[float] = ()) -> Outcome:
    n, topics = evidence.shape
    action: Action = "reranked"
    return Outcome(
        order=tuple(_rank(scores)),
        removed=(),
        scores=tuple(scores.tolist()),
        penalties=(0.0,) * n,
        actions=(action,) * n,
        deciding=tuple(evidence.argmax(dim=1).tolist()) if topics and n else (0,) * n,
        cuts=tuple(cuts),
        protected=None,
        demoted=False,
    )


def _protected(
    scores: Tensor, final: Tensor, strongest: set[int], quiet: Sequence[bool], config: ExciseConfig
) -> int | None:
    """The top-ranked candidate that is no topic's strongest match (Algorithm 1, line 16).

    With "per_topic", one that is above no cut where there is one.
    """
    if config.guard_order == "frozen":
        ranking = list(range(scores.shape[0]))
    else:
        ranking = _rank(final if config.guard_order == "penalised" else scores)
    others = [i for i in ranking if i not in strongest]
    if config.demotion == "per_topic":
        others = [i for i in others if quiet[i]] or others
    return others[0] if others else None


def _shares(n: int, wanted: Tensor | None, quiet: Sequence[bool], config: ExciseConfig) -> list[float]:
    """Share of a topic's strongest evidence at which each candidate may be removed; above 1 it never is."""
    if config.demotion == "paper":
        return [config.removal_fraction] * n
    shares = [config.topic_fraction] * n
    if wanted is None:
        return shares
    values = wanted.tolist()
    rivals = [w for w, q in zip(values, quiet, strict=True) if q]
    ranking = sorted(values, reverse=True)
    for i, value in enumerate(values):
        if rivals:
            shares[i] += config.dominance_slope * max(0.0, value - max(rivals))
        other = ranking[1] if value == ranking[0] and n > 1 else ranking[0]
        if config.dominance is not None and n > 1 and value > other + config.dominance:
            shares[i] = float("inf")
    return shares


def _about(evidence: Tensor, opening: Tensor | None, config: ExciseConfig) -> tuple[Tensor, set[int]]:
    """How much of each topic's strongest evidence a candidate has, and the topics whose openings count.

    Where openings count, the opening's share is weighed in, on the evidence's scale.
    """
    opened: set[int] = set()
    if opening is None or not config.opening_tokens:
        return evidence, opened
    about = evidence.clone()
    opening = opening.to(evidence)
    for t in range(evidence.shape[1]):
        top, first = float(evidence[:, t].max()), float(opening[:, t].max())
        crowd = int((evidence[:, t] >= config.topic_fraction * top).sum())
        if first > 0 and first >= config.opening_gate * top and crowd <= config.opening_crowd:
            share = opening[:, t] / first
            about[:, t] = (1 - config.opening_weight) * evidence[:, t] + config.opening_weight * share * top
            opened.add(t)
    return about, opened


def _removable(
    evidence: Tensor,
    about: Tensor,
    final: Tensor,
    cuts: Sequence[float],
    strongest: dict[int, int],
    active: list[int],
    config: ExciseConfig,
    shares: Sequence[float],
    opened: Collection[int],
) -> dict[int, set[int]]:
    """Candidates to remove before the guard, each with the topics that ask for it (Algorithm 1, lines 14 to 17)."""
    if not config.removal:
        return {}
    small = evidence.shape[0] < config.min_shortlist
    if small and config.soft_penalty:
        return {}
    by_rank = config.demotion == "per_topic"
    picks: list[tuple[float, int, int]] = []
    for t in active:
        column = evidence[:, t]
        top = float(column.max())
        ranking = _rank(final if by_rank else column)
        if small:
            allowed = [strongest[t]]
        else:
            # A document that opens with the topic as the topic's own one does leads on the query's words about it.
            limit = config.dominance_limit if t in opened else float("inf")
            allowed = [i for i in ranking if float(about[i, t]) >= min(shares[i], limit) * top]
            if by_rank:
                allowed = [i for i in allowed if float(column[i]) >= cuts[t]]
        picks.extend((float((final if by_rank else column)[i]), i, t) for i in allowed[: config.cap])
    total = config.cap if config.demotion == "paper" else config.total_cap
    chosen: dict[int, set[int]] = {}
    for _, i, t in sorted(picks, key=lambda pick: -pick[0]):
        if i in chosen or len(chosen) < total:
            chosen.setdefault(i, set()).add(t)
    return chosen


def _action(i: int, penalty: Tensor, removed: Collection[int], protected: int | None) -> Action:
    if i in removed:
        return "removed"
    if i == protected:
        return "protected"
    return "penalised" if float(penalty[i]) > 0.0 else "reranked"
