"""OpenVINO in PyTorch's place: the same vectors and detections to rounding, from any thread."""

from __future__ import annotations

import copy
import importlib.util
import pickle
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
import torch

from excise_integrations import Candidate, Excise, InvalidInputError, MissingExtraError
from excise_integrations.detect import resolve

QUERIES = ["electric cars, but not Tesla", "bowed string instruments", "pets other than dogs and cats"]
TEXTS = ["The Tesla Model 3 is an electric saloon.", "Nissan's Leaf was an early electric car. " * 12, "Bread rises."]
needs_openvino = pytest.mark.skipif(importlib.util.find_spec("openvino") is None, reason="OpenVINO is not installed")


@pytest.fixture(scope="module")
def placed() -> Excise:
    return Excise.from_pretrained("minilm", dtype="float32", backend="openvino")


@needs_openvino
def test_vectors_and_detections_are_those_of_pytorch(placed: Excise) -> None:
    torched = Excise.from_pretrained("minilm", dtype="float32")
    pairs = zip(
        [*placed.backbone.encode_documents(TEXTS), *placed.backbone.encode_queries(QUERIES)],
        [*torched.backbone.encode_documents(TEXTS), *torched.backbone.encode_queries(QUERIES)],
        strict=True,
    )
    for ours, theirs in pairs:
        assert ours.windows == theirs.windows
        assert torch.allclose(ours.vectors, theirs.vectors, atol=1e-4)
    for query in QUERIES:
        ours, theirs = placed.detect(query), torched.detect(query)
        assert ours.spans == theirs.spans or [s.text for s in ours.spans] == [s.text for s in theirs.spans]
        assert ours.confidence == pytest.approx(theirs.confidence, abs=1e-3)
    assert placed.backbone.label == torched.backbone.label


@needs_openvino
def test_loading_says_nothing(capfd: pytest.CaptureFixture[str]) -> None:
    Excise.from_pretrained("minilm", backend="openvino")
    assert capfd.readouterr() == ("", "")


@needs_openvino
def test_threads_do_not_see_each_other_s_texts(placed: Excise) -> None:
    texts = [f"document {i} about " + "rivers and bridges " * (i % 7) for i in range(40)]
    expected = [placed.backbone.encode_documents([text])[0].vectors for text in texts]
    with ThreadPoolExecutor(8) as pool:
        found = list(pool.map(lambda text: placed.backbone.encode_documents([text])[0].vectors, texts * 3))
    for i, vectors in enumerate(found):
        assert torch.allclose(vectors, expected[i % len(texts)], atol=1e-5)


@needs_openvino
def test_a_search_obeys_in_bfloat16_too() -> None:
    excise = Excise.from_pretrained("minilm", dtype="bfloat16", backend="openvino")
    names = ("Tesla", "Nissan", "Renault", "Volkswagen", "Fiat")
    result = excise.rerank(QUERIES[0], [Candidate(name, f"{name} makes electric cars.") for name in names])
    assert [c.id for c in result.removed] == ["Tesla"]
    assert excise.backbone.encode_queries(QUERIES)[0].vectors.dtype == torch.bfloat16


@needs_openvino
def test_a_pickled_pipeline_comes_back_on_openvino(placed: Excise) -> None:
    again = pickle.loads(pickle.dumps(placed))
    assert again.detect(QUERIES[0]).spans == placed.detect(QUERIES[0]).spans
    transformer: Any = again.backbone.encoder[0]
    assert type(transformer.model).__name__ == "OpenVinoTransformer"
    with pytest.raises(InvalidInputError, match="cannot be copied"):
        copy.deepcopy(transformer.model)


@needs_openvino
def test_a_detector_of_the_caller_s_stays_on_pytorch() -> None:
    mine: Any = resolve("lora")
    before = mine.tagger.transformer
    Excise.from_pretrained("minilm", detector=mine, backend="openvino")
    assert mine.tagger.transformer is before


def test_what_cannot_be_is_said(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(InvalidInputError, match="backend='onnx' is none of torch, openvino"):
        Excise.from_pretrained("minilm", backend="onnx")  # type: ignore[arg-type]
    find = importlib.util.find_spec
    monkeypatch.setattr(importlib.util, "find_spec", lambda name, *a: None if name == "openvino" else find(name, *a))
    with pytest.raises(MissingExtraError, match=r"excise-integrations\[openvino\]"):
        Excise.from_pretrained("minilm", backend="openvino")
