"""Each gate on a record that passes and on ones that must not; the repair before them."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from mining_corpus import WordEncoder

from excise_integrations.bench.construct.answers import AnswerBook, Model
from excise_integrations.bench.construct.gates import GATES, Tools, first_failure
from excise_integrations.bench.construct.records import BenchRecord, BuildSettings
from excise_integrations.bench.construct.repair import verify_and_repair
from excise_integrations.bench.lexical import LexicalIndex
from excise_integrations.first_stage.memory import MemoryFirstStage
from excise_integrations.train.descriptions import Document
from excise_integrations.train.near_duplicates import NearDuplicates
from excise_integrations.train.query_templates import Draft, Group

RIVER = "a cold river in the north which flows past birch forest to the sea."
AMBRA = Document("ambra", "Ambra", f"The Ambra is {RIVER} Salmon spawn in its upper reaches every autumn.")
BELSA = Document("belsa", "Belsa", f"The Belsa is {RIVER} Barges carry gravel down to the port of Daal.")
CORIN = Document("corin", "Corin", f"The Corin is {RIVER} A dam was built across it in the last century.")
CHEESE = Document("cheese", "Mirra", "The Mirra is a soft cheese that ripens on boards of spruce.")
CORPUS = [AMBRA, BELSA, CORIN, CHEESE]


def record(
    text: str = "cold river in the north, but not the Belsa",
    wanted: str = "cold river in the north",
    excluded: tuple[str, ...] = ("Belsa",),
    *,
    tier: Any = "T1",
    gold: Document = AMBRA,
    others: tuple[Document, ...] = (BELSA,),
    shape: Any = None,
) -> BenchRecord:
    return BenchRecord("q", Draft(text, tier, "short", wanted, excluded), Group(gold, others), shape)


@pytest.fixture
def tools(tmp_path: Path) -> Callable[..., Tools]:
    encoder: Any = WordEncoder()
    stage = MemoryFirstStage.from_texts(
        [d.full_text for d in CORPUS], ids=[d.id for d in CORPUS], backbone=encoder, progress=False
    )

    def make(judge: Any = None, references: list[str] | None = None, **settings: Any) -> Tools:
        return Tools(
            BuildSettings(**{"round_trip": 3, **settings}),
            stage,
            encoder,
            LexicalIndex([d.full_text for d in CORPUS]),
            {d.id: place for place, d in enumerate(CORPUS)},
            NearDuplicates(0.9),
            None if references is None else NearDuplicates(0.9, references),
            judge and Model(judge, "judge", AnswerBook(tmp_path / "a.jsonl"), attempts=1, timeout=5),
        )

    return make


ONE = record()
TWO = record(
    "cold river in the north, neither Belsa nor Corin", excluded=("Belsa", "Corin"), others=(BELSA, CORIN), tier="T3"
)
ABOUT_BOTH = replace(CORIN, text=CORIN.text + " It meets the Belsa.")


@pytest.mark.parametrize("good", [record(), TWO])
def test_a_good_record_passes_every_gate(tools: Callable[..., Tools], good: BenchRecord) -> None:
    assert len(GATES) == 9
    assert first_failure(good, tools(references=["Something else that was written elsewhere."])) is None


@pytest.mark.parametrize(
    ("gate", "bad"),
    [
        ("round_trip", record("a soft cheese that ripens on spruce boards, not the Belsa")),
        ("difficulty", record(others=(CHEESE,), excluded=("Mirra",))),
        ("difficulty", record(wanted="salmon spawn upper reaches autumn")),
        ("topic_in_negative", record(others=(CORIN,))),
        ("topic_not_in_gold", record(gold=replace(AMBRA, text=AMBRA.text + " It joins the Belsa."))),
        ("topic_not_in_gold", record(excluded=("northern river",), gold=replace(AMBRA, text="river, northern"))),
        ("distinctness", record(wanted="rivers like the Belsa")),
        ("distinctness", replace(TWO, draft=replace(TWO.draft, excluded=("Belsa", "Belsas")))),
        ("distinctness", record(others=(replace(AMBRA, id="copy", text=AMBRA.text),))),
        ("one_negative_per_topic", record(others=(BELSA, CORIN))),
        ("one_negative_per_topic", record(others=(AMBRA,))),
        ("one_negative_per_topic", replace(TWO, group=Group(AMBRA, (BELSA, ABOUT_BOTH)))),
        ("leakage", record()),
        ("paraphrase_safety", record("cold river in the north, but not the Bel")),
        ("paraphrase_safety", record("Belsa, a cold river in the north, but not the Belsa")),
        ("paraphrase_safety", record("something else, but not the Belsa")),
        ("paraphrase_safety", record("cold river in the north like Ambra, but not the Belsa")),
    ],
)
def test_each_gate_refuses_what_it_is_for(tools: Callable[..., Tools], gate: str, bad: BenchRecord) -> None:
    known = tools(references=[BELSA.full_text + " indeed"], round_trip=1)
    assert not GATES[gate](bad, known)
    assert first_failure(bad, known, [gate]) == gate


def test_difficulty_asks_both_rankers(tools: Callable[..., Tools]) -> None:
    easy = record(wanted="salmon spawn upper reaches autumn")
    assert not GATES["difficulty"](easy, tools(bm25=0.0, maxsim=0.8))
    assert not GATES["difficulty"](easy, tools(bm25=0.5, maxsim=0.0))
    assert GATES["difficulty"](easy, tools(bm25=0.0, maxsim=0.0))


def test_the_judge_has_a_say_in_two_gates(tools: Callable[..., Tools]) -> None:
    def judge(about: Any, wanted: Any, unwanted: Any) -> Callable[[str], str]:
        return lambda p: json.dumps({"about": about} if "TOPIC: " in p else {"wanted": wanted, "unwanted": unwanted})

    def fails(*says: Any, of: BenchRecord = ONE) -> str | None:
        def fresh(prompt: str) -> str:
            return judge(*says)(prompt)

        fresh.__qualname__ = f"judge {says}"
        return first_failure(of, tools(fresh))

    assert fails(False, True, [True]) is None
    assert fails(True, True, [True]) == "topic_not_in_gold"
    assert fails("no", True, [True]) == "topic_not_in_gold"
    assert fails(False, False, [True]) == "query_judge"
    assert fails(False, True, [False]) == "query_judge"
    assert fails(False, True, [True, True]) == "query_judge"
    assert fails(False, True, [True, False], of=TWO) == "query_judge"


def test_a_query_is_kept_once(tools: Callable[..., Tools]) -> None:
    both = tools()
    assert first_failure(record(), both) is None
    assert first_failure(record("Cold river in the north but not the Belsa!"), both) == "distinctness"


def repaired(text: str, **options: Any) -> str | None:
    found = verify_and_repair(record(text, **options))
    if found is None:
        return None
    assert found.repaired == (found.draft.text != text)
    return found.draft.text


def test_cues_are_put_back_before_the_gates() -> None:
    assert repaired("northern rivers, but not the Belsa") == "northern rivers, but not the Belsa"
    assert repaired("northern rivers, Belsa") == "northern rivers, but not Belsa"
    assert repaired("northern rivers.") == "northern rivers, but not Belsa"
    two: Any = {"tier": "T3", "excluded": ("Belsa", "Corin"), "others": (BELSA, CORIN)}
    assert repaired("northern rivers, but not Belsa, Corin", shape="disjunctive", **two) is not None
    assert repaired("northern rivers, the Belsa") == "northern rivers, but not the Belsa"
    assert repaired("none of the Belsa, only northern rivers") == "none of the Belsa, only northern rivers"
    # "but not" would not fit in.
    assert repaired("northern rivers; we dropped Belsa too") is None
    assert repaired("rivers but not Belsa; but not Corin either", shape="mixed", **two) is None
    mixed = repaired("northern rivers, Belsa; the Corin I have seen", shape="mixed", **two)
    assert mixed == "northern rivers, but not Belsa; the Corin I have seen"


def test_an_implicit_query_is_never_repaired() -> None:
    assert repaired("northern rivers; the Belsa I have seen", tier="T2") is not None
    assert repaired("northern rivers, but not the Belsa", tier="T2") is None
