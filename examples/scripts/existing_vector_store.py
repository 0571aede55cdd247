"""After a vector store that you have already: ExciseCompressor in LangChain, ExcisePostprocessor in LlamaIndex.

The store keeps its own embeddings and its own search; Excise works on the long list that it returns. Both stores here
are the frameworks' own in-memory ones. Needs the extras ``langchain``, ``llama-index`` and ``embedded``, and
``pip install langchain-classic`` for the ContextualCompressionRetriever.

    python examples/scripts/existing_vector_store.py
"""

from __future__ import annotations

import json
import zlib
from pathlib import Path

import numpy as np
from langchain_classic.retrievers import ContextualCompressionRetriever
from langchain_core.documents import Document
from langchain_core.embeddings import Embeddings
from langchain_core.vectorstores import InMemoryVectorStore
from llama_index.core import MockEmbedding, VectorStoreIndex
from llama_index.core.llms import MockLLM
from llama_index.core.schema import TextNode

from excise_integrations import Excise
from excise_integrations.langchain import ExciseCompressor
from excise_integrations.llama_index import ExcisePostprocessor

LINES = (Path(__file__).parents[1] / "data/regulatory.jsonl").read_text(encoding="utf-8").splitlines()
RULES = [json.loads(line) for line in LINES]
QUERY = "outsourcing rules, other than those for cloud services"


class Words(Embeddings):
    """Counts words: enough to stand in for an embedding model."""

    # With a real one: from langchain_openai import OpenAIEmbeddings; embeddings = OpenAIEmbeddings()
    def embed_documents(self, texts: list[str]) -> list[list[float]]:
        return [self.embed_query(text) for text in texts]

    def embed_query(self, text: str) -> list[float]:
        vector = np.zeros(512)
        for word in text.lower().replace(",", " ").replace(".", " ").split():
            vector[zlib.crc32(word.encode()) % 512] += 1
        return [float(x) for x in vector]


def langchain(excise: Excise) -> None:
    """Compress what a LangChain vector store returns."""
    store = InMemoryVectorStore(Words())
    store.add_documents([Document(id=r["_id"], page_content=f"{r['title']}. {r['text']}") for r in RULES])
    plain = store.as_retriever(search_kwargs={"k": 40})
    obeying = ContextualCompressionRetriever(base_compressor=ExciseCompressor(excise=excise, k=5), base_retriever=plain)

    print(f"\n  LangChain: {QUERY}")
    for before, after in zip(plain.invoke(QUERY), obeying.invoke(QUERY), strict=False):
        print(f"    {before.id:<8} {after.id:<8} {after.page_content.partition('.')[0]}")
        assert "Cloud services" not in after.page_content


def llama_index(excise: Excise) -> None:
    """Postprocess what a LlamaIndex index returns; the nodes that are left are what the LLM reads."""
    nodes = [TextNode(id_=r["_id"], text=f"{r['title']}. {r['text']}") for r in RULES]
    # With a real one: from llama_index.embeddings.openai import OpenAIEmbedding; embed_model = OpenAIEmbedding()
    index = VectorStoreIndex(nodes, embed_model=MockEmbedding(embed_dim=8))
    engine = index.as_query_engine(
        # With a real one: from llama_index.llms.openai import OpenAI; llm = OpenAI(model="gpt-5-mini")
        llm=MockLLM(),
        similarity_top_k=100,
        node_postprocessors=[ExcisePostprocessor(excise=excise, top_n=5)],
    )
    response = engine.query(QUERY)
    print(f"\n  LlamaIndex: {QUERY}")
    for source in response.source_nodes:
        print(f"    {source.node.node_id:<8} {source.node.get_content().partition('.')[0]}")
    # MockLLM answers with the prompt that it was given.
    assert "Outsourcing" in str(response)
    assert "Cloud services" not in str(response)


def main() -> None:
    """Run both on one pipeline."""
    excise = Excise.from_pretrained("minilm")
    langchain(excise)
    llama_index(excise)


if __name__ == "__main__":
    main()
