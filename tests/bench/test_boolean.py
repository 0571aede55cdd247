"""The bundled AND and OR questions: well formed, and not harmed by the bundled detector."""

from __future__ import annotations

from typing import Literal

import pytest

from excise_integrations import Excise
from excise_integrations.bench import evaluate_suite, load_suite
from excise_integrations.bench.suites import bundled_suite

# What the paper lets AND and OR fall by.
ALLOWED = 0.067


@pytest.mark.parametrize("name", ["and", "or"])
def test_a_question_has_one_right_and_one_wrong_candidate(name: Literal["and", "or"]) -> None:
    suite = load_suite(bundled_suite(name))
    assert len(suite.queries) >= 30
    assert len({q.text for q in suite.queries}) == len(suite.queries)
    for query in suite.queries:
        assert sorted(suite.qrels[query.id].values()) == [-1, 1]
        assert not query.excluded


@pytest.mark.parametrize("name", ["and", "or"])
def test_pairwise_accuracy_hardly_falls(name: Literal["and", "or"]) -> None:
    found = evaluate_suite(Excise.from_pretrained("minilm"), load_suite(bundled_suite(name)), candidates="judged")
    summary = found.summary()
    frozen, excise = summary["frozen"]["pairwise"], summary["excise"]["pairwise"]
    assert frozen > 0.8
    assert excise >= frozen - ALLOWED
