"""Detectors, encoders and first stages that do what a test tells them to."""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from excise_integrations import Candidate, Detection, Excise, Span
from excise_integrations.encode import Backbone, TokenVectors


class Says:
    """A detector that answers with what a function returns, and remembers what it was asked."""

    label = None

    def __init__(self, answer: Callable[[str], Any]) -> None:
        self.answer = answer
        self.asked: list[str] = []

    def detect(self, queries: Sequence[str]) -> list[Detection]:
        self.asked.extend(queries)
        return [self.answer(q) for q in queries]


class Raises:
    """A detector that fails."""

    label = None

    def __init__(self, error: BaseException | None = None) -> None:
        self.error = error or RuntimeError("the detector is down")

    def detect(self, queries: Sequence[str]) -> list[Detection]:
        raise self.error


def topic(name: str) -> Callable[[str], Detection]:
    """An answer that finds one topic in every query that names it."""

    def answer(query: str) -> Detection:
        at = query.find(name)
        if at < 0:
            return Detection(False, 0.1, wanted=query)
        return Detection(True, 0.9, (Span(name, at, at + len(name), 0.9),), query[:at].strip())

    return answer


class Encoder:
    """A backbone with one method replaced; counts the documents that it encodes."""

    def __init__(self, backbone: Backbone, **replaced: Callable[..., Any]) -> None:
        self._backbone = backbone
        self._replaced = replaced
        self.documents: list[str] = []

    def __getattr__(self, name: str) -> Any:
        return self._replaced[name] if name in self._replaced else getattr(self._backbone, name)

    def encode_documents(self, texts: Sequence[str], **settings: Any) -> list[TokenVectors]:
        self.documents.extend(texts)
        if "encode_documents" in self._replaced:
            return self._replaced["encode_documents"](texts)  # type: ignore[no-any-return]
        return self._backbone.encode_documents(texts, **settings)


def over(excise: Excise, detector: Any = None, encoder: Any = None, **settings: Any) -> Excise:
    """An Excise with other parts over the same models, with a cache of its own."""
    return Excise(encoder or excise.backbone, detector=detector or excise.detector, config=excise.config).with_config(
        **settings
    )


class Stage:
    """A first stage that returns a list, and remembers how it was asked."""

    fingerprint = "stage-1"

    def __init__(self, found: Any) -> None:
        self.found = found
        self.asked: list[tuple[str, int, Mapping[str, Any] | None]] = []
        self.threads: set[int] = set()

    def search(self, query: str, k: int, *, filter: Mapping[str, Any] | None = None) -> Any:
        self.asked.append((query, k, filter))
        self.threads.add(threading.get_ident())
        if isinstance(self.found, BaseException):
            raise self.found
        return self.found[:k] if isinstance(self.found, list) else self.found


class AsyncStage(Stage):
    """One with a search of its own for the event loop."""

    async def asearch(self, query: str, k: int, *, filter: Mapping[str, Any] | None = None) -> Any:
        return Stage.search(self, query, k, filter=filter)


class VectorStage(Stage):
    """One that hands out frozen vectors."""

    def __init__(self, found: list[Candidate], backbone: Backbone, *, drop: int = 0) -> None:
        super().__init__(found)
        self.vector_space = backbone.label
        self._backbone = backbone
        self._drop = drop
        self.handed: list[str] = []

    def vectors(self, ids: Sequence[str]) -> list[TokenVectors]:
        self.handed.extend(ids)
        texts = {c.id: c.text for c in self.found}
        return self._backbone.encode_documents([texts[i] for i in ids[self._drop :]])
