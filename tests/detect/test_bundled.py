"""The bundled trained detector on cases that users of search tools report."""

from __future__ import annotations

import pytest

from excise_integrations import Detection, Excise
from excise_integrations.detect import Detector, resolve
from excise_integrations.detect.lora import LoraDetector
from excise_integrations.encode.arithmetic import DType
from excise_integrations.weights import find_adapter

pytestmark = pytest.mark.skipif(find_adapter("minilm", "detector") is None, reason="no trained detector is bundled")


@pytest.fixture(scope="module")
def detector() -> Detector:
    return resolve("lora")


def topics(detection: Detection) -> list[str]:
    return [span.text for span in detection.spans]


@pytest.mark.parametrize(
    ("query", "expected"),
    [
        ("electric cars, but not Tesla", ["Tesla"]),
        ("wireless headphones under 150 euros, anything but Sony", ["Sony"]),
        ("noise-cancelling headphones below $200, just not Bose", ["Bose"]),
        ("soup recipes with leek and no cream", ["cream"]),
        ('warfarin interactions -aspirin -"grapefruit juice"', ["aspirin", "grapefruit juice"]),
        ("neither Mozart nor Haydn, but other composers of Viennese classicism", ["Mozart", "Haydn"]),
        ("drugs for hypertension; we can skip ACE inhibitors and beta blockers", ["ACE inhibitors", "beta blockers"]),
        ("churches in York, not the ones on Church Street", ["Church Street"]),
        ("python tutorials, not python 2", ["python 2"]),
        ("museums in Berlin 🎨 – not the Pergamon\r\nplease", ["Pergamon"]),
        # No cue word at all.
        ("I have already covered Hadrian's Wall; which other Roman frontiers are worth a chapter?", ["Hadrian's Wall"]),
        (
            "reporting duties of the operator; incident notification is handled by my colleague",
            ["incident notification"],
        ),
        ("Which rivers cross Poland? We have finished the chapter on the Vistula.", ["Vistula"]),
    ],
)
def test_fires_and_names_each_topic(detector: Detector, query: str, expected: list[str]) -> None:
    found = detector.detect([query])[0]
    assert topics(found) == expected
    assert all(query[s.start : s.end] == s.text for s in found.spans)
    assert found.confidence is not None
    assert found.confidence > 0.7


@pytest.mark.parametrize(
    "query",
    [
        "why can't penguins fly?",
        "non-small cell lung cancer staging",
        "countries without a coastline",
        "what does the travel insurance policy exclude?",
        "patients who do not respond to methotrexate",
        "No Country for Old Men filming locations",
        "the deadline is no later than 30 June: how do I file",
        "tea, coffee and cocoa production in Kenya",
        "Ehlers-Danlos syndrome in adults",
        "how long does it take to charge an electric car?",
    ],
)
def test_stays_silent_when_nothing_is_excluded(detector: Detector, query: str) -> None:
    found = detector.detect([query])[0]
    assert not found.fired
    assert found.spans == ()
    assert found.wanted == query


@pytest.mark.parametrize("query", ["not football", "anything except jazz"])
def test_a_query_that_only_excludes_wants_nothing(detector: Detector, query: str) -> None:
    found = detector.detect([query])[0]
    assert found.fired
    assert found.wanted == ""


def test_a_batch_says_what_single_queries_say(detector: Detector) -> None:
    queries = ["electric cars, but not Tesla", "tea and coffee", "Verdi operas; Aida I know by heart, so skip it"] * 12
    alone = {q: detector.detect([q])[0] for q in set(queries)}
    for query, found in zip(queries, detector.detect(queries), strict=True):
        assert found.fired == alone[query].fired
        assert topics(found) == topics(alone[query])
        assert found.confidence == pytest.approx(alone[query].confidence, abs=0.05)


def test_the_exclusion_at_the_end_of_a_very_long_query_is_read(detector: Detector) -> None:
    query = "The archive holds letters, maps and ledgers of the harbour. " * 90 + "Find charts, but not Rotterdam."
    found = detector.detect([query])[0]
    assert "Rotterdam" in topics(found)


@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_the_arithmetic_that_is_asked_for_is_the_detector_s_too(dtype: DType) -> None:
    excise = Excise.from_pretrained("minilm", dtype=dtype)
    trained = excise.detector
    assert isinstance(trained, LoraDetector)
    assert {str(p.dtype) for p in trained.tagger.parameters()} == {f"torch.{dtype}"}
    assert topics(excise.detect("electric cars, but not Tesla")) == ["Tesla"]
