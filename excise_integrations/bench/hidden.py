"""Hidden states of every layer of a query encoder, token by token."""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from ..detect.lora import LoraDetector, model_text
from ..encode.backbone import Backbone, clean_text

__all__ = ["Encoded", "LayerReader", "backbone_layers", "detector_layers"]

_BATCH = 32


@dataclass(frozen=True)
class Encoded:
    """A text at every layer.

    Args:
        states: (layers, tokens, dim) per group of layers of equal width, special tokens left out.
        offsets: (start, end) of each token in the text.
    """

    states: tuple[Tensor, ...]
    offsets: tuple[tuple[int, int], ...]

    def layers(self, chosen: Sequence[int]) -> list[Tensor]:
        """Return the mean (dim,) over some tokens of each layer, in the order of :attr:`LayerReader.names`."""
        return [layer[list(chosen)].mean(dim=0) for group in self.states for layer in group]


class LayerReader:
    """Reads texts at every layer of a transformer.

    Args:
        transformer: a ``transformers`` encoder.
        tokenizer: its fast tokenizer.
        prompt: what stands before every text.
        prepare: returns what the network reads in place of a text; every character keeps its place.
        max_tokens: a longer text is cut.
        project: from the last layer to the vectors that are compared; None where there is no such step.
    """

    def __init__(
        self,
        transformer: nn.Module,
        tokenizer: Any,
        *,
        prompt: str = "",
        prepare: Callable[[str], str] = clean_text,
        max_tokens: int = 512,
        project: Callable[[Tensor], Tensor] | None = None,
    ) -> None:
        # Its own copy: asking for hidden states leaves hooks behind, with which a model cannot be pickled.
        self._transformer = copy.deepcopy(transformer)
        self._tokenizer = tokenizer
        self._prompt = prompt
        self._prepare = prepare
        self._max_tokens = max_tokens
        self._project = project
        depth = int(getattr(transformer.config, "num_hidden_layers"))  # noqa: B009 (a module's attribute has no type)
        #: Layers from the embeddings to what is compared.
        self.names = ("embeddings", *(str(i) for i in range(1, depth + 1)), *(("projection",) if project else ()))

    def read(self, texts: Sequence[str]) -> Iterator[Encoded]:
        """Yield each text's layers, in order."""
        device = next(self._transformer.parameters()).device
        for start in range(0, len(texts), _BATCH):
            encoded = self._tokenizer(
                [self._prompt + self._prepare(t) for t in texts[start : start + _BATCH]],
                padding=True,
                truncation=True,
                max_length=self._max_tokens,
                return_offsets_mapping=True,
                return_special_tokens_mask=True,
                return_tensors="pt",
            )
            ids, attention = encoded["input_ids"].to(device), encoded["attention_mask"].to(device)
            with torch.inference_mode():
                out = self._transformer(input_ids=ids, attention_mask=attention, output_hidden_states=True)
                states = torch.stack(list(out.hidden_states))
                last = self._project(states[-1]) if self._project is not None else None
            for row in range(ids.shape[0]):
                shift = len(self._prompt)
                spans = [(a - shift, b - shift) for a, b in encoded["offset_mapping"][row].tolist()]
                special = encoded["special_tokens_mask"][row].tolist()
                kept = [i for i, (a, b) in enumerate(spans) if not special[i] and a >= 0 and b > a]
                groups = [states[:, row, kept].float().cpu()]
                if last is not None:
                    groups.append(last[row, kept].float().cpu()[None])
                yield Encoded(tuple(groups), tuple(spans[i] for i in kept))


def backbone_layers(backbone: Backbone) -> LayerReader:
    """Read a backbone as it reads queries; the last layer is its projection, where it has one."""
    from sentence_transformers.base.modules.dense import Dense

    encoder: Any = backbone.encoder
    dense = [m for m in encoder if isinstance(m, Dense)]

    def project(states: Tensor) -> Tensor:
        for module in dense:
            states = module.activation_function(module.linear(states))
        return states

    return LayerReader(
        encoder[0].auto_model,
        backbone.tokenizer,
        prompt=encoder.prompts.get("query") or "",
        max_tokens=backbone.max_tokens,
        project=project if dense else None,
    )


def detector_layers(detector: LoraDetector) -> LayerReader:
    """Read the trained detector's network, its adapter merged in."""
    return LayerReader(detector.tagger.transformer, detector.tokenizer, prepare=model_text)
