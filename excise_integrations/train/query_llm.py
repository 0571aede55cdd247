"""Mined queries from a language model of the user's: strict JSON, checked, asked again when it is wrong."""

from __future__ import annotations

import json
import logging
import random
import re
from collections.abc import Callable
from typing import Any, TypeVar

from pydantic import BaseModel, ConfigDict, ValidationError

from ..errors import InvalidInputError
from .descriptions import Document, mentions, topic_name
from .query_templates import Draft, Form, Group, Tier

__all__ = ["CUES", "LENGTH", "LLMWriter", "ask", "check_draft", "completer", "excerpt", "pair_prompt", "read_object"]

logger = logging.getLogger("excise_integrations")

_TASK: dict[Tier, str] = {
    "T1": "Name the excluded topic with an explicit cue of exclusion (but not, except, without, other than, …).",
    "T2": "Exclude the topic WITHOUT any word of negation or exclusion: it is already read, known, covered, owned, "
    "ruled out by a test, handled by a colleague, … so that the searcher wants something else.",
    "T3": "Exclude every excluded topic: by a disjunction (neither A nor B), or one by a cue and one as already known.",
}
LENGTH: dict[Form, str] = {"short": "4 to 16 words", "long": "22 to 50 words, one to three sentences"}
_WORDS: dict[Form, tuple[int, int]] = {"short": (3, 18), "long": (20, 60)}
CUES = re.compile(
    r"(?i)\b(?:not|no|non|none|never|neither|nor|without|except|excepting|excluding|exclude|excludes|excepted|omit|"
    r"omitting|minus|sans|barring|skip|apart from|aside from|other than|rather than|instead of|leave out)\b|n['’]t\b"
)
_EXCERPT_WORDS = 80

_Read = TypeVar("_Read")
_Model = TypeVar("_Model", bound=BaseModel)


class _Answer(BaseModel):
    model_config = ConfigDict(extra="forbid", strict=True)

    query: str
    wanted: str
    excluded: list[str]


class LLMWriter:
    """Ask a language model for each query and believe nothing: form, length, cues and substrings are checked.

    Args:
        llm: a LangChain chat model (``invoke``), a LlamaIndex LLM (``complete``), or a function from
            prompt to answer.
        attempts: how often a group is asked about, at least 1; the model is told what was wrong.

    Raises:
        InvalidInputError: ``llm`` is none of these, or attempts is below 1.
    """

    def __init__(self, llm: Any, *, attempts: int = 3) -> None:
        if attempts < 1:
            raise InvalidInputError(f"attempts={attempts} must be at least 1.")
        self._complete = completer(llm)
        self._attempts = attempts

    def write(self, group: Group, *, tier: Tier, form: Form, rng: random.Random) -> Draft | None:
        """Return a checked query, or None when no attempt gave one. An error of the model's own is raised."""
        return ask(
            self._complete,
            pair_prompt(group, tier, form),
            lambda answer: check_draft(answer, group, tier, form),
            attempts=self._attempts,
        )


def ask(complete: Callable[[str], str], prompt: str, read: Callable[[str], _Read], *, attempts: int) -> _Read | None:
    """Ask until an answer can be read, telling the model what was wrong with its last one.

    Args:
        complete: from prompt to answer; its errors are raised.
        prompt: the question.
        read: returns what an answer says, or raises ``ValueError`` with what it should do better.
        attempts: at most this many, at least 1.

    Returns:
        What ``read`` returned, or None when no attempt gave a usable answer.
    """
    complaint = ""
    for _ in range(attempts):
        answer = complete(prompt + complaint)
        try:
            return read(answer)
        except ValueError as error:
            logger.debug("An answer was refused: %s", error)
            complaint = (
                f"\n\nYour last answer was:\n{answer[:2000]}\n\nIt cannot be used: {error}\n"
                "Answer again with one JSON object and nothing else."
            )
    return None


def completer(llm: Any) -> Callable[[str], str]:
    """Return a function from prompt to answer for a LangChain or LlamaIndex model, or for a function.

    Raises:
        InvalidInputError: the object has neither ``invoke`` nor ``complete`` and cannot be called.
    """
    if callable(getattr(llm, "invoke", None)):
        return lambda prompt: _text(llm.invoke(prompt))
    if callable(getattr(llm, "complete", None)):
        return lambda prompt: str(llm.complete(prompt).text)
    if callable(llm):
        return lambda prompt: str(llm(prompt))
    raise InvalidInputError(
        f"llm={llm!r} is no language model: give a LangChain chat model, a LlamaIndex LLM, or a function from "
        "prompt to answer."
    )


def _text(message: Any) -> str:
    content = getattr(message, "content", message)
    if isinstance(content, list):
        return "".join(b if isinstance(b, str) else str(b.get("text", "")) for b in content)
    return str(content)


def pair_prompt(group: Group, tier: Tier, form: Form) -> str:
    """Return the question for a query about a group."""
    excluded = "\n\n".join(f"EXCLUDED {i}:\n{excerpt(d)}" for i, d in enumerate(group.excluded, start=1))
    return (
        "Write one search query for a test collection. The searcher wants the document WANTED and does not want the "
        "EXCLUDED document(s), which are about a similar topic.\n\n"
        f"WANTED:\n{excerpt(group.wanted)}\n\n{excluded}\n\n"
        "Rules:\n"
        "- Ask for what the documents have in common; do not name the wanted document's title.\n"
        "- Name the topic of each excluded document in words that do not fit the wanted one.\n"
        f"- {_TASK[tier]}\n"
        f"- Length: {LENGTH[form]}. Natural, as a person would type or say it.\n"
        'Answer with one JSON object and nothing else: {"query": the query, "wanted": the topic asked for, in a few '
        f'words, "excluded": a list of {len(group.excluded)} exact substring(s) of the query, one per excluded '
        "document in their order, each the shortest that names its topic, without the word that excludes it}"
    )


def excerpt(document: Document) -> str:
    """Return a document's title and its first words, as a prompt shows it."""
    words = document.text.split()
    return f"{document.title}\n{' '.join(words[:_EXCERPT_WORDS])}{' …' if len(words) > _EXCERPT_WORDS else ''}"


def read_object(answer: str, model: type[_Model]) -> _Model:
    """Read an answer that is one JSON object, fenced or not; a ``ValueError`` says what is wrong with another."""
    fenced = re.fullmatch(r"\s*```(?:json)?\s*(.*?)\s*```\s*", answer, re.DOTALL)
    try:
        return model.model_validate(json.loads(fenced[1] if fenced else answer))
    except ValidationError as error:
        first = error.errors()[0]
        raise ValueError(f"field {'.'.join(map(str, first['loc'])) or 'top level'}: {first['msg']}.") from None
    except (ValueError, RecursionError) as error:
        raise ValueError(f"it is not one JSON object ({error}).") from None


def check_draft(answer: str, group: Group, tier: Tier, form: Form) -> Draft:
    """Read an answer as a query of the asked kind; every ``ValueError`` says what the model shall do better."""
    record = read_object(answer, _Answer)
    query = record.query.strip()
    low, high = _WORDS[form]
    count = len(query.split())
    if not low <= count <= high:
        raise ValueError(f"the query has {count} words; {low} to {high} are needed.")
    if not record.wanted.strip():
        raise ValueError('"wanted" is blank.')
    if len(record.excluded) != len(group.excluded):
        raise ValueError(f'"excluded" has {len(record.excluded)} strings; {len(group.excluded)} are needed.')
    rest = query
    for topic in record.excluded:
        if not topic.strip() or topic not in rest:
            raise ValueError(f'"{topic}" is not an exact substring of the query, or overlaps another one.')
        rest = rest.replace(topic, "\0", 1)
    name = topic_name(group.wanted)
    if name and mentions(name, query):
        raise ValueError(f'the query names the wanted document, "{name}".')
    if tier == "T2" and (cue := CUES.search(rest)):
        raise ValueError(f'the query has the word "{cue[0]}" of negation or exclusion.')
    return Draft(query, tier, form, record.wanted.strip(), tuple(record.excluded))
