"""Adapter folders are written whole or not at all."""

from __future__ import annotations

import json
import os
import shutil
from pathlib import Path
from typing import Any

import pytest
import torch
from child_processes import killed_before
from tiny_adapters import save_toy as save

from excise_integrations import AdapterError, _files
from excise_integrations.weights import load_adapter, update_manifest


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return save(tmp_path / "toy").folder


def leftovers(parent: Path) -> list[str]:
    return sorted(p.name for p in parent.iterdir() if p.name.startswith("."))


# --- round trip -----------------------------------------------------------------------------


def test_what_is_saved_is_what_is_loaded(tmp_path: Path) -> None:
    saved = save(tmp_path / "new" / "toy", value=2.5, threshold=0.7, metrics={"f1": 0.9}, settings={"alpha": 16})
    loaded = load_adapter(tmp_path / "new" / "toy", "exclusion")
    assert loaded.manifest == saved.manifest
    assert loaded.manifest.threshold == 0.7
    assert set(loaded.manifest.files) == {"adapter_config.json", "adapter_model.safetensors"}
    assert torch.equal(loaded.tensors("adapter_model.safetensors")["weight"], torch.full((4, 8), 2.5))
    assert json.loads((loaded.folder / "adapter_config.json").read_text()) == {"peft_type": "LORA", "r": 2}
    assert (loaded.folder / "README.md").read_text() == "# A toy\n"
    assert loaded.label == f"toy/exclusion@{loaded.digest[:12]}"
    assert leftovers(tmp_path / "new") == []


def test_the_digest_tells_weights_apart(tmp_path: Path) -> None:
    one, two, again = (save(tmp_path / n, value=v) for n, v in (("a", 1.0), ("b", 2.0), ("c", 1.0)))
    assert one.digest == again.digest != two.digest


def test_saving_replaces_an_adapter_and_an_empty_folder(folder: Path, tmp_path: Path) -> None:
    (folder / "stale.bin").write_bytes(b"old")
    save(folder, value=3.0)
    assert not (folder / "stale.bin").exists()
    assert load_adapter(folder, "exclusion").tensors("adapter_model.safetensors")["weight"][0, 0] == 3.0
    (tmp_path / "empty").mkdir()
    save(tmp_path / "empty")
    assert leftovers(tmp_path) == []


# --- refusals and failures on writing -------------------------------------------------------------


def test_other_folders_and_files_are_not_overwritten(tmp_path: Path) -> None:
    (tmp_path / "thesis").mkdir()
    (tmp_path / "thesis" / "chapter.txt").write_text("years of work")
    (tmp_path / "file").write_text("work")
    for name in ("thesis", "file"):
        with pytest.raises(AdapterError, match="exists and is not an adapter folder"):
            save(tmp_path / name)
    assert (tmp_path / "thesis" / "chapter.txt").read_text() == "years of work"
    assert (tmp_path / "file").read_text() == "work"
    assert leftovers(tmp_path) == []


@pytest.mark.parametrize("name", ["../evil.safetensors", "/tmp/evil.safetensors", ".evil", "sub/evil"])
def test_tensors_are_written_into_the_folder_only(tmp_path: Path, name: str) -> None:
    with pytest.raises(AdapterError, match="not a plain file name"):
        save(tmp_path / "toy", tensors={name: {"weight": torch.zeros(1)}})
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    "bad",
    [
        {"backbone_sha256": "short"},
        {"threshold": 2.0},
        {"colour": "red"},
        {"adapter_config": None},
        {"tensors": {"other.safetensors": {"w": torch.zeros(1)}}},
    ],
    ids=lambda bad: next(iter(bad)),
)
def test_a_save_that_fails_keeps_the_old_adapter(folder: Path, bad: dict[str, Any]) -> None:
    before = load_adapter(folder, "exclusion").digest
    with pytest.raises(AdapterError):
        save(folder, value=9.0, **bad)
    assert load_adapter(folder, "exclusion").digest == before
    assert leftovers(folder.parent) == []


def test_a_full_disk_keeps_the_old_adapter(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    before = load_adapter(folder, "exclusion").digest

    def full(*_: Any, **__: Any) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(AdapterError, match=r"was not written: .*No space left"):
        save(folder, value=9.0)
    with pytest.raises(AdapterError, match=r"was not changed: .*No space left"):
        update_manifest(folder, threshold=0.5)
    monkeypatch.undo()
    assert load_adapter(folder, "exclusion").digest == before
    assert leftovers(folder.parent) == leftovers(folder) == []


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")
@pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning")
@pytest.mark.parametrize("exchange", [True, False], ids=["exchange", "two renames"])
def test_a_killed_save_leaves_the_old_adapter_or_the_new_one(
    folder: Path, exchange: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Kill the process before its first change of the disk, before its second, and so on."""
    if not exchange:
        monkeypatch.setattr(_files, "_exchange", lambda *_: False)
    old = load_adapter(folder, "exclusion").digest
    pristine = folder.with_name("pristine")
    shutil.copytree(folder, pristine)
    found: set[str] = set()
    step, going = 0, True
    while going:
        assert step < 200
        going = killed_before(step, lambda: save(folder, value=9.0), folder.parent)
        found.add(load_adapter(folder, "exclusion").digest)
        for name in (folder.name, *leftovers(folder.parent)):
            shutil.rmtree(folder.parent / name)
        shutil.copytree(pristine, folder)
        step += 1
    assert step > 5
    assert len(found) == 2
    assert old in found


# --- changing a manifest ----------------------------------------------------------------------------


def test_update_manifest_changes_fields_and_keeps_weights(folder: Path) -> None:
    update_manifest(folder, metrics={"f1": 0.9})
    adapter = update_manifest(folder, threshold=0.6, metrics={"recall": 0.8})
    assert adapter.manifest.threshold == 0.6
    assert adapter.manifest.metrics == {"f1": 0.9, "recall": 0.8}
    assert adapter.digest == load_adapter(folder, "exclusion").digest


def test_update_manifest_refuses_what_is_wrong_and_changes_nothing(folder: Path, tmp_path: Path) -> None:
    before = (folder / "manifest.json").read_bytes()
    for fields in ({"threshold": 7.0}, {"colour": "red"}):
        with pytest.raises(AdapterError, match="was not changed"):
            update_manifest(folder, **fields)
    assert (folder / "manifest.json").read_bytes() == before
    with pytest.raises(AdapterError, match="not a valid manifest"):
        update_manifest(tmp_path / "nowhere", threshold=0.5)
