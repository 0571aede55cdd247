"""The LlamaIndex node postprocessor."""

from __future__ import annotations

import inspect
import logging
import threading
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from llama_index.core.bridge.pydantic import Field, PrivateAttr
from llama_index.core.callbacks import CallbackManager, CBEventType, EventPayload
from llama_index.core.instrumentation import get_dispatcher  # type: ignore[attr-defined]
from llama_index.core.instrumentation.events.rerank import ReRankEndEvent, ReRankStartEvent
from llama_index.core.postprocessor.types import BaseNodePostprocessor
from llama_index.core.schema import NodeWithScore, QueryBundle

from ._llama_index_events import announced
from ._llama_index_nodes import candidates_of, check_nodes, fired, matching, nodes_of
from ._llama_index_query import checked_topics, read_query
from .config import ExciseConfig
from .errors import InvalidInputError
from .pipeline import Excise

__all__ = ["ExcisePostprocessor"]

dispatcher = get_dispatcher(__name__)
logger = logging.getLogger("excise_integrations")
_LOADING = threading.Lock()
_LOAD = {
    name: parameter
    for name, parameter in inspect.signature(Excise.from_pretrained).parameters.items()
    if parameter.kind is parameter.KEYWORD_ONLY and name != "config"
}


class ExcisePostprocessor(BaseNodePostprocessor):
    """Re-rank the nodes of any retriever, and obey what the query does not want.

    Give the retriever before it a shortlist to work on (``similarity_top_k=100``), and not another Excise:
    what is removed is decided relative to the shortlist, so a second pass removes more. The pipeline is loaded at
    the first use; ``to_dict`` and pickling keep the fields and load it again there. A query's exclusion, its
    filters and what happens to them on the way: see :class:`ExciseQuery` and :func:`excluding`.

    Args:
        model: what :meth:`Excise.from_pretrained` loads.
        top_n: how many nodes to return; None returns all that are not removed.
        exclude: excluded topics of every query that names none itself; ``[]`` switches Excise off.
        excise: a pipeline that is there already, instead of ``model``.
        config: settings, an :class:`ExciseConfig` or a mapping of its fields.
        load: further arguments of :meth:`Excise.from_pretrained`, plain JSON types.
        callback_manager: as for every LlamaIndex postprocessor.
        **settings: fields of :class:`ExciseConfig`, or arguments of :meth:`Excise.from_pretrained`.

    Raises:
        InvalidInputError: ``top_n`` below 1, an unknown or impossible setting, or both ``excise`` and
            arguments that load another.
    """

    model: str | None = Field(description="What is loaded; None stands for a pipeline of the caller's own making.")
    top_n: int | None = Field(description="How many nodes are returned; None returns all.")
    exclude: list[str] | None = Field(description="Excluded topics of every query that names none itself.")
    load: dict[str, str | int | bool | None] = Field(description="Further arguments of Excise.from_pretrained.")
    config: ExciseConfig = Field(description="The settings.")
    _excise: Excise | None = PrivateAttr(default=None)

    def __init__(
        self,
        model: str | Path | None = "minilm",
        *,
        top_n: int | None = None,
        exclude: Sequence[str] | None = None,
        excise: Excise | None = None,
        config: ExciseConfig | Mapping[str, Any] | None = None,
        load: Mapping[str, Any] | None = None,
        callback_manager: CallbackManager | None = None,
        **settings: Any,
    ) -> None:
        if top_n is not None and (not isinstance(top_n, int) or isinstance(top_n, bool) or top_n < 1):
            raise InvalidInputError(f"top_n={top_n!r} must be an integer of at least 1, or None for all nodes.")
        arguments = {**(load or {}), **{name: settings.pop(name) for name in list(settings) if name in _LOAD}}
        fields = {**(config.model_dump() if isinstance(config, ExciseConfig) else config or {}), **settings}
        if excise is None:
            if model is None:
                raise InvalidInputError(
                    "This ExcisePostprocessor was made with a pipeline that cannot be rebuilt from names. Give it "
                    "again: ExcisePostprocessor.from_dict(data, excise=...)."
                )
            model, arguments = str(model), _plain(arguments)
        else:
            if arguments and arguments != _named(excise)[1]:
                raise InvalidInputError(f"excise and {sorted(arguments)} were both given; it is loaded already.")
            excise = excise.with_config(**fields)
            model, arguments = _named(excise)
        values: dict[str, Any] = {
            "model": model,
            "top_n": top_n,
            "exclude": checked_topics(exclude),
            "load": arguments,
            "config": excise.config if excise is not None else _config(fields),
            "callback_manager": callback_manager or CallbackManager(),
        }
        super().__init__(**values)
        self._excise = excise

    @classmethod
    def class_name(cls) -> str:
        """Return the name used in serialised components."""
        return "ExcisePostprocessor"

    @property
    def excise(self) -> Excise:
        """The pipeline, loaded at first use."""
        with _LOADING:
            if self._excise is None:
                self._excise = Excise.from_pretrained(self.model or "minilm", config=self.config, **self.load)  # type: ignore[arg-type]
            if self._excise.config != self.config:
                self._excise = self._excise.with_config(**self.config.model_dump())
            return self._excise

    def _postprocess_nodes(
        self, nodes: list[NodeWithScore], query_bundle: QueryBundle | None = None
    ) -> list[NodeWithScore]:
        check_nodes(nodes)
        if query_bundle is None and nodes:
            raise InvalidInputError("ExcisePostprocessor needs the query: pass query_bundle=… or query_str=….")
        name = self.model or type(self._excise).__name__
        query = "" if query_bundle is None else query_bundle.query_str
        top_n = len(nodes) if self.top_n is None else self.top_n
        out: list[NodeWithScore] = []
        dispatcher.event(ReRankStartEvent(query=query_bundle, nodes=nodes, top_n=top_n, model_name=name))
        try:
            payload: dict[str, Any] = {
                EventPayload.NODES: nodes,
                EventPayload.MODEL_NAME: name,
                EventPayload.QUERY_STR: query,
                EventPayload.TOP_K: top_n,
            }
            with self.callback_manager.event(CBEventType.RERANKING, payload=payload) as event:
                if query_bundle is not None and nodes:
                    out = self._rerank(nodes, query_bundle)
                event.on_end(payload={EventPayload.NODES: out})
        finally:
            # Whoever counts on the start being followed by an end must get it after a failure, too.
            dispatcher.event(ReRankEndEvent(nodes=out))
        return out

    def _rerank(self, nodes: list[NodeWithScore], bundle: QueryBundle) -> list[NodeWithScore]:
        request = read_query(bundle)
        shortlist = matching(nodes, request.filters)
        if any(fired(n.node) for n in shortlist):
            logger.warning("These nodes were re-ranked by Excise before; a second pass removes more than needed.")
        topics = self.exclude if request.exclude is None else request.exclude
        result = self.excise.rerank(request.text, candidates_of(shortlist), k=self.top_n, exclude=topics)
        return nodes_of(announced(result), {n.node.node_id: n.node for n in shortlist})

    def __reduce__(self) -> tuple[Any, ...]:
        return (_restore, (type(self), self.to_dict(), self._excise if self.model is None else None))


def _restore(kind: type[ExcisePostprocessor], data: dict[str, Any], excise: Excise | None) -> ExcisePostprocessor:
    return kind.from_dict(data, excise=excise)


def _config(fields: Mapping[str, Any]) -> ExciseConfig:
    try:
        return ExciseConfig(**fields)
    except ValueError as error:
        raise InvalidInputError(f"The settings {dict(fields)!r} cannot be used: {error}") from error


def _plain(arguments: Mapping[str, Any]) -> dict[str, Any]:
    """Return arguments of ``from_pretrained`` as JSON types, or say which is none."""
    out = {name: str(value) if isinstance(value, Path) else value for name, value in arguments.items()}
    for name, value in out.items():
        if name not in _LOAD:
            raise InvalidInputError(f"load holds {name!r}; Excise.from_pretrained has no such argument.")
        if not isinstance(value, (str, int, bool, type(None))):
            raise InvalidInputError(
                f"{name}={value!r} cannot be written down. Make the pipeline yourself: "
                f"ExcisePostprocessor(excise=Excise.from_pretrained(..., {name}=...))."
            )
    return out


def _named(excise: Excise) -> tuple[str | None, dict[str, Any]]:
    """Return the names that a pipeline can be loaded from again; (None, {}) when there are none."""
    recipe = dict(excise._recipe or {})
    model = recipe.pop("name_or_path", None)
    if model is None or excise.log is not None:
        # A log cannot be named, and a pipeline loaded without it would leave no trace of what it did.
        return None, {}
    cache = excise.cache
    kept = {
        "cache_dir": cache.disk and cache.disk.folder,
        "cache_bytes": cache.max_bytes,
        "cache_storage": cache.storage,
    }
    recipe |= {name: value for name, value in kept.items() if value != _LOAD[name].default}
    try:
        return str(model), _plain(recipe)
    except InvalidInputError:
        return None, {}
