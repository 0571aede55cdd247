"""What the judges are asked, and how far two of them agree."""

from __future__ import annotations

from pydantic import BaseModel, ConfigDict

from ...train.query_llm import read_object
from .answers import Model
from .prompts import document_prompt, query_prompt
from .records import BenchRecord

__all__ = ["MAX_CHARACTERS", "is_about", "reads_as_meant"]

MAX_CHARACTERS = 9000
"""A document is shown to a judge up to here; about 1,500 words."""


class _About(BaseModel):
    model_config = ConfigDict(extra="forbid", strict=True)

    about: bool


class _Reading(BaseModel):
    model_config = ConfigDict(extra="forbid", strict=True)

    wanted: bool
    unwanted: list[bool]


def is_about(judge: Model, topic: str, text: str) -> bool | None:
    """Ask whether a document deals with a topic; None when there was no usable answer."""
    answer = judge.ask(document_prompt(topic, text[:MAX_CHARACTERS]), lambda a: read_object(a, _About))
    return None if answer is None else answer.about


def reads_as_meant(judge: Model, record: BenchRecord) -> bool | None:
    """Ask whether a query asks for what it shall and rules out each topic; None when there was no usable answer."""
    draft = record.draft

    def read(text: str) -> _Reading:
        answer = read_object(text, _Reading)
        if len(answer.unwanted) != len(draft.excluded):
            raise ValueError(f'"unwanted" has {len(answer.unwanted)} values; {len(draft.excluded)} are needed.')
        return answer

    answer = judge.ask(query_prompt(draft.text, draft.wanted, draft.excluded), read)
    return None if answer is None else answer.wanted and all(answer.unwanted)
