"""From a group of documents to a record: the pair's query, its rewrites, and the repair."""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import dataclass, replace

from ...train.confusable import MinedTriple
from ...train.descriptions import topic_name
from ...train.query_llm import check_draft
from ...train.query_templates import Draft, Form, Group, Tier
from .answers import Model
from .prompts import compound_prompt, implicit_prompt, pair_prompt
from .records import BenchRecord, Shape
from .repair import cued_topics, in_one_breath

__all__ = ["GroupNames", "shape_of_templates", "write_record"]


@dataclass(frozen=True)
class GroupNames:
    """Stands in for a writer while groups are mined: the names of the topics and no query."""

    def write(self, group: Group, *, tier: Tier, form: Form, rng: random.Random) -> Draft | None:
        """Return a draft that tells the kind of query and the topics' names, or None for a nameless document."""
        names = [topic_name(document) for document in group.excluded]
        if not all(names):
            return None
        return Draft("", tier, form, "", tuple(name for name in names if name))


def write_record(name: str, mined: MinedTriple, writer: Model, *, shape: Shape | None) -> BenchRecord | None:
    """Have a model write a query: T1 from the pair, T2 and T3 by rewriting the pair's T1 query.

    Args:
        name: id of the query.
        mined: the group, and the kind of query.
        writer: the model.
        shape: of a T3 query.

    Returns:
        The record, or None when a step gave no usable answer.
    """
    group, tier, form = mined.group, mined.draft.tier, mined.draft.form
    pair = Group(group.wanted, group.excluded[:1])
    base = writer.ask(pair_prompt(pair, "T1", form), _reader(pair, "T1", form))
    if base is None:
        return None
    if tier == "T1":
        return BenchRecord(name, base, group)
    if tier == "T2":
        draft = writer.ask(implicit_prompt(base), _reader(group, "T2", form))
    else:
        draft = writer.ask(compound_prompt(base, group, shape or "disjunctive"), _reader(group, "T3", form))
    return None if draft is None else BenchRecord(name, draft, group, shape)


def shape_of_templates(record: BenchRecord) -> BenchRecord:
    """Return a template's record with the shape that its two topics have."""
    if record.draft.tier != "T3":
        return record
    both = in_one_breath(record.draft) or len(cued_topics(record)) == len(record.draft.excluded)
    return replace(record, shape="disjunctive" if both else "mixed")


def _reader(group: Group, tier: Tier, form: Form) -> Callable[[str], Draft]:
    return lambda answer: check_draft(answer, group, tier, form)
