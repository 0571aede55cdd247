"""The report as data, and the sentences in it."""

from __future__ import annotations

import json
import subprocess
import sys
from dataclasses import replace
from datetime import date, datetime
from pathlib import Path

import pytest
from audit_results import make_result, make_silent

from excise_integrations import Candidate, Detection, ExciseConfig, ExciseResult, InvalidInputError, Span, Verdict
from excise_integrations.audit import Report


def strict(text: str) -> object:
    def refuse(name: str) -> None:
        raise AssertionError(f"{name} is not JSON")

    return json.loads(text, parse_constant=refuse)


def row(report: Report, name: str) -> dict:
    return next(c for c in report.to_dict()["candidates"] if c["id"] == name)


def test_it_says_what_the_result_says(fired: ExciseResult) -> None:
    report = fired.report()
    data = report.to_dict()
    assert data["schema"] == "excise-report/1"
    assert data["query"] == fired.query
    assert data["detection"]["spans"] == [{"text": "domestic cat", "start": 34, "end": 46, "confidence": 0.97}]
    assert [c["id"] for c in data["candidates"]] == ["cat", "dog", "parrot", "kitten", "horse"]
    assert data["removed"] == ["cat"]
    assert data["topics"][0] | {"strongest": 0.875, "cut": 0.578, "removed": 1, "lowered": 2} == data["topics"][0]
    assert data["adapters"] == ["minilm/detector@0123456789ab"]
    assert (data["floor"], data["shadow"], data["error"], data["highlighted"]) == (0.35, False, None, False)
    assert row(report, "kitten")["move"] == 2
    assert row(report, "cat")["move"] is None
    assert row(report, "dog")["text"] == "A text about the dog. It is long."
    assert datetime.fromisoformat(data["created"].replace("Z", "+00:00")).utcoffset() is not None


def test_what_fell_below_k_has_a_verdict_and_no_text(fired: ExciseResult) -> None:
    horse = row(fired.report(), "horse")
    assert (horse["returned"], horse["text"], horse["rank"]) == (False, None, 4)
    assert row(fired.report(), "dog")["returned"]


def test_json_is_the_dict(fired: ExciseResult) -> None:
    report = fired.report()
    assert strict(report.to_json()) == report.to_dict()
    assert strict(report.to_json(indent=None)) == report.to_dict()


def test_the_dict_is_the_callers_own(fired: ExciseResult) -> None:
    report = fired.report()
    report.to_dict()["candidates"].clear()
    assert len(report.to_dict()["candidates"]) == 5


def test_values_that_are_no_json_become_text_or_null() -> None:
    class Odd:
        def __str__(self) -> str:
            raise RuntimeError("no text")

    loop: dict[str, object] = {}
    loop["self"] = loop
    metadata = {"day": date(2026, 1, 31), "nan": float("nan"), 3: set, "odd": Odd(), "loop": loop, "x": (1, 2)}
    candidate = Candidate("d0", "text \ud800", 1.0, metadata)
    result = make_silent(candidates=(candidate,), query="a \udfff b", timings={"detect": float("inf")})
    data = strict(Report(result).to_json())
    shown = data["candidates"][0]  # type: ignore[index]
    assert shown["metadata"]["day"] == "2026-01-31"
    assert shown["metadata"]["nan"] is None
    assert shown["metadata"]["odd"] == "(Odd)"
    assert shown["metadata"]["x"] == [1, 2]
    assert shown["text"] == "text ?"
    assert data["query"] == "a ? b"  # type: ignore[index]


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("cat", ["Removed:", "“domestic cat” is 0.875", "safety floor (0.350)", "no candidate of this shortlist has"]),
        ("dog", ["Protected from removal", "0.646, above the cut (0.578)", "0.066 was subtracted", "from rank 2 to 1"]),
        ("kitten", ["Lowered:", "0.604, above the cut (0.578)", "0.026 was subtracted", "up from rank 4 to 2"]),
        ("parrot", ["Not demoted:", "0.254, not above the cut (0.578)", "stays at rank 3"]),
    ],
)
def test_every_action_has_its_reason(fired: ExciseResult, name: str, words: list[str]) -> None:
    reason = row(fired.report(), name)["reason"]
    for word in words:
        assert word in reason


def test_the_summary_counts(fired: ExciseResult) -> None:
    summary = " ".join(fired.report().summary)
    assert "The detector found 1 excluded topic: “domestic cat” (confidence 0.970)." in summary
    assert "Of 5 candidates, 1 was removed and 2 lowered by a penalty; 3 candidates are returned." in summary


def second_removed(evidence: float) -> ExciseResult:
    result = make_result()
    kitten = result.verdicts["kitten"]
    kitten = replace(kitten, action="removed", rank=None, evidence=evidence, topic_evidence=(evidence,))
    removed = (*result.removed, result.candidates[1])
    return replace(result, verdicts={**result.verdicts, "kitten": kitten}, removed=removed)


def test_with_the_config_the_bound_is_named() -> None:
    config = ExciseConfig(topic_fraction=0.95)
    result = replace(second_removed(0.86), config=config.digest())
    known = row(Report(result, config=config), "kitten")["reason"]
    assert "at least 95% of the most that any candidate has (0.875)" in known
    unknown = row(Report(result), "kitten")["reason"]
    assert "%" not in unknown
    assert "the most that any candidate has is 0.875" in unknown


def test_a_bound_that_is_not_met_is_not_claimed() -> None:
    config = ExciseConfig(topic_fraction=0.95)
    result = replace(second_removed(0.3), config=config.digest())
    reason = row(Report(result, config=config), "kitten")["reason"]
    assert "%" not in reason
    assert "safety floor" not in reason


def test_with_whole_documents_the_evidence_is_the_documents() -> None:
    config = ExciseConfig(unit="document")
    report = Report(make_result(config=config.digest()), config=config)
    assert "its document's evidence for “domestic cat” is 0.875" in row(report, "cat")["reason"]
    assert "document's" not in row(make_result().report(), "cat")["reason"]


def test_the_protected_one_is_described_as_it_is() -> None:
    result = make_result()
    dog = replace(result.verdicts["dog"], evidence=0.5, topic_evidence=(0.5,), penalty=0.0)
    reason = row(replace(result, verdicts={**result.verdicts, "dog": dog}).report(), "dog")["reason"]
    assert "the highest-ranked candidate that is above no cut: its evidence for “domestic cat” is 0.500; it" in reason
    strong = row(result.report(), "dog")["reason"]
    assert "the highest-ranked candidate that is not the strongest match of an excluded topic" in strong


def test_removed_last_says_where_it_went() -> None:
    result = make_result()
    cat = replace(result.verdicts["cat"], rank=5)
    result = replace(
        result, verdicts={**result.verdicts, "cat": cat}, candidates=(*result.candidates, result.removed[0])
    )
    assert row(result.report(), "cat")["reason"].startswith("Moved to the end (rank 5) and flagged as removed")


def test_nothing_reached_the_floor() -> None:
    result = make_result()
    verdicts = {
        i: replace(
            v, action="reranked", rank=v.first_stage_rank, evidence=0.2, topic_evidence=(0.2,), penalty=0.0, cut=0.1
        )
        for i, v in result.verdicts.items()
    }
    report = replace(result, verdicts=verdicts, removed=()).report()
    assert "No candidate's evidence reaches the safety floor of 0.350 (the strongest has 0.200)" in report.summary[1]
    assert "no candidate reaches the safety floor (0.350)" in row(report, "cat")["reason"]
    assert "cut" not in row(report, "cat")["reason"]


def test_several_topics_are_told_apart() -> None:
    detection = Detection(True, 0.9, (Span("cats", 0, 4, 0.9), Span("dogs")), "", "caller")
    result = make_result(detection=detection)
    verdicts = {
        "cat": replace(result.verdicts["cat"], topic_evidence=(0.875, 0.3)),
        "dog": replace(result.verdicts["dog"], topic_evidence=(0.3, 0.646), span=1),
    }
    report = replace(result, verdicts=verdicts).report()
    data = report.to_dict()
    assert [t["strongest"] for t in data["topics"]] == [0.875, 0.646]
    assert data["topics"][1]["start"] is None
    assert "“dogs” is 0.646" in row(report, "dog")["reason"]
    assert report.summary[0] == "The caller named 2 excluded topics: “cats”, “dogs”."


def test_one_evidence_over_all_topics_is_called_so() -> None:
    detection = Detection(True, 0.9, (Span("cats", 0, 4, 0.9), Span("dogs", 5, 9, 0.9)), "")
    result = make_result(detection=detection)
    cat = replace(result.verdicts["cat"], topic_evidence=(0.9, 0.85))
    reason = row(replace(result, verdicts={**result.verdicts, "cat": cat}).report(), "cat")["reason"]
    assert "for the excluded topics together (most for “cats”) is 0.875" in reason


def test_silent_switched_off_failed_shadow_and_empty() -> None:
    silent = make_silent()
    assert "no excluded topic in the query (confidence 0.020)" in silent.report().summary[0]
    assert "returned as it came" in silent.report().summary[1]
    assert "excludes nothing" in row(silent.report(), "d0")["reason"]
    off = make_silent(detection=Detection(False, source="caller"))
    assert "switched exclusion off" in off.report().summary[0]
    failed = make_silent(error="DetectorError: it broke", warnings=("w",))
    assert "DetectorError: it broke" in failed.report().summary[0]
    assert "because Excise failed" in row(failed.report(), "d0")["reason"]
    shadow = make_result(shadow=True)
    assert "1 would have been removed" in shadow.report().summary[1]
    assert row(shadow.report(), "cat")["reason"].startswith("In shadow mode, so not carried out:")
    empty = make_result(candidates=(), removed=(), verdicts={})
    assert empty.report().summary[-1] == "The first stage returned no candidates."


def test_a_config_of_another_result_is_refused() -> None:
    config = ExciseConfig(cap=1)
    assert Report(make_result(config=config.digest()), config=config).to_dict()["config"]["settings"]["cap"] == 1
    with pytest.raises(InvalidInputError, match="digest"):
        Report(make_result(config="0123456789ab"), config=config)
    with pytest.raises(InvalidInputError, match="dict"):
        Report({})  # type: ignore[arg-type]


def test_numbers_are_facts_of_the_verdict() -> None:
    verdict = Verdict("d0", "penalised", 2, 1, None, -3.0, 0.7, (0.7,), 0, 0.5, 0.194)
    result = make_result(candidates=(Candidate("d0", "t"),), removed=(), verdicts={"d0": verdict})
    assert row(result.report(), "d0")["first_stage_score"] is None
    assert "down from rank 1 to 2" in row(result.report(), "d0")["reason"]


def test_neither_the_report_nor_the_log_loads_torch(tmp_path: Path) -> None:
    code = """
import sys
sys.path.insert(0, sys.argv[1])
from audit_results import make_result
from excise_integrations.audit import AuditLog, read_log
report = make_result().report()
report.to_html(), report.to_markdown(), report.to_json(), report._repr_html_()
AuditLog(sys.argv[2]).write(make_result())
assert len(list(read_log(sys.argv[2]))) == 1
assert not {"torch", "transformers", "pydantic", "typer"} & set(sys.modules)
"""
    folder = str(Path(__file__).parent)
    subprocess.run([sys.executable, "-c", code, folder, str(tmp_path / "a.jsonl")], check=True)
