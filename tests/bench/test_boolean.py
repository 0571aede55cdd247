"""The bundled AND and OR questions: well formed, and not harmed by the bundled detector."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Literal

import pytest

from excise_integrations import Excise
from excise_integrations.bench import evaluate_suite, load_suite
from excise_integrations.bench.boolean import LARGEST_FALL, boolean_results
from excise_integrations.bench.suites import bundled_suite
from excise_integrations.errors import SuiteError

WriteSuite = Callable[..., Path]


@pytest.mark.parametrize("name", ["and", "or"])
def test_a_question_has_one_right_and_one_or_two_wrong_candidates(name: Literal["and", "or"]) -> None:
    suite = load_suite(bundled_suite(name))
    assert len(suite.queries) >= 30
    assert len({q.text for q in suite.queries}) == len(suite.queries)
    for query in suite.queries:
        assert sorted(suite.qrels[query.id].values()) in ([-1, 1], [-1, -1, 1])
        assert query.groups["tier"] == name.upper()
        assert not query.excluded


@pytest.mark.parametrize("name", ["and", "or"])
def test_pairwise_accuracy_hardly_falls(name: Literal["and", "or"]) -> None:
    found = evaluate_suite(Excise.from_pretrained("minilm"), load_suite(bundled_suite(name)), candidates="judged")
    summary = found.summary()
    frozen, excise = summary["frozen"]["pairwise"], summary["excise"]["pairwise"]
    assert frozen > 0.8
    assert excise >= frozen - LARGEST_FALL


def test_accuracy_is_compared_by_connective(write_suite: WriteSuite, excise_rules: Excise) -> None:
    queries = [
        {"_id": "q1", "text": "bowed string instruments of the orchestra, but not the violin", "tier": "NOT"},
        {"_id": "q2", "text": "instruments that are plucked and have upright strings", "tier": "AND"},
        {"_id": "q3", "text": "otters or bread", "tier": "OR"},
    ]
    qrels = [("q1", "cello", 1), ("q1", "violin", -1), ("q2", "harp", 1), ("q2", "trumpet", -1), ("q3", "otter", 1)]
    suite = load_suite(write_suite(queries=queries, qrels=qrels))
    found = boolean_results(excise_rules, [suite], resamples=200)
    # The disjunction has no wrong text, so it measures nothing.
    assert list(found) == ["AND", "NOT"]
    assert (found["NOT"]["n"], found["NOT"]["frozen"], found["NOT"]["excise"]) == (1, 0.0, 1.0)
    assert (found["AND"]["frozen"], found["AND"]["difference"], found["AND"]["fire_rate"]) == (1.0, 0.0, 0.0)
    with pytest.raises(SuiteError, match="'plain': no query has a tier"):
        boolean_results(
            excise_rules, [load_suite(write_suite("plain", queries=[{"_id": "q3", "text": "x"}], qrels=qrels[4:]))]
        )
