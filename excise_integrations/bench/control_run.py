"""One training of a control by a trainer of sentence-transformers: its settings and its clock."""

from __future__ import annotations

import tempfile
import time
from collections.abc import Callable
from contextlib import AbstractContextManager
from typing import Any

import torch

from ..encode.arithmetic import default_device, resolve_dtype

__all__ = ["TIMED_STEPS", "Run", "autocast"]

TIMED_STEPS = 3
"""After this many steps a training's length is known."""


class Run:
    """One training: its settings, and its clock.

    Args:
        rate: peak learning rate.
        epochs: passes over the data.
        batch_size: contrasts per step.
        seed: of everything random.
        max_minutes: end after the step that passes this.
        max_steps: end after this many steps.
        progress: receives a line now and then.

    Attributes:
        steps: taken.
        stopped: whether ``max_minutes`` or ``max_steps`` ended it.
        seconds_per_step: from the second step on; None before the third.
    """

    def __init__(
        self,
        rate: float,
        *,
        epochs: int = 1,
        batch_size: int = 16,
        seed: int = 0,
        max_minutes: float | None = None,
        max_steps: int | None = None,
        progress: Callable[[str], None] = lambda _: None,
    ) -> None:
        self.rate = rate
        self.epochs = epochs
        self.batch_size = batch_size
        self.seed = seed
        self.max_minutes = max_minutes
        self.max_steps = max_steps
        self.progress = progress
        self.steps = 0
        self.stopped = False
        self.seconds_per_step: float | None = None
        self._began = 0.0
        self._second = 0.0

    def step(self, of: int) -> bool:
        """Note a step of ``of``, and say whether the training goes on."""
        now = time.monotonic()
        self.steps += 1
        if self.steps == 1:
            # The first step warms up.
            self._second = now
        else:
            self.seconds_per_step = (now - self._second) / (self.steps - 1)
        if self.seconds_per_step is not None and (
            self.steps == TIMED_STEPS or (self.steps > TIMED_STEPS and self.steps % max(1, of // 10) == 0)
        ):
            self.progress(f"step {self.steps} of {of}, about {(of - self.steps) * self.seconds_per_step / 60:.1f} min")
        minutes = (now - self._began) / 60
        late = self.max_minutes is not None and minutes > self.max_minutes
        if self.steps < of and (late or self.steps == self.max_steps):
            self.stopped = True
            return False
        return True

    def train(self, trainer: type[Any], arguments: type[Any], *, model: Any, rows: Any, loss: Any, **more: Any) -> None:
        """Run a trainer of sentence-transformers with these settings."""
        from transformers import PrinterCallback, TrainerCallback

        noted = self

        class Clock(TrainerCallback):
            def on_train_begin(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
                noted._began = time.monotonic()

            def on_step_end(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
                control.should_training_stop |= not noted.step(state.max_steps)

        with tempfile.TemporaryDirectory() as scratch:
            settings = arguments(
                output_dir=scratch, num_train_epochs=self.epochs, learning_rate=self.rate, warmup_steps=0.1,
                seed=self.seed, bf16=_is_bf16(), use_cpu=default_device() == "cpu", dataloader_pin_memory=False,
                report_to="none", save_strategy="no", logging_strategy="no", disable_tqdm=True, **more,
            )  # fmt: skip
            made = trainer(model=model, args=settings, train_dataset=rows, loss=loss, callbacks=[Clock()])
            made.remove_callback(PrinterCallback)
            made.train()
        model.eval()


def autocast() -> AbstractContextManager[Any]:
    """Return the arithmetic that a trained control is read in, which is the one that it is trained in."""
    return torch.autocast(default_device(), torch.bfloat16, enabled=_is_bf16())


def _is_bf16() -> bool:
    return resolve_dtype("auto", default_device()) == torch.bfloat16
