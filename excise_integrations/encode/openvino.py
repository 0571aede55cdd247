"""Transformers on OpenVINO: the same vectors to rounding, in less time on many CPUs (docs/sizing.md)."""

from __future__ import annotations

import copy
import importlib.util
import logging
import threading
import warnings
from typing import Any

import torch
from torch import Tensor, nn
from transformers.modeling_outputs import BaseModelOutput
from transformers.utils import logging as transformers_logging

from ..errors import InvalidInputError, MissingExtraError

__all__ = ["OpenVinoTransformer", "on_openvino"]


class OpenVinoTransformer(nn.Module):
    """Stands in for a BERT-like transformer; safe among threads, which share its weights.

    Args:
        model: the transformer, on the CPU, with its adapters merged in; it is copied.
        dtype: arithmetic, and that of the hidden states: float32 or bfloat16.

    Raises:
        MissingExtraError: OpenVINO is not installed.
    """

    def __init__(self, model: nn.Module, dtype: torch.dtype) -> None:
        super().__init__()
        if importlib.util.find_spec("openvino") is None:
            raise MissingExtraError("openvino", "openvino")
        import openvino  # type: ignore[import-untyped]

        self.config = model.config
        self._dtype = dtype
        settings = {
            "INFERENCE_PRECISION_HINT": "bf16" if dtype == torch.bfloat16 else "f32",
            "INFERENCE_NUM_THREADS": torch.get_num_threads(),
        }
        self._compiled = openvino.compile_model(_converted(model), "CPU", settings)
        # A request holds the memory of one inference, so a thread has one of its own.
        self._requests = threading.local()

    def forward(self, input_ids: Tensor, attention_mask: Tensor, **_: Any) -> BaseModelOutput:
        """Return the last hidden states, (batch, length, hidden).

        Args:
            input_ids, attention_mask: (batch, length). What else a caller passes is not read: a text is one segment.
        """
        if not hasattr(self._requests, "own"):
            self._requests.own = self._compiled.create_infer_request()
        found = self._requests.own.infer([input_ids.numpy(), attention_mask.numpy()])[0]
        # The request writes its next answer to the same place.
        return BaseModelOutput(last_hidden_state=torch.from_numpy(found).to(self._dtype, copy=True))

    def __reduce__(self) -> Any:
        raise InvalidInputError(
            "A transformer on OpenVINO cannot be copied or pickled. Pickle an Excise of `Excise.from_pretrained`, "
            "which is loaded again from its arguments."
        )


class _Hidden(nn.Module):
    def __init__(self, model: nn.Module) -> None:
        super().__init__()
        self.model = model

    def forward(self, ids: Tensor, mask: Tensor) -> Tensor:
        states: Tensor = self.model(input_ids=ids, attention_mask=mask).last_hidden_state
        return states


def on_openvino(module: Any, attribute: str, dtype: torch.dtype) -> None:
    """Put a transformer that is an attribute of ``module`` on OpenVINO, in its place."""
    setattr(module, attribute, OpenVinoTransformer(getattr(module, attribute), dtype))


def _converted(model: nn.Module) -> Any:
    import openvino

    # With padding, or the mask would be left out of what is traced.
    ids, mask = torch.ones(2, 8, dtype=torch.long), torch.ones(2, 8, dtype=torch.long)
    mask[1, 4:] = 0
    verbosity = transformers_logging.get_verbosity()
    with warnings.catch_warnings():
        # Of the tracer, and of what it reads; a caller can change neither.
        warnings.simplefilter("ignore")
        transformers_logging.set_verbosity(logging.ERROR)
        try:
            return openvino.convert_model(_Hidden(copy.deepcopy(model).float().eval()), example_input=(ids, mask))
        finally:
            transformers_logging.set_verbosity(verbosity)
