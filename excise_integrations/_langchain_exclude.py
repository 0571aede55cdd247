"""How a caller's topics reach an Excise part deep inside a LangChain chain."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar

from langchain_core.runnables import RunnableConfig, ensure_config

from .detect.spans import caller_detection

__all__ = ["CONFIGURABLE", "excluding", "requested_topics"]

CONFIGURABLE = "exclude"
_topics: ContextVar[tuple[str, ...] | None] = ContextVar("excise_exclude", default=None)


@contextmanager
def excluding(topics: Sequence[str] | None) -> Iterator[None]:
    """Name the excluded topics for every Excise retriever and compressor that runs inside the block.

    Steps that rewrite the query (question condensing, multi-query, HyDE) drop what it excludes, and
    many of them pass no keywords on. These topics go around them: they hold in the current context,
    so also in the threads and tasks that LangChain and asyncio start from it, and nowhere else::

        with excluding(["Tesla"]):
            chain.invoke({"input": "and what of their range?", "chat_history": history})

    To have the user's own words searched for topics, before anything rewrites them::

        detection = retriever.excise.detect(question)
        with excluding([span.text for span in detection.spans]):
            ...

    Args:
        topics: excluded topics; ``[]`` switches Excise off inside the block, None leaves it to the
            detector again.

    Raises:
        InvalidInputError: ``topics`` is a string, or a topic is blank or not a string.
    """
    if topics is not None:
        caller_detection("", topics)
    token = _topics.set(None if topics is None else tuple(topics))
    try:
        yield
    finally:
        _topics.reset(token)


def requested_topics(
    explicit: Sequence[str] | None, config: RunnableConfig | None, default: Sequence[str] | None
) -> Sequence[str] | None:
    """Return the caller's topics: keyword, else config, else :func:`excluding`, else field.

    Args:
        explicit: what the call itself names.
        config: the call's config, whose ``configurable["exclude"]`` is read; None takes the surrounding chain's.
        default: what the object was made with.
    """
    named: Sequence[str] | None = ensure_config(config).get("configurable", {}).get(CONFIGURABLE)
    return next((topics for topics in (explicit, named, _topics.get()) if topics is not None), default)
