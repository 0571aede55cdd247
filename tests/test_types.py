"""Frozen records: what they keep, what they refuse to change, what they turn into."""

from __future__ import annotations

import copy
import dataclasses
import json
import pickle
from typing import Any

import numpy as np
import pytest

from excise_integrations import Candidate, Detection, ExciseResult, Span, Verdict
from excise_integrations.types import join_warnings

KEYS = {
    "fired", "confidence", "spans", "source", "rank", "first_stage_rank", "first_stage_score", "score", "evidence",
    "span", "cut", "penalty", "action", "adapters", "config",
}  # fmt: skip


def result(score: Any = 1.5, confidence: Any = 0.9, **fields: Any) -> ExciseResult:
    candidate = Candidate("a", "text", score, {"nested": {"list": [1]}})
    return ExciseResult(
        query="cars, not Tesla",
        candidates=(candidate,),
        removed=(),
        detection=Detection(True, confidence, (Span("Tesla", 10, 15, confidence),), "cars"),
        verdicts={"a": Verdict("a", "penalised", 1, 1, score, 1.25, 0.5, (0.5,), 0, 0.25, 0.25)},
        adapters=("toy/detector@0123456789ab",),
        config="0" * 12,
        **fields,
    )


def test_a_candidate_keeps_its_own_copy_of_the_metadata_and_lets_nobody_change_it() -> None:
    metadata = {"kind": "animal"}
    candidate = Candidate("a", "text", metadata=metadata)
    metadata["kind"] = "plant"
    assert candidate.metadata == {"kind": "animal"}
    with pytest.raises(TypeError):
        candidate.metadata["kind"] = "plant"  # type: ignore[index]
    with pytest.raises(dataclasses.FrozenInstanceError):
        candidate.text = "other"  # type: ignore[misc]


@pytest.mark.parametrize("again", [copy.copy, copy.deepcopy, lambda x: pickle.loads(pickle.dumps(x))])
def test_records_survive_copies_and_pickling(again: Any) -> None:
    original = result(warnings=("careful",), timings={"detect": 0.1}, error="none")
    twin = again(original)
    assert twin == original
    assert twin.candidates[0].metadata["nested"] == {"list": [1]}
    assert again(original.candidates[0]) == original.candidates[0]


def test_a_deep_copy_shares_no_metadata() -> None:
    candidate = Candidate("a", "text", metadata={"list": [1]})
    copy.deepcopy(candidate).metadata["list"].append(2)
    assert candidate.metadata["list"] == [1]


def test_metadata_for_the_frameworks_is_plain_json() -> None:
    made = result(np.float32(1.5), np.float64(0.9))
    out = made.metadata(made.candidates[0])
    assert set(out) == KEYS
    assert json.loads(json.dumps(out)) == out
    assert out["first_stage_score"] == 1.5
    assert out["spans"] == [{"text": "Tesla", "start": 10, "end": 15, "confidence": pytest.approx(0.9)}]
    assert (out["action"], out["span"], out["cut"], out["penalty"], out["rank"]) == ("penalised", 0, 0.25, 0.25, 1)


def test_metadata_is_a_new_dict_each_time() -> None:
    made = result()
    made.metadata(made.candidates[0])["spans"].clear()
    assert made.metadata(made.candidates[0])["spans"]


def test_warnings_and_errors_are_in_the_metadata_only_when_there_are_any() -> None:
    made = result(warnings=("careful",), error="DetectorError: no")
    out = made.metadata(made.candidates[0])
    assert out["warnings"] == ["careful"]
    assert out["error"] == "DetectorError: no"
    assert set(out) == KEYS | {"warnings", "error"}


def test_the_final_score_is_the_verdict_s() -> None:
    made = result()
    assert made.score(made.candidates[0]) == 1.25
    assert made.candidates[0].score == 1.5


def test_warnings_are_joined_without_repeats_in_order() -> None:
    assert join_warnings(["b", "a"], [], ["a", "c"]) == ("b", "a", "c")


def test_a_result_shows_itself_in_a_notebook_as_its_report_without_scripts() -> None:
    html = result()._repr_html_()
    assert "Tesla" in html
    assert "penalised" in html
    assert "<script" not in html
