"""The systems that a benchmark compares, each a frozen description of what it does differently."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

from ..errors import InvalidInputError

__all__ = ["GROUPS", "SYSTEMS", "Group", "System", "choose"]

Group = Literal[
    "ladder", "paper-ladder", "leave-one-out", "alternatives", "k", "topics", "interventions", "rivals", "controls"
]
GROUPS: dict[Group, str] = {
    "ladder": "The ladder: each rung adds one stage to the one above",
    "paper-ladder": "The paper's rule: one evidence over all topics, rung by rung",
    "leave-one-out": "Leave one out: Excise without one of its parts",
    "alternatives": "Design alternatives: Excise with one decision changed",
    "k": "Shortlist size",
    "topics": "True against detected topics",
    "interventions": "Test-time interventions over frozen vectors, beside MaxSim(Z) demotion",
    "rivals": "What a user could pick instead",
    "controls": "Fine-tuned controls: other systems trained on the exclusion adapter's triples",
}

Topics = Literal["detected", "true", "forced"]
Need = Literal["adapter", "threshold", "training"]


@dataclass(frozen=True)
class System:
    """One row of a benchmark.

    Args:
        name: unique, and the name of its result files.
        group: the table that it belongs to.
        title: what it does, as a phrase.
        method: ``"frozen"`` (the first stage as it is), ``"rule"`` (the operator, as the other fields say),
            ``"external"`` (another system, which ranks by itself), or the name of an intervention.
        settings: fields of :class:`~excise_integrations.ExciseConfig` that differ from the run's.
        topics: ``"detected"``, ``"true"`` (the suite's), or ``"forced"``: detected without a threshold, so that
            every query excludes something.
        vectors: re-embed with the exclusion adapter where there is one (``"encoder"``), or never (``"frozen"``), or
            never and score as a pipeline does that has no adapter (``"unadapted"``).
        pool: how the matches of a topic's tokens become evidence: their mean, the strongest, or the mean of the
            two strongest.
        absolute: whether the cut is the floor, whatever the shortlist.
        every_query: whether a query that excludes nothing is re-embedded and re-ranked too.
        needs: what must be there for it to run: an exclusion adapter, a detector with a threshold, training pairs.
    """

    name: str
    group: Group
    title: str
    method: str = "rule"
    settings: Mapping[str, Any] = field(default_factory=dict)
    topics: Topics = "detected"
    vectors: Literal["encoder", "frozen", "unadapted"] = "encoder"
    pool: Literal["mean", "max", "top2"] = "mean"
    absolute: bool = False
    every_query: bool = False
    needs: tuple[Need, ...] = ()

    def record(self) -> dict[str, Any]:
        """Return what its outcomes depend on, as plain JSON types."""
        fields = {**self.__dict__, "settings": dict(self.settings), "needs": list(self.needs)}
        return {k: v for k, v in fields.items() if k not in ("group", "title")}


_SOFT = {"removal": False}
_MEAN = {"score_scale": "mean"}
_NOTHING = {"soft_penalty": False, "removal": False}
_LADDER = (
    System("frozen", "ladder", "the first stage as it is", method="frozen"),
    System("demote", "ladder", "soft penalty on frozen vectors", vectors="frozen", absolute=True, settings=_SOFT),
    System("reembed", "ladder", "+ re-embedding", absolute=True, settings=_SOFT, needs=("adapter",)),
    System("cut", "ladder", "+ relative cut", settings=_SOFT),
    System("default", "ladder", "+ removal and guard: Excise"),
)
_RULE = {"demotion": "paper"}
_PAPER = (
    System(
        "paper-demote", "paper-ladder", "soft penalty on frozen vectors", vectors="frozen", absolute=True,
        settings={**_RULE, **_SOFT},
    ),
    System(
        "paper-reembed", "paper-ladder", "+ re-embedding", absolute=True, settings={**_RULE, **_SOFT},
        needs=("adapter",),
    ),
    System("paper-cut", "paper-ladder", "+ relative cut", settings={**_RULE, **_SOFT}),
    System("paper", "paper-ladder", "+ removal and guard: Algorithm 1", settings=_RULE),
    System("paper-cut-mean", "paper-ladder", "relative cut, scores are means", settings={**_RULE, **_SOFT, **_MEAN}),
    System("paper-mean", "paper-ladder", "Algorithm 1, scores are means", settings={**_RULE, **_MEAN}),
)  # fmt: skip
_LEAVE_ONE_OUT = (
    System("no-soft", "leave-one-out", "- soft penalty", settings={"soft_penalty": False}),
    System(
        "no-switch", "leave-one-out", "- switch: every query is re-embedded", every_query=True, needs=("adapter",)
    ),
    System(
        "always-fires", "leave-one-out", "- threshold: every query excludes its likeliest topic",
        topics="forced", needs=("threshold",),
    ),
    System("no-demotion", "leave-one-out", "- demotion: fired queries are re-scored only", settings=_NOTHING),
    System(
        "reembed-only", "leave-one-out", "- demotion, - switch: every query is re-embedded and nothing demoted",
        every_query=True, settings=_NOTHING, needs=("adapter",),
    ),
    System(
        "no-reembedding", "leave-one-out", "- re-embedding: as without an adapter", vectors="unadapted",
        needs=("adapter",),
    ),
)  # fmt: skip
_WANTED = {"score_query": "wanted"}
_ALTERNATIVES = (
    System("per-topic", "alternatives", "one evidence per topic", settings={"demotion": "per_topic"}),
    System("no-openings", "alternatives", "the openings of documents do not count", settings={"opening_tokens": 0}),
    System("max", "alternatives", "evidence: the strongest token", pool="max"),
    System("top-2", "alternatives", "evidence: the mean of the two strongest tokens", pool="top2"),
    System("mask-z", "alternatives", "scored by the wanted words only", settings=_WANTED),
    System("full-query", "alternatives", "scored by the whole query", settings={"score_query": "full"}),
    System("mask-z-top-2", "alternatives", "mask-z and top-2", pool="top2", settings=_WANTED),
    System("cap-1", "alternatives", "at most one removal (a topic)", settings={"cap": 1}),
    *(
        System(
            f"fixed-{n}", "alternatives", f"{n} removed (a topic), whatever the share of the evidence",
            settings={
                "cap": n, "removal_fraction": 0.0, "topic_fraction": 0.0, "dominance": None, "dominance_slope": 0.0,
            },
        )
        for n in (1, 2)
    ),
    *(
        System(
            f"phi-{phi:.2f}", "alternatives", f"removable from {phi:.2f} of the strongest evidence on",
            settings={"removal_fraction": phi, "topic_fraction": phi},
        )
        for phi in (0.8, 0.85, 0.9)
    ),
    System(
        "soft-mean", "alternatives", "no removal, scores are means", settings={**_SOFT, **_MEAN},
    ),
    System("mean-scale", "alternatives", "scores are means over the query's tokens", settings=_MEAN),
)  # fmt: skip
_K = tuple(System(f"k-{k}", "k", f"shortlist of {k}", settings={"k": k}) for k in (25, 50, 75, 100))
_TOPICS = (
    System("default-true", "topics", "Excise with the true topics", topics="true"),
    System(
        "paper-true", "topics", "the paper's rule with the true topics", topics="true", settings=_RULE
    ),
)  # fmt: skip
_METHODS: dict[str, tuple[str, tuple[Need, ...]]] = {
    "maxsim-z": ("MaxSim(Z) demotion, the reference: an absolute cut, on means over the query's tokens", ()),
    "bm25-z": ("BM25 of the topic is subtracted", ()),
    "positional-early": ("positional-lexical: how early the topic is named", ()),
    "positional-often": ("positional-lexical: how often the topic is named", ()),
    "contrastive": ("contrastive late interaction: matches that the wanted words explain are cancelled", ()),
    "orthogonal": ("subspace orthogonalisation: the topic without the span of the wanted words", ()),
    "centroid": ("negative centroid of the candidates richest in the topic's words", ()),
    "token-dropping": ("the topic is deleted from the query", ()),
    "gate": ("learned readout gate", ("training",)),
    "conditional": ("Z-conditional re-embedding: flagged candidates are read after the topic", ()),
}
_INTERVENTIONS = tuple(
    System(
        name if topics == "detected" else f"{name}-true", "interventions", title,
        method=name, topics=topics, vectors="frozen", needs=needs,
    )
    for name, (title, needs) in _METHODS.items()
    for topics in ("detected", "true")
)  # fmt: skip

_RIVALS = tuple(
    System(name, "rivals", title, method="external", vectors="frozen")
    for name, title in (
        ("dense", "all-MiniLM-L6-v2 as it is: one vector a document"),
        ("dense-passages", "the same over 350-word passages, a document by its best one"),
        ("bm25", "BM25"),
        ("bm25-not", "BM25, the words that the cue rules find as NOT"),
        ("colbert-rerank", "LlamaIndex ColbertRerank over the frozen shortlist"),
    )
)

SYSTEMS: tuple[System, ...] = (
    *_LADDER, *_PAPER, *_LEAVE_ONE_OUT, *_ALTERNATIVES, *_K, *_TOPICS, *_INTERVENTIONS, *_RIVALS,
)  # fmt: skip
"""Every system, in the order of the report."""


def choose(names: Iterable[str], among: Sequence[System] = SYSTEMS) -> list[System]:
    """Return the systems that names of systems and groups stand for.

    Args:
        names: names; none means all.
        among: the systems to choose from.

    Returns:
        The systems in their own order, each once.

    Raises:
        InvalidInputError: a name that is neither a system's nor a group's.
    """
    wanted = list(names)
    known = {s.name for s in among} | {str(s.group) for s in among}
    for name in wanted:
        if name not in known:
            raise InvalidInputError(
                f"There is no system and no group {name!r}. Groups: {', '.join(GROUPS)}. "
                f"Systems: {', '.join(s.name for s in among)}."
            )
    return [s for s in among if not wanted or s.name in wanted or s.group in wanted]
