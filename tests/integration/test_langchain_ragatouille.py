"""A real RAGatouille index behind a LangChain chain."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest
from langchain_core.documents import Document
from langchain_core.language_models import FakeListChatModel
from langchain_core.output_parsers import StrOutputParser
from langchain_core.prompts import ChatPromptTemplate
from langchain_core.runnables import Runnable, RunnableLambda, RunnablePassthrough

from excise_integrations import Excise, IndexDamagedError
from excise_integrations.langchain import ExciseRetriever

QUERY = "articles about famous people, but not astronomy"


@pytest.fixture(scope="module")
def excise(stage: Any) -> Excise:
    return Excise.from_pretrained(stage.checkpoint, detector="rules")


def document_ids(documents: list[Document]) -> list[str]:
    return [d.metadata["document_id"] for d in documents]


def test_chain_over_an_index(ragatouille_index: Any, excise: Excise) -> None:
    retriever = ExciseRetriever.from_ragatouille(ragatouille_index.path, excise=excise, k=5)
    prompts: list[str] = []

    def answer(prompt: Any) -> Any:
        prompts.append(prompt.to_string())
        return prompt

    context: Runnable[str, Any] = retriever | (lambda documents: "\n".join(d.page_content for d in documents))
    template = ChatPromptTemplate.from_template("{context}\n\n{question}")
    model = FakeListChatModel(responses=["Cecilia Payne."])
    chain = (
        {"context": context, "question": RunnablePassthrough()}
        | template
        | RunnableLambda(answer)
        | model
        | StrOutputParser()
    )
    assert chain.invoke(QUERY) == asyncio.run(chain.ainvoke(QUERY)) == "Cecilia Payne."
    for prompt in prompts:
        assert "famous people of electric cars" in prompt
        assert "famous people of astronomy" not in prompt
    found = retriever.invoke(QUERY)
    assert len(found) == 5
    assert "astronomy-famous" not in document_ids(found)
    frozen = retriever.invoke(QUERY, exclude=[])
    assert "astronomy-famous" in document_ids(frozen)
    assert frozen[0].metadata["excise"]["score"] == frozen[0].metadata["excise"]["first_stage_score"]
    only = retriever.invoke(QUERY, filter={"subject": "jazz music"}, exclude=[])
    assert {d.metadata["subject"] for d in only} == {"jazz music"}


def test_model_and_checkpoint(ragatouille_index: Any) -> None:
    from excise_integrations.first_stage.ragatouille import RAGPretrainedModel

    model = RAGPretrainedModel.from_index(str(ragatouille_index.path), verbose=0)
    retriever = ExciseRetriever.from_ragatouille(model, k=3)
    assert retriever.excise.backbone.name == str(ragatouille_index.checkpoint)
    assert len(retriever.invoke(QUERY, exclude=["astronomy"])) == 3


def test_add_and_delete(ragatouille_index: Any, excise: Excise, tmp_path: Path) -> None:
    retriever = ExciseRetriever.from_ragatouille(ragatouille_index.copy(tmp_path), excise=excise, k=1)
    text = "This short article is about beekeeping, and in particular about the honey of wild bees."
    added = retriever.add([Document(id="bees", page_content=text, metadata={"subject": "bees"})])
    (found,) = retriever.invoke("honey of wild bees")
    assert (added, found.page_content, found.metadata["subject"]) == (["bees"], text, "bees")
    retriever.delete(added)
    assert document_ids(retriever.invoke("honey of wild bees")) != ["bees"]


def test_no_index(tmp_path: Path) -> None:
    with pytest.raises(IndexDamagedError, match="nowhere"):
        ExciseRetriever.from_ragatouille(tmp_path / "nowhere")
