"""Test-time interventions: other rules that lower documents about a topic, on frozen vectors.

Each replaces the penalty of plain MaxSim(Z) demotion and nothing else: it takes the topics as given, scores by
the mean MaxSim of the whole query, and neither cuts by the shortlist nor removes. With several topics the
largest penalty counts.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor

from ..config import ExciseConfig
from ..demotion import cut_of
from ..encode.maxsim import best_matches, maxsim, pack_windows, sum_per_document
from ..errors import InvalidInputError
from ..types import Detection, Span
from .gate import ReadoutGate, readout
from .lexical import content_words, positional
from .matches import encode_query
from .prepared import Prepared
from .systems import Topics
from .variants import Ranking, by_score

__all__ = ["INTERVENTIONS", "WEIGHTS", "intervene", "penalised"]

WEIGHTS: dict[str, float] = {
    "bm25-z": 0.4,
    "positional-early": 3.0,
    "positional-often": 0.6,
    "contrastive": 0.6,
    "orthogonal": 0.6,
    "centroid": 0.4,
    "gate": 0.8,
}
"""What each penalty is multiplied by; the reference takes λ from the settings, the paper's constant. The others take
their best on 80 training queries of ExcluIR with the true topics
(``excise bench weights …/excluir --train …/excluir --limit 80``)."""

_DECAY = 0.1  # β of the positional rules, per word of distance
_CANCEL = 0.5  # α of contrastive late interaction
_RICHEST = 3  # candidates behind the negative centroid
_FLAGGED = 10  # candidates that are read again after the topic; each costs a forward


@dataclass(frozen=True)
class _Scene:
    """One query with its topics, before an intervention."""

    prepared: Prepared
    index: int
    topics: Topics
    config: ExciseConfig
    gate: ReadoutGate | None

    @property
    def query(self) -> str:
        return self.prepared.queries[self.index].text

    @property
    def detection(self) -> Detection:
        return self.prepared.detections(self.topics)[self.index]

    @property
    def texts(self) -> list[str]:
        return [c.text for c in self.prepared.shortlists[self.index][: self.config.k]]

    def scores(self) -> Tensor:
        """Mean MaxSim of the whole query (documents,)."""
        matches = self.prepared.matches(self.index, self.topics, "frozen").first(self.config.k)
        return matches.score("full") / matches.full.shape[1]

    def evidence(self) -> Tensor:
        return self.prepared.matches(self.index, self.topics, "frozen").first(self.config.k).evidence()


def intervene(
    method: str,
    prepared: Prepared,
    index: int,
    topics: Topics,
    config: ExciseConfig,
    *,
    gate: ReadoutGate | None = None,
    weight: float | None = None,
) -> Ranking:
    """Rank the shortlist of a query that excludes something.

    Args:
        method: a key of :data:`INTERVENTIONS`.
        prepared: the suite.
        index: of the query; its detection must have fired.
        topics: whose topics.
        config: ``k``, ``floor``, ``penalty_scale`` and ``cut_width`` are read.
        gate: the trained readout, for ``"gate"``.
        weight: of the penalty; None takes the one in :data:`WEIGHTS`.

    Returns:
        The ranking; nothing is removed.

    Raises:
        InvalidInputError: there is no such method, or it lacks its gate.
    """
    return by_score(penalised(method, prepared, index, topics, config, gate=gate, weight=weight))


def penalised(
    method: str,
    prepared: Prepared,
    index: int,
    topics: Topics,
    config: ExciseConfig,
    *,
    gate: ReadoutGate | None = None,
    weight: float | None = None,
) -> Tensor:
    """Return the final scores (documents,) behind :func:`intervene`, whose arguments it takes."""
    if method not in INTERVENTIONS:
        raise InvalidInputError(f"There is no intervention {method!r}; there are {', '.join(INTERVENTIONS)}.")
    scene = _Scene(prepared, index, topics, config, gate)
    factor = WEIGHTS.get(method, config.penalty_scale) if weight is None else weight
    with torch.inference_mode():
        return INTERVENTIONS[method](scene, factor).double()


# --- the reference ------------------------------------------------------------------------


def _maxsim_z(scene: _Scene, weight: float) -> Tensor:
    penalty = torch.relu(scene.evidence() - scene.config.floor).amax(dim=1)
    return scene.scores() - weight * penalty


# --- rules on words -----------------------------------------------------------------------


def _bm25(scene: _Scene, weight: float) -> Tensor:
    return scene.scores() - weight * _bm25_shares(scene).amax(dim=1)


def _bm25_shares(scene: _Scene) -> Tensor:
    prepared = scene.prepared
    rows = [prepared.positions[c.id] for c in prepared.shortlists[scene.index][: scene.config.k]]
    columns = [torch.from_numpy(prepared.words.share(s.text)[rows]).float() for s in scene.detection.spans]
    return torch.stack(columns, dim=1)


def _positional(reading: str) -> Callable[[_Scene, float], Tensor]:
    def scores(scene: _Scene, weight: float) -> Tensor:
        named = {w for s in scene.detection.spans for w in content_words(s.text)}
        wanted = set(content_words(_without_spans(scene.query, scene.detection.spans))) - named
        columns = []
        for span in scene.detection.spans:
            topic = list(dict.fromkeys(content_words(span.text)))
            columns.append(
                [
                    positional(
                        text, topic, wanted, scene.prepared.words,
                        reading="early" if reading == "early" else "often", decay=_DECAY,
                    )
                    for text in scene.texts
                ]
            )  # fmt: skip
        return scene.scores() - weight * torch.tensor(columns).amax(dim=0)

    return scores


def _token_dropping(scene: _Scene, weight: float) -> Tensor:
    rest = _without_spans(scene.query, scene.detection.spans)
    if not any(c.isalnum() for c in rest):
        return scene.scores()
    encoded = encode_query(scene.prepared.encoder("frozen"), rest, Detection(fired=False))
    return maxsim(encoded.full, scene.prepared.documents(scene.index, "frozen", scene.config.k))


def _without_spans(query: str, spans: tuple[Span, ...]) -> str:
    """Delete the topics from a query; one that is not in it verbatim is passed over."""
    out, at = [], 0
    for span in sorted((s for s in spans if s.start is not None), key=lambda s: s.start or 0):
        out.append(query[at : span.start])
        at = max(at, span.end or 0)
    return " ".join(" ".join([*out, query[at:]]).split())


# --- rules on vectors ---------------------------------------------------------------------


def _contrastive(scene: _Scene, weight: float) -> Tensor:
    prepared = scene.prepared
    query = prepared.encoded(scene.index, scene.topics, "frozen")
    documents = prepared.documents(scene.index, "frozen", scene.config.k)
    block, mask, owner = pack_windows(documents)
    explained = torch.matmul(block, query.wanted.to(block.dtype).T).float().amax(dim=2)
    penalties = []
    for topic in query.topics:
        similar = torch.matmul(block, topic.to(block.dtype).T).float().masked_fill(~mask[:, :, None], -1.0)
        best, where = similar.max(dim=1)
        # What the wanted words say of the very token that a topic's word matched.
        left = torch.relu(best - _CANCEL * explained.gather(1, where))
        penalties.append(sum_per_document(left.mean(dim=1), owner, len(documents)) if topic.shape[0] else None)
    return scene.scores() - weight * _largest(penalties, len(documents))


def _orthogonal(scene: _Scene, weight: float) -> Tensor:
    prepared = scene.prepared
    query = prepared.encoded(scene.index, scene.topics, "frozen")
    documents = prepared.documents(scene.index, "frozen", scene.config.k)
    block, mask, owner = pack_windows(documents)
    basis = torch.linalg.qr(query.wanted.float().T).Q
    penalties = []
    for topic in query.topics:
        rest = topic.float() - topic.float() @ basis @ basis.T
        found = best_matches(rest, block, mask).mean(dim=1)
        penalties.append(sum_per_document(found, owner, len(documents)) if topic.shape[0] else None)
    return scene.scores() - weight * _largest(penalties, len(documents))


def _centroid(scene: _Scene, weight: float) -> Tensor:
    documents = scene.prepared.documents(scene.index, "frozen", scene.config.k)
    means = torch.stack([d.vectors.float().mean(dim=0) for d in documents])
    penalties: list[Tensor | None] = []
    for column in _bm25_shares(scene).T:
        rich = [i for i in column.sort(descending=True, stable=True).indices.tolist() if column[i] > 0][:_RICHEST]
        # Nothing names the topic: nothing to move away from.
        penalties.append(torch.nn.functional.cosine_similarity(means, means[rich].mean(dim=0)[None]) if rich else None)
    return scene.scores() - weight * _largest(penalties, len(documents))


def _gate(scene: _Scene, weight: float) -> Tensor:
    if scene.gate is None:
        raise InvalidInputError("The readout gate is not trained; give training pairs.")
    prepared = scene.prepared
    query = prepared.encoded(scene.index, scene.topics, "frozen")
    documents = prepared.documents(scene.index, "frozen", scene.config.k)
    penalties = [scene.gate(readout(topic, documents)) if topic.shape[0] else None for topic in query.topics]
    return scene.scores() * (1.0 - weight * _largest(penalties, len(documents)))


def _largest(penalties: list[Tensor | None], documents: int) -> Tensor:
    found = [p for p in penalties if p is not None]
    return torch.stack(found).amax(dim=0) if found else torch.zeros(documents)


# --- the rule on encodings ----------------------------------------------------------------


def _conditional(scene: _Scene, weight: float) -> Tensor:
    scores = scene.scores()
    evidence = scene.evidence()
    cuts = [max(cut_of(column, scene.config), scene.config.floor) for column in evidence.T]
    flagged = [i for i, row in enumerate(evidence.tolist()) if any(e > c for e, c in zip(row, cuts, strict=True))]
    flagged = flagged[:_FLAGGED]
    if not flagged:
        return scores
    topic = ", ".join(span.text for span in scene.detection.spans)
    texts = [f"{topic}. {scene.texts[i]}" for i in flagged]
    query = scene.prepared.encoded(scene.index, scene.topics, "frozen").full
    again = maxsim(query, scene.prepared.encoder("frozen").encode_documents(texts)) / query.shape[0]
    out = scores.clone()
    out[flagged] = again
    return out


INTERVENTIONS: dict[str, Callable[[_Scene, float], Tensor]] = {
    "maxsim-z": _maxsim_z,
    "bm25-z": _bm25,
    "positional-early": _positional("early"),
    "positional-often": _positional("often"),
    "contrastive": _contrastive,
    "orthogonal": _orthogonal,
    "centroid": _centroid,
    "token-dropping": _token_dropping,
    "gate": _gate,
    "conditional": _conditional,
}
