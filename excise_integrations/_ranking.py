"""From decisions to results: silent, active and failed."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from ._scoring import Scored, group_by_document
from .demotion import Outcome, demote
from .detect.spans import wanted_part
from .types import Action, Candidate, Detection, ExciseResult, Verdict, join_warnings

if TYPE_CHECKING:
    from .pipeline import Excise

__all__ = ["active_result", "failed_result", "silent_result"]


def silent_result(
    excise: Excise,
    query: str,
    candidates: Sequence[Candidate],
    detection: Detection,
    k: int | None,
    timings: Mapping[str, float],
    *,
    error: str | None = None,
    warnings: Sequence[str] = (),
) -> ExciseResult:
    """The shortlist as it came (Algorithm 1, lines 3 to 5)."""
    verdicts = {
        c.id: Verdict(
            id=c.id, action="unchanged", rank=rank, first_stage_rank=rank, first_stage_score=c.score, score=c.score
        )
        for rank, c in enumerate(candidates, start=1)
    }
    return ExciseResult(
        query=query,
        candidates=tuple(candidates if k is None else candidates[:k]),
        removed=(),
        detection=detection,
        verdicts=verdicts,
        warnings=join_warnings(detection.warnings, warnings),
        adapters=excise.adapters,
        config=excise.config.digest(),
        floor=excise.config.floor,
        timings=dict(timings),
        error=error,
    )


def failed_result(
    excise: Excise,
    query: str,
    candidates: Sequence[Candidate],
    error: Exception,
    detection: Detection,
    k: int | None,
    timings: Mapping[str, float],
) -> ExciseResult:
    """The frozen ranking, saying what failed (``on_error="frozen"``)."""
    reason = f"{type(error).__name__}: {error}"
    warning = f"No exclusion was applied: {reason} The frozen ranking was returned."
    return silent_result(excise, query, candidates, detection, k, timings, error=reason, warnings=[warning])


def active_result(
    excise: Excise,
    query: str,
    candidates: Sequence[Candidate],
    detection: Detection,
    scored: Scored,
    k: int | None,
    timings: Mapping[str, float],
) -> ExciseResult:
    """Demote and assemble (Algorithm 1, lines 7 to 18)."""
    config = excise.config
    groups = group_by_document(candidates, config.unit)
    if groups is not None:
        scored = _shared(scored, groups)
    outcome = _demote(scored, groups, excise)
    order = list(outcome.order)
    tail = sorted(outcome.removed, key=lambda i: -outcome.scores[i]) if config.removed == "last" else []
    scores = list(outcome.scores)
    if tail and order:
        # Whoever sorts by score again must find the removed ones last.
        bottom = min(scores[i] for i in order)
        for step, i in enumerate(tail, start=1):
            scores[i] = min(scores[i], bottom - 1e-6 * step)
    ranks = {i: rank for rank, i in enumerate([*order, *tail], start=1)}
    verdicts = {}
    for i, c in enumerate(candidates):
        topic = outcome.deciding[i]
        pooled = config.demotion == "paper"
        row = scored.evidence[i].tolist()
        # In the paper's rule one evidence decides; the span with the most evidence is named for the reader.
        span = max(range(len(row)), key=row.__getitem__) if pooled else topic
        verdicts[c.id] = Verdict(
            id=c.id,
            action=outcome.actions[i],
            rank=ranks.get(i),
            first_stage_rank=i + 1,
            first_stage_score=c.score,
            score=scores[i],
            evidence=float(scored.columns[i, 0]) if pooled else row[topic],
            topic_evidence=tuple(row),
            span=span,
            cut=outcome.cuts[topic] if outcome.cuts else None,
            penalty=outcome.penalties[i],
            opening=None if scored.opening is None else float(scored.opening[i, topic]),
        )
    shadow = config.mode == "shadow"
    shown = list(candidates) if shadow else [candidates[i] for i in [*order, *tail]]
    return ExciseResult(
        query=query,
        candidates=tuple(shown if k is None else shown[:k]),
        removed=tuple(candidates[i] for i in outcome.removed),
        detection=detection,
        verdicts=verdicts,
        warnings=join_warnings(
            detection.warnings,
            scored.warnings,
            _warnings(excise, query, len(candidates), len(groups or candidates), detection, k),
        ),
        adapters=excise.adapters,
        config=config.digest(),
        floor=config.floor,
        timings=dict(timings),
        shadow=shadow,
    )


def _warnings(
    excise: Excise, query: str, candidates: int, units: int, detection: Detection, k: int | None
) -> list[str]:
    config = excise.config
    out = []
    # A detector of the user's own may leave ``wanted`` empty.
    if not (detection.wanted or wanted_part(query, detection.spans)):
        out.append(
            "The query only says what is not wanted; nothing can be ranked up, and only the first stage's shortlist "
            "was searched."
        )
    if units < config.min_shortlist:
        rule = "none is removed" if config.soft_penalty else "only a topic's strongest match is removed"
        out.append(f"The shortlist has {units} {config.unit}s; below {config.min_shortlist} {rule}.")
    if k is not None and candidates < k:
        out.append(f"The shortlist has {candidates} candidates, fewer than the {k} asked for.")
    if excise.exclusion is None:
        out.append(f"No exclusion adapter for {excise.backbone.name!r}: demotion ran on frozen vectors.")
    return out


def _shared(scored: Scored, groups: list[list[int]]) -> Scored:
    """Give every passage its document's evidence, which is its best passage's."""
    evidence, columns = scored.evidence.clone(), scored.columns.clone()
    opening = None if scored.opening is None else scored.opening.clone()
    for members in groups:
        evidence[members] = scored.evidence[members].amax(dim=0)
        columns[members] = scored.columns[members].amax(dim=0)
        if opening is not None and scored.opening is not None:
            opening[members] = scored.opening[members].amax(dim=0)
    return replace(scored, evidence=evidence, columns=columns, opening=opening)


def _demote(scored: Scored, groups: list[list[int]] | None, excise: Excise) -> Outcome:
    if groups is None:
        return demote(scored.scores, scored.columns, excise.config, wanted=scored.wanted, opening=scored.opening)
    # A document's score is its best passage's, like its evidence; its passages share the verdict.
    scores = torch.stack([scored.scores[g].max() for g in groups])
    columns = torch.stack([scored.columns[g[0]] for g in groups])
    wanted = None if scored.wanted is None else torch.stack([scored.wanted[g].max() for g in groups])
    opening = None if scored.opening is None else torch.stack([scored.opening[g[0]] for g in groups])
    outcome = demote(scores, columns, excise.config, wanted=wanted, opening=opening)
    return _spread(outcome, groups, scored.scores)


def _spread(outcome: Outcome, groups: list[list[int]], passage_scores: Tensor) -> Outcome:
    n = sum(len(g) for g in groups)
    penalties, scores, deciding = [0.0] * n, [0.0] * n, [0] * n
    actions: list[Action] = ["reranked"] * n
    removed: list[int] = []
    for g, members in enumerate(groups):
        for i in members:
            penalties[i] = outcome.penalties[g]
            scores[i] = float(passage_scores[i]) - outcome.penalties[g]
            deciding[i] = outcome.deciding[g]
            actions[i] = outcome.actions[g]
        if g in outcome.removed:
            removed.extend(members)
    gone = set(removed)
    order = sorted((i for i in range(n) if i not in gone), key=lambda i: -scores[i])
    return Outcome(
        order=tuple(order),
        removed=tuple(sorted(removed)),
        scores=tuple(scores),
        penalties=tuple(penalties),
        actions=tuple(actions),
        deciding=tuple(deciding),
        cuts=outcome.cuts,
        protected=None if outcome.protected is None else groups[outcome.protected][0],
        demoted=outcome.demoted,
    )
