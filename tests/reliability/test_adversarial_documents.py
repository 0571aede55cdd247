"""Documents written against Excise: what holds, and what is known not to."""

from __future__ import annotations

from statistics import mean

import pytest
from adversarial import REWRITES, STRICT, Case, Effect, cases, measure

from excise_integrations import Excise

CASES = cases()


@pytest.fixture(scope="module")
def excise() -> Excise:
    return Excise.from_pretrained("minilm", detector="rules")


def effects(excise: Excise, rewrite: str) -> list[Effect]:
    return [measure(excise, case, rewrite) for case in CASES]


def test_every_rewriting_changes_the_document() -> None:
    text = "The Rotterdam depot rose to 11 degrees."
    case = Case("legal", "excursions, not at the Rotterdam depot", ("Rotterdam depot",), "a", "b")
    rewritten = {name: change(text, case) for name, (_, change) in REWRITES.items()}
    assert rewritten.pop("as it is") == text
    assert len({*rewritten.values(), text}) == len(REWRITES)
    assert "Rotterdam" not in rewritten["the topic misspelt"]
    assert "Rotterdam" not in rewritten["the topic hidden (“it”)"]


def test_stuffing_the_wanted_words_leaves_the_evidence_and_escapes_no_strict_removal(excise: Excise) -> None:
    strict = excise.with_config(**STRICT)
    plain, stuffed = effects(strict, "as it is"), effects(strict, "stuffed with the wanted words")
    assert mean(e.share for e in stuffed) > mean(e.share for e in plain) - 0.1
    assert mean(e.shown for e in stuffed) <= mean(e.shown for e in plain) + 0.05


def test_a_footer_does_not_cost_the_wanted_document_its_place(excise: Excise) -> None:
    assert mean(e.shown for e in effects(excise, "wanted, the topic in a footer")) > 0.9


def test_a_hidden_topic_is_not_seen(excise: Excise) -> None:
    plain, hidden = effects(excise, "as it is"), effects(excise, "the topic hidden (“it”)")
    assert mean(e.share for e in hidden) < mean(e.share for e in plain)
