"""The paired bootstrap, against cases that can be worked out by hand, and the comparison of runs."""

from __future__ import annotations

import json
from itertools import product
from pathlib import Path

import pytest

from excise_integrations import InvalidInputError
from excise_integrations.bench.compare import POOLED, compare, load_outcomes
from excise_integrations.bench.rows import QueryRow, Row, write_row
from excise_integrations.bench.significance import align, paired_bootstrap
from excise_integrations.errors import SuiteError


def test_the_bootstrap_of_three_queries_is_that_of_all_27_resamples() -> None:
    a, b = [1.0, 1.0, 0.0], [0.0, 0.0, 1.0]
    exact = [sum(draw) / 3 for draw in product([1.0, 1.0, -1.0], repeat=3)]
    below = sum(m <= 0 for m in exact) / len(exact)  # 7 of 27
    found = paired_bootstrap(a, b, resamples=40_000)
    assert (found.n, found.difference) == (3, pytest.approx(1 / 3))
    assert (found.a, found.b) == (pytest.approx(2 / 3), pytest.approx(1 / 3))
    assert found.p == pytest.approx(2 * below, abs=0.015)
    # The lowest of the 27 has probability 1/27 > 0.025, and so has the highest.
    assert (found.low, found.high) == (pytest.approx(-1.0), pytest.approx(1.0))


def test_a_difference_of_every_query_is_as_sure_as_the_resamples_allow() -> None:
    found = paired_bootstrap([1.0] * 5, [0.0] * 5, resamples=999)
    assert (found.low, found.high, found.p) == (1.0, 1.0, pytest.approx(2 / 1000))
    assert paired_bootstrap([0.0] * 5, [1.0] * 5, resamples=999).p == pytest.approx(2 / 1000)


def test_equal_systems_do_not_differ_and_the_pairing_counts() -> None:
    values = [0.0, 1.0] * 20
    same = paired_bootstrap(values, values)
    assert (same.difference, same.low, same.high, same.p) == (0.0, 0.0, 0.0, 1.0)
    # The same values against other queries' have the same means and a wide interval.
    apart = paired_bootstrap(values, values[::-1])
    assert apart.difference == 0.0
    assert apart.high is not None
    assert apart.high > 0.1


def test_the_seed_and_the_blocks_of_resamples(monkeypatch: pytest.MonkeyPatch) -> None:
    from excise_integrations.bench import significance

    a, b = [float(i % 3 == 0) for i in range(50)], [float(i % 4 == 0) for i in range(50)]
    assert paired_bootstrap(a, b) == paired_bootstrap(a, b)
    assert paired_bootstrap(a, b, seed=1) != paired_bootstrap(a, b)
    whole = paired_bootstrap(a, b)
    monkeypatch.setattr(significance, "_BLOCK", 50 * 7)
    assert paired_bootstrap(a, b).p == pytest.approx(whole.p, abs=0.02)


def test_nothing_in_common_and_wrong_input() -> None:
    found = paired_bootstrap([], [])
    assert (found.n, found.a, found.p) == (0, None, None)
    with pytest.raises(InvalidInputError, match="a has 1 values and b 2"):
        paired_bootstrap([1.0], [1.0, 2.0])
    with pytest.raises(InvalidInputError, match="resamples=0"):
        paired_bootstrap([1.0], [1.0], resamples=0)


def test_alignment_is_by_query_id_and_drops_what_one_side_lacks() -> None:
    a = {"q1": 1.0, "q2": None, "q3": 0.0, "q4": 1.0}
    b = {"q4": 0.0, "q3": 0.5, "q2": 1.0, "q5": 1.0}
    assert align(a, b) == (["q3", "q4"], [0.0, 1.0], [0.5, 0.0])


def _row(folder: Path, suite: str, system: str, successes: dict[str, float]) -> Path:
    queries = tuple(QueryRow(q, {}, 1, {"success@10": v, "hit@10": None}) for q, v in successes.items())
    return write_row(folder, Row(suite, system, "key", {}, None, queries))


def test_runs_and_systems_are_compared_by_suite_and_pooled(tmp_path: Path) -> None:
    _row(tmp_path / "old", "wiki", "default", {"1": 0.0, "2": 0.0})
    _row(tmp_path / "old", "film", "default", {"1": 1.0})
    _row(tmp_path / "new", "wiki", "default", {"2": 1.0, "1": 0.0})
    _row(tmp_path / "new", "film", "default", {"1": 1.0})
    single = _row(tmp_path / "new", "film", "frozen", {"1": 0.0})
    found = compare(
        load_outcomes(str(tmp_path / "new")), load_outcomes(str(tmp_path / "old")), ["success@10", "hit@10"]
    )
    assert [(r["suite"], r["n"], r["difference"]) for r in found] == [
        ("film", 1, 0.0),
        ("wiki", 2, 0.5),
        (POOLED, 3, pytest.approx(1 / 3)),
    ]
    one = compare(load_outcomes(f"{tmp_path}/new#default"), load_outcomes(str(single)), ["success@10"])
    assert [(r["suite"], r["difference"]) for r in one] == [("film", 1.0)]
    with pytest.raises(SuiteError, match=r"no results of 'demote'. It has: default, frozen"):
        load_outcomes(f"{tmp_path}/new#demote")
    with pytest.raises(InvalidInputError, match="no metric 'success'"):
        compare({"a": {}}, {"a": {}}, ["success"])
    with pytest.raises(InvalidInputError, match="No suite is in both"):
        compare({"a": {}}, {"b": {}}, ["success@10"])


def test_the_per_query_file_of_an_evaluation_is_read_too(tmp_path: Path) -> None:
    path = tmp_path / "per_query.jsonl"
    lines = [
        {"suite": "wiki", "id": str(i), "frozen": {"success@10": 0.0}, "excise": {"success@10": float(i)}}
        for i in range(2)
    ]
    path.write_text("".join(json.dumps(r) + "\n" for r in lines))
    found = compare(load_outcomes(str(path)), load_outcomes(f"{path}#frozen"), ["success@10"])
    assert [(r["a"], r["b"]) for r in found] == [(0.5, 0.0)]
    with pytest.raises(SuiteError, match="not #default"):
        load_outcomes(f"{path}#default")
    path.write_text(path.read_text() + "{}\n")
    with pytest.raises(SuiteError, match="line 3"):
        load_outcomes(str(path))


def test_a_result_file_that_was_cut_off_is_refused(tmp_path: Path) -> None:
    path = _row(tmp_path, "wiki", "default", {"1": 0.0, "2": 0.0})
    path.write_text("".join(path.read_text().splitlines(keepends=True)[:-1]))
    with pytest.raises(SuiteError, match="1 of 2 queries"):
        load_outcomes(str(path))
    path.write_text("nothing\n")
    with pytest.raises(SuiteError, match="line 1: not JSON"):
        load_outcomes(str(path))
    with pytest.raises(SuiteError, match="no file and no folder"):
        load_outcomes(str(tmp_path / "missing"))
