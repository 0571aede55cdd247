"""The trained detector's machinery, with heads that the tests write themselves."""

from __future__ import annotations

import pickle
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from tiny_adapters import save_detector

from excise_integrations import (
    AdapterError,
    BackboneError,
    Detection,
    Excise,
    ExciseConfig,
    InvalidInputError,
)
from excise_integrations.detect import Detector, RulesDetector, resolve
from excise_integrations.detect.lora import LoraDetector
from excise_integrations.encode import Backbone

QUERIES = [
    "electric cars, but not Tesla",
    "pets",
    "books about whales " * 60 + "but not orcas",
    "café crème, no 🐕 please",
    "zwei\r\nZeilen ohne Punkt",
]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Fires on everything; which words it marks is random."""
    return save_detector(tmp_path_factory.mktemp("random") / "detector", query_bias=40.0, scale=0.3, threshold=0.5)


@pytest.fixture(scope="module")
def detector(folder: Path) -> LoraDetector:
    return LoraDetector.from_folder(folder, device="cpu", dtype="float32")


# --- offsets ------------------------------------------------------------------------------------


def check(detector: LoraDetector, query: str) -> Detection:
    (found,) = detector.detect([query])
    last = 0
    for span in found.spans:
        assert span.start is not None
        assert span.end is not None
        assert last <= span.start < span.end <= len(query)
        assert query[span.start : span.end] == span.text
        assert any(c.isalnum() for c in span.text)
        assert span.confidence is not None
        assert 0.0 <= span.confidence <= 1.0
        last = span.end
    assert found.fired == bool(found.spans)
    assert found.confidence is not None
    assert 0.0 <= found.confidence <= 1.0
    assert found.source == "detector"
    return found


@pytest.mark.parametrize(
    "query",
    [
        *QUERIES,
        "cafe\u0301 au lait but not the\u0301",
        "👩‍👩‍👧‍👦 family films without 🐕‍🦺 dogs",
        "a\ud800b but not c\udfffd",
        "zero\u200bwidth and \u202ertl but not Tesla",
        "\uff34\uff25\uff33\uff2c\uff21 full width but not Tesla",
        "İstanbul ﬁsh ½ ß but not Ǆ",
        "手机但不要苹果",
        "tab\tnull\x00bell\x07 but not Tesla",
        "?!",
        "🐕",
    ],
    ids=ascii,
)
def test_offsets_index_the_original_query(detector: LoraDetector, query: str) -> None:
    check(detector, query)


@settings(max_examples=40, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    query=st.text(
        st.one_of(st.characters(), st.characters(categories=["Cs"]), st.sampled_from("ab .\r\n,🐕é")), min_size=1
    )
)
def test_offsets_index_any_query(detector: LoraDetector, query: str) -> None:
    check(detector, query)


@pytest.mark.parametrize(
    ("query", "whole"),
    [
        ("a" * 1_000_000, False),
        ("cats " * 200_000, False),
        (" " * 999_990 + "not cats", True),
        ("not cats" + " " * 999_990, True),
        ("not" + " " * 999_990 + "cats", False),
        ("🐕" * 250_000, False),
    ],
    ids=["one word", "words", "spaces", "spaces after", "spaces between", "emoji"],
)
def test_a_megabyte_is_read_in_bounded_time_and_says_what_was_not_read(
    detector: LoraDetector, query: str, whole: bool
) -> None:
    began = time.process_time()
    found = check(detector, query)
    assert time.process_time() - began < 4
    assert bool(found.warnings) is not whole
    assert all("was not read" in w for w in found.warnings)


def test_all_of_a_long_query_is_read(tmp_path: Path) -> None:
    everything = LoraDetector.from_folder(save_detector(tmp_path / "d", query_bias=9.0, inside_bias=9.0))
    query = " ".join(f"word{i}" for i in range(900)) + " orcas"
    (found,) = everything.detect([query])
    assert found.warnings == ()
    assert found.spans[-1].end == len(query)
    assert "".join(s.text for s in found.spans).count("word") == 900


# --- firing -------------------------------------------------------------------------------------


def test_it_fires_above_the_threshold_and_not_at_it(tmp_path: Path) -> None:
    # With heads of biases alone the query's logit is 0 + 0: probability one half.
    folder = save_detector(tmp_path / "d", threshold=0.5)
    query = "electric cars, but not Tesla"
    (silent,) = LoraDetector.from_folder(folder, dtype="float32").detect([query])
    assert silent.confidence == pytest.approx(0.5, abs=1e-6)
    assert (silent.fired, silent.spans, silent.wanted) == (False, (), query)
    for threshold, fired in ((0.49, True), (0.51, False), (0.0, True), (1.0, False)):
        (found,) = LoraDetector.from_folder(folder, dtype="float32", threshold=threshold).detect([query])
        assert found.fired is fired


def test_the_threshold_can_be_changed_and_the_network_is_shared(tmp_path: Path, backbone: Backbone) -> None:
    detector = LoraDetector.from_folder(save_detector(tmp_path / "d", threshold=0.6), dtype="float32")
    query = "electric cars, but not Tesla"
    low = detector.with_threshold(0.4)
    assert (low.detect([query])[0].fired, detector.detect([query])[0].fired) == (True, False)
    assert low.tagger is detector.tagger
    assert low.with_threshold(None).threshold == 0.6
    assert detector.with_threshold(0.6) is detector
    with pytest.raises(InvalidInputError, match=r"outside \[0, 1\]"):
        detector.with_threshold(2.0)
    excise = Excise(backbone, detector=detector)
    assert not excise.detect(query).fired
    assert excise.with_config(threshold=0.4).detect(query).fired
    assert not excise.with_config(threshold=0.4).with_config(threshold=None).detect(query).fired
    assert Excise(backbone, detector=detector, config=ExciseConfig(threshold=0.4)).detect(query).fired


def test_a_query_without_words_never_fires(tmp_path: Path) -> None:
    eager = LoraDetector.from_folder(save_detector(tmp_path / "d", query_bias=40.0, inside_bias=9.0))
    for query in ("?!", "🐕", "... --- ..."):
        (found,) = eager.detect([query])
        assert (found.fired, found.confidence) == (False, 0.0)


@pytest.mark.parametrize("threshold", [-0.1, 1.1])
def test_thresholds_out_of_range_are_refused(folder: Path, threshold: float) -> None:
    with pytest.raises(InvalidInputError, match=r"outside \[0, 1\]"):
        LoraDetector.from_folder(folder, threshold=threshold)


# --- batches, threads, copies ---------------------------------------------------------------------


def same(left: Detection, right: Detection) -> bool:
    """Detections that agree but for rounding: padding moves the last bits of a float."""
    return [(s.start, s.end) for s in left.spans] == [(s.start, s.end) for s in right.spans] and abs(
        (left.confidence or 0) - (right.confidence or 0)
    ) < 1e-3


def test_a_batch_is_answered_like_single_queries_in_order(detector: LoraDetector) -> None:
    assert isinstance(detector, Detector)
    assert detector.detect([]) == []
    batch = detector.detect(QUERIES * 8)
    alone = [detector.detect([q])[0] for q in QUERIES]
    assert len(batch) == 40
    assert all(same(found, alone[i % 5]) for i, found in enumerate(batch))


def test_many_threads_get_what_one_gets(detector: LoraDetector) -> None:
    alone = {q: detector.detect([q])[0] for q in QUERIES}
    jobs = QUERIES * 12
    with ThreadPoolExecutor(16) as pool:
        found = list(pool.map(lambda q: detector.detect([q])[0], jobs))
    assert found == [alone[q] for q in jobs]


def test_it_survives_pickling(detector: LoraDetector) -> None:
    twin = pickle.loads(pickle.dumps(detector))
    assert twin.detect(QUERIES[:2]) == detector.detect(QUERIES[:2])
    assert twin.label == detector.label


# --- loading --------------------------------------------------------------------------------------


def test_the_label_names_task_and_weights(detector: LoraDetector, folder: Path) -> None:
    assert detector.label is not None
    assert detector.label.startswith("minilm/detector@")
    assert resolve(folder).detect(["x"])  # a folder resolves too


def test_other_weights_damage_and_other_folders_are_refused(tmp_path: Path) -> None:
    with pytest.raises(AdapterError, match="was trained on 'minilm' with weights 000000000000"):
        LoraDetector.from_folder(save_detector(tmp_path / "other", backbone_sha256="0" * 64))
    folder = save_detector(tmp_path / "damaged")
    head = folder / "span_head.safetensors"
    head.write_bytes(head.read_bytes()[:-1])
    with pytest.raises(AdapterError, match="damaged"):
        LoraDetector.from_folder(folder)
    with pytest.raises(AdapterError, match="not an adapter folder"):
        resolve(tmp_path)
    with pytest.raises(BackboneError, match=r"has no model\.safetensors"):
        LoraDetector.from_folder(save_detector(tmp_path / "d"), path=tmp_path)


def test_rules_are_there_by_name() -> None:
    assert isinstance(resolve("rules"), RulesDetector)
    with pytest.raises(AdapterError, match="not an adapter folder"):
        resolve("no-such-detector")


def test_merging_leaves_no_adapter_state_behind(detector: LoraDetector) -> None:
    assert not any("lora" in name for name, _ in detector.tagger.named_parameters())
    assert not detector.tagger.training
    assert detector.tagger.token_head.weight.dtype == torch.float32
