"""Contrastive minimal pairs: the detector's training data (paper, section 3).

A positive excludes a topic ("A and B but not C", "A and B, with C already covered"); its negative keeps
the topic and nearly the words ("A, B and C", "with C hardly covered"). Both members share the subject,
the topics, the length and the looks, so none of them predicts the label.
"""

from __future__ import annotations

import random
import re
from collections import defaultdict
from collections.abc import Collection, Iterable, Mapping, Sequence

from ..errors import InvalidInputError
from .constructions import (
    Construction,
    Frame,
    Piece,
    capitalise,
    load_constructions,
    load_contexts,
    load_frames,
    render,
)
from .corpus_frames import frames_from_corpus
from .examples import Example, digest, load_natural, split, surface_word_balance
from .surface import apply_style, draw_style, join

__all__ = [
    "Example",
    "Frame",
    "digest",
    "frames_from_corpus",
    "generate",
    "load_natural",
    "split",
    "surface_word_balance",
]

#: Share of each kind among the positives (the paper names explicit and cue-free ones; the rest is ours).
MIX: Mapping[str, float] = {"explicit": 0.3, "implicit": 0.45, "compound": 0.25}
SHORT_MAX, LONG_MIN, LONG_MAX = 18, 20, 75
_FIXED_SHARE = 0.1  # pairs about a fixed text ("non-small cell lung cancer staging") rather than a frame
_NATIVE_LONG = 0.55  # long pairs from a long construction; the others lengthen a short one with contexts


def generate(
    n: int,
    *,
    seed: int = 0,
    topics: Sequence[Frame] | None = None,
    domains: Collection[str] | None = None,
    mix: Mapping[str, float] | None = None,
    augment: bool = True,
) -> list[Example]:
    """Generate minimal pairs, balanced exactly over short/long and excludes/does not.

    Args:
        n: number of examples, at least 0; rounded down to a multiple of four.
        seed: the same seed and data give the same examples on every platform.
        topics: frames to use; None for the packaged ones.
        domains: keep only frames of these domains; None for all.
        mix: weight per kind of positive (explicit, implicit, compound), each ≥ 0; None for the default.
        augment: whether to vary the looks (case, typos, quotes, punctuation), alike in both members.

    Returns:
        The examples, members of a pair next to each other, pairs in random order.

    Raises:
        InvalidInputError: n is negative, no frame is left, or the mix has an unknown kind or no weight.

    Paper, section 3.
    """
    mix = MIX if mix is None else mix
    if n < 0:
        raise InvalidInputError(f"n must be at least 0, got {n}")
    if not set(mix) <= set(MIX) or min(mix.values(), default=0) < 0 or sum(mix.values()) <= 0:
        raise InvalidInputError(f"mix must give weights of at least 0 to some of {sorted(MIX)}, got {dict(mix)!r}")
    frames = [f for f in (load_frames() if topics is None else topics) if domains is None or f.domain in domains]
    if n >= 4 and not frames:
        known = sorted({f.domain for f in (load_frames() if topics is None else topics)})
        raise InvalidInputError(f"no frame left for domains {domains!r}; known: {known}")
    rng = random.Random(seed)
    forms = ["short", "long"] * (n // 4)
    rng.shuffle(forms)
    pool = _Pool(mix)
    return [e for i, form in enumerate(forms) for e in _pair(rng, pool, frames, form, f"g{i:06d}", augment)]


class _Pool:
    """Constructions by what a draw asks for."""

    def __init__(self, mix: Mapping[str, float]) -> None:
        self.kinds = [k for k in mix if mix[k] > 0]
        self.weights = [mix[k] for k in self.kinds]
        self.positives: dict[tuple[str, str, bool], list[Construction]] = defaultdict(list)
        self.negatives: dict[str, list[Construction]] = defaultdict(list)
        for c in load_constructions():
            if c.label:
                self.positives[c.kind, c.form, "X" in c.slots].append(c)
            else:
                self.negatives[c.pair].append(c)

    def draw(self, rng: random.Random, form: str) -> tuple[Construction, Construction]:
        kind = rng.choices(self.kinds, self.weights)[0]
        core = "long" if form == "long" and rng.random() < _NATIVE_LONG else "short"
        framed = rng.random() >= _FIXED_SHARE or not self.positives[kind, core, False]
        positive = rng.choice(self.positives[kind, core, framed])
        return positive, rng.choice(self.negatives[positive.pair])


def _pair(
    rng: random.Random, pool: _Pool, frames: Sequence[Frame], form: str, key: str, augment: bool
) -> list[Example]:
    for _ in range(1000):
        members = pool.draw(rng, form)
        frame = rng.choice(frames)
        framed = "X" in members[0].slots
        if framed and any(m.fits not in ("any", frame.kind) for m in members):
            continue
        fill = _fill(rng, members, frame) if framed else {}
        if fill is None:
            continue
        rendered = _lengthen(rng, [render(m, fill) for m in members], members[0], form)
        if augment:
            style = draw_style(rng, rendered)
            rendered = [apply_style(r, style) for r in rendered]
        counts = [len(join(r)[0].split()) for r in rendered]
        if min(counts) < (LONG_MIN if form == "long" else 1):
            continue
        if max(counts) > (LONG_MAX if form == "long" else SHORT_MAX):
            continue
        names = (frame.wanted, *frame.topics) if framed else (members[0].pair,)
        return [
            _example(r, m, form, f"{key}-{m.pair}", frame.domain if framed else "fixed", names)
            for r, m in zip(rendered, members, strict=True)
        ]
    raise InvalidInputError(f"no construction fits the frames given, e.g. {frames[0].wanted!r}, in the {form} form")


def _fill(rng: random.Random, members: Sequence[Construction], frame: Frame) -> dict[str, str] | None:
    slots = sorted(frozenset().union(*(m.slots for m in members)))
    left = rng.sample(frame.topics, len(frame.topics))
    fill = {"X": frame.wanted, "ASK": rng.choice(frame.asks), "ANSWER": frame.answer}
    for slot in (s for s in slots if s[0] in "ZY"):
        name = next((t for t in left if all(m.admits(slot, t) for m in members)), None)
        if name is None:
            return None
        fill[slot] = name
        left.remove(name)
    # Wanted topics by name, so that a member of the subject is not always the excluded one.
    if rng.random() < 0.2 and len(left) >= 2 and not {"Y", "Y2"} & set(slots):
        way = rng.choice(("{} ({}, {})", "{} such as {} and {}", "{} like {} or {}", "{}, {} and {}"))
        fill["X"] = way.format(frame.wanted, *left[:2])
    return fill


def _lengthen(
    rng: random.Random, rendered: list[list[Piece]], construction: Construction, form: str
) -> list[list[Piece]]:
    if form == "short" or (construction.form == "long" and rng.random() < 0.85):
        return rendered
    before: list[str] = []
    after: list[str] = []
    words = min(len(join(r)[0].split()) for r in rendered)
    for context in rng.sample(load_contexts(), 5):
        (before if rng.random() < 0.45 else after).append(context)
        words += len(context.split())
        if words >= LONG_MIN + 2:
            break
    lead, tail = " ".join(before), " ".join(after)
    result = []
    for pieces in rendered:
        stop = "" if re.search(r"[.?!…][\"”)]?$", pieces[-1].text) else "."
        body = [*pieces, Piece(stop + (" " + tail if tail else ""))]
        if lead:
            body = capitalise(body) if construction.register != "chat" else body
            body = [Piece(lead + " "), *body]
        result.append([p for p in body if p.text])
    return result


def _example(
    pieces: Sequence[Piece], construction: Construction, form: str, pair: str, domain: str, names: Iterable[str]
) -> Example:
    text, spans = join(pieces)
    kept = tuple(spans) if construction.label else ()
    return Example(
        text=text,
        label=construction.label,
        excluded=tuple(text[a:b] for a, b in kept),
        spans=kept,
        kind=construction.kind,
        form=form,
        pair=pair,
        domain=domain,
        topics=tuple(n.casefold() for n in names),
    )
