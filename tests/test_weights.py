"""Adapter folders are read only when every byte is as its manifest says."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import torch
from tiny_adapters import save_toy as save

from excise_integrations import AdapterError
from excise_integrations.weights import (
    Adapter,
    bundled_root,
    find_adapter,
    load_adapter,
    load_projection,
)

HASH = "a" * 64


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return save(tmp_path / "toy").folder


def edit(folder: Path, **fields: Any) -> None:
    path = folder / "manifest.json"
    manifest = json.loads(path.read_text())
    manifest.update(fields)
    path.write_text(json.dumps(manifest))


# --- refusals on reading ----------------------------------------------------------------------


@pytest.mark.parametrize("name", ["adapter_model.safetensors", "adapter_config.json"])
def test_a_truncated_file_is_refused(folder: Path, name: str) -> None:
    data = (folder / name).read_bytes()
    for length in (0, 1, len(data) // 2, len(data) - 1):
        (folder / name).write_bytes(data[:length])
        with pytest.raises(AdapterError, match=f"{name} has sha256 .* damaged"):
            load_adapter(folder, "exclusion")


@pytest.mark.parametrize("name", ["adapter_model.safetensors", "adapter_config.json"])
def test_any_flipped_bit_is_noticed(folder: Path, name: str) -> None:
    data = (folder / name).read_bytes()
    for place in range(0, len(data), 7):
        flipped = bytearray(data)
        flipped[place] ^= 1 << (place % 8)
        (folder / name).write_bytes(bytes(flipped))
        with pytest.raises(AdapterError, match="damaged or was changed"):
            load_adapter(folder, "exclusion")


def test_another_task_is_refused(folder: Path) -> None:
    with pytest.raises(AdapterError, match=r"task 'exclusion'; one for 'detector' is needed"):
        load_adapter(folder, "detector")
    edit(folder, task="detector")
    with pytest.raises(AdapterError, match=r"does not list span_head\.safetensors"):
        load_adapter(folder, "detector")


@pytest.mark.parametrize(
    "name", ["../toy/adapter_config.json", "sub/file", "/etc/hostname", "..", ".hidden", "", "a\\b", "a\n", "C:file"]
)
def test_a_manifest_cannot_name_files_elsewhere(folder: Path, name: str) -> None:
    files = json.loads((folder / "manifest.json").read_text())["files"]
    edit(folder, files={**files, name: HASH})
    with pytest.raises(AdapterError, match="is not a plain file name"):
        load_adapter(folder, "exclusion")


@pytest.mark.parametrize(
    "text",
    ["", "{", "[]", "null", '{"format": 1}', '{"format": 2, "task": "exclusion"}', "\x00"],
)
def test_a_malformed_manifest_is_refused(folder: Path, text: str) -> None:
    (folder / "manifest.json").write_text(text)
    with pytest.raises(AdapterError, match="not a valid manifest"):
        load_adapter(folder, "exclusion")


def test_unknown_fields_bytes_and_values_out_of_range_are_refused(folder: Path) -> None:
    good = (folder / "manifest.json").read_bytes()
    for fields in ({"colour": "red"}, {"threshold": 1.5}, {"temperature": 0.0}, {"backbone_sha256": "abc"}):
        (folder / "manifest.json").write_bytes(good)
        edit(folder, **fields)
        with pytest.raises(AdapterError, match=next(iter(fields))):
            load_adapter(folder, "exclusion")
    (folder / "manifest.json").write_bytes(b"\xff\xfe")
    with pytest.raises(AdapterError, match="not a valid manifest"):
        load_adapter(folder, "exclusion")


def test_missing_folders_and_files_are_named(folder: Path, tmp_path: Path) -> None:
    with pytest.raises(AdapterError, match=r"nowhere is not an adapter folder: it has no manifest\.json"):
        load_adapter(tmp_path / "nowhere", "exclusion")
    with pytest.raises(AdapterError, match="not an adapter folder"):
        load_adapter(tmp_path, "exclusion")
    (folder / "adapter_config.json").unlink()
    with pytest.raises(AdapterError, match=r"lacks adapter_config\.json"):
        load_adapter(folder, "exclusion")


def test_a_file_that_is_no_safetensors_file_is_named(tmp_path: Path) -> None:
    (tmp_path / "x.safetensors").write_bytes(b"pickle? no")
    adapter = Adapter(tmp_path, save(tmp_path / "toy").manifest)
    with pytest.raises(AdapterError, match=r"x\.safetensors is not a readable safetensors file"):
        adapter.tensors("x.safetensors")


def test_another_backbone_is_refused(folder: Path) -> None:
    adapter = load_adapter(folder, "exclusion")
    adapter.check_backbone("toy", HASH)
    with pytest.raises(AdapterError, match=r"trained on 'toy' with weights aaaaaaaaaaaa, but .* 'mine' has weights b"):
        adapter.check_backbone("mine", "b" * 64)


# --- bundled weights ----------------------------------------------------------------------------------


def test_bundled_adapters_are_whole() -> None:
    manifests = sorted(bundled_root().glob("*/*/manifest.json"))
    assert manifests
    for path in manifests:
        adapter = load_adapter(path.parent, path.parent.name)  # type: ignore[arg-type]
        assert adapter.manifest.backbone == path.parent.parent.name
        assert find_adapter(adapter.manifest.backbone, adapter.manifest.task) == path.parent
        assert (path.parent / "README.md").read_text(encoding="utf-8").strip()


def test_the_bundled_projection_maps_minilm() -> None:
    weight = load_projection("minilm")
    assert weight.shape[1] == 384
    assert torch.isfinite(weight).all()
    with pytest.raises(AdapterError, match="No projection is bundled for 'nothing'"):
        load_projection("nothing")


@pytest.mark.parametrize("backbone", ["../minilm", "..", "", ".", "a/b", "/etc", "colbert-ir/colbertv2.0", "nothing"])
def test_find_adapter_looks_nowhere_else(backbone: str) -> None:
    assert find_adapter(backbone, "projection") is None
