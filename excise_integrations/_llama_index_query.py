"""What a LlamaIndex query carries for Excise, and how it gets past whatever rewrites the query."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field
from typing import Any

from dataclasses_json import config
from llama_index.core.schema import QueryBundle
from llama_index.core.vector_stores import FilterCondition, FilterOperator, MetadataFilter, MetadataFilters

from .detect.spans import caller_detection
from .errors import InvalidInputError

__all__ = ["ExciseQuery", "Request", "checked_topics", "equalities", "excluding", "flat", "read_query"]


class _QueryText(str):
    """A query's text that remembers what was asked together with it.

    A transform that makes a new bundle around the same text (HyDE does) would otherwise drop the exclusion
    without a word.
    """

    exclude: list[str] | None
    filters: MetadataFilters | None

    def __new__(cls, text: str, exclude: list[str] | None = None, filters: MetadataFilters | None = None) -> _QueryText:
        self = super().__new__(cls, text)
        self.exclude = exclude
        self.filters = filters
        return self


@dataclass
class ExciseQuery(QueryBundle):
    """A query that names what it does not want, for ``retrieve``, ``query`` and postprocessors.

    It goes wherever a ``QueryBundle`` goes: ``retriever.retrieve(q)``, ``engine.query(q)``,
    ``chat_engine`` excepted (it takes strings only). What happens to ``exclude`` and ``filters`` on the way:

    - Query engines, routers and postprocessors hand the bundle on: kept.
    - A transform that keeps the text (HyDE) or uses ``dataclasses.replace``: kept.
    - Whatever has a model write new queries (``QueryFusionRetriever``, sub-questions, a chat engine's
      condensed question): the new queries know nothing of them. Say it around the call instead, with
      :func:`excluding`; or place an :class:`ExcisePostprocessor` after the rewriting, in the query engine
      that gets this query.

    Args:
        query_str: the query.
        exclude: excluded topics, instead of asking the detector; ``[]`` switches Excise off for this
            query, None asks the detector.
        filters: metadata that every result must have.

    Raises:
        InvalidInputError: ``exclude`` is a string or holds something blank, or ``filters`` is no
            ``MetadataFilters``.
    """

    exclude: list[str] | None = None
    filters: MetadataFilters | None = field(
        default=None,
        metadata=config(
            encoder=lambda filters: None if filters is None else filters.model_dump(mode="json"),
            decoder=lambda data: None if data is None else MetadataFilters.model_validate(data),
        ),
    )

    def __post_init__(self) -> None:
        self.exclude = checked_topics(self.exclude)
        _check_filters(self.filters)
        if isinstance(self.query_str, str):
            self.query_str = _QueryText(str(self.query_str), self.exclude, self.filters)


@dataclass(frozen=True)
class Request:
    """What a bundle asks for: the text, the excluded topics (None asks the detector), the filters."""

    text: str
    exclude: list[str] | None = None
    filters: MetadataFilters | None = None


_AROUND: ContextVar[Request | None] = ContextVar("excise_llama_index_request", default=None)


@contextmanager
def excluding(exclude: Sequence[str] | None, *, filters: MetadataFilters | None = None) -> Iterator[None]:
    """Name excluded topics for every Excise retriever and postprocessor called inside the ``with`` block.

    For the places where no :class:`ExciseQuery` can be passed, or where a model rewrites the query and drops
    the exclusion: chat engines, multi-query fusion, sub-questions, agents' tools. It follows ``await``,
    tasks and ``asyncio.to_thread``; a thread started otherwise does not see it. What a query itself says
    (an :class:`ExciseQuery` with ``exclude`` or ``filters``) wins, so does an inner block.

    Args:
        exclude: excluded topics; ``[]`` switches Excise off, None leaves it to the query or the detector.
        filters: metadata that every result must have.

    Raises:
        InvalidInputError: as :class:`ExciseQuery`.

    Example::

        with excluding(["Tesla"]):
            chat_engine.chat("And which of them have the longest range?")
    """
    _check_filters(filters)
    outer = _AROUND.get() or Request("")
    topics = checked_topics(exclude)
    token = _AROUND.set(
        Request("", outer.exclude if topics is None else topics, outer.filters if filters is None else filters)
    )
    try:
        yield
    finally:
        _AROUND.reset(token)


def read_query(bundle: QueryBundle) -> Request:
    """Return what a bundle, its text and the surrounding :func:`excluding` ask for, in that order of precedence."""
    exclude: list[str] | None = None
    filters: MetadataFilters | None = None
    for source in (bundle, bundle.query_str, _AROUND.get()):
        if isinstance(source, (ExciseQuery, _QueryText, Request)):
            exclude = source.exclude if exclude is None else exclude
            filters = source.filters if filters is None else filters
    return Request(_without_tool_frame(bundle.query_str), exclude, filters)


# RetrieverTool joins positional arguments, a newline, "input is …" for the keyword, and a newline.
_TOOL_FRAME = re.compile(r"(?P<given>.*?)\n(?:input is (?P<keyword>.*))?\n", re.DOTALL)


def _without_tool_frame(text: str) -> str:
    match = _TOOL_FRAME.fullmatch(text) if isinstance(text, str) else None
    if match is None:
        # A plain str: the base retriever and the audit must not see our subclass.
        return str(text) if isinstance(text, str) else text
    given, keyword = match["given"].strip(), (match["keyword"] or "").strip()
    return given if keyword in ("", given) else f"{given} {keyword}".strip()


def checked_topics(exclude: Sequence[str] | None) -> list[str] | None:
    """Return the topics as a list, or raise :class:`InvalidInputError` naming what is none."""
    if exclude is None:
        return None
    if not isinstance(exclude, str):
        exclude = list(exclude)
    caller_detection("", exclude)
    return list(exclude)


def _check_filters(filters: object) -> None:
    if filters is not None and not isinstance(filters, MetadataFilters):
        raise InvalidInputError(
            f"filters={filters!r} is a {type(filters).__name__}; give a llama_index.core.vector_stores.MetadataFilters."
        )


def flat(*filters: MetadataFilters | None) -> MetadataFilters:
    """Join filters by AND into as few levels as possible: several vector stores take no nested ones."""
    parts = [part for group in filters for part in _conjuncts(group)]
    if len(parts) == 1 and isinstance(parts[0], MetadataFilters):
        return parts[0]
    return MetadataFilters(filters=parts, condition=FilterCondition.AND)


def _conjuncts(filters: MetadataFilter | MetadataFilters | None) -> list[MetadataFilter | MetadataFilters]:
    if filters is None:
        return []
    if isinstance(filters, MetadataFilter) or filters.condition not in (None, FilterCondition.AND):
        return [filters]
    return [part for inner in filters.filters for part in _conjuncts(inner)]


def equalities(filters: MetadataFilters | None) -> Mapping[str, Any] | None:
    """Return filters as the mapping that a first stage takes.

    Raises:
        InvalidInputError: they ask for anything but equalities joined by AND.
    """
    if filters is None:
        return None
    out: dict[str, Any] = {}
    for part in _conjuncts(filters):
        if not isinstance(part, MetadataFilter) or part.operator != FilterOperator.EQ:
            raise InvalidInputError(
                f"The filter {part!r} cannot be used here: a first stage takes equalities (FilterOperator.EQ) joined "
                "by AND. Give a LlamaIndex retriever as base_retriever for the others."
            )
        if part.key in out and out[part.key] != part.value:
            raise InvalidInputError(
                f"The filters want {part.key!r} to be {out[part.key]!r} and {part.value!r}; nothing can match."
            )
        out[part.key] = part.value
    return out
