"""An asynchronous search server, and sixteen requests at once to try it.

One ``Excise`` serves all requests; its models run in worker threads, so the event loop stays free. Needs the extra
``embedded`` and ``pip install fastapi uvicorn httpx``.

    python examples/scripts/server.py                         # the requests, without a port
    uvicorn server:create_app --factory --app-dir examples/scripts   # the server, on http://127.0.0.1:8000/docs
"""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import httpx
from fastapi import FastAPI, HTTPException, Request
from pydantic import BaseModel, Field

from excise_integrations import Excise, InvalidInputError
from excise_integrations.first_stage.memory import MemoryFirstStage

DATA = Path(__file__).parents[1] / "data/regulatory.jsonl"


class Search(BaseModel):
    """A search: the query, how many documents, and topics that the caller excludes (null asks the detector)."""

    query: str
    k: int = Field(default=5, ge=1, le=100)
    exclude: list[str] | None = None


class Hit(BaseModel):
    """One document, with what was decided about it."""

    id: str
    text: str
    excise: dict[str, Any]


class Found(BaseModel):
    """What a search returns."""

    hits: list[Hit]
    removed: list[str]
    excluded: list[str]


@asynccontextmanager
async def load(app: FastAPI) -> AsyncIterator[None]:
    """Load models and documents once, before the first request."""
    rules = [json.loads(line) for line in DATA.read_text(encoding="utf-8").splitlines()]
    excise = await asyncio.to_thread(Excise.from_pretrained, "minilm")
    app.state.stage = await asyncio.to_thread(
        MemoryFirstStage.from_texts,
        [f"{r['title']}. {r['text']}" for r in rules],
        ids=[r["_id"] for r in rules],
        backbone=excise.backbone,
        progress=False,
    )
    await asyncio.to_thread(excise.warmup)
    app.state.excise = excise
    yield


def create_app() -> FastAPI:
    """Make the application."""
    app = FastAPI(title="Rule book", lifespan=load)

    @app.post("/search")
    async def search(body: Search, request: Request) -> Found:
        excise: Excise = request.app.state.excise
        try:
            result = await excise.asearch(body.query, request.app.state.stage, k=body.k, exclude=body.exclude)
        except InvalidInputError as error:
            raise HTTPException(422, str(error)) from error
        return Found(
            hits=[Hit(id=c.id, text=c.text, excise=result.metadata(c)) for c in result.candidates],
            removed=[c.id for c in result.removed],
            excluded=[span.text for span in result.detection.spans],
        )

    return app


async def try_it() -> None:
    """Send sixteen requests at once, half of which exclude something, and one that cannot be answered."""
    app = create_app()
    queries = [
        "customer due diligence",
        "customer due diligence, excluding politically exposed persons",
    ] * 8
    # Requests go straight to the application: no port, no network.
    async with (
        app.router.lifespan_context(app),
        httpx.AsyncClient(transport=httpx.ASGITransport(app), base_url="http://rules") as client,
    ):
        began = time.perf_counter()
        answers = await asyncio.gather(*(client.post("/search", json={"query": query}) for query in queries))
        seconds = time.perf_counter() - began
        refused = await client.post("/search", json={"query": " "})

    for query, answer in list(zip(queries, answers, strict=True))[:2]:
        found = answer.json()
        print(f"\n  {query}\n    excluded {found['excluded']}, removed {found['removed']}")
        for hit in found["hits"]:
            print(f"    {hit['excise']['rank']}  {hit['id']:<8} {hit['text'].partition('.')[0]}")
    print(f"\n  {len(answers)} requests at once: {seconds:.2f} s. A blank query: {refused.status_code}.")
    # Requests do not disturb each other, and R4.1 is the section on politically exposed persons.
    assert all(answer.json() == answers[i % 2].json() for i, answer in enumerate(answers))
    assert not any(hit["id"].startswith("R4.1.") for hit in answers[1].json()["hits"])
    assert refused.status_code == 422


def main() -> None:
    """Try the server in this process."""
    asyncio.run(try_it())


if __name__ == "__main__":
    main()
