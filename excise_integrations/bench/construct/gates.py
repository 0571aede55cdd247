"""The nine gates. Each sees the final query, and one that it fails drops the record (paper, X-Bench construction)."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

from ...encode.backbone import Backbone
from ...encode.maxsim import maxsim
from ...first_stage.base import FirstStage
from ...train.descriptions import Document, content_words, mentions, topic_name
from ...train.near_duplicates import NearDuplicates
from ..lexical import LexicalIndex
from ..lexical import content_words as query_words
from .answers import Model
from .judging import is_about, reads_as_meant
from .records import BenchRecord, BuildSettings

__all__ = ["GATES", "Tools", "first_failure"]


@dataclass
class Tools:
    """What the gates measure with.

    Args:
        settings: the bounds.
        stage: the first stage over the corpus.
        backbone: the late-interaction encoder.
        bm25: over the same corpus.
        places: document id → its place in ``bm25``.
        duplicates: tells near-duplicates within a record.
        references: knows the reference corpora; None when none was given.
        judge: None when there is none.
        taken: the kept queries, folded; :func:`first_failure` adds to it.
    """

    settings: BuildSettings
    stage: FirstStage
    backbone: Backbone
    bm25: LexicalIndex
    places: Mapping[str, int]
    duplicates: NearDuplicates
    references: NearDuplicates | None = None
    judge: Model | None = None
    taken: set[str] = field(default_factory=set)


def round_trip(record: BenchRecord, tools: Tools) -> bool:
    """The first stage finds the wanted document for the query."""
    found = tools.stage.search(record.draft.text, tools.settings.round_trip)
    return record.group.wanted.id in [c.id for c in found[: tools.settings.round_trip]]


def difficulty(record: BenchRecord, tools: Tools) -> bool:
    """Every excluded document competes with the wanted one on the wanted topic, under BM25 and MaxSim."""
    documents = (record.group.wanted, *record.group.excluded)
    scores = tools.bm25.scores(query_words(record.draft.wanted))
    gold, *others = (float(scores[tools.places[d.id]]) for d in documents)
    if min(others) < tools.settings.bm25 * gold:
        return False
    query = tools.backbone.encode_queries([record.draft.wanted])[0].vectors
    vectors = tools.backbone.encode_documents([d.full_text for d in documents])
    gold, *others = maxsim(query, vectors).tolist()
    return bool(min(others) >= tools.settings.maxsim * gold)


def topic_in_negative(record: BenchRecord, tools: Tools) -> bool:
    """Every excluded document names its topic."""
    pairs = zip(record.draft.excluded, record.group.excluded, strict=True)
    return all(_names(topic, document) for topic, document in pairs)


def topic_not_in_gold(record: BenchRecord, tools: Tools) -> bool:
    """The wanted document does not name an excluded topic, nor is it about one to the judge."""
    gold = record.group.wanted
    if any(_names(topic, gold) for topic in record.draft.excluded):
        return False
    judge = tools.judge
    return judge is None or all(is_about(judge, topic, gold.full_text) is False for topic in record.draft.excluded)


def distinctness(record: BenchRecord, tools: Tools) -> bool:
    """Wanted and excluded topics are different things, so are the documents, and the query is a new one."""
    draft = record.draft
    topics = (draft.wanted, *draft.excluded)
    for at, topic in enumerate(topics):
        for other in topics[at + 1 :]:
            if (
                mentions(topic, other)
                or mentions(other, topic)
                or set(content_words(topic)) == set(content_words(other))
            ):
                return False
    texts = [d.full_text for d in (record.group.wanted, *record.group.excluded)]
    if any(tools.duplicates.same(a, b) for at, a in enumerate(texts) for b in texts[at + 1 :]):
        return False
    return _folded(draft.text) not in tools.taken


def one_negative_per_topic(record: BenchRecord, tools: Tools) -> bool:
    """Each topic has one excluded document of its own, which is about no other topic of the query."""
    topics, documents = record.draft.excluded, record.group.excluded
    ids = [d.id for d in documents]
    if len(topics) != len(documents) or len({*ids, record.group.wanted.id}) != len(ids) + 1:
        return False
    return not any(
        _names(topic, document) for i, topic in enumerate(topics) for j, document in enumerate(documents) if i != j
    )


def leakage(record: BenchRecord, tools: Tools) -> bool:
    """Neither the query nor a judged document is a near-duplicate of a text of the reference corpora."""
    if tools.references is None:
        return True
    texts = [record.draft.text, *(d.full_text for d in (record.group.wanted, *record.group.excluded))]
    return not any(tools.references.is_forbidden(text) for text in texts)


def paraphrase_safety(record: BenchRecord, tools: Tools) -> bool:
    """Rewriting kept the meaning: the topics stand in the query once each, and what is wanted is still asked for.

    At least half of the wanted topic's content words must stand outside the excluded topics, no content word that
    only an excluded topic has may, and the wanted document's title must not give the answer away.
    """
    draft = record.draft
    rest = draft.text
    for topic in draft.excluded:
        if not topic.strip() or topic not in rest:
            return False
        rest = rest.replace(topic, " \0 ", 1)
    if any(mentions(topic, rest) for topic in draft.excluded):
        return False
    wanted, left = set(content_words(draft.wanted)), set(content_words(rest))
    name = topic_name(record.group.wanted)
    if name and mentions(name, rest) and not mentions(name, draft.wanted):
        return False
    return 2 * len(wanted & left) >= len(wanted)


def query_judge(record: BenchRecord, tools: Tools) -> bool:
    """To the judge, the query asks for what is wanted and rules out every excluded topic."""
    return tools.judge is None or reads_as_meant(tools.judge, record) is True


Gate = Callable[[BenchRecord, Tools], bool]

# What costs nothing comes first, what is paid for last.
GATES: dict[str, Gate] = {
    "one_negative_per_topic": one_negative_per_topic,
    "topic_in_negative": topic_in_negative,
    "distinctness": distinctness,
    "paraphrase_safety": paraphrase_safety,
    "leakage": leakage,
    "round_trip": round_trip,
    "difficulty": difficulty,
    "topic_not_in_gold": topic_not_in_gold,
    "query_judge": query_judge,
}


def first_failure(record: BenchRecord, tools: Tools, names: Sequence[str] = tuple(GATES)) -> str | None:
    """Return the name of the first gate that a record fails; None keeps it, and its query is taken from then on."""
    for name in names:
        if not GATES[name](record, tools):
            return name
    tools.taken.add(_folded(record.draft.text))
    return None


def _names(topic: str, document: Document) -> bool:
    """Whether a document has a topic by name, or all of its content words in any order."""
    text = document.full_text
    if mentions(topic, text):
        return True
    words = content_words(topic)
    return len(words) > 1 and all(mentions(word, text) for word in words)


def _folded(text: str) -> str:
    return " ".join(re.findall(r"\w+", text.casefold()))
