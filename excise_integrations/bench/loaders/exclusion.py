"""ExcluIR (Zhang et al., AAAI 2025) and NevIR (Weller et al., EACL 2024): pairs of a right and a wrong document."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from ...errors import SuiteError
from .fields import find_file, read_array, read_records, text_field
from .records import Collection, Judgment, Passage, Question

__all__ = ["read_excluir", "read_nevir"]

_PAIR_FIELDS = ("q1", "q2", "doc1", "doc2")


def read_excluir(path: Path, split: str) -> Collection:
    """Read ``corpus.json``, an array of texts, and ``test_manual_final.json``, or ``SPLIT.json`` where it is there.

    An entry has the exclusionary query (``ExcluQ``, or ``RQ_rewrite``) and the places in the corpus (``index``, or
    ``corpus_sub_index``) of the document that it excludes, and after it those that it wants.

    Raises:
        SuiteError: a file is missing, or an entry has no excluded or no wanted document.
    """
    corpus = find_file(path, "corpus.json")
    entries = find_file(path, f"{split}.json", "test_manual_final.json")
    texts = read_array(corpus)
    questions, judgments = [], []
    for number, (where, record) in enumerate(read_records(entries)):
        name = f"excluir-{number}"
        questions.append(Question(name, text_field(record, "ExcluQ", "RQ_rewrite", where=where), where, tier="T1"))
        places = record.get("index", record.get("corpus_sub_index"))
        if (
            not isinstance(places, list)
            or len(places) < 2
            or not all(isinstance(p, int) and not isinstance(p, bool) for p in places)
        ):
            raise SuiteError(
                f"{where}: 'index' must list the places of the excluded and of a wanted document, not {places!r}."
            )
        excluded, *wanted = places
        judgments.append(Judgment(name, str(excluded), -1, where))
        judgments += [Judgment(name, str(place), 1, where) for place in dict.fromkeys(wanted)]
    return Collection(_texts(corpus, texts), tuple(questions), tuple(judgments))


def _texts(path: Path, texts: list[object]) -> Iterator[Passage]:
    for number, text in enumerate(texts):
        # Counted from 1, as an editor would; ids are places, from 0.
        where = f"{path}, entry {number + 1}"
        if not isinstance(text, str):
            raise SuiteError(f"{where}: a text is needed, not {text!r}.")
        yield Passage(str(number), text, where)


def read_nevir(path: Path, split: str) -> Collection:
    """Read ``SPLIT.jsonl`` or ``SPLIT.csv``, or a file itself: rows of ``q1, q2, doc1, doc2`` and perhaps ``id``.

    Each query is relevant to the document of its number, and the other, which differs by a negation, is marked as
    excluded. The negation is in the documents: no topic is excluded by the query.

    Raises:
        SuiteError: the file is missing, or a row lacks a field.
    """
    file = path if path.is_file() else find_file(path, f"{split}.jsonl", f"{split}.csv")
    passages, questions, judgments = [], [], []
    for number, (where, record) in enumerate(read_records(file), start=1):
        name = str(record.get("id") or number)
        q1, q2, doc1, doc2 = (text_field(record, key, where=where) for key in _PAIR_FIELDS)
        passages += [Passage(f"{name}_doc1", doc1, where), Passage(f"{name}_doc2", doc2, where)]
        questions += [Question(f"{name}_q1", q1, where), Question(f"{name}_q2", q2, where)]
        for query in (1, 2):
            judgments += [
                Judgment(f"{name}_q{query}", f"{name}_doc{d}", 1 if d == query else -1, where) for d in (1, 2)
            ]
    return Collection(passages, tuple(questions), tuple(judgments))
