"""Why each candidate stands where it stands, in plain sentences."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

from ..types import ExciseResult, Verdict

if TYPE_CHECKING:
    from ..config import ExciseConfig

__all__ = ["Reasons", "number", "quoted"]

_MAX_TOPIC = 80


def number(value: float | None) -> str:
    """Return a number with three decimals, or a dash."""
    # A rounded "-0.000" would only puzzle the reader.
    return "–" if value is None else f"{value:.3f}".replace("-0.000", "0.000")


def quoted(text: str) -> str:
    """Return a text in quotation marks, shortened to 80 characters."""
    text = " ".join(text.split())
    return f"“{text if len(text) <= _MAX_TOPIC else text[: _MAX_TOPIC - 1] + '…'}”"


class Reasons:
    """Sentences about one result. They say what the verdicts say and nothing that would be a guess.

    Args:
        result: the result.
        config: the settings it was made with; with them the sentences name the bounds.
    """

    def __init__(self, result: ExciseResult, config: ExciseConfig | None = None) -> None:
        self.result = result
        self.config = config
        verdicts = result.verdicts.values()
        self._counts = Counter(v.action for v in verdicts)
        self._strongest = [
            max((v.topic_evidence[t] for v in verdicts if t < len(v.topic_evidence)), default=0.0)
            for t in range(len(result.detection.spans))
        ]
        self._peak = max((v.evidence for v in verdicts if v.evidence is not None), default=None)
        self._pooled = any(
            v.span is not None and v.evidence is not None and v.topic_evidence
            and abs(v.evidence - v.topic_evidence[v.span]) > 1e-6
            for v in verdicts
        )  # fmt: skip
        self._undemoted = (
            self._peak is not None
            and result.floor is not None
            and self._peak < result.floor
            and not any(self._counts[a] for a in ("removed", "penalised", "protected"))
        )
        # With unit="document" a passage's evidence is that of its document's best passage.
        self._whose = "its document's" if config is not None and config.unit == "document" else "its"

    # --- the whole ------------------------------------------------------------------------

    def summary(self) -> list[str]:
        """Say in a few sentences what happened to the query."""
        result = self.result
        if result.error is not None:
            return [f"Excise failed, and the frozen ranking was returned. What failed: {result.error}"]
        out = [self._found()]
        total = len(result.verdicts)
        if not total:
            return [*out, "The first stage returned no candidates."]
        if not result.detection.fired:
            return [*out, f"The first stage's ranking of {_count(total, 'candidate')} was returned as it came."]
        if self._undemoted:
            out.append(
                f"No candidate's evidence reaches the safety floor of {number(result.floor)} (the strongest has "
                f"{number(self._peak)}), so none was demoted."
            )
        penalised = sum(v.penalty > 0 and v.action != "removed" for v in result.verdicts.values())
        would = "would have been" if result.shadow else "was" if self._counts["removed"] == 1 else "were"
        out.append(
            f"Of {_count(total, 'candidate')}, {self._counts['removed']} {would} removed and {penalised} lowered by a "
            f"penalty; {_count(len(result.candidates), 'candidate')} {'is' if len(result.candidates) == 1 else 'are'} "
            "returned."
        )
        if result.shadow:
            out.append("Shadow mode: the frozen ranking was returned; this report says what would have been done.")
        return out

    def _found(self) -> str:
        detection = self.result.detection
        if not detection.fired:
            if detection.source == "caller":
                return "The caller switched exclusion off for this query."
            return f"The detector found no excluded topic in the query (confidence {number(detection.confidence)})."
        topics = ", ".join(quoted(s.text) for s in detection.spans)
        what = f"{_count(len(detection.spans), 'excluded topic')}: {topics}"
        if detection.source == "caller":
            return f"The caller named {what}."
        return f"The detector found {what} (confidence {number(detection.confidence)})."

    # --- one candidate --------------------------------------------------------------------

    def of(self, verdict: Verdict) -> str:
        """Say why a candidate stands where it stands."""
        if verdict.action == "unchanged":
            if self.result.error is not None:
                return "Left where the first stage put it, because Excise failed."
            return "Left where the first stage put it: the query excludes nothing."
        sentence = {
            "removed": self._removed,
            "penalised": self._penalised,
            "protected": self._protected,
            "reranked": self._reranked,
        }[verdict.action](verdict)
        return f"In shadow mode, so not carried out: {sentence}" if self.result.shadow else sentence

    def _removed(self, verdict: Verdict) -> str:
        start = "Removed" if verdict.rank is None else f"Moved to the end (rank {verdict.rank}) and flagged as removed"
        evidence, floor = verdict.evidence, self.result.floor
        above = ""
        if evidence is not None and floor is not None and evidence >= floor:
            above = f", above the safety floor ({number(floor)})"
        opens = f"; its opening alone has {number(verdict.opening)}" if verdict.opening is not None else ""
        return f"{start}: {self._has(verdict)}{above}{self._against_strongest(verdict)}{opens}."

    def _against_strongest(self, verdict: Verdict) -> str:
        strongest = self._peak if self._pooled or verdict.span is None else self._strongest[verdict.span]
        if verdict.evidence is None or strongest is None:
            return ""
        if verdict.evidence >= strongest:
            return ", and no candidate of this shortlist has more"
        config = self.config
        if config is not None:
            share = config.removal_fraction if config.demotion == "paper" else config.topic_fraction
            if verdict.evidence >= share * strongest:
                return f", and at least {share:.0%} of the most that any candidate has ({number(strongest)})"
        return f"; the most that any candidate has is {number(strongest)}"

    def _penalised(self, verdict: Verdict) -> str:
        return f"Lowered: {self._has(verdict)}{self._lowered(verdict)}; {_moved(verdict)}."

    def _protected(self, verdict: Verdict) -> str:
        above_no_cut = verdict.evidence is not None and verdict.cut is not None and verdict.evidence <= verdict.cut
        role = "is above no cut" if above_no_cut else "is not the strongest match of an excluded topic"
        return (
            f"Protected from removal, as the highest-ranked candidate that {role}: "
            f"{self._has(verdict)}{self._lowered(verdict)}; {_moved(verdict)}."
        )

    def _lowered(self, verdict: Verdict) -> str:
        if verdict.penalty <= 0:
            return ""
        return f", above the cut ({number(verdict.cut)}), so {number(verdict.penalty)} was subtracted from its score"

    def _reranked(self, verdict: Verdict) -> str:
        why = ""
        if self._undemoted:
            why = f", and no candidate reaches the safety floor ({number(self.result.floor)})"
        elif verdict.evidence is not None and verdict.cut is not None:
            over = verdict.evidence > verdict.cut
            why = f", {'over' if over else 'not above'} the cut ({number(verdict.cut)})"
            why += ", but penalties are switched off" if over else ""
        return f"Not demoted: {self._has(verdict)}{why}; {_moved(verdict)}."

    def _has(self, verdict: Verdict) -> str:
        spans = self.result.detection.spans
        name = quoted(spans[verdict.span].text) if verdict.span is not None and verdict.span < len(spans) else "a topic"
        about = f"the excluded topics together (most for {name})" if self._pooled and len(spans) > 1 else name
        return f"{self._whose} evidence for {about} is {number(verdict.evidence)}"


def _moved(verdict: Verdict) -> str:
    before, after = verdict.first_stage_rank, verdict.rank
    if after is None or after == before:
        return f"it stays at rank {before}"
    return f"it moves {'up' if after < before else 'down'} from rank {before} to {after}"


def _count(count: int, noun: str) -> str:
    return f"{count:,} {noun}{'' if count == 1 else 's'}"
