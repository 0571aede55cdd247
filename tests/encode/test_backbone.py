"""The backbone: vectors of queries and documents, adapters, refusals."""

from __future__ import annotations

import pickle
import shutil
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
import torch
from tiny_adapters import save_exclusion

from excise_integrations import AdapterError, BackboneError, InvalidInputError
from excise_integrations.encode import Backbone, TokenVectors, maxsim
from excise_integrations.encode.backbone import clean_text, resolve_dtype
from excise_integrations.encode.minilm import find_minilm
from excise_integrations.weights import load_adapter, load_projection

TEXTS = [
    "The cat sleeps.",
    "Parrots are colourful birds with curved beaks that can learn to imitate human speech.",
    "dog",
    "Tortoises are slow reptiles, " * 12,
]


@pytest.fixture(scope="module")
def adapted(backbone: Backbone, tmp_path_factory: pytest.TempPathFactory) -> Backbone:
    folder = save_exclusion(tmp_path_factory.mktemp("adapters") / "exclusion", backbone.weights_hash)
    return backbone.with_adapter(load_adapter(folder, "exclusion"))


def close(left: TokenVectors, right: TokenVectors) -> bool:
    return left.windows == right.windows and torch.allclose(left.vectors.float(), right.vectors.float(), atol=0.03)


# --- queries ------------------------------------------------------------------------------------


def test_queries_have_unit_vectors_token_strings_and_ids(backbone: Backbone) -> None:
    (query,) = backbone.encode_queries(["electric cars, but not Tesla"])
    assert [t for t in query.tokens if t != ","] == ["[CLS]", "electric", "cars", "but", "not", "tesla", "[SEP]"]
    assert len(query.tokens) == len(query.token_ids) == query.vectors.shape[0] == sum(query.windows)
    assert query.vectors.shape[1] == backbone.dim == load_projection("minilm").shape[0]
    assert torch.allclose(query.vectors.float().norm(dim=-1), torch.ones(len(query.tokens)), atol=0.01)
    assert [i for i in query.token_ids if i in backbone.encode_ids("Tesla")] == backbone.encode_ids("tesla")


def test_a_long_query_is_read_to_the_model_s_limit(backbone: Backbone) -> None:
    query = "pets and animals of every kind " * 20 + "but not orcas"
    (encoded,) = backbone.encode_queries([query])
    assert "or" in encoded.tokens or "orca" in encoded.tokens or "##cas" in encoded.tokens
    assert len(encoded.tokens) >= 100
    endless = "pets " * 3000
    (cut,) = backbone.encode_queries([endless])
    assert len(cut.tokens) <= backbone.max_tokens == 512
    assert backbone.token_count(endless) == 3002


def test_a_megabyte_is_not_tokenised_to_its_end(backbone: Backbone) -> None:
    began = time.process_time()
    for text in ("电动车" * 333_000, "a-b " * 250_000, "a" * 1_000_000):
        assert backbone.token_count(text) > backbone.max_tokens
        assert len(backbone.encode_ids(text)) <= backbone.max_tokens
        assert len(backbone.encode_queries([text])[0].tokens) <= backbone.max_tokens
    assert time.process_time() - began < 4
    # A text that is long by its blanks alone is read whole.
    spread = "cats" + " " * 50_000 + "and dogs"
    assert backbone.token_count(spread) == 5
    assert backbone.encode_ids(spread) == backbone.encode_ids("cats and dogs")
    assert close(backbone.encode_documents([spread])[0], backbone.encode_documents(["cats and dogs"])[0])


def test_a_batch_of_queries_is_encoded_like_single_ones_in_order(backbone: Backbone) -> None:
    batch = backbone.encode_queries(TEXTS, batch_size=3)
    for text, found in zip(TEXTS, batch, strict=True):
        (alone,) = backbone.encode_queries([text])
        assert found.tokens == alone.tokens
        assert close(found, alone)
    assert backbone.encode_queries([]) == []


# --- documents ----------------------------------------------------------------------------------


def test_documents_keep_their_order_whatever_their_length(backbone: Backbone) -> None:
    seen: list[int] = []
    batch = backbone.encode_documents(TEXTS, progress=seen.append)
    assert sum(seen) == len(TEXTS)
    for text, found in zip(TEXTS, batch, strict=True):
        (alone,) = backbone.encode_documents([text])
        assert close(found, alone)
    assert backbone.encode_documents([]) == []


def test_a_long_document_has_windows(backbone: Backbone) -> None:
    text = "cat " * 200 + "dog " * 50
    (document,) = backbone.encode_documents([text])
    assert len(document.windows) == 2
    assert sum(document.windows) == document.vectors.shape[0]
    (head,) = backbone.encode_documents(["cat " * 200])
    assert torch.allclose(document.vectors[: document.windows[0]].float(), head.vectors.float(), atol=0.03)


def test_punctuation_is_no_document_token(backbone: Backbone) -> None:
    plain, marked = backbone.encode_documents(["cat dog", "cat, dog!"])
    assert plain.vectors.shape == marked.vectors.shape


def test_a_batch_too_big_for_the_memory_is_halved(backbone: Backbone, monkeypatch: pytest.MonkeyPatch) -> None:
    expected = backbone.encode_documents(TEXTS)
    forward = backbone._forward
    sizes: list[int] = []

    def tight(texts: list[str], task: Any) -> Any:
        sizes.append(len(texts))
        if len(texts) > 1:
            raise torch.OutOfMemoryError("no room")
        return forward(texts, task)

    monkeypatch.setattr(backbone, "_forward", tight)
    found = backbone.encode_documents(TEXTS)
    assert sizes[0] == len(TEXTS)
    assert all(close(a, b) for a, b in zip(found, expected, strict=True))
    monkeypatch.setattr(backbone, "_forward", lambda *_: (_ for _ in ()).throw(MemoryError()))
    with pytest.raises(MemoryError):
        backbone.encode_documents(["one"])


@pytest.mark.parametrize(
    "text", ["", " ", "!!!", "🐕", "a\ud800b", "null\x00", "\u202e\u200b", "手机", "x" * 100_000, "\r\n"], ids=ascii
)
def test_any_text_has_vectors(backbone: Backbone, text: str) -> None:
    for (encoded,) in (backbone.encode_documents([text]), backbone.encode_queries([text])):
        assert encoded.vectors.shape[0] == sum(encoded.windows) > 0
        assert torch.isfinite(encoded.vectors.float()).all()


def test_lone_surrogates_are_replaced_one_for_one() -> None:
    assert clean_text("a\ud800b\udfff🐕é") == "a?b?🐕é"
    assert len(clean_text("\ud800" * 5)) == 5


def test_vectors_mean_something(backbone: Backbone) -> None:
    (query,) = backbone.encode_queries(["a bird that talks"])
    scores = maxsim(query.vectors, backbone.encode_documents(TEXTS))
    assert int(scores.argmax()) == 1


def test_threads_get_what_one_gets(backbone: Backbone) -> None:
    alone = {text: backbone.encode_queries([text])[0].vectors for text in TEXTS}
    with ThreadPoolExecutor(8) as pool:
        found = list(pool.map(lambda t: (t, backbone.encode_queries([t])[0].vectors), TEXTS * 6))
    assert all(torch.equal(vectors, alone[text]) for text, vectors in found)


# --- adapters and copies --------------------------------------------------------------------------


def test_an_adapter_changes_its_copy_and_not_the_frozen_backbone(backbone: Backbone, adapted: Backbone) -> None:
    before = backbone.encode_documents(TEXTS[:2])
    other = adapted.encode_documents(TEXTS[:2])
    assert not close(before[0], other[0])
    assert all(
        torch.equal(a.vectors, b.vectors) for a, b in zip(before, backbone.encode_documents(TEXTS[:2]), strict=True)
    )
    assert backbone.adapter is None
    assert adapted.label == f"{backbone.label}+{adapted.adapter}"
    assert adapted.weights_hash == backbone.weights_hash


def test_an_adapter_of_zeros_changes_nothing(backbone: Backbone, tmp_path: Path) -> None:
    adapter = load_adapter(save_exclusion(tmp_path / "zero", backbone.weights_hash, scale=0.0), "exclusion")
    same = backbone.with_adapter(adapter).encode_documents(TEXTS)
    assert all(torch.equal(a.vectors, b.vectors) for a, b in zip(same, backbone.encode_documents(TEXTS), strict=True))


def test_adapters_of_other_backbones_or_shapes_are_refused(backbone: Backbone, tmp_path: Path) -> None:
    with pytest.raises(AdapterError, match="the backbone 'minilm' has weights"):
        backbone.with_adapter(load_adapter(save_exclusion(tmp_path / "other", "0" * 64), "exclusion"))
    wide = load_adapter(save_exclusion(tmp_path / "wide", backbone.weights_hash, hidden=8), "exclusion")
    with pytest.raises(AdapterError, match="does not fit its backbone"):
        backbone.with_adapter(wide)


def test_a_backbone_survives_pickling(backbone: Backbone) -> None:
    twin = pickle.loads(pickle.dumps(backbone))
    assert twin.label == backbone.label
    assert torch.equal(twin.encode_queries(["cat"])[0].vectors, backbone.encode_queries(["cat"])[0].vectors)


# --- loading ----------------------------------------------------------------------------------------


def test_checkpoints_that_are_not_there_are_named(tmp_path: Path) -> None:
    (tmp_path / "empty").mkdir()
    for name, reason in (
        (tmp_path / "empty", "neither config.json nor modules.json"),
        (tmp_path / "nowhere", "There is no checkpoint at"),
        ("./nowhere", "There is no checkpoint at"),
    ):
        with pytest.raises(BackboneError, match=reason):
            Backbone.from_pretrained(name)
    with pytest.raises(BackboneError, match="the hub may not be asked"):
        Backbone.from_pretrained("colbert-ir/colbertv2.0", offline=True)
    (tmp_path / "empty" / "config.json").write_text("{}")
    with pytest.raises(BackboneError, match="could not be loaded"):
        Backbone.from_pretrained(tmp_path / "empty")


def test_damaged_minilm_weights_are_refused(tmp_path: Path) -> None:
    source = find_minilm()
    for name in ("model.safetensors", "tokenizer.json", "config.json"):
        shutil.copyfile(source / name, tmp_path / name)
    assert find_minilm(tmp_path) == tmp_path
    with (tmp_path / "model.safetensors").open("r+b") as handle:
        handle.seek(1_000_000)
        byte = handle.read(1)
        handle.seek(1_000_000)
        handle.write(bytes([byte[0] ^ 1]))
    with pytest.raises(BackboneError, match=r"model\.safetensors has sha256 .* damaged"):
        Backbone.from_pretrained("minilm", path=tmp_path)
    (tmp_path / "model.safetensors").unlink()
    with pytest.raises(BackboneError, match=r"has no model\.safetensors"):
        Backbone.from_pretrained("minilm", path=tmp_path)


def test_dtypes() -> None:
    assert resolve_dtype("float32", "cpu") is torch.float32
    assert resolve_dtype("bfloat16", "cpu") is torch.bfloat16
    assert resolve_dtype("auto", "cpu") in (torch.float32, torch.bfloat16)
    assert resolve_dtype("auto", "mps") is torch.float32
    with pytest.raises(InvalidInputError, match="'float16' is not one of"):
        resolve_dtype("float16", "cpu")  # type: ignore[arg-type]


def test_the_weights_hash_tells_projections_apart(backbone: Backbone) -> None:
    plain = Backbone.from_pretrained("minilm", projection=None)
    assert plain.dim == 384
    assert len({plain.weights_hash, backbone.weights_hash}) == 2
    assert plain.label != backbone.label
