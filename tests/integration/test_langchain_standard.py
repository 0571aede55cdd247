"""LangChain's own integration tests for retrievers, unmodified."""

from __future__ import annotations

from typing import Any

import pytest
from langchain_core.documents import Document
from langchain_tests.integration_tests import RetrieversIntegrationTests

from excise_integrations import Candidate, Excise
from excise_integrations.first_stage.memory import MemoryFirstStage
from excise_integrations.langchain import ExciseRetriever

_PARAMETERS: dict[str, Any] = {}


@pytest.fixture(autouse=True)
def _parameters(animals: list[Candidate], excise_rules: Excise) -> None:
    # The suite reads its parameters from properties, which cannot take fixtures.
    if not _PARAMETERS:
        stage = MemoryFirstStage.from_candidates(animals, backbone=excise_rules.backbone)
        over = ExciseRetriever(first_stage=stage, excise=excise_rules, k=8)
        _PARAMETERS["memory"] = {"first_stage": stage, "excise": excise_rules}
        _PARAMETERS["wrapped"] = {"base_retriever": over.bind(exclude=[]), "excise": excise_rules}


class TestOverAFirstStage(RetrieversIntegrationTests):
    @property
    def retriever_constructor(self) -> type[ExciseRetriever]:
        return ExciseRetriever

    @property
    def retriever_constructor_params(self) -> dict[str, Any]:
        return dict(_PARAMETERS["memory"])

    @property
    def retriever_query_example(self) -> str:
        return "animals that people keep as pets, but not dogs"


class TestOverAnotherRetriever(TestOverAFirstStage):
    @property
    def retriever_constructor_params(self) -> dict[str, Any]:
        return dict(_PARAMETERS["wrapped"])

    def test_the_example_fires(self, retriever: ExciseRetriever) -> None:
        found = retriever.invoke(self.retriever_query_example)
        assert all(isinstance(d, Document) and d.metadata["excise"]["fired"] for d in found)
