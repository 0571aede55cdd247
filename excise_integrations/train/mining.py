"""Confusable pairs out of any corpus, as training triples for the exclusion adapter (paper, sections 4 and 7).

A triple is a query, the wanted document, and the document about the excluded topic that a first
stage confuses with it. Neighbours come from a band of similarity, near-duplicates are left out, and
nothing that a test or dev split judges is ever touched.
"""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import dataclass, field

from torch import Tensor

from ..encode.backbone import Backbone
from ..encode.cache import VectorCache
from ..errors import InvalidInputError
from .confusable import MinedTriple, MiningSettings, Search
from .descriptions import Document, Vocabulary
from .near_duplicates import NearDuplicates
from .neighbours import Neighbours, pool_documents
from .query_templates import QueryWriter, TemplateWriter

__all__ = ["Mined", "MinedTriple", "MiningSettings", "eligible", "mine"]

Progress = Callable[[str, int, int], None]
"""Called with the stage ("encoding" or "mining"), how much is done, and the total."""

_BATCH = 64
# Enough to hold a batch's neighbours while their MaxSim is taken.
_CACHE_BYTES = 512 * 1024 * 1024


@dataclass(frozen=True)
class Mined:
    """What was mined.

    Args:
        triples: in the order they were found.
        refused: why candidates were refused, and how often.
        band: the band of similarity that was used.
    """

    triples: tuple[MinedTriple, ...]
    refused: dict[str, int] = field(default_factory=dict)
    band: tuple[float, float] = (0.0, 0.0)


def mine(
    documents: Sequence[Document],
    backbone: Backbone,
    *,
    settings: MiningSettings | None = None,
    writer: QueryWriter | None = None,
    forbidden: Sequence[Document] = (),
    forbidden_ids: Collection[str] = (),
    vectors: Tensor | None = None,
    progress: Progress | None = None,
) -> Mined:
    """Mine confusable pairs and write a query for each.

    Args:
        documents: the corpus; documents whose id occurs twice are passed over.
        backbone: the encoder whose neighbours count.
        settings: how pairs are chosen.
        writer: writes the queries; None takes the templates.
        forbidden: documents of test and dev splits. Neither they, nor documents with their id or
            title, nor their near-duplicates are used.
        forbidden_ids: ids of such documents whose text is not at hand.
        vectors: pooled vectors of ``documents`` in this order (see
            :func:`~excise_integrations.train.neighbours.pool_documents`), when they exist already.
        progress: see :data:`Progress`.

    Returns:
        The triples, at most ``settings.count``.

    Raises:
        InvalidInputError: fewer than two documents are left, or the vectors do not fit.
        MissingExtraError: datasketch is not installed.
    """
    settings = settings or MiningSettings()
    if vectors is not None and vectors.shape[0] != len(documents):
        raise InvalidInputError(f"{vectors.shape[0]} vectors were given for {len(documents)} documents.")
    kept = eligible(documents, forbidden=forbidden, forbidden_ids=forbidden_ids)
    pool = [documents[i] for i in kept]
    if len(pool) < 2:
        raise InvalidInputError(
            f"{len(pool)} of {len(documents)} documents have a text and an id of their own and are not judged in "
            f"a forbidden split; "
            "at least 2 are needed."
        )
    texts = [document.full_text for document in pool]
    if vectors is None:
        report = None if progress is None else (lambda done, total: progress("encoding", done, total))
        vectors = pool_documents(texts, backbone, progress=report)
    else:
        vectors = vectors[kept].float()
    rescore = None
    if settings.similarity == "maxsim":
        rescore = Neighbours.by_maxsim(texts, backbone, VectorCache(_CACHE_BYTES))
    neighbours = Neighbours(vectors, count=settings.neighbours, band=settings.band, rescore=rescore)
    duplicates = NearDuplicates(settings.near_duplicate, (d.full_text for d in forbidden))
    search = Search(pool, neighbours, duplicates, settings, writer or TemplateWriter(Vocabulary(texts)))
    order = list(range(len(pool)))
    random.Random(settings.seed).shuffle(order)
    triples: list[MinedTriple] = []
    at = 0
    while at < len(order) and len(triples) < settings.count:
        found, looked = search.batch(order[at : at + _BATCH], settings.count - len(triples))
        at += looked
        triples.extend(search.in_reach(found, backbone))
        search.count(triples)
        if progress is not None:
            progress("mining", len(triples), settings.count)
    return Mined(tuple(triples), dict(sorted(search.refused.items())), neighbours.band)


def eligible(
    documents: Sequence[Document], *, forbidden: Sequence[Document] = (), forbidden_ids: Collection[str] = ()
) -> list[int]:
    """Return the places of the documents that may be used.

    They have a text and an id of their own, and no forbidden split judges them or their title.
    """
    ids = {*forbidden_ids, *(d.id for d in forbidden)}
    titles = {_plain(d.title) for d in forbidden} - {""}
    times = Counter(d.id for d in documents)
    return [
        place
        for place, d in enumerate(documents)
        if d.text.strip() and times[d.id] == 1 and d.id not in ids and _plain(d.title) not in titles
    ]


def _plain(title: str) -> str:
    return " ".join(title.casefold().split())


def documents_of(triples: Sequence[MinedTriple]) -> Iterator[Document]:
    """Yield every document of some triples once, in order of first use."""
    seen: set[str] = set()
    for triple in triples:
        for document in (triple.group.wanted, *triple.group.excluded):
            if document.id not in seen:
                seen.add(document.id)
                yield document
