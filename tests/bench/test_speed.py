"""Timings of a search and of what runs beside it: what is counted, what is refused, what the tables say."""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from excise_integrations import Candidate, Excise, InvalidInputError
from excise_integrations._cli.app import app
from excise_integrations.bench import speed_cli
from excise_integrations.bench.speed import Workload, interleave, percentile, rerank_rows, search_rows
from excise_integrations.bench.speed_load import batch_rows, caller_rows
from excise_integrations.bench.speed_profile import profile_rows
from excise_integrations.bench.speed_report import render_speed
from excise_integrations.first_stage.memory import MemoryFirstStage

WriteSuite = Callable[..., Path]
SILENT, FIRED = ["small pets"], ["small pets, but not hamsters", "pets except the dog"]


@pytest.fixture(scope="module")
def work(excise_rules: Excise) -> Workload:
    texts = [f"The {name} is kept as a pet in houses and gardens." for name in ("cat", "dog", "hamster", "rabbit")]
    stage = MemoryFirstStage.from_texts(texts, backbone=excise_rules.backbone)
    return Workload(excise_rules.with_config(k=4), stage, SILENT, FIRED)


def test_percentiles_are_values_that_were_seen() -> None:
    values = [float(v) for v in range(1, 101)]
    assert [percentile(values, share) for share in (0.5, 0.95, 0.99, 1)] == [50, 95, 99, 100]
    assert percentile([7.0], 0.99) == 7.0


def test_tasks_take_turns_on_the_same_queries_and_are_compared_with_their_own_reference() -> None:
    seen: dict[str, list[int]] = {"a": [], "b": []}

    def task(name: str, seconds: float) -> Callable[[int], None]:
        def run(i: int) -> None:
            seen[name].append(i)
            time.sleep(seconds)

        return run

    tasks = {"a": task("a", 0.002), "b": task("b", 0.02)}
    a, b = interleave(tasks, repeats=3, reference={"a": "a", "b": "a"}, warmup=1)
    assert seen == {"a": [0, 0, 1, 2], "b": [0, 0, 1, 2]}
    assert (a.ratio, a.reference, b.reference) == (1.0, "a", "a")
    assert b.ratio > 2
    assert b.per_second == pytest.approx(1000 / b.p50, rel=0.5)
    with pytest.raises(InvalidInputError, match="'c' is none of the tasks"):
        interleave(tasks, repeats=1, reference="c")
    with pytest.raises(InvalidInputError, match="repeats=0"):
        interleave(tasks, repeats=0, reference="a")


def test_queries_must_be_what_they_are_given_as(work: Workload) -> None:
    with pytest.raises(InvalidInputError, match="given as silent"):
        Workload(work.excise, work.stage, FIRED, FIRED)
    with pytest.raises(InvalidInputError, match="given as fired"):
        Workload(work.excise, work.stage, SILENT, SILENT)
    with pytest.raises(InvalidInputError, match="at least one"):
        Workload(work.excise, work.stage, SILENT, [])


def test_cold_firings_encode_and_cached_ones_do_not(work: Workload, monkeypatch: pytest.MonkeyPatch) -> None:
    encoded: list[int] = []
    encode = type(work.excise.encoder).encode_documents

    def counted(self: Any, texts: list[str], **options: Any) -> Any:
        encoded.append(len(texts))
        return encode(self, texts, **options)

    cached = work.rerank(cold=False)
    cold = work.rerank(cold=True)
    monkeypatch.setattr(type(work.excise.encoder), "encode_documents", counted)
    cached(0)
    cached(1)
    work.search(FIRED)(0)
    assert encoded == []
    cold(0)
    cold(0)
    assert encoded == [4, 4]


def test_every_group_is_timed(work: Workload) -> None:
    asked: list[tuple[str, int]] = []

    def rival(query: str, shortlist: list[Candidate]) -> None:
        asked.append((query, len(shortlist)))

    search = {t.name: t for t in search_rows(work, repeats=2)}
    assert search["fired, warm"].reference == "frozen, excluding query"
    assert search["silent"].reference == "frozen"
    rerank = {t.name: t for t in rerank_rows(work, repeats=2, rivals={"other": rival})}
    assert rerank["bare forwards"].ratio == 1.0
    assert set(rerank) == {"bare forwards", "fired, cold", "fired, cached", "other"}
    assert asked == [(FIRED[0], 4), (FIRED[0], 4), (FIRED[1], 4)]
    callers = caller_rows(work, callers=(1, 2), calls=4)
    assert {(r.name, r.callers) for r in callers} == {
        (name, n) for name in ("frozen", "silent", "fired, warm", "fired, cold") for n in (1, 2)
    }
    batches = batch_rows(work, sizes=(1, 3), calls=4)
    assert [(r.batch, r.n) for r in batches[:2]] == [(1, 4), (3, 9)]


def test_the_parts_of_a_query_sum_to_the_whole_and_nothing_stays_patched(work: Workload) -> None:
    before = dict(vars(MemoryFirstStage))
    clock = time.perf_counter()
    found = profile_rows(work, repeats=3)
    wall = 1000 * (time.perf_counter() - clock)
    assert sum(3 * sum(parts.values()) for parts in found.values()) < wall
    assert "forward of the backbone" in found["fired, cold"]
    assert "cache" in found["fired, cached"]
    assert "windows of the documents" not in found["fired, cached"]
    assert "demotion" in found["fired, warm"]
    assert "demotion" not in found["silent"]
    assert dict(vars(MemoryFirstStage)) == before
    assert "forward" not in vars(work.excise.encoder.encoder[0].auto_model)


@pytest.fixture
def bench(excise_rules: Excise, monkeypatch: pytest.MonkeyPatch) -> Callable[..., str]:
    monkeypatch.setattr(Excise, "from_pretrained", lambda name, k, **_: excise_rules.with_config(k=k))

    def invoke(*args: str | Path) -> str:
        result = CliRunner().invoke(app, ["bench", *(str(a) for a in args)], prog_name="excise")
        assert result.exit_code == 0, result.output
        return result.stdout

    return invoke


def test_a_run_is_written_and_tabled(bench: Callable[..., str], write_suite: WriteSuite, tmp_path: Path) -> None:
    out = tmp_path / "speed.json"
    suite = write_suite()
    printed = bench("speed", suite, "--part", "search,profile", "--tokens", 20, "-k", 4, "--repeats", 1, "--out", out)
    assert "fired, warm" in printed
    assert "x frozen" in printed
    record = json.loads(out.read_text(encoding="utf-8"))
    assert (record["k"], record["tokens"], record["suite"]) == (4, 20, "instruments")
    assert "rerank" not in record
    tables = bench("speed-report", out, out)
    # Of each record a row of the timings and a column of the profile.
    assert tables.count("| fired, warm |") == 4
    assert "## Where the time goes" in tables
    assert "## Under load" not in tables
    with pytest.raises(AssertionError, match="cannot be read as a record"):
        bench("speed-report", write_suite("other") / "qrels" / "dev.tsv")


def test_documents_get_the_length_that_was_asked_for(work: Workload) -> None:
    candidates = [Candidate("a", "one two"), Candidate("b", "three unbelievably-long four")]
    cut = speed_cli._of_length(candidates, 9, work.excise.backbone)
    tokenizer = work.excise.backbone.tokenizer
    assert [len(tokenizer(c.text, add_special_tokens=False)["input_ids"]) for c in cut] == [9, 9]
    assert cut[0].text.startswith("one two three")
    assert candidates[0].text == "one two"


def test_the_start_of_a_process_is_a_table_of_its_own() -> None:
    record = {"command": "excise bench speed wiki", "dtype": "bfloat16", "start": {"import": 12.3}}
    assert "| import | 12 |" in render_speed([record])
