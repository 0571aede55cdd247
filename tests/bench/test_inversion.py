"""Inversion: margins by the length of the exclusion."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from excise_integrations import Excise
from excise_integrations.bench import load_suite
from excise_integrations.bench.inversion import Pair, draw_inversion, inversion_pairs, inversion_summary
from excise_integrations.errors import SuiteError

WriteSuite = Callable[..., Path]


def test_naming_a_topic_lifts_its_document_above_the_wanted_one(write_suite: WriteSuite, excise_rules: Excise) -> None:
    pairs = inversion_pairs(load_suite(write_suite()), excise_rules.backbone)
    assert [(p.query, p.length) for p in pairs] == [("q1", 1), ("q2", 1)]
    assert all(p.margin > 0 for p in pairs)


def test_a_margin_that_grows_by_a_half_per_token_has_that_slope() -> None:
    found = inversion_summary([Pair(str(i), n, 0.5 * n - 0.7) for i, n in enumerate([1, 1, 2, 3, 4, 6])], resamples=200)
    assert found["slope"] == pytest.approx(0.5)
    assert found["low"] == pytest.approx(0.5)
    assert found["n"] == 6
    assert found["inverted"] == pytest.approx(4 / 6)
    assert [(b["from"], b["to"], b["n"], b["inverted"]) for b in found["bins"]] == [
        (1, 1, 2, 0.0), (2, 2, 1, 1.0), (3, 4, 2, 1.0), (5, 6, 1, 1.0),
    ]  # fmt: skip


def test_one_length_has_no_slope() -> None:
    found = inversion_summary([Pair("a", 2, 0.1), Pair("b", 2, -0.1)])
    assert (found["slope"], found["low"], found["inverted"]) == (None, None, 0.5)


def test_a_suite_that_excludes_nothing_is_refused(write_suite: WriteSuite, excise_rules: Excise) -> None:
    suite = load_suite(write_suite(qrels=[("q3", "otter", 1)]))
    with pytest.raises(SuiteError, match="'instruments' has no query"):
        inversion_pairs(suite, excise_rules.backbone)


def test_the_figure_is_drawn_as_png_and_svg(tmp_path: Path) -> None:
    pytest.importorskip("matplotlib")
    pairs = {"wiki": [Pair("a", 1, 0.2), Pair("b", 3, 0.9)], "film": [Pair("c", 2, -0.4)]}
    assert draw_inversion(pairs, tmp_path / "figures") == tmp_path / "figures" / "inversion.png"
    svg = (tmp_path / "figures" / "inversion.svg").read_text(encoding="utf-8")
    assert "<svg" in svg
    assert (tmp_path / "figures" / "inversion.png").read_bytes().startswith(b"\x89PNG")
