"""Nothing that is unpickled runs code: neither what colbert-ai reads, nor any file of ours, which are no pickles."""

from __future__ import annotations

import json
import pickle
from pathlib import Path
from typing import Any

import pytest
import torch
from ragatouille_fixtures import RagatouilleIndex, projection
from word_backbone import WordBackbone, word_excise

from excise_integrations import Candidate
from excise_integrations.audit import AuditLog
from excise_integrations.bench.store import VectorStore
from excise_integrations.encode.export import export_minilm
from excise_integrations.first_stage.memory import MemoryFirstStage
from excise_integrations.first_stage.ragatouille import RagatouilleFirstStage

WORDS: Any = WordBackbone()


class Bomb:
    """Runs code when it is unpickled."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def __reduce__(self) -> tuple[Any, ...]:
        return (Path.touch, (self.path,))


@pytest.mark.parametrize("plain", [True, False], ids=["a pickle", "a torch file"])
def test_colbert_runs_no_code_from_an_index(tmp_path: Path, plain: bool) -> None:
    """colbert-ai reads the tensors of an index with ``torch.load``, which takes plain tensors only."""
    pytest.importorskip("colbert")
    from excise_integrations.first_stage._ragatouille_compat import import_colbert

    import_colbert()
    from colbert.indexing.codecs.residual import ResidualCodec
    from colbert.indexing.codecs.residual_embeddings import ResidualEmbeddings

    exploded = tmp_path / "exploded"
    (tmp_path / "metadata.json").write_text(json.dumps({"config": {"dim": 8, "nbits": 2}}))
    for name in ("centroids.pt", "avg_residual.pt", "buckets.pt", "0.codes.pt", "0.residuals.pt"):
        if plain:
            (tmp_path / name).write_bytes(pickle.dumps(Bomb(exploded)))
        else:
            torch.save(Bomb(exploded), tmp_path / name)
    for load in (
        lambda: ResidualCodec.load(str(tmp_path)),
        lambda: ResidualEmbeddings.load_codes(str(tmp_path), 0),
        lambda: ResidualEmbeddings.load_residuals(str(tmp_path), 0),
    ):
        with pytest.raises(Exception, match=r"[Ww]eights.only|Unsupported|load"):
            load()
    assert not exploded.exists()


def test_no_file_of_ours_is_a_pickle(tmp_path: Path) -> None:
    MemoryFirstStage.from_texts(["a text"], metadatas=[{"a": 1}], backbone=WORDS).save(tmp_path / "index")
    excise = word_excise(adapter=True, cache_dir=tmp_path / "cache", log=AuditLog(tmp_path / "audit.jsonl"))
    excise.rerank("pets, but not cats", [Candidate("a", "cats"), Candidate("b", "dogs")])
    VectorStore(tmp_path / "store").encode(["a text"], WORDS)
    for path in tmp_path.rglob("*"):
        if path.is_file() and path.stat().st_size:
            with pytest.raises((pickle.UnpicklingError, ValueError, EOFError, IndexError, KeyError, AttributeError)):
                pickle.loads(path.read_bytes())


@pytest.mark.filterwarnings("ignore")
def test_colbert_runs_no_code_from_a_checkpoint(ragatouille_index: RagatouilleIndex, tmp_path: Path) -> None:
    """A checkpoint without safetensors is read from ``pytorch_model.bin``, as plain tensors only."""
    exploded = tmp_path / "exploded"
    checkpoint = export_minilm(tmp_path / "checkpoint", projection=projection())
    (checkpoint / "model.safetensors").unlink()
    torch.save({"bert.weight": Bomb(exploded)}, checkpoint / "pytorch_model.bin")
    with pytest.raises(Exception, match=r"[Ww]eights.only"):
        RagatouilleFirstStage.from_index(ragatouille_index.path, checkpoint=checkpoint)
    assert not exploded.exists()
