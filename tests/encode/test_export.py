"""The exported checkpoint is the minilm backbone, for every loader that reads the Stanford format."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import torch
from ragatouille_fixtures import projection

from excise_integrations.encode import Backbone
from excise_integrations.encode.export import export_minilm
from excise_integrations.errors import BackboneError, InvalidInputError
from excise_integrations.weights import find_adapter

TEXTS = ["The cat, which hunts mice, sleeps.", "An electric car needs no fuel."]


@pytest.fixture(scope="module")
def exported(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return export_minilm(tmp_path_factory.mktemp("export") / "deep" / "minilm", projection=projection())


@pytest.fixture(scope="module")
def loaded(exported: Path) -> Backbone:
    return Backbone.from_pretrained(exported, dtype="float32")


def test_backbone_loads_the_same_vectors(loaded: Backbone) -> None:
    original = Backbone.from_pretrained("minilm", projection=projection(), dtype="float32")
    assert loaded.dim == original.dim == 128
    for ours, theirs in zip(loaded.encode_documents(TEXTS), original.encode_documents(TEXTS), strict=True):
        # All but the marker after [CLS]; punctuation is left out on both sides.
        without_marker = torch.cat([ours.vectors[:1], ours.vectors[2:]])
        assert without_marker.shape == theirs.vectors.shape
        assert (without_marker * theirs.vectors).sum(-1).mean() > 0.95


def test_a_query_is_not_filled_up(loaded: Backbone) -> None:
    (query,) = loaded.encode_queries(["electric cars"])
    assert query.tokens == ("[CLS]", "[unused0]", "electric", "cars", "[SEP]")


def test_colbert_fills_a_query_up_with_vectors_that_count_for_nothing(exported: Path, loaded: Backbone) -> None:
    pytest.importorskip("colbert")
    from excise_integrations.first_stage._ragatouille_compat import import_colbert
    from excise_integrations.first_stage._ragatouille_isolation import isolated

    colbert = import_colbert()
    from colbert.infra import ColBERTConfig

    with isolated():
        config = ColBERTConfig.load_from_checkpoint(str(exported))
        checkpoint = colbert.Checkpoint(str(exported), colbert_config=config, verbose=0)
        vectors = checkpoint.queryFromText(["electric cars"])[0]
        documents = checkpoint.docFromText(TEXTS, keep_dims=False, bsize=2)[0]
    assert vectors.shape == (32, 128)
    assert torch.equal(vectors.norm(dim=-1) > 0.5, torch.arange(32) < 5)
    torch.testing.assert_close(vectors[:5], loaded.encode_queries(["electric cars"])[0].vectors, atol=1e-4, rtol=0)
    for theirs, ours in zip(documents, loaded.encode_documents(TEXTS), strict=True):
        torch.testing.assert_close(theirs, ours.vectors, atol=1e-4, rtol=0)


def test_it_says_which_frozen_weights_it_holds(exported: Path) -> None:
    record = json.loads((exported / "artifact.metadata").read_text())
    assert record["dim"] == 128
    assert record["excise"]["backbone"] == "minilm"
    assert (
        record["excise"]["weights_sha256"] == Backbone.from_pretrained("minilm", projection=projection()).weights_hash
    )
    assert "apache-2.0" in (exported / "README.md").read_text()


@pytest.mark.skipif(find_adapter("minilm", "projection") is None, reason="no projection is bundled")
def test_the_bundled_projection_is_the_default(tmp_path: Path) -> None:
    record = json.loads((export_minilm(tmp_path) / "artifact.metadata").read_text())
    assert record["excise"]["weights_sha256"] == Backbone.from_pretrained("minilm").weights_hash


def test_384_dimensions(tmp_path: Path) -> None:
    loaded = Backbone.from_pretrained(export_minilm(tmp_path / "wide", projection=torch.eye(384)))
    assert loaded.dim == 384


def test_a_folder_that_is_not_empty_needs_force(tmp_path: Path) -> None:
    (tmp_path / "notes.txt").write_text("mine")
    with pytest.raises(InvalidInputError, match=r"not empty.*force=True"):
        export_minilm(tmp_path, projection=projection())
    assert [p.name for p in tmp_path.iterdir()] == ["notes.txt"]
    export_minilm(tmp_path, projection=projection(), force=True)
    assert (tmp_path / "notes.txt").read_text() == "mine"
    export_minilm(tmp_path, projection=projection(1, dim=64), force=True)
    assert Backbone.from_pretrained(tmp_path).dim == 64


def test_another_models_folder_is_refused_even_with_force(tmp_path: Path) -> None:
    (tmp_path / "modules.json").write_text("[]")
    with pytest.raises(InvalidInputError, match=r"modules\.json"):
        export_minilm(tmp_path, projection=projection(), force=True)


def test_bad_targets_and_projections(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(InvalidInputError, match="is a file"):
        export_minilm(tmp_path / "file", projection=projection())
    for shape in ((100, 384), (128, 256), (0, 384), (384,)):
        with pytest.raises(InvalidInputError, match="cannot be exported"):
            export_minilm(tmp_path / "new", projection=torch.zeros(shape))
    with pytest.raises(BackboneError):
        export_minilm(tmp_path / "new", projection=projection(), path=tmp_path)
    assert sorted(p.name for p in tmp_path.iterdir()) == ["file"]
