"""Queries in other languages are warned about, English ones with foreign names are not."""

from __future__ import annotations

import json
from importlib.resources import files

import pytest

from excise_integrations.detect import RulesDetector
from excise_integrations.detect.language import language_warnings

FOREIGN = [
    ("Filme über Berlin, aber nicht Metropolis", "German"),
    ("voitures électriques mais pas Tesla", "French"),
    ("coches eléctricos pero sin Tesla", "Spanish"),
    ("auto elettriche ma non Tesla", "Italian"),
    ("elektrische auto's maar niet Tesla", "Dutch"),
    ("carros elétricos, mas não Tesla", "Portuguese"),
    ("電気自動車 テスラ以外", "script"),
    ("электромобили кроме Tesla", "script"),
]
ENGLISH = [
    "",
    "electric cars, but not Tesla",
    "La Dolce Vita reviews",
    "Das Boot der Untergang films",
    "films like “Les Quatre Cents Coups”, nothing by Godard",
    "TNF-α, β-blockers",
    "non-NATO defence pacts in Europe since 1990",
    "how to cook coq au vin sans vin",
    "α",
    "12 345 %",
]


@pytest.mark.parametrize(("query", "named"), FOREIGN)
def test_a_query_in_another_language_is_warned_about(query: str, named: str) -> None:
    (warning,) = language_warnings(query)
    assert named in warning
    assert "exclude=" in warning
    assert warning in RulesDetector().detect([query])[0].warnings


@pytest.mark.parametrize("query", ENGLISH)
def test_english_with_foreign_names_is_not(query: str) -> None:
    assert language_warnings(query) == ()


def test_the_training_queries_raise_no_warnings() -> None:
    queries = [
        json.loads(line)["text"]
        for file in (files("excise_integrations") / "train/data").iterdir()
        if file.name.startswith("natural_")
        for line in file.read_text(encoding="utf-8").splitlines()
    ]
    warned = [query for query in queries if language_warnings(query)]
    assert len(queries) > 1000
    assert len(warned) <= len(queries) / 1000, warned[:5]


def test_a_very_long_query_is_judged_by_its_beginning() -> None:
    assert language_warnings("pas mais " * 200_000)
