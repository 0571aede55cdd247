"""Frozen records that travel through the pipeline."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Literal

if TYPE_CHECKING:
    from .audit.report import Report
    from .pipeline import Excise

__all__ = ["Action", "Candidate", "Detection", "ExciseResult", "Span", "Verdict"]

Action = Literal["unchanged", "reranked", "penalised", "removed", "protected"]


@dataclass(frozen=True)
class Candidate:
    """One document or passage of a shortlist.

    Args:
        id: identifier, unique within a shortlist.
        text: the text that is scored.
        score: the first stage's score, if it has one (any finite scale).
        metadata: anything the caller wants back; never read, never changed, except
            ``document_id``, which groups passages when ``unit="document"``.
    """

    id: str
    text: str
    score: float | None = None
    metadata: Mapping[str, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        object.__setattr__(self, "metadata", MappingProxyType(dict(self.metadata)))

    def __reduce__(self) -> tuple[Any, ...]:
        return (Candidate, (self.id, self.text, self.score, dict(self.metadata)))

    def __deepcopy__(self, memo: dict[int, Any]) -> Candidate:
        import copy

        return Candidate(self.id, self.text, self.score, copy.deepcopy(dict(self.metadata), memo))


@dataclass(frozen=True)
class Span:
    """Words that name one excluded topic.

    Args:
        text: the topic, verbatim from the query or as the caller gave it.
        start, end: character offsets into the original query (``query[start:end] == text``);
            None for a topic of the caller's that does not occur in the query.
        confidence: probability in [0, 1]; None when the caller named the topic.
    """

    text: str
    start: int | None = None
    end: int | None = None
    confidence: float | None = None


@dataclass(frozen=True)
class Detection:
    """Which topics a query excludes.

    Args:
        fired: whether at least one topic is excluded.
        confidence: the detector's score for the query in [0, 1]; None when the caller named the topics.
        spans: one per excluded topic, in query order.
        wanted: the query without the excluded topics and the words that exclude them; may be empty.
        source: ``"detector"`` or ``"caller"``.
        warnings: things the reader of an audit should know, as sentences.
    """

    fired: bool
    confidence: float | None = None
    spans: tuple[Span, ...] = ()
    wanted: str = ""
    source: Literal["detector", "caller"] = "detector"
    warnings: tuple[str, ...] = ()


@dataclass(frozen=True)
class Verdict:
    """What happened to one candidate, and why.

    Args:
        id: the candidate's id.
        action: ``unchanged`` (silent query), ``reranked``, ``penalised``, ``removed`` or ``protected``.
        rank: final rank from 1; None for a removed candidate that left the list.
        first_stage_rank: rank from 1 in the shortlist.
        first_stage_score: the first stage's score, if any.
        score: the final score: the re-embedded MaxSim less the penalty, or the first stage's when silent.
        evidence: evidence of the deciding topic in [-1, 1]; None when silent.
        topic_evidence: evidence per span, in the order of the detection's spans.
        span: index of the deciding span in the detection's spans; None when silent.
        cut: evidence above which the penalty starts, for the deciding span.
        penalty: what was subtracted from the score (≥ 0).
        opening: evidence of the deciding topic in the first words of the document, in [-1, 1]; None when silent
            or when the rule does not read it.
    """

    id: str
    action: Action
    rank: int | None
    first_stage_rank: int
    first_stage_score: float | None
    score: float | None
    evidence: float | None = None
    topic_evidence: tuple[float, ...] = ()
    span: int | None = None
    cut: float | None = None
    penalty: float = 0.0
    opening: float | None = None


@dataclass(frozen=True)
class ExciseResult:
    """A re-ranked shortlist with the reasons.

    Args:
        query: the query as given.
        candidates: the returned candidates, best first. The very objects of the shortlist: a
            candidate's own ``score`` stays the first stage's, the final one is in its verdict.
        removed: the removed candidates, in shortlist order.
        detection: what the query excludes.
        verdicts: one per candidate of the shortlist, keyed by candidate id, in shortlist order.
        warnings: sentences for the reader of an audit (includes the detection's).
        adapters: ``name@sha256[:12]`` of every adapter that took part.
        config: digest of the settings.
        floor: the safety floor in force.
        timings: seconds per stage (``detect``, and when it fired ``encode`` and ``compare``).
        error: what failed, when ``on_error="frozen"`` returned the frozen ranking.
        shadow: True when the frozen ranking was returned although the verdicts say otherwise.
        origin: the pipeline that made it, for :meth:`report`; not part of its value, nor of a pickle.
    """

    query: str
    candidates: tuple[Candidate, ...]
    removed: tuple[Candidate, ...]
    detection: Detection
    verdicts: Mapping[str, Verdict]
    warnings: tuple[str, ...] = ()
    adapters: tuple[str, ...] = ()
    config: str = ""
    floor: float | None = None
    timings: Mapping[str, float] = field(default_factory=dict)
    error: str | None = None
    shadow: bool = False
    origin: Excise | None = field(default=None, repr=False, compare=False)

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "origin": None}

    def score(self, candidate: Candidate) -> float | None:
        """Return the final score of a candidate of this result."""
        return self.verdicts[candidate.id].score

    def metadata(self, candidate: Candidate) -> dict[str, Any]:
        """Return what the frameworks' skins put under the key ``"excise"``: plain JSON types only.

        Args:
            candidate: a candidate of this result, returned or removed.

        Returns:
            A new dict with the detection, the verdict, the adapters and the config hash.
        """
        verdict = self.verdicts[candidate.id]
        detection = self.detection
        out: dict[str, Any] = {
            "fired": detection.fired,
            "confidence": _plain(detection.confidence),
            "spans": [
                {"text": s.text, "start": s.start, "end": s.end, "confidence": _plain(s.confidence)}
                for s in detection.spans
            ],
            "source": detection.source,
            "rank": verdict.rank,
            "first_stage_rank": verdict.first_stage_rank,
            "first_stage_score": _plain(verdict.first_stage_score),
            "score": _plain(verdict.score),
            "evidence": verdict.evidence,
            "span": verdict.span,
            "cut": verdict.cut,
            "penalty": verdict.penalty,
            "action": verdict.action,
            "adapters": list(self.adapters),
            "config": self.config,
        }
        if self.warnings:
            out["warnings"] = list(self.warnings)
        if self.error is not None:
            out["error"] = self.error
        return out

    def report(self) -> Report:
        """Return the audit report of this result.

        It marks which words of a document matched an excluded topic as long as the pipeline that made
        the result is at hand; a result that was pickled has left it behind
        (see :meth:`Excise.explain`).
        """
        if self.origin is not None:
            return self.origin.explain(self)
        from .audit.report import Report

        return Report(self)

    def _repr_html_(self) -> str:
        """Return a fragment without scripts for notebooks: :meth:`report`'s."""
        return self.report()._repr_html_()


def join_warnings(*groups: Sequence[str]) -> tuple[str, ...]:
    """Concatenate groups of warnings, dropping repeats, keeping order."""
    return tuple(dict.fromkeys(w for group in groups for w in group))


def _plain(number: float | None) -> float | None:
    """A first stage or a detector may count in numpy's numbers, which JSON does not know."""
    return number if number is None or type(number) in (int, float) else float(number)
