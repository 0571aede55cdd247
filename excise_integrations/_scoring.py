"""Checks of what comes in, and the vectors' part of a firing: scores and evidence of a shortlist."""

from __future__ import annotations

import math
import numbers
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from .encode.maxsim import TokenVectors, maxsim
from .errors import DetectorError, FirstStageError, InvalidInputError
from .evidence import count_words, evidence_of, opening_evidence, pooled, topic_mask, wanted_mask
from .first_stage.base import FirstStage, VectorFirstStage
from .types import Candidate, Detection, Span

if TYPE_CHECKING:
    from .pipeline import Excise

__all__ = [
    "Scored",
    "check_candidates",
    "check_detected",
    "check_detection",
    "check_k",
    "check_queries",
    "check_query",
    "check_shortlist",
    "group_by_document",
    "score",
]


@dataclass(frozen=True)
class Scored:
    """A shortlist in numbers.

    Args:
        scores: (n,) re-embedded MaxSim.
        wanted: (n,) mean MaxSim of the query's tokens outside the excluded topics; None when too few
            of them are content words.
        evidence: (n, topics).
        columns: (n, columns) evidence as the rule takes it: pooled for "paper".
        opening: (n, topics) evidence in the documents' openings; None where the rule does not ask.
        warnings: for the reader of an audit.
    """

    scores: Tensor
    wanted: Tensor | None
    evidence: Tensor
    columns: Tensor
    opening: Tensor | None
    warnings: tuple[str, ...]


def check_query(query: object) -> None:
    """Raise :class:`InvalidInputError` unless the query is a non-blank string."""
    if not isinstance(query, str):
        raise InvalidInputError(f"The query is a {type(query).__name__}, {query!r}; a string is needed.")
    if not query.strip():
        raise InvalidInputError(f"The query {query!r} is blank; give the text to search for.")


def check_queries(queries: object) -> None:
    """Raise :class:`InvalidInputError` unless these are non-blank strings in a list."""
    if not isinstance(queries, Sequence) or isinstance(queries, (str, bytes)):
        raise InvalidInputError(f"The queries are a {type(queries).__name__}; a list of strings is needed.")
    for query in queries:
        check_query(query)


def check_k(k: object) -> None:
    """Raise :class:`InvalidInputError` unless ``k`` is None or a positive integer."""
    if k is not None and (not isinstance(k, int) or isinstance(k, bool) or k < 1):
        raise InvalidInputError(f"k={k!r} must be an integer of at least 1, or None for the whole shortlist.")


def check_candidates(candidates: Sequence[Candidate]) -> list[Candidate]:
    """Return the candidates as a list, or raise :class:`InvalidInputError` naming the first bad one."""
    seen: set[str] = set()
    try:
        out = list(candidates)
    except TypeError as error:
        raise InvalidInputError(
            f"The candidates are a {type(candidates).__name__}; a list of Candidate is needed."
        ) from error
    for rank, candidate in enumerate(out, start=1):
        if not isinstance(candidate, Candidate):
            raise InvalidInputError(f"The candidate at rank {rank} is a {type(candidate).__name__}, not a Candidate.")
        if not isinstance(candidate.id, str):
            raise InvalidInputError(f"The candidate at rank {rank} has the id {candidate.id!r}; a string is needed.")
        if candidate.id in seen:
            raise InvalidInputError(f"The id {candidate.id!r} occurs twice in the shortlist; ids must be unique.")
        seen.add(candidate.id)
        if not isinstance(candidate.text, str) or not candidate.text.strip():
            raise InvalidInputError(
                f"The candidate {candidate.id!r} at rank {rank} has no text; drop it or give its text."
            )
        score = candidate.score
        if score is not None and not (isinstance(score, numbers.Real) and math.isfinite(score)):
            raise InvalidInputError(
                f"The candidate {candidate.id!r} at rank {rank} has the score {score!r}; "
                "a finite number is needed, or None for no score."
            )
    return out


def check_shortlist(shortlist: object, name: str) -> list[Candidate]:
    """Check what a first stage returned, as :class:`FirstStageError`."""
    if not isinstance(shortlist, (list, tuple)):
        raise FirstStageError(f"{name}.search returned a {type(shortlist).__name__}; a list of candidates is needed.")
    try:
        return check_candidates(shortlist)
    except InvalidInputError as error:
        raise FirstStageError(f"{name}.search returned a shortlist that cannot be used. {error}") from error


def check_detection(detection: object) -> None:
    """Raise :class:`InvalidInputError` unless this is a detection that names what it excludes."""
    if not isinstance(detection, Detection):
        raise InvalidInputError(f"detection={detection!r} is a {type(detection).__name__}, not a Detection.")
    if not detection.fired:
        return
    if not detection.spans:
        raise InvalidInputError("The detection fired but has no span; one span per excluded topic is needed.")
    for span in detection.spans:
        if not isinstance(span, Span) or not isinstance(span.text, str) or not span.text.strip():
            raise InvalidInputError(f"The detection holds {span!r}, which names no topic.")


def check_detected(found: object, queries: Sequence[str], name: str) -> list[Detection]:
    """Check what a detector answered, as :class:`DetectorError`."""
    if not isinstance(found, (list, tuple)) or len(found) != len(queries):
        size = f" of {len(found)}" if isinstance(found, (list, tuple)) else ""
        raise DetectorError(
            f"{name}.detect answered {len(queries)} queries with a {type(found).__name__}{size}; "
            "a list of one Detection per query is needed."
        )
    for query, detection in zip(queries, found, strict=True):
        try:
            check_detection(detection)
        except InvalidInputError as error:
            raise DetectorError(f"{name}.detect answered with something that cannot be used. {error}") from error
        for span in detection.spans if detection.fired else ():
            if (span.start, span.end) != (None, None) and not _stands_in(span, query):
                raise DetectorError(
                    f"{name}.detect gave the span {span.text!r} the offsets {span.start!r} to {span.end!r}, where the "
                    "query says something else; offsets index the query as given."
                )
    return list(found)


def _stands_in(span: Span, query: str) -> bool:
    if not isinstance(span.start, int) or not isinstance(span.end, int) or span.start < 0:
        return False
    return span.end - span.start == len(span.text) and query.startswith(span.text, span.start)


def group_by_document(candidates: Sequence[Candidate], unit: str) -> list[list[int]] | None:
    """Passages by document, in shortlist order; None when every candidate stands for itself."""
    if unit == "passage":
        return None
    groups: dict[object, list[int]] = {}
    for i, c in enumerate(candidates):
        document = c.metadata.get("document_id")
        groups.setdefault(("passage", c.id) if document is None else ("document", str(document)), []).append(i)
    return list(groups.values())


def score(
    excise: Excise,
    query: str,
    candidates: Sequence[Candidate],
    detection: Detection,
    first_stage: FirstStage | None,
    timings: dict[str, float],
) -> Scored:
    """Re-embed query, topics and candidates, and compare them (Algorithm 1, lines 4 to 6)."""
    clock = time.perf_counter()
    encoder = excise.encoder
    warnings: list[str] = []
    texts = [query, *(span.text for span in detection.spans)]
    encoded = encoder.encode_queries(texts)
    documents = _documents(excise, candidates, first_stage)
    timings["encode"] = time.perf_counter() - clock

    clock = time.perf_counter()
    query_vectors, topics = encoded[0], encoded[1:]
    if encoder.token_count(query) > encoder.max_tokens:
        warnings.append(
            f"The query has more than the {encoder.max_tokens} tokens that the backbone reads; "
            "its end was not used for scoring."
        )
    special = encoder.special_tokens
    outside = _outside(query, detection, encoder.encode_ids)
    masked = [topic.vectors[torch.tensor(topic_mask(topic, outside, special=special))] for topic in topics]
    warnings.extend(
        f"The backbone {encoder.name!r} cannot read the excluded topic {span.text!r}: none of its signs is in its "
        "vocabulary, so no document was demoted for it."
        for span, topic in zip(detection.spans, masked, strict=True)
        if not topic.shape[0]
    )
    config = excise.config
    full = query_vectors.vectors
    keep = wanted_mask(query_vectors, topics, special=special)
    wanted = full[torch.tensor(keep)]
    wanted_scores = maxsim(wanted, documents)
    scope = config.score_query
    if scope == "auto":
        scope = "wanted" if encoder.adapter is None and config.demotion == "per_topic" else "full"
    scores = wanted_scores if scope == "wanted" else maxsim(full, documents)
    units = len(group_by_document(candidates, config.unit) or candidates)
    small = config.demotion == "per_topic" and units < config.min_shortlist
    if small or config.score_scale == "mean":
        scores = scores / (wanted if scope == "wanted" else full).shape[0]
    evidence = evidence_of(masked, documents)
    columns = evidence_of(pooled(masked), documents) if excise.config.demotion == "paper" else evidence
    reads_openings = config.demotion == "per_topic" and config.opening_tokens > 0
    opening = opening_evidence(masked, documents, config.opening_tokens) if reads_openings else None
    timings["compare"] = time.perf_counter() - clock
    rich = count_words(query_vectors, keep, special=special) >= config.dominance_words
    lead = wanted_scores / wanted.shape[0] if rich else None
    return Scored(scores, lead, evidence, columns, opening, tuple(warnings))


def _documents(excise: Excise, candidates: Sequence[Candidate], first_stage: FirstStage | None) -> list[TokenVectors]:
    encoder = excise.encoder
    if isinstance(first_stage, VectorFirstStage) and first_stage.vector_space == encoder.label:
        try:
            vectors = first_stage.vectors([c.id for c in candidates])
        except InvalidInputError:
            # A document has left the index since it was searched; the others are judged all the same.
            return excise.cache.encode([c.text for c in candidates], encoder, fingerprint=first_stage.fingerprint)
        if len(vectors) != len(candidates):
            raise FirstStageError(
                f"{type(first_stage).__name__}.vectors returned {len(vectors)} documents for {len(candidates)} ids."
            )
        return vectors
    fingerprint = first_stage.fingerprint if first_stage is not None else ""
    return excise.cache.encode([c.text for c in candidates], encoder, fingerprint=fingerprint)


def _outside(query: str, detection: Detection, ids: Callable[[str], list[int]]) -> list[int]:
    """Vocabulary ids of the query's words outside every excluded span."""
    pieces, at = [], 0
    # A detection made on another wording of the query has offsets that mean nothing here.
    here = [s for s in detection.spans if _stands_in(s, query)]
    for span in sorted(here, key=lambda s: s.start or 0):
        pieces.append(query[at : span.start])
        at = max(at, span.end or 0)
    pieces.append(query[at:])
    return [i for piece in pieces if piece.strip() for i in ids(piece)]
