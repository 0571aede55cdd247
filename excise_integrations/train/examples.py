"""Labelled queries for the detector: the record, natural ones from files, splits and checks.

Paper, section 3.
"""

from __future__ import annotations

import hashlib
import json
import random
import re
from collections import Counter, defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ..errors import InvalidInputError
from .constructions import data_files, read_jsonl

__all__ = ["SURFACE_WORDS", "Example", "digest", "load_natural", "split", "surface_word_balance"]

_TEMPTING = (
    "not no never without except excluding other apart aside minus skip omit leave forget rather instead but nothing "
    "neither beyond besides already covered done know known read seen finished closed why can't don't isn't haven't "
    "also including and or only"
)
#: Words that tempt a detector into deciding by the word alone.
SURFACE_WORDS = tuple(_TEMPTING.split())


@dataclass(frozen=True)
class Example:
    """One query of the detector's training data.

    Args:
        text: the query.
        label: 1 if it excludes a topic, else 0.
        excluded: the excluded topics, verbatim, in query order; empty for label 0.
        spans: their character offsets: ``text[start:end]`` is the topic.
        kind: how it excludes, or why it does not (see :class:`~.constructions.Construction`).
        form: ``"short"`` or ``"long"``.
        pair: key shared by the members of a minimal pair.
        domain: field of knowledge.
        topics: names by which :func:`split` keeps sets apart, case-folded: the subject and its topics.
    """

    text: str
    label: int
    excluded: tuple[str, ...]
    spans: tuple[tuple[int, int], ...]
    kind: str
    form: str
    pair: str
    domain: str
    topics: tuple[str, ...] = ()


def split(examples: Sequence[Example], *, held_out: float, seed: int = 0) -> tuple[list[Example], list[Example]]:
    """Split so that no pair, subject or topic is on both sides.

    Args:
        examples: generated or natural examples.
        held_out: share of the examples to hold out, in (0, 1); met as closely as the groups allow.
        seed: seed of the draw.

    Returns:
        (training, held out), each in the order given.

    Raises:
        InvalidInputError: held_out is not in (0, 1).

    Paper, section 3.
    """
    if not 0 < held_out < 1:
        raise InvalidInputError(f"held_out must lie in (0, 1), got {held_out}")
    parent: dict[tuple[str, str], tuple[str, str]] = {}

    def root(key: tuple[str, str]) -> tuple[str, str]:
        parent.setdefault(key, key)
        while parent[key] != key:
            parent[key] = parent[parent[key]]
            key = parent[key]
        return key

    for e in examples:
        for name in e.topics:
            parent[root(("topic", name))] = root(("pair", e.pair))
    groups: dict[tuple[str, str], list[int]] = defaultdict(list)
    for i, e in enumerate(examples):
        groups[root(("pair", e.pair))].append(i)
    order = list(groups.values())
    random.Random(seed).shuffle(order)
    held: set[int] = set()
    for group in order:
        if len(held) + len(group) / 2 <= held_out * len(examples):
            held.update(group)
    kept = [e for i, e in enumerate(examples) if i not in held]
    return kept, [e for i, e in enumerate(examples) if i in held]


def digest(examples: Iterable[Example]) -> str:
    """Return the sha256 (hex) of a set of examples, whatever their order."""
    lines = sorted(json.dumps([e.text, e.label, e.spans, e.kind, e.form], ensure_ascii=False) for e in examples)
    return hashlib.sha256("\n".join(lines).encode()).hexdigest()


def surface_word_balance(examples: Iterable[Example], words: Iterable[str] | None = None) -> dict[str, tuple[int, int]]:
    """Count in how many texts of each label a word occurs.

    Args:
        examples: the examples.
        words: words to count, any case; None for every word that occurs.

    Returns:
        Per lower-cased word (texts with label 0, texts with label 1), the most frequent first.

    Paper, section 3.
    """
    counts: tuple[Counter[str], Counter[str]] = (Counter(), Counter())
    for e in examples:
        text = e.text.lower().replace("’", "'")
        counts[e.label].update(set(re.findall(r"[^\W\d_]+(?:'[^\W\d_]+)?", text)))
    wanted = {w.lower() for w in words} if words is not None else set(counts[0]) | set(counts[1])
    ranked = sorted(wanted, key=lambda w: (-counts[0][w] - counts[1][w], w))
    return {w: (counts[0][w], counts[1][w]) for w in ranked}


def load_natural(path: str | Path | None = None) -> list[Example]:
    """Read natural minimal pairs.

    Args:
        path: a JSON-lines file with the fields pair, label, text, excluded, kind and form, or a folder with
            ``natural_*.jsonl``; None for the packaged ones.

    Returns:
        The examples in file order; the domain is the file's name without "natural_".

    Raises:
        InvalidInputError: the path does not exist, a field is missing, an excluded topic does not occur verbatim,
            or a label contradicts ``excluded``; names the file and the pair.

    Paper, section 3.
    """
    if path is None:
        files: list[Any] = data_files("natural_")
    else:
        path = Path(path)
        if not path.exists():
            raise InvalidInputError(f"no such file or folder: {str(path)!r}")
        files = sorted(path.glob("natural_*.jsonl")) if path.is_dir() else [path]
    examples = []
    for file in files:
        domain = file.name.removesuffix(".jsonl").removeprefix("natural_")
        for row in read_jsonl(file):
            where = f"{file.name}, pair {row.get('pair')!r}"
            missing = sorted({"pair", "label", "text", "excluded", "kind", "form"} - set(row))
            if missing:
                raise InvalidInputError(f"{where}: missing {missing}")
            if row["label"] not in (0, 1) or row["form"] not in ("short", "long"):
                raise InvalidInputError(f"{where}: label {row['label']!r} or form {row['form']!r} is unknown")
            if bool(row["excluded"]) != bool(row["label"]):
                raise InvalidInputError(f"{where}: label {row['label']} contradicts excluded={row['excluded']!r}")
            spans = _find_spans(row["text"], row["excluded"], where)
            examples.append(
                Example(
                    text=row["text"],
                    label=row["label"],
                    excluded=tuple(row["text"][a:b] for a, b in spans),
                    spans=tuple(spans),
                    kind=row["kind"],
                    form=row["form"],
                    pair=row["pair"],
                    domain=domain,
                    topics=tuple(t.casefold() for t in row["excluded"]),
                )
            )
    return examples


def _find_spans(text: str, topics: Sequence[str], where: str) -> list[tuple[int, int]]:
    """Find each topic once, whole words before parts of words, longer topics first, without overlap."""
    spans: list[tuple[int, int]] = []
    for topic in sorted(topics, key=len, reverse=True):
        literal = re.escape(topic)
        found = [m.span() for p in (rf"(?<!\w){literal}(?!\w)", literal) for m in re.finditer(p, text) if topic]
        free = [(a, b) for a, b in found if all(b <= x or y <= a for x, y in spans)]
        if not free:
            raise InvalidInputError(f"{where}: excluded topic {topic!r} does not occur in {text!r}")
        spans.append(free[0])
    return sorted(spans)
