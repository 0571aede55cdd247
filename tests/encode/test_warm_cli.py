"""``excise warm`` and the pipeline that finds what it left."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from tiny_adapters import save_exclusion
from typer.testing import CliRunner, Result

from excise_integrations import Candidate, Excise
from excise_integrations._cli.app import app
from excise_integrations.detect import resolve
from excise_integrations.encode import Backbone
from excise_integrations.encode.cache import VectorCache
from excise_integrations.encode.disk import DiskCache
from excise_integrations.first_stage.memory import MemoryFirstStage
from excise_integrations.weights import load_adapter


def invoke(*arguments: Any) -> Result:
    return CliRunner().invoke(app, [str(a) for a in arguments])


@pytest.fixture
def documents(tmp_path: Path, animals: list[Candidate]) -> Path:
    lines = [json.dumps({"_id": animal.id, "text": animal.text}) for animal in animals]
    (tmp_path / "animals.jsonl").write_text("\n".join(lines))
    return tmp_path / "animals.jsonl"


def test_a_warmed_index_is_never_encoded_again(
    documents: Path, animals: list[Candidate], tmp_path: Path, backbone: Backbone, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = save_exclusion(tmp_path / "adapter", backbone.weights_hash)
    excise = Excise(
        backbone, detector=resolve("rules"), exclusion=backbone.with_adapter(load_adapter(folder, "exclusion"))
    )
    monkeypatch.setattr(Excise, "from_pretrained", lambda name, **options: excise)
    cache = tmp_path / "cache"
    first = invoke("warm", documents, "--cache", cache, "--json")
    assert first.exit_code == 0, first.output
    record = json.loads(first.stdout)
    assert record["documents"] == record["encoded"] == record["entries"] == len(animals)
    assert record["encoder"] == excise.encoder.label
    assert json.loads(invoke("warm", documents, "--cache", cache, "--json").stdout)["encoded"] == 0

    excise.cache = VectorCache(disk=DiskCache(cache))
    stage = MemoryFirstStage.from_texts([a.text for a in animals], ids=[a.id for a in animals], backbone=backbone)
    assert stage.fingerprint == record["fingerprint"]
    result = excise.search("animals that people keep as pets, but not dogs", stage)
    assert result.detection.fired
    assert (excise.cache_stats().misses, excise.cache_stats().disk_hits) == (0, len(animals))


def test_without_an_adapter_there_is_nothing_to_warm(
    documents: Path, tmp_path: Path, backbone: Backbone, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Excise, "from_pretrained", lambda name, **options: Excise(backbone, detector=resolve("rules")))
    result = invoke("warm", documents, "--cache", tmp_path / "cache")
    assert result.exit_code == 1
    assert "excise train adapter" in result.stderr
    assert not (tmp_path / "cache").exists()
