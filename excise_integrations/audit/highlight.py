"""Which words of a document matched the excluded topic: token-level MaxSim over the deciding window."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from ..types import Candidate, ExciseResult

if TYPE_CHECKING:
    from torch import Tensor

    from ..encode.backbone import Backbone
    from ..encode.maxsim import TokenVectors

__all__ = ["Highlight", "Word", "find_highlights"]

_WORD = re.compile(r"\w+")
# Beside the best match of each topic token, words this close to it are marked: later mentions of the same thing.
_NEAR = 0.9
# A script without spaces makes one "word" of a sentence; there the tokens themselves are marked.
_LONGEST_WORD = 30
# Two runs of one encoder differ by less (batching moves bfloat16 vectors by about 2e-3).
_SAME_EVIDENCE = 0.02


@dataclass(frozen=True)
class Word:
    """A word that matched.

    Args:
        start, end: character offsets into the candidate's text.
        similarity: its largest similarity to a token of the topic, in [-1, 1].
        best: whether it is the best match of a token of the topic, so that the evidence is made of it.
    """

    start: int
    end: int
    similarity: float
    best: bool


@dataclass(frozen=True)
class Highlight:
    """Where the evidence of one candidate comes from.

    Args:
        span: index of the topic in the detection's spans.
        start, end: character offsets of the deciding window in the candidate's text.
        window, windows: its number from 1, and how many there are.
        evidence: the topic's evidence, computed anew.
        shared: whether another passage of its document decided (``unit="document"``), one with more evidence.
        consistent: whether it agrees with the evidence that ranked the candidate.
        words: the words that matched, in text order.
    """

    span: int
    start: int
    end: int
    window: int
    windows: int
    evidence: float
    shared: bool
    consistent: bool
    words: tuple[Word, ...]

    def to_dict(self) -> dict[str, Any]:
        """Return the highlight as JSON types."""
        return {
            "span": self.span,
            "start": self.start,
            "end": self.end,
            "window": self.window,
            "windows": self.windows,
            "evidence": self.evidence,
            "shared": self.shared,
            "consistent": self.consistent,
            "words": [{"start": w.start, "end": w.end, "similarity": w.similarity, "best": w.best} for w in self.words],
        }


def find_highlights(result: ExciseResult, backbone: Backbone) -> dict[str, Highlight]:
    """Encode topics and candidates again and find the words that each deciding topic matched.

    Args:
        result: a result; where the query excludes nothing there is nothing to find.
        backbone: the encoder that ranked it (:attr:`excise_integrations.Excise.encoder`).

    Returns:
        Per candidate id. Left out are candidates below ``k``, whose text the result does not hold, and
        all of them when the encoder's tokens cannot be traced back to the text.
    """
    import torch

    from .._scoring import _outside
    from ..evidence import topic_mask

    spans = result.detection.spans
    shown: list[tuple[Candidate, int]] = []
    for candidate in {c.id: c for c in (*result.removed, *result.candidates)}.values():
        span = result.verdicts[candidate.id].span
        if span is not None:
            shown.append((candidate, span))
    if not spans or not shown:
        return {}
    outside = _outside(result.query, result.detection, backbone.encode_ids)
    special = backbone.special_tokens
    topics = [
        encoded.vectors[torch.tensor(topic_mask(encoded, outside, special=special))].float()
        for encoded in backbone.encode_queries([s.text for s in spans])
    ]
    documents = backbone.encode_documents([candidate.text for candidate, _ in shown])
    # Passages with the very same evidence for every topic share it: it is their document's.
    times = Counter(v.topic_evidence for v in result.verdicts.values())
    out: dict[str, Highlight] = {}
    for (candidate, span), vectors in zip(shown, documents, strict=True):
        found = _highlight(candidate.text, span, topics[span], vectors, backbone)
        if found is None:
            continue
        known = result.verdicts[candidate.id].topic_evidence
        less = known[span] - found.evidence if span < len(known) else 0.0
        shared = times[known] > 1 and less > _SAME_EVIDENCE
        out[candidate.id] = replace(found, shared=shared, consistent=shared or abs(less) <= _SAME_EVIDENCE)
    return out


def _highlight(text: str, span: int, topic: Tensor, vectors: TokenVectors, backbone: Backbone) -> Highlight | None:
    similarities = [
        topic @ part.float().T if part.shape[0] else topic.new_full((topic.shape[0], 1), -1.0)
        for part in vectors.vectors.split(list(vectors.windows))  # type: ignore[no-untyped-call]
    ]
    evidence = [float(s.amax(dim=1).mean()) for s in similarities]
    window = max(range(len(evidence)), key=evidence.__getitem__)
    start, end = window_ranges(text, backbone)[window]
    ranges = token_ranges(backbone, text[start:end])
    if ranges is None or len(ranges) != vectors.windows[window]:
        return None
    words = _words(text[start:end], start, similarities[window], ranges)
    return Highlight(
        span=span,
        start=start,
        end=end,
        window=window + 1,
        windows=len(evidence),
        evidence=evidence[window],
        shared=False,
        consistent=True,
        words=words,
    )


def _words(text: str, offset: int, similarities: Tensor, ranges: Sequence[tuple[int, int] | None]) -> tuple[Word, ...]:
    from ..evidence import STOP_WORDS

    best = set(similarities.argmax(dim=1).tolist())
    # How near a token comes to the best match of the topic token that it resembles most.
    nearness = (similarities / similarities.amax(dim=1, keepdim=True).clamp_min(1e-6)).amax(dim=0).tolist()
    top = similarities.amax(dim=0).tolist()
    starts = {m.start(): m.span() for m in _WORD.finditer(text)}
    found: dict[tuple[int, int], tuple[float, bool]] = {}
    for token, span in enumerate(ranges):
        if span is None:
            continue
        word = _word_at(text, span, starts)
        is_best = token in best
        if not is_best and (nearness[token] < _NEAR or text[slice(*word)].lower() in STOP_WORDS):
            continue
        similarity, was_best = found.get(word, (-1.0, False))
        found[word] = (max(similarity, top[token]), was_best or is_best)
    return tuple(
        Word(offset + a, offset + b, round(similarity, 4), is_best)
        for (a, b), (similarity, is_best) in sorted(found.items())
    )


def _word_at(text: str, span: tuple[int, int], starts: dict[int, tuple[int, int]]) -> tuple[int, int]:
    begin = span[0]
    # Byte-level tokens carry the blank before them.
    while begin < span[1] and text[begin].isspace():
        begin += 1
    at = begin
    while at > 0 and begin - at < _LONGEST_WORD and at not in starts:
        at -= 1
    word = starts.get(at)
    if word is None or not word[0] <= begin < word[1] or word[1] - word[0] > _LONGEST_WORD:
        return (begin, span[1]) if begin < span[1] else span
    return word


def window_ranges(text: str, backbone: Backbone) -> list[tuple[int, int]]:
    """Return where each window of a document lies in its text."""
    from ..encode.windows import split_windows

    out: list[tuple[int, int]] = []
    at = 0
    for window in split_windows(text, backbone.windows):
        start = text.index(window, at)
        at = start + len(window)
        out.append((start, at))
    return out


def token_ranges(backbone: Backbone, text: str) -> list[tuple[int, int] | None] | None:
    """Return where each token vector of a window comes from.

    Args:
        backbone: the encoder.
        text: one window of a document.

    Returns:
        Character offsets per vector, None for special tokens and the prompt's; or None when the
        encoder's tokens cannot be traced back (a tokenizer without offsets, pooled tokens).
    """
    from sentence_transformers.multi_vector_encoder.modules import MultiVectorMask

    from ..encode.backbone import clean_text

    encoder = backbone.encoder
    prompt = encoder.prompts.get("document") or ""
    tokenizer = backbone.tokenizer
    if not getattr(tokenizer, "is_fast", False):
        return None
    # The tokenizer changes its own padding state and is not thread-safe.
    with backbone._lock:
        features = encoder.preprocess([clean_text(text)], prompt=prompt or None, task="document")
        ids = features.get("input_ids")
        if ids is None or ids.ndim != 2:
            return None
        traced = tokenizer(
            prompt + clean_text(text), return_offsets_mapping=True, truncation=True, max_length=ids.shape[1]
        )
    if list(traced["input_ids"]) != ids[0].tolist():
        return None
    mask = {"input_ids": ids, "attention_mask": features["attention_mask"]}
    for module in encoder:
        if isinstance(module, MultiVectorMask):
            mask = module(mask, task="document")
    kept = mask["attention_mask"][0].bool().tolist()
    shift = len(prompt)
    return [
        (a - shift, b - shift) if a < b and a >= shift else None
        for (a, b), keep in zip(traced["offset_mapping"], kept, strict=True)
        if keep
    ]
