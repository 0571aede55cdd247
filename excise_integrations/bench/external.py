"""Systems from outside, by name: what a user could pick instead, and fine-tuned controls."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal, get_args

from ..errors import InvalidInputError
from .systems import SYSTEMS, Group, System

__all__ = ["KNOWN", "MAX_TOKENS", "PASSAGE_WORDS", "External", "Kind", "parse_external"]

MAX_TOKENS = 512
"""Tokens that dense models and cross-encoders read at most, of a document or of a passage."""
PASSAGE_WORDS = 350
"""Words of a passage."""

Kind = Literal[
    "dense", "dense-passages", "cross-encoder", "cross-encoder-passages", "late-interaction", "adapter",
    "query-adapter", "rerankers",
]  # fmt: skip
_TITLES: dict[Kind, str] = {
    "dense": "dense retrieval, cosine of one vector a document",
    "dense-passages": "dense retrieval over 350-word passages, a document by its best one",
    "cross-encoder": "cross-encoder over the frozen shortlist",
    "cross-encoder-passages": "cross-encoder over 350-word passages of the frozen shortlist",
    "late-interaction": "late interaction with other weights, re-indexed",
    "adapter": "late interaction with LoRA on both sides, re-indexed",
    "query-adapter": "late interaction with LoRA on queries only, over the frozen index",
    "rerankers": "the rerankers library over the frozen shortlist",
}


@dataclass(frozen=True)
class External:
    """One system from outside.

    Args:
        name: the row's name; unique in a run.
        kind: how it is loaded and what it ranks; see :data:`Kind`.
        model: a folder, or a model's id on the hub.
        query_prompt, document_prompt: put before a query and a document.
        control: whether it was fine-tuned on our triples, rather than taken as it is.
    """

    name: str
    kind: Kind
    model: str
    query_prompt: str = ""
    document_prompt: str = ""
    control: bool = False

    @property
    def system(self) -> System:
        """The row that it makes."""
        group: Group = "controls" if self.control else "rivals"
        return System(self.name, group, _TITLES[self.kind], method="external", vectors="frozen")

    def record(self) -> dict[str, Any]:
        """Return plain JSON types."""
        return dict(self.__dict__)


_INSTRUCTION = "Given a web search query, retrieve relevant passages that answer the query"
KNOWN: dict[str, External] = {
    e.model: e
    for e in (
        External(
            "bge", "dense", "BAAI/bge-base-en-v1.5",
            query_prompt="Represent this sentence for searching relevant passages: ",
        ),
        External("e5", "dense", "intfloat/e5-base-v2", query_prompt="query: ", document_prompt="passage: "),
        External(
            "gte-qwen2", "dense", "Alibaba-NLP/gte-Qwen2-1.5B-instruct",
            query_prompt=f"Instruct: {_INSTRUCTION}\nQuery: ",
        ),
        External(
            "promptriever", "dense", "samaya-ai/promptriever-llama3.1-8b-v1",
            query_prompt="query:  ", document_prompt="passage:  ",
        ),
        External("minilm-cross-encoder", "cross-encoder", "cross-encoder/ms-marco-MiniLM-L6-v2"),
        External("bge-reranker", "cross-encoder", "BAAI/bge-reranker-base"),
    )
}  # fmt: skip
"""Published models whose kind and prompts are known, by their id on the hub."""


def parse_external(text: str) -> External:
    """Read ``NAME=KIND:MODEL``, ``NAME=KIND:MODEL`` with ``control:`` before the kind, or ``NAME=KNOWN_ID``.

    Args:
        text: e.g. ``bge=BAAI/bge-base-en-v1.5``, ``mine=cross-encoder:models/ce`` or
            ``full=control:late-interaction:controls/full``.

    Returns:
        The system.

    Raises:
        InvalidInputError: the text has another form, an unknown kind, or a name that a row has already.
    """
    name, separator, rest = text.partition("=")
    if not separator or not name or not rest:
        raise InvalidInputError(f"{text!r} is not NAME=KIND:MODEL, nor NAME=MODEL with one of {', '.join(KNOWN)}.")
    if not name.replace("-", "").replace("_", "").isalnum():
        raise InvalidInputError(f"The name {name!r} of {text!r} may hold letters, digits, '-' and '_' only.")
    if name in {s.name for s in SYSTEMS}:
        raise InvalidInputError(f"The name {name!r} of {text!r} is a row already; choose another.")
    if rest in KNOWN:
        return External(**{**KNOWN[rest].record(), "name": name})
    control = rest.startswith("control:")
    kind, separator, model = rest.removeprefix("control:").partition(":")
    if not separator or not model or kind not in get_args(Kind):
        raise InvalidInputError(f"{kind!r} in {text!r} is no kind of system. Kinds: {', '.join(get_args(Kind))}.")
    known = KNOWN.get(model)
    prompts = (known.query_prompt, known.document_prompt) if known is not None else ("", "")
    return External(name, kind, model, *prompts, control=control)  # type: ignore[arg-type]
