"""A linear probe per layer: what the vectors tell about an exclusion (paper, appendix A.2)."""

from __future__ import annotations

import random
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from ..errors import InvalidInputError, SuiteError
from ..evidence import STOP_WORDS
from ..train.examples import Example, split
from .hidden import LayerReader
from .suites import Suite

__all__ = ["ProbeQuery", "draw_pairs", "example_queries", "probe_documents", "probe_queries", "suite_queries"]

Array = npt.NDArray[np.float32]
_WORD = re.compile(r"\w+")


@dataclass(frozen=True)
class ProbeQuery:
    """A query and which of its words name an excluded, and which a wanted topic.

    Args:
        text: the query.
        excludes: whether it excludes anything.
        excluded, wanted: character offsets of words.
    """

    text: str
    excludes: bool
    excluded: tuple[tuple[int, int], ...]
    wanted: tuple[tuple[int, int], ...]


def draw_pairs(examples: Sequence[Example], limit: int, seed: int) -> list[Example]:
    """Return the examples of at most ``limit`` pairs, drawn by a seed, in order."""
    pairs = list(dict.fromkeys(e.pair for e in examples))
    chosen = set(random.Random(seed).sample(pairs, min(limit, len(pairs))))
    return [e for e in examples if e.pair in chosen]


def example_queries(examples: Sequence[Example]) -> list[ProbeQuery]:
    """Turn the detector's examples into probe queries.

    A wanted word is one of a topic that some member of the pair names, where it is not excluded: above all the same
    topic in the member that excludes nothing.
    """
    names: dict[str, set[str]] = {}
    for e in examples:
        names.setdefault(e.pair, set()).update(*(_words(n) for n in (*e.topics, *e.excluded)))
    return [_query(e.text, bool(e.label), e.spans, names[e.pair]) for e in examples]


def suite_queries(suite: Suite) -> list[ProbeQuery]:
    """Turn a suite's queries into probe queries: its recorded topics, found in the query; no wanted words.

    Queries whose topics cannot be found verbatim are left out, and so are those without topics unless their tier
    (``C-…``) says that they exclude nothing.
    """
    found = []
    for query in suite.queries:
        spans = [(at, at + len(t)) for t in query.excluded if (at := query.text.find(t)) >= 0]
        if query.excluded and len(spans) == len(query.excluded):
            found.append(_query(query.text, True, spans, set()))
        elif not query.excluded and query.groups.get("tier", "").startswith("C-"):
            found.append(_query(query.text, False, (), set()))
    return found


def probe_queries(
    reader: LayerReader,
    examples: Sequence[Example],
    suites: Sequence[Suite] = (),
    *,
    held_out: float = 0.3,
    seed: int = 0,
) -> dict[str, Any]:
    """Train a logistic regression on each layer and test it on queries about other topics.

    ``tokens`` tells an excluded from a wanted topic's word; ``queries`` tells, by the mean of a query's tokens, a query
    that excludes something from one that does not.

    Args:
        reader: the encoder.
        examples: the detector's minimal pairs; no pair, subject or topic is on both sides of the split.
        suites: their queries test the second probe too.
        held_out: share of the examples that test.
        seed: of the split.

    Returns:
        ``tokens`` and ``queries``, each with ``train``, ``test`` (how many) and ``layers``: one record per layer with
        its ``layer`` and balanced accuracy on the ``held_out`` examples and, for queries, on the ``suites`` (None
        without any).

    Raises:
        InvalidInputError: a side of the split lacks one of the classes.
    """
    kept, test = split(examples, held_out=held_out, seed=seed)
    read = [_features(reader, example_queries(part)) for part in (kept, test)]
    if any(len(set(part[label].tolist())) < 2 for part in read for label in ("word_labels", "labels")):
        raise InvalidInputError(f"{len(examples)} examples are too few to probe; give some hundreds.")
    outside = _features(reader, [q for s in suites for q in suite_queries(s)])
    tokens, queries = [], []
    for layer, name in enumerate(reader.names):
        words = _fit(read[0]["words"][layer], read[0]["word_labels"])
        means = _fit(read[0]["means"][layer], read[0]["labels"])
        tokens.append({"layer": name, "held_out": _accuracy(words, read[1]["words"][layer], read[1]["word_labels"])})
        queries.append(
            {
                "layer": name,
                "held_out": _accuracy(means, read[1]["means"][layer], read[1]["labels"]),
                "suites": _accuracy(means, outside["means"][layer], outside["labels"]),
            }
        )
    counts = [{"train": len(read[0][k]), "test": len(read[1][k])} for k in ("word_labels", "labels")]
    return {
        "tokens": {**counts[0], "layers": tokens},
        "queries": {**counts[1], "suites": len(outside["labels"]), "layers": queries},
    }


def probe_documents(reader: LayerReader, suites: Sequence[Suite], *, folds: int = 5, seed: int = 0) -> dict[str, Any]:
    """Tell wanted from excluded documents by the mean of their tokens, layer by layer.

    This is the probe of the paper's Table 2. Documents that any query judges together are in one fold.

    Args:
        reader: the encoder.
        suites: queries with a wanted and an excluded document.
        folds: of the cross-validation, at least 2.
        seed: of the order of the folds.

    Returns:
        ``n`` documents and ``layers``, each with its ``layer`` and balanced ``accuracy`` over the held-out folds.

    Raises:
        SuiteError: fewer groups of documents than folds.
    """
    texts, labels, groups = _judged(suites)
    if len(set(groups)) < folds:
        raise SuiteError(f"{len(set(groups))} groups of judged documents are too few for {folds} folds.")
    from sklearn.metrics import balanced_accuracy_score  # type: ignore[import-untyped]
    from sklearn.model_selection import StratifiedGroupKFold, cross_val_predict  # type: ignore[import-untyped]

    means = _stack([e.layers(range(len(e.offsets))) for e in reader.read(texts)], len(reader.names))
    truth = np.asarray(labels)
    splitter = StratifiedGroupKFold(folds, shuffle=True, random_state=seed)
    layers = []
    for layer, name in enumerate(reader.names):
        predicted = cross_val_predict(_model(), means[layer], truth, groups=groups, cv=splitter)
        layers.append({"layer": name, "accuracy": float(balanced_accuracy_score(truth, predicted))})
    return {"n": len(texts), "layers": layers}


# --- features -----------------------------------------------------------------------------


def _features(reader: LayerReader, queries: Sequence[ProbeQuery]) -> dict[str, Any]:
    words: list[list[Any]] = []
    word_labels: list[bool] = []
    means: list[list[Any]] = []
    for query, encoded in zip(queries, reader.read([q.text for q in queries]), strict=True):
        means.append(encoded.layers(range(len(encoded.offsets))))
        for spans, label in ((query.excluded, True), (query.wanted, False)):
            for a, b in spans:
                pieces = [i for i, (x, y) in enumerate(encoded.offsets) if a <= x and y <= b]
                if pieces:
                    words.append(encoded.layers(pieces))
                    word_labels.append(label)
    depth = len(reader.names)
    return {
        "words": _stack(words, depth),
        "word_labels": np.asarray(word_labels, dtype=bool),
        "means": _stack(means, depth),
        "labels": np.asarray([q.excludes for q in queries], dtype=bool),
    }


def _stack(rows: Sequence[Sequence[Any]], depth: int) -> list[Array]:
    return [np.asarray([row[layer].numpy() for row in rows], dtype=np.float32) for layer in range(depth)]


def _query(text: str, excludes: bool, spans: Iterable[tuple[int, int]], names: set[str]) -> ProbeQuery:
    kept = tuple(spans)
    excluded, wanted = [], []
    for match in _WORD.finditer(text):
        word, at = match.group().lower(), match.span()
        if word in STOP_WORDS:
            continue
        if any(a <= at[0] and at[1] <= b for a, b in kept):
            excluded.append(at)
        elif word in names and all(at[1] <= a or b <= at[0] for a, b in kept):
            wanted.append(at)
    return ProbeQuery(text, excludes, tuple(excluded), tuple(wanted))


def _words(name: str) -> set[str]:
    return set(_WORD.findall(name.lower())) - STOP_WORDS


def _judged(suites: Sequence[Suite]) -> tuple[list[str], list[bool], list[int]]:
    texts: list[str] = []
    labels: list[bool] = []
    groups: list[int] = []
    for suite in suites:
        contents = {d.id: d.text for d in suite.documents}
        root: dict[str, str] = {}

        def find(name: str, root: dict[str, str] = root) -> str:
            while root.setdefault(name, name) != name:
                name = root[name]
            return name

        pairs = []
        for query in suite.queries:
            judged = {d: s for d, s in suite.qrels[query.id].items() if s != 0 and d in contents}
            if min(judged.values(), default=0) < 0 < max(judged.values(), default=0):
                pairs += [(d, s > 0) for d, s in judged.items()]
                first = next(iter(judged))
                for other in judged:
                    root[find(other)] = find(first)
        numbers: dict[str, int] = {}
        start = max(groups, default=-1) + 1
        for document, wanted in dict.fromkeys(pairs):
            texts.append(contents[document])
            labels.append(wanted)
            groups.append(start + numbers.setdefault(find(document), len(numbers)))
    return texts, labels, groups


# --- the probe ----------------------------------------------------------------------------


def _model() -> Any:
    from sklearn.linear_model import LogisticRegression  # type: ignore[import-untyped]
    from sklearn.pipeline import make_pipeline  # type: ignore[import-untyped]
    from sklearn.preprocessing import StandardScaler  # type: ignore[import-untyped]

    return make_pipeline(StandardScaler(), LogisticRegression(C=0.01, max_iter=500, class_weight="balanced"))


def _fit(features: Array, labels: npt.NDArray[np.bool_]) -> Any:
    return _model().fit(features, labels)


def _accuracy(model: Any, features: Array, labels: npt.NDArray[np.bool_]) -> float | None:
    if len(set(labels.tolist())) < 2:
        return None
    from sklearn.metrics import balanced_accuracy_score

    return float(balanced_accuracy_score(labels, model.predict(features)))
