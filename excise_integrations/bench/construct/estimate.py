"""What a build costs, before it starts."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from ...train.confusable import MinedTriple
from .answers import AnswerBook, Model
from .judging import MAX_CHARACTERS
from .prompts import compound_prompt, document_prompt, implicit_prompt, pair_prompt, query_prompt

__all__ = ["Estimate", "estimate_calls"]

_ANSWER_TOKENS = {"writer": 60, "judge": 12, "second judge": 12}


@dataclass(frozen=True)
class Estimate:
    """What a build will ask, at most, if every first answer is usable.

    Args:
        calls: per role ("writer", "judge", "second judge").
        prompt_tokens, answer_tokens: of all calls, at four characters a token.
        kept: answers that are there already and cost nothing when they are asked for again.
    """

    calls: dict[str, int]
    prompt_tokens: int
    answer_tokens: int
    kept: int

    def __str__(self) -> str:
        calls = ", ".join(f"{number} of the {role}" for role, number in self.calls.items())
        return (
            f"At most {calls} calls with about {self.prompt_tokens:,} prompt and {self.answer_tokens:,} answer tokens; "
            f"{self.kept} answers are kept from before."
        )


def estimate_calls(triples: Sequence[MinedTriple], models: Mapping[str, Model | None], book: AnswerBook) -> Estimate:
    """Return what a build will ask about its groups, with drafts of the usual length in place of those to come."""
    calls: Counter[str] = Counter()
    characters = 0
    for triple in triples:
        group, draft = triple.group, triple.draft
        stand_in = type(draft)("x" * (70 if draft.form == "short" else 200), "T1", draft.form, "x" * 25, ("x" * 15,))
        topics = max(1, len(group.excluded))
        asked = {"writer": [pair_prompt(group, "T1", draft.form)]}
        if draft.tier == "T2":
            asked["writer"].append(implicit_prompt(stand_in))
        elif draft.tier == "T3":
            asked["writer"].append(compound_prompt(stand_in, group, "mixed"))
        reading = query_prompt(stand_in.text, stand_in.wanted, stand_in.excluded * topics)
        asked["judge"] = [reading, *[document_prompt("x" * 15, group.wanted.full_text[:MAX_CHARACTERS])] * topics]
        asked["second judge"] = [reading]
        for role, prompts in asked.items():
            if models[role] is not None:
                calls[role] += len(prompts)
                characters += sum(map(len, prompts))
    answers = sum(_ANSWER_TOKENS[role] * number for role, number in calls.items())
    return Estimate(dict(calls), characters // 4, answers, len(book))
