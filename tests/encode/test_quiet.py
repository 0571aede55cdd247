"""What a user sees while models are loaded: nothing, and nothing stays switched off."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
import warnings
from pathlib import Path
from typing import Any

import pytest
from safetensors.torch import load_file, save_file
from transformers.utils import logging

from excise_integrations.encode import Backbone
from excise_integrations.encode.export import export_minilm
from excise_integrations.encode.quiet import quiet_loading

ROOT = Path(__file__).resolve().parents[2]


def test_the_demo_prints_its_lists_and_nothing_else() -> None:
    loud = {k: v for k, v in os.environ.items() if not k.startswith(("TRANSFORMERS_", "HF_HUB_DISABLE", "TQDM_"))}
    loud.pop("PYTHONWARNINGS", None)
    done = subprocess.run(
        [sys.executable, str(ROOT / "examples/demo.py")], cwd=ROOT, capture_output=True, text=True, timeout=120,
        env={**loud, "PYTHONPATH": str(ROOT), "HF_HUB_OFFLINE": "1"},
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert done.stderr == ""
    assert done.stdout.startswith("\n  Query: ")


def test_bars_and_warnings_are_back_afterwards(capsys: pytest.CaptureFixture[str]) -> None:
    def bar() -> str:
        list(logging.tqdm(range(3), desc="Loading"))
        return capsys.readouterr().err

    filters = list(warnings.filters)
    loud = bar()
    with quiet_loading():
        assert bar() == ""
    with pytest.raises(ZeroDivisionError), quiet_loading():
        _ = 1 / 0
    assert bool(bar()) is bool(loud)
    assert warnings.filters == filters
    with quiet_loading(), pytest.warns(UserWarning, match="another"):
        warnings.warn("another", stacklevel=1)


@pytest.mark.parametrize("damaged", [False, True])
def test_a_colbert_checkpoint_is_loaded_without_a_report_unless_something_is_wrong(
    damaged: bool, tmp_path: Path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    checkpoint = export_minilm(tmp_path / "checkpoint")
    if damaged:
        weights = load_file(checkpoint / "model.safetensors")
        del weights[next(name for name in weights if name.endswith("attention.self.query.weight"))]
        save_file(weights, checkpoint / "model.safetensors", metadata={"format": "pt"})
    # Its logger keeps what it says to itself, unless it is told otherwise.
    monkeypatch.setattr(logging.get_logger("transformers"), "propagate", True)
    Backbone.from_pretrained(checkpoint)
    assert ("LOAD REPORT" in caplog.text) is damaged


def test_a_hook_of_the_user_survives_loads_in_many_threads() -> None:
    def mine(factory: Any, args: Any, kwargs: Any) -> Any:
        return factory(*args, **kwargs)

    before = logging.set_tqdm_hook(mine)
    try:
        started = threading.Barrier(4)

        def load() -> None:
            started.wait(10)
            for _ in range(50):
                with quiet_loading():
                    pass

        threads = [threading.Thread(target=load) for _ in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(30)
    finally:
        assert logging.set_tqdm_hook(before) is mine
