"""Averages of adapters."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from tiny_adapters import save_toy

from excise_integrations import AdapterError, InvalidInputError
from excise_integrations.train.average import average_adapters


def test_the_weights_are_averaged_and_the_parts_are_named(tmp_path: Path) -> None:
    low, high = save_toy(tmp_path / "low", value=1.0), save_toy(tmp_path / "high", value=4.0)
    made = average_adapters(
        [low.folder, high.folder], tmp_path / "mean", task="exclusion", weights=[1.0, 2.0], command="by hand"
    )
    assert torch.equal(made.tensors("adapter_model.safetensors")["weight"], torch.full((4, 8), 3.0))
    parts = made.manifest.training_data["averaged"]
    assert [(p["adapter"], p["weight"]) for p in parts] == [(low.label, 1.0), (high.label, 2.0)]
    assert made.manifest.threshold is None
    even = average_adapters([low.folder, high.folder], tmp_path / "even", task="exclusion")
    assert float(even.tensors("adapter_model.safetensors")["weight"].mean()) == 2.5


def test_only_adapters_of_one_kind_are_averaged(tmp_path: Path) -> None:
    toy = save_toy(tmp_path / "toy")
    with pytest.raises(AdapterError, match="rank=4"):
        average_adapters([toy.folder, save_toy(tmp_path / "wide", rank=4).folder], tmp_path / "out", task="exclusion")
    other = save_toy(tmp_path / "other", tensors={"adapter_model.safetensors": {"weight": torch.ones(2, 8)}})
    with pytest.raises(AdapterError, match="differ in shape"):
        average_adapters([toy.folder, other.folder], tmp_path / "out", task="exclusion")
    with pytest.raises(InvalidInputError, match="at least two"):
        average_adapters([toy.folder], tmp_path / "out", task="exclusion")
    with pytest.raises(InvalidInputError, match="positive"):
        average_adapters([toy.folder, toy.folder], tmp_path / "out", task="exclusion", weights=[1.0, 0.0])
    assert not (tmp_path / "out").exists()
