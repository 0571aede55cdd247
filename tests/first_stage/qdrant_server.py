"""Qdrant's REST interface over its own local mode, without a socket."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import httpx
from pydantic import TypeAdapter
from qdrant_client import QdrantClient, models

_SERVERS: dict[str, Server] = {}


class Server:
    """Answers what :class:`QdrantFirstStage` asks; failures are told as a server tells them.

    ``QdrantClient(**server.options)`` speaks to it, an ``AsyncQdrantClient`` too.
    """

    def __init__(self, name: str) -> None:
        self.name = name
        self.local = QdrantClient(":memory:")
        self.asked: list[tuple[str, str, Any]] = []
        self.fail: Callable[[str, str], bool] = lambda method, path: False
        _SERVERS[name] = self

    @property
    def options(self) -> dict[str, Any]:
        transport = httpx.MockTransport(self)
        return {"url": f"https://{self.name}", "api_key": "key", "check_compatibility": False, "transport": transport}

    def __reduce__(self) -> tuple[Any, ...]:
        return (_find, (self.name,))

    def __call__(self, request: httpx.Request) -> httpx.Response:
        assert request.headers["api-key"] == "key"
        method, path = request.method, request.url.path
        body = json.loads(request.content or b"{}")
        self.asked.append((method, path, body))
        if self.fail(method, path):
            return httpx.Response(503, text="overloaded")
        try:
            result = self._answer(method, path.split("/")[2:], body)
        except ValueError as error:
            return httpx.Response(404, json={"status": {"error": str(error)}, "time": 0.0})
        plain = TypeAdapter(Any).dump_python(result, mode="json", exclude_none=True)
        return httpx.Response(200, json={"result": plain, "status": "ok", "time": 0.0})

    def _answer(self, method: str, where: list[str], body: dict[str, Any]) -> Any:
        name, what = where[0], "/".join(where[1:])
        local = self.local
        if what == "exists":
            return {"exists": local.collection_exists(name)}
        if what == "" and method == "GET":
            return local.get_collection(name)
        if what == "" and method == "PUT":
            made = models.CreateCollection(**body)
            return local.create_collection(name, made.vectors, metadata=made.metadata)
        if what == "" and method == "PATCH":
            return local.update_collection(name, metadata=models.UpdateCollection(**body).metadata)
        if what == "points" and method == "PUT":
            return local.upsert(name, models.PointsList(**body).points)
        if what == "points":
            return local.retrieve(name, body["ids"], body["with_payload"], with_vectors=body["with_vector"])
        if what == "points/delete":
            return local.delete(name, models.PointIdsList(**body))
        if what == "points/count":
            return local.count(name, exact=body["exact"])
        if what == "points/scroll":
            asked = models.ScrollRequest(**body)
            points, at = local.scroll(
                name, limit=asked.limit or 10, offset=asked.offset, with_payload=asked.with_payload or False
            )
            return {"points": points, "next_page_offset": at}
        assert what == "points/query/batch", f"no answer to {method} {what}"
        return local.query_batch_points(name, models.QueryRequestBatch(**body).searches)


def _find(name: str) -> Server:
    return _SERVERS[name]
