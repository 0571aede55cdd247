"""The settings of the operator, in one frozen object."""

from __future__ import annotations

import hashlib
import json
from typing import Literal

from pydantic import BaseModel, ConfigDict, Field

__all__ = ["ExciseConfig"]


class ExciseConfig(BaseModel):
    """Constants of the operator and the choices around it.

    The defaults of the constants are the paper's (arXiv 2608.05497, Algorithm 1); where a
    default is ours, the comment beside it says so. Instances are immutable: derive a variant with
    ``config.model_copy(update={...})`` or pass keyword arguments to :class:`~excise_integrations.Excise`.
    """

    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False)

    k: int = Field(100, ge=1, description="Shortlist size asked of a first stage.")
    threshold: float | None = Field(
        None,
        ge=0.0,
        le=1.0,
        description="Fire threshold θ of a trained detector; None takes the calibrated one from its manifest.",
    )
    floor: float = Field(
        0.35, ge=-1.0, le=1.0, description="Safety floor τ: if no candidate's evidence reaches it, nothing is demoted."
    )
    cut_width: float = Field(0.5, ge=0.0, description="Anomaly width κ: cut = mean + κ · sd of the evidence.")
    absolute_cut: float | None = Field(
        None, ge=-1.0, le=1.0, description="Cut for shortlists below `min_shortlist`; None takes the floor."
    )
    penalty_scale: float = Field(0.97, ge=0.0, description="Penalty scale λ of the soft penalty λ · max(0, e − cut).")
    soft_penalty: bool = Field(True, description="Whether the soft penalty is applied at all.")
    removal: bool = Field(True, description="Whether candidates may be removed at all.")
    removal_fraction: float = Field(
        0.6, ge=0.0, le=1.0, description="φ of the paper's rule: removable at or above φ · max evidence."
    )
    cap: int = Field(3, ge=0, description="At most this many candidates are removed (per topic with 'per_topic').")
    min_shortlist: int = Field(4, ge=1, description="Below this many candidates the absolute rule replaces the cut.")
    demotion: Literal["paper", "per_topic"] = Field(
        "per_topic",
        description="'paper': Algorithm 1, one evidence over all excluded tokens. "
        "'per_topic': each excluded topic is demoted by itself.",
    )
    topic_fraction: float = Field(
        0.87, ge=0.0, le=1.0, description="'per_topic': removable at or above this share of the topic's max evidence."
    )
    opening_tokens: int = Field(
        16,
        ge=0,
        description="'per_topic': tokens at the start of a document whose evidence counts besides: what it is about is "
        "said there, what it mentions need not be. 0 switches this off.",
    )
    opening_weight: float = Field(
        0.5,
        ge=0.0,
        le=1.0,
        description="'per_topic': weight of the opening's share of the most that any opening has, beside the whole "
        "document's share; `topic_fraction` is asked of their weighted mean.",
    )
    opening_gate: float = Field(
        0.75,
        ge=0.0,
        description="'per_topic': openings count when the best of them has at least this share of the topic's max "
        "evidence, that is, when some document of the shortlist opens with the topic.",
    )
    opening_crowd: int = Field(
        10,
        ge=1,
        description="'per_topic': openings count when at most this many candidates have `topic_fraction` of the "
        "topic's max evidence. A topic that more of them name (an actor, an office) is what documents have in common, "
        "not what one of them is about, and naming it anywhere is enough.",
    )
    dominance_limit: float = Field(
        0.95,
        ge=0.0,
        description="'per_topic': where openings count, a candidate at or above this share of the topic's max evidence "
        "may be removed however far it is ahead on the wanted words: it is the excluded topic's own document, and what "
        "it leads on are the words by which the query describes the topic. Above 1 this is switched off.",
    )
    total_cap: int = Field(9, ge=0, description="'per_topic': at most this many removals over all topics.")
    dominance: float | None = Field(
        0.1,
        ge=0.0,
        description="'per_topic': a candidate whose mean MaxSim with the wanted words beats every other candidate by "
        "more than this is about what is wanted and is not removed; None switches the check off.",
    )
    dominance_slope: float = Field(
        0.3,
        ge=0.0,
        description="'per_topic': by how much `topic_fraction` rises for a candidate, per unit of mean MaxSim with the "
        "wanted words by which it beats every candidate below the cuts.",
    )
    dominance_words: int = Field(
        3,
        ge=0,
        description="`dominance` and `dominance_slope` are read only when the query wants at least this many content "
        "words; with fewer, every document on the subject matches all of them.",
    )
    score_scale: Literal["sum", "mean"] = Field(
        "sum",
        description="Whether the re-embedded MaxSim is a sum or a mean over query tokens. 'per_topic' takes the mean "
        "below `min_shortlist`, where nothing is removed and the penalty alone must decide.",
    )
    score_query: Literal["auto", "full", "wanted"] = Field(
        "auto",
        description="Which query tokens score: all, those outside the excluded spans, or 'auto' (all with an exclusion "
        "adapter, which was trained on whole queries; the wanted ones on frozen vectors).",
    )
    guard_order: Literal["penalised", "reembedded", "frozen"] = Field(
        "penalised", description="Ranking by which the protected candidate is the top one."
    )
    removed: Literal["drop", "last"] = Field(
        "drop", description="Whether removed candidates leave the returned list or stay at its end, flagged."
    )
    unit: Literal["passage", "document"] = Field(
        "passage", description="'document': a document's evidence is its best passage's; siblings are removed together."
    )
    mode: Literal["active", "shadow"] = Field(
        "active", description="'shadow' returns the frozen ranking together with the verdicts."
    )
    on_error: Literal["raise", "frozen"] = Field(
        "raise", description="What happens when a part fails at query time: raise, or return the frozen ranking."
    )

    def digest(self) -> str:
        """Return a short stable hash of all settings (12 hexadecimal digits) for audit trails."""
        payload = json.dumps(self.model_dump(mode="json"), sort_keys=True)
        return hashlib.sha256(payload.encode()).hexdigest()[:12]
