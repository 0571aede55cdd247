"""The detector's training set: generated pairs, natural pairs, and queries of published collections."""

from __future__ import annotations

import json
import random
import re
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from ..errors import InvalidInputError
from .constructions import load_frames
from .examples import Example, load_natural
from .minimal_pairs import generate

__all__ = ["detector_examples", "excluir_examples", "quest_examples", "source_counts", "swap_topics"]

_ARTICLES = {"a", "an", "the"}
_LEAD = re.compile(
    r"(?:\s|\b(?:of|in|from|about|also|by|on|the|are|is|set|any|those|that|which|for|to|with|including|being|found|"
    r"based|ones|were|was|a|an)\b)*",
    re.IGNORECASE,
)


def detector_examples(
    *, generated: int, seed: int, shared: str | Path | None = None, natural_repeats: int = 1, natural_share: float = 1.0
) -> list[Example]:
    """Assemble the training set (paper, section 3).

    Args:
        generated: how many generated examples, a multiple of 4.
        seed: seed of the generator.
        shared: folder with ``detector/*.jsonl`` and ``exclusion/excluir``; None uses packaged data alone.
        natural_repeats: how often each natural example stands in the set.
        natural_share: share of the natural pairs that are drawn, in [0, 1]; a smaller draw is part of a larger one.

    Returns:
        The examples; a pair's members share ``pair``.

    Raises:
        InvalidInputError: ``natural_share`` is out of range.
    """
    if not 0.0 <= natural_share <= 1.0:
        raise InvalidInputError(f"natural_share={natural_share!r} is not within 0 and 1.")
    natural = load_natural()
    out = list(generate(generated, seed=seed)) if generated else []
    if shared is not None:
        root = Path(shared)
        natural += load_natural(root / "detector" / "minimal_pairs.jsonl")
        out += excluir_examples(root)
        out += quest_examples(root)
    pairs = sorted({e.pair for e in natural})
    random.Random(seed).shuffle(pairs)
    drawn = set(pairs[: round(natural_share * len(pairs))])
    natural = [e for e in natural if e.pair in drawn]
    for repeat in range(natural_repeats):
        # Every second copy has other topics, so that the words around a topic must give it away.
        copy = swap_topics(natural, seed=seed + repeat) if repeat % 2 else natural
        out += [replace(e, pair=f"{e.pair}#{repeat}") for e in copy]
    return out


def swap_topics(examples: Sequence[Example], *, seed: int) -> list[Example]:
    """Replace the excluded topics of natural pairs by other topics of as many words.

    A topic is replaced in every member of its pair that names it, so the pair stays minimal.

    Args:
        examples: natural examples.
        seed: of the draw.

    Returns:
        As many examples, in order; a pair whose topics overlap or cannot be found again stays as it is.
    """
    by_length: dict[int, list[str]] = {}
    for frame in load_frames():
        for topic in frame.topics:
            by_length.setdefault(len(topic.split()), []).append(topic)
    rng = random.Random(seed)
    chosen: dict[tuple[str, str], str] = {}
    for example in examples:
        for topic in example.excluded:
            pool = by_length.get(len(topic.split()), [])
            if pool:
                chosen.setdefault((example.pair, topic), rng.choice(pool))
    names: dict[str, dict[str, str]] = {}
    for (pair, topic), new in chosen.items():
        names.setdefault(pair, {})[topic] = new
    return [_swapped(e, names.get(e.pair, {})) for e in examples]


def _swapped(example: Example, names: dict[str, str]) -> Example:
    if not names:
        return example
    pattern = "|".join(rf"(?<!\w){re.escape(t)}(?!\w)" for t in sorted(names, key=len, reverse=True))
    text, spans, at = "", [], 0
    for match in re.finditer(pattern, example.text):
        text += example.text[at : match.start()]
        start = len(text)
        text += names[match.group()]
        if match.span() in example.spans:
            spans.append((start, len(text)))
        at = match.end()
    text += example.text[at:]
    if len(spans) != len(example.spans):
        return example
    return replace(example, text=text, spans=tuple(spans), excluded=tuple(text[a:b] for a, b in spans))


def source_counts(examples: Sequence[Example]) -> dict[str, int]:
    """Count the examples per source, for the manifest."""

    def source(example: Example) -> str:
        return (
            "natural"
            if "#" in example.pair
            else example.domain
            if example.domain in ("excluir", "quest")
            else "generated"
        )

    return dict(sorted(Counter(source(e) for e in examples).items()))


def excluir_examples(root: Path) -> list[Example]:
    """Read the ExcluIR queries (training part) and the ordinary question that each came from."""
    out: list[Example] = []
    for number, row in enumerate(_rows(root / "detector" / "excluir_queries.jsonl")):
        example = _positive(row["text"], row["excluded"], pair=f"excluir-{number}", domain="excluir")
        if example is not None:
            out.append(example)
        if row.get("conjunction"):
            out.append(_negative(row["conjunction"], pair=f"excluir-{number}", domain="excluir"))
    suite = root / "exclusion" / "excluir"
    train = {line.split("\t")[0] for line in (suite / "qrels" / "train.tsv").read_text(encoding="utf-8").split("\n")}
    for row in _rows(suite / "queries.jsonl"):
        if row["_id"] in train:
            example = _positive(row["text"], row["excluded"], pair=f"excluir-{row['_id']}", domain="excluir")
            if example is not None:
                out.append(example)
    return out


def quest_examples(root: Path, *, held_out: float = 0.5) -> list[Example]:
    """Read the QUEST queries; the last ``held_out`` share of those without exclusion is left for calibration."""
    out: list[Example] = []
    for number, row in enumerate(_rows(root / "detector" / "quest_not.jsonl")):
        cue = list(re.finditer(r"\b(?:not|without|excluding|except|aren[’']t|isn[’']t|other than)\b", row["text"]))
        if not row["template"].rstrip().endswith("not _") or not cue:
            continue
        lead = _LEAD.match(row["text"], cue[-1].end())
        start = lead.end() if lead else cue[-1].end()
        end = len(row["text"].rstrip(" .?!"))
        if start < end:
            topic = row["text"][start:end]
            example = _positive(row["text"], [topic], pair=f"quest-not-{number}", domain="quest")
            if example is not None:
                out.append(example)
    plain = _rows(root / "detector" / "quest_no_exclusion.jsonl")
    for number, row in enumerate(plain[: int(len(plain) * (1 - held_out))]):
        out.append(_negative(row["text"], pair=f"quest-{number}", domain="quest"))
    return out


def _rows(path: Path) -> list[dict[str, Any]]:
    if not path.is_file():
        raise InvalidInputError(f"{path} does not exist; give the folder that holds detector/ and exclusion/.")
    return [json.loads(line) for line in path.read_text(encoding="utf-8").split("\n") if line.strip()]


def _form(text: str) -> str:
    return "short" if len(text.split()) <= 16 else "long"


def _negative(text: str, *, pair: str, domain: str) -> Example:
    return Example(text, 0, (), (), "plain", _form(text), pair, domain)


def _positive(text: str, topics: Sequence[str], *, pair: str, domain: str) -> Example | None:
    spans: list[tuple[int, int]] = []
    for topic in topics:
        at = _align(text, topic)
        if at is None:
            return None
        if all(at[1] <= a or b <= at[0] for a, b in spans):
            spans.append(at)
    if not spans:
        return None
    spans.sort()
    return Example(
        text, 1, tuple(text[a:b] for a, b in spans), tuple(spans), "explicit", _form(text), pair, domain,
        tuple(t.casefold() for t in topics),
    )  # fmt: skip


def _align(text: str, topic: str) -> tuple[int, int] | None:
    """Find a topic verbatim, else the stretch of words that shares most of its words."""
    at = text.find(topic)
    if at < 0:
        at = text.lower().find(topic.lower()) if len(text) == len(text.lower()) else -1
    if at >= 0 and topic:
        return at, at + len(topic)
    words = list(_words(text))
    goal = {w for w, _, _ in _words(topic)} - _ARTICLES
    best: tuple[float, int, int] = (0.0, 0, 0)
    for i in range(len(words)):
        for j in range(i, min(i + len(goal) + 4, len(words))):
            piece = {w for w, _, _ in words[i : j + 1]} - _ARTICLES
            common = len(piece & goal)
            f1 = 2 * common / (len(piece) + len(goal)) if common else 0.0
            if f1 > best[0]:
                best = (f1, words[i][1], words[j][2])
    return (best[1], best[2]) if best[0] >= 0.6 else None


def _words(text: str) -> Iterator[tuple[str, int, int]]:
    for match in re.finditer(r"\w+", text):
        yield match.group().lower(), match.start(), match.end()
