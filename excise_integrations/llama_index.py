"""Excise for LlamaIndex: a retriever, a node postprocessor, and a query that names what it does not want.

Every returned node carries its audit under the metadata key ``"excise"``, hidden from prompts and embeddings; every
query sends an :class:`ExciseDetectionEvent` to LlamaIndex's instrumentation.

What a query excludes gets lost when something rewrites the query first. Three ways around:

* The rewriting is inside, Excise outside: ``ExciseRetriever(base_retriever=QueryFusionRetriever(...))``, or
  :class:`ExcisePostprocessor` in the query engine over the fusion retriever. Excise sees the user's own
  query, or the :class:`ExciseQuery`; the rewritten ones only bring the shortlist.
* The rewriting keeps the query's text beside its own (HyDE): an :class:`ExciseQuery` survives it.
* Anywhere at all, chat engines and agents' tools included: ``with excluding([...]): chat_engine.chat(...)``.
  To have the user's own words searched for topics before anything rewrites them, name what
  ``retriever.excise.detect(message).spans`` found.
"""

from __future__ import annotations

try:
    import llama_index.core  # noqa: F401
except ModuleNotFoundError as error:
    if error.name not in ("llama_index", "llama_index.core"):
        raise
    from .errors import MissingExtraError

    raise MissingExtraError("llama-index-core", "llama-index") from error

from ._llama_index_events import ExciseDetectionEvent
from ._llama_index_postprocessor import ExcisePostprocessor
from ._llama_index_query import ExciseQuery, excluding
from ._llama_index_retriever import ExciseRetriever

__all__ = ["ExciseDetectionEvent", "ExcisePostprocessor", "ExciseQuery", "ExciseRetriever", "excluding"]
