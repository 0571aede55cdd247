"""Triples for the exclusion adapter, read from suites in the benchmark format."""

from __future__ import annotations

import random
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from ..bench.suites import load_suite
from ..errors import SuiteError

__all__ = ["Triple", "grouped_split", "read_triples"]


@dataclass(frozen=True)
class Triple:
    """One training example of the exclusion adapter (paper, section 4).

    Args:
        query: a query that wants X and excludes Z.
        topics: the excluded topics as they stand in the query; may be empty when they are not known.
        wanted: text of a document that answers it.
        negative: text of a confusable document about Z.
        group: id of the wanted document; triples of one group stay on one side of a split.
    """

    query: str
    topics: tuple[str, ...]
    wanted: str
    negative: str
    group: str


def read_triples(folders: Sequence[str | Path], *, split: str = "train") -> list[Triple]:
    """Read every (query, wanted, excluded) combination of the suites' split.

    Args:
        folders: suites in the benchmark format.
        split: which qrels.

    Returns:
        Triples in the order of the suites.

    Raises:
        SuiteError: a suite is malformed, or none has a pair of a relevant and an excluded document.
    """
    out: list[Triple] = []
    for folder in folders:
        suite = load_suite(folder, split)
        texts = {c.id: c.text for c in suite.documents}
        for query in suite.queries:
            judged = suite.qrels[query.id]
            wanted = [d for d, s in judged.items() if s >= 1]
            excluded = [d for d, s in judged.items() if s < 0]
            out.extend(
                Triple(query.text, tuple(query.excluded), texts[w], texts[n], f"{Path(folder).name}/{w}")
                for w in wanted
                for n in excluded
            )
    if not out:
        raise SuiteError(f"{[str(f) for f in folders]} hold no query with a relevant and an excluded document.")
    return out


def grouped_split(triples: Sequence[Triple], held_out: float, *, seed: int = 0) -> tuple[list[Triple], list[Triple]]:
    """Split by wanted document, so that no document is on both sides.

    Args:
        triples: all triples.
        held_out: share of groups on the second side, in (0, 1).
        seed: of the shuffle.
    """
    groups: dict[str, list[Triple]] = defaultdict(list)
    for triple in triples:
        groups[triple.group].append(triple)
    names = sorted(groups)
    random.Random(seed).shuffle(names)
    cut = max(1, round(len(names) * held_out))
    held = {name for name in names[:cut]}
    return [t for t in triples if t.group not in held], [t for t in triples if t.group in held]
