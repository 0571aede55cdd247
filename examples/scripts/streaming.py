"""Answers that arrive word by word, in LangChain and in LlamaIndex; retrieval comes first and obeys as ever.

Needs the extras ``langchain``, ``llama-index`` and ``embedded``.

    python examples/scripts/streaming.py
"""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import Any

from langchain_core.documents import Document
from langchain_core.language_models import GenericFakeChatModel
from langchain_core.messages import AIMessage
from langchain_core.output_parsers import StrOutputParser
from langchain_core.prompts import ChatPromptTemplate
from langchain_core.runnables import RunnablePassthrough
from llama_index.core.llms import MockLLM
from llama_index.core.query_engine import RetrieverQueryEngine

from excise_integrations import Excise, langchain, llama_index
from excise_integrations.first_stage.memory import MemoryFirstStage

LINES = (Path(__file__).parents[1] / "data/review.jsonl").read_text(encoding="utf-8").splitlines()
TRIALS = [json.loads(line) for line in LINES]
QUERY = "exercise for insomnia, excluding tai chi"
PROMPT = ChatPromptTemplate.from_template("Answer from these trials:\n{context}\n\nQuestion: {question}")


def joined(documents: list[Document]) -> str:
    """Put the documents into one text, each with its id."""
    context = "\n".join(f"[{d.id}] {d.page_content}" for d in documents)
    assert "tai chi" not in context.lower()
    return context


async def langchain_stream(excise: Excise, stage: MemoryFirstStage) -> None:
    """Stream a LangChain chain; ``astream`` retrieves in a worker thread and leaves the event loop free."""
    retriever = langchain.ExciseRetriever(first_stage=stage, excise=excise, k=4)
    # With a real one: from langchain.chat_models import init_chat_model; llm = init_chat_model("openai:gpt-5-mini")
    llm = GenericFakeChatModel(messages=iter([AIMessage("Walking, cycling, weights and yoga lengthened sleep.")]))
    inputs: Any = {"context": retriever | joined, "question": RunnablePassthrough()}
    chain = inputs | PROMPT | llm | StrOutputParser()
    print(f"\n  LangChain: {QUERY}\n    ", end="")
    async for piece in chain.astream(QUERY):
        print(piece, end="", flush=True)
    print()


def llama_index_stream(excise: Excise, stage: MemoryFirstStage) -> None:
    """Stream a LlamaIndex query engine."""
    retriever = llama_index.ExciseRetriever(first_stage=stage, excise=excise, similarity_top_k=4)
    # MockLLM answers with the prompt that it was given, so this prints what reached the model.
    # With a real one: from llama_index.llms.openai import OpenAI; llm = OpenAI(model="gpt-5-mini")
    engine = RetrieverQueryEngine.from_args(retriever, llm=MockLLM(), streaming=True)
    response: Any = engine.query(QUERY)
    print(f"\n  LlamaIndex: {QUERY}\n    ", end="")
    for piece in response.response_gen:
        print(piece.replace("\n", " "), end="", flush=True)
    print(f"\n    from {[n.node.node_id for n in response.source_nodes]}")
    assert not any("tai chi" in n.node.get_content().lower() for n in response.source_nodes)


def main() -> None:
    """Run both over one pipeline and one first stage."""
    excise = Excise.from_pretrained("minilm")
    stage = MemoryFirstStage.from_texts(
        [f"{t['title']}. {t['text']}" for t in TRIALS],
        ids=[t["_id"] for t in TRIALS],
        backbone=excise.backbone,
        progress=False,
    )
    asyncio.run(langchain_stream(excise, stage))
    llama_index_stream(excise, stage)


if __name__ == "__main__":
    main()
