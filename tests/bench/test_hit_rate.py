"""Latency against the cache's hit rate: what is counted, written, read and drawn."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from excise_integrations import Excise, InvalidInputError, SuiteError
from excise_integrations._cli.app import app
from excise_integrations.bench.figures import draw_hit_rates
from excise_integrations.bench.hit_rate import hit_rate_rows
from excise_integrations.bench.hit_rate_report import hit_rate_section, read_hit_rates
from excise_integrations.bench.speed import Workload
from excise_integrations.first_stage.memory import MemoryFirstStage
from excise_integrations.types import Candidate

FIRED = "bowed string instruments of the orchestra, but not the violin"
RECORD: dict[str, Any] = {
    "command": "excise bench hit-rate wiki --out x.json", "suite": "wiki", "documents": 9743, "k": 100,
    "machine": "a processor",
    "hit_rates": [
        {"hit_rate": 0.0, "n": 5, "p50": 800.0, "p95": 900.0},
        {"hit_rate": 1.0, "n": 5, "p50": 40.0, "p95": 50.0},
    ],
}  # fmt: skip


@pytest.fixture
def work(excise_rules: Excise) -> Workload:
    texts = ["The violin is a bowed string instrument.", "The cello is a bowed string instrument.",
             "The harp is plucked.", "Bread rises slowly."]  # fmt: skip
    documents = [Candidate(str(i), text) for i, text in enumerate(texts)]
    stage = MemoryFirstStage.from_candidates(documents, backbone=excise_rules.backbone)
    return Workload(excise_rules.with_config(k=4), stage, ["string instruments"], [FIRED])


def test_a_firing_finds_the_share_that_the_cache_was_given_and_encodes_the_rest(
    work: Workload, monkeypatch: pytest.MonkeyPatch
) -> None:
    encode = work.excise.encoder.encode_documents
    encoded: list[int] = []

    def counted(texts: list[str], **options: Any) -> Any:
        encoded.append(len(texts))
        return encode(texts, **options)

    monkeypatch.setattr(work.excise.encoder, "encode_documents", counted)
    rows = hit_rate_rows(work, shares=(0.0, 0.5, 1.0), repeats=2)
    assert [(r.hit_rate, r.n) for r in rows] == [(0.0, 2), (0.5, 2), (1.0, 2)]
    # Once through, then four and two documents a round; filling a cache encodes nothing.
    assert sorted(encoded) == [2, 2, 4, 4, 4]
    assert all(0.0 < r.p50 <= r.p95 for r in rows)


@pytest.mark.parametrize("options", [{"repeats": 0}, {"shares": ()}, {"shares": (0.5, 1.1)}])
def test_a_measurement_of_nothing_is_refused(work: Workload, options: dict[str, Any]) -> None:
    with pytest.raises(InvalidInputError, match="must be at least 1"):
        hit_rate_rows(work, **options)


def test_the_command_writes_what_the_report_reads(
    excise_rules: Excise, write_suite: Callable[..., Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Excise, "from_pretrained", lambda name, **options: excise_rules.with_config(k=options["k"]))
    out = tmp_path / "hits.json"
    arguments = ["bench", "hit-rate", str(write_suite()), "--out", str(out), "--repeats", "1", "-k", "4"]
    done = CliRunner().invoke(app, arguments, prog_name="excise")
    assert done.exit_code == 0, done.output
    found = read_hit_rates(out)
    assert (found["suite"], found["k"], len(found["hit_rates"])) == ("instruments", 4, 6)
    assert (found["hit_rates"][0]["hit_rate"], found["hit_rates"][-1]["hit_rate"]) == (0.0, 1.0)
    assert done.stdout.splitlines()[0].startswith("hit rate 0.00  p50")


def test_the_section_and_the_figure_come_from_the_record(tmp_path: Path) -> None:
    text = hit_rate_section(RECORD)
    assert "| 0.00 | 5 | 800.0 | 900.0 | 20.0 |" in text
    assert "excise bench hit-rate wiki --out x.json" in text
    pytest.importorskip("matplotlib")
    path = draw_hit_rates(RECORD, tmp_path)
    assert path == tmp_path / "latency-against-hit-rate.png"
    assert {p.suffix for p in tmp_path.iterdir()} == {".png", ".svg"}


@pytest.mark.parametrize(
    ("content", "why"),
    [
        ("{", "not JSON"),
        ("[]", "no record of"),
        ('{"hit_rates": [{"p50": 1}]}', "no record of"),
        (None, "cannot be read"),
    ],
)
def test_another_file_is_refused_by_name(content: str | None, why: str, tmp_path: Path) -> None:
    path = tmp_path / "hits.json"
    if content is not None:
        path.write_text(content)
    with pytest.raises(SuiteError, match=rf"hits\.json.*{why}"):
        read_hit_rates(path)
    path.write_text(json.dumps(RECORD))
    assert read_hit_rates(path)["hit_rates"] == RECORD["hit_rates"]
