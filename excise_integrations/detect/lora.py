"""The trained detector: MiniLM with LoRA, a token head and a query head."""

from __future__ import annotations

import copy
import re
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch

from ..encode.arithmetic import DType, default_device, resolve_dtype
from ..encode.backbone import clean_text
from ..encode.fork_lock import ForkLock
from ..encode.minilm import MODEL_SHA256, find_minilm
from ..encode.quiet import quiet_loading
from ..errors import InvalidInputError
from ..types import Detection, Span
from ..weights import Adapter, load_adapter
from .decode import TokenScores, decode
from .language import language_warnings
from .spans import wanted_part
from .tagger import SpanTagger

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerFast

__all__ = ["LoraDetector", "load_transformer", "model_text"]

# A longer query is read in windows as long as the queries of the training set.
_WINDOW = 126
_STRIDE = 96
_MAX_WINDOWS = 40
# About ten characters for each token of these windows; the rest of a query is not even tokenised.
_MAX_CHARACTERS = 40_000

_INNER_HYPHEN = re.compile(r"(?<=\w)-(?=\w)")
_SPACED_HYPHEN = re.compile(r"(?<=\s)-(?=\s)")


def model_text(query: str) -> str:
    """Return the query as the network reads it; every character keeps its place.

    The vocabulary has one hyphen and knows no spaces: without this "Ehlers-Danlos" and "a - b" look
    like the search operator in "a -b".
    """
    text = _INNER_HYPHEN.sub(" ", clean_text(query))
    return _SPACED_HYPHEN.sub("–", text)


def load_transformer(path: str | Path | None = None, *, offline: bool | None = None) -> tuple[Any, Any]:
    """Load MiniLM and its tokenizer from verified local files.

    Returns:
        The ``transformers`` model in float32 and the fast tokenizer.
    """
    from transformers import AutoModel, AutoTokenizer

    folder = str(find_minilm(path, offline=offline is not False))
    with quiet_loading():
        model = AutoModel.from_pretrained(folder, local_files_only=True, use_safetensors=True)
    # Loaded without it, the checkpoint's pooler would be reported as unexpected.
    model.pooler = None
    return model, AutoTokenizer.from_pretrained(folder, local_files_only=True)


class LoraDetector:
    """Detects excluded topics with the trained adapter (paper, section on the detector).

    It fires when the query's probability is above θ, and marks the words that name each topic. It
    needs the query alone, so one detector serves every backbone and every index. Safe among threads.

    Args:
        tagger: the network with the adapter merged in.
        tokenizer: its fast tokenizer.
        threshold: θ in [0, 1].
        calibrated: what :meth:`with_threshold` goes back to; None takes ``threshold``.
        temperature: divides the query's logit before the sigmoid.
        label: what stands in audit trails.
        dtype: arithmetic.
    """

    def __init__(
        self,
        tagger: SpanTagger,
        tokenizer: PreTrainedTokenizerFast,
        *,
        threshold: float,
        calibrated: float | None = None,
        temperature: float = 1.0,
        label: str = "detector",
        dtype: torch.dtype = torch.float32,
        device: str = "cpu",
    ) -> None:
        if not 0.0 <= threshold <= 1.0:
            raise InvalidInputError(f"threshold={threshold} is outside [0, 1].")
        self.tagger = tagger.to(device=device, dtype=dtype).eval()
        self.tokenizer = tokenizer
        self.threshold = threshold
        self._calibrated = threshold if calibrated is None else calibrated
        self.temperature = temperature
        self.label: str | None = label
        self._device = device
        self._lock = ForkLock()
        self._special = frozenset(tokenizer.all_special_ids)

    @classmethod
    def from_folder(
        cls,
        folder: str | Path,
        *,
        device: str | None = None,
        dtype: DType = "auto",
        path: str | Path | None = None,
        offline: bool | None = None,
        threshold: float | None = None,
    ) -> LoraDetector:
        """Load a detector that ``excise train detector`` wrote.

        Args:
            folder: adapter folder.
            device: torch device; None prefers a GPU.
            dtype: see :func:`~excise_integrations.encode.backbone.resolve_dtype`.
            path: a folder with the weights of MiniLM.
            offline: whether the hub may not be asked for them.
            threshold: θ; None takes the calibrated one from the manifest.

        Raises:
            AdapterError: the folder is damaged or was made for other weights.
        """
        adapter = load_adapter(folder, "detector")
        return cls.from_adapter(adapter, device=device, dtype=dtype, path=path, offline=offline, threshold=threshold)

    @classmethod
    def from_adapter(
        cls,
        adapter: Adapter,
        *,
        device: str | None = None,
        dtype: DType = "auto",
        path: str | Path | None = None,
        offline: bool | None = None,
        threshold: float | None = None,
    ) -> LoraDetector:
        """Build a detector from a verified adapter; see :meth:`from_folder`."""
        adapter.check_backbone("minilm", MODEL_SHA256)
        device = device or default_device()
        model, tokenizer = load_transformer(path, offline=offline)
        tagger = SpanTagger(adapter.merge_into(model), model.config.hidden_size)
        tagger.load_heads(adapter.tensors("span_head.safetensors"))
        manifest = adapter.manifest
        calibrated = 0.76 if manifest.threshold is None else manifest.threshold
        return cls(
            tagger,
            tokenizer,
            threshold=calibrated if threshold is None else threshold,
            calibrated=calibrated,
            temperature=manifest.temperature or 1.0,
            label=adapter.label,
            dtype=resolve_dtype(dtype, device),
            device=device,
        )

    def with_threshold(self, threshold: float | None) -> LoraDetector:
        """Return this detector with another θ, sharing the network; None takes the calibrated one."""
        wanted = self._calibrated if threshold is None else threshold
        if not 0.0 <= wanted <= 1.0:
            raise InvalidInputError(f"threshold={wanted} is outside [0, 1].")
        if wanted == self.threshold:
            return self
        twin = copy.copy(self)
        twin.threshold = wanted
        # The tokenizer is shared, so is the lock that guards it.
        twin._lock = self._lock
        return twin

    def detect(self, queries: Sequence[str]) -> list[Detection]:
        """Detect the excluded topics of each query; see :class:`~excise_integrations.detect.Detector`."""
        found: list[Detection | None] = [None] * len(queries)
        order = sorted(range(len(queries)), key=lambda i: len(queries[i]))
        for start in range(0, len(order), 32):
            batch = order[start : start + 32]
            for i, detection in zip(batch, self._detect([queries[i] for i in batch]), strict=True):
                found[i] = detection
        return [d for d in found if d is not None]

    def _detect(self, queries: list[str]) -> list[Detection]:
        bounds = [_readable(q) for q in queries]
        with self._lock:
            encoded = self.tokenizer(
                [model_text(q[start:end]) for q, (start, end) in zip(queries, bounds, strict=True)],
                add_special_tokens=False,
                return_offsets_mapping=True,
                return_attention_mask=False,
                verbose=False,
            )
        windows: list[tuple[int, list[int], list[tuple[int, int]]]] = []
        cut = [False] * len(queries)
        for q, (ids, offsets) in enumerate(zip(encoded["input_ids"], encoded["offset_mapping"], strict=True)):
            parts = list(_windows(len(ids)))
            start, end = bounds[q]
            cut[q] = len(parts) > _MAX_WINDOWS or bool(queries[q][end:].strip())
            for a, b in parts[:_MAX_WINDOWS]:
                windows.append((q, ids[a:b], [(start + c, start + d) for c, d in offsets[a:b]]))
        scores: list[float] = [0.0] * len(queries)
        tokens: list[dict[tuple[int, int], TokenScores]] = [{} for _ in queries]
        for start in range(0, len(windows), 32):
            self._run(windows[start : start + 32], queries, scores, tokens)
        return [
            self._decide(query, scores[q], [tokens[q][at] for at in sorted(tokens[q])], cut[q])
            for q, query in enumerate(queries)
        ]

    def _run(
        self,
        windows: list[tuple[int, list[int], list[tuple[int, int]]]],
        queries: list[str],
        scores: list[float],
        tokens: list[dict[tuple[int, int], TokenScores]],
    ) -> None:
        cls_id, sep_id, pad_id = (
            self.tokenizer.cls_token_id, self.tokenizer.sep_token_id, self.tokenizer.pad_token_id
        )  # fmt: skip
        length = max(len(ids) for _, ids, _ in windows) + 2
        rows = [[cls_id, *ids, sep_id] for _, ids, _ in windows]
        input_ids = torch.tensor([row + [pad_id] * (length - len(row)) for row in rows])
        attention = torch.tensor([[1] * len(row) + [0] * (length - len(row)) for row in rows])
        content = torch.zeros_like(attention, dtype=torch.bool)
        for w, (q, _, offsets) in enumerate(windows):
            for t, (a, b) in enumerate(offsets, start=1):
                content[w, t] = any(c.isalnum() for c in queries[q][a:b])
        with torch.inference_mode():
            out = self.tagger(input_ids.to(self._device), attention.to(self._device), content.to(self._device))
            probabilities = out.tokens.softmax(dim=-1).cpu()
            fired = torch.sigmoid(out.query / self.temperature).tolist()
        has_content = content.any(dim=1).tolist()
        for w, (q, _, offsets) in enumerate(windows):
            if has_content[w]:
                scores[q] = max(scores[q], fired[w])
            for t, (a, b) in enumerate(offsets, start=1):
                if a == b:
                    continue
                begin, inside = float(probabilities[w, t, 1]), float(1.0 - probabilities[w, t, 0])
                old = tokens[q].get((a, b))
                if fired[w] <= self.threshold:
                    # A silent window of a long query has no say about its spans.
                    begin = inside = 0.0
                if old is None or inside > old.inside:
                    joined = a > 0 and queries[q][a - 1].isalnum() and queries[q][a].isalnum()
                    tokens[q][a, b] = TokenScores(a, b, begin, inside, joined)

    def _decide(self, query: str, score: float, tokens: list[TokenScores], cut: bool) -> Detection:
        warnings = (
            (f"The query is too long to be read whole; what follows its first {len(tokens)} tokens was not read.",)
            if cut
            else ()
        )
        spans: tuple[Span, ...] = decode(query, tokens) if score > self.threshold else ()
        return Detection(
            fired=bool(spans),
            confidence=score,
            spans=spans,
            wanted=wanted_part(query, spans),
            warnings=(*warnings, *language_warnings(query)),
        )

    def __getstate__(self) -> dict[str, Any]:
        state = self.__dict__.copy()
        del state["_lock"]
        return state

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state)
        self._lock = ForkLock()


def _readable(query: str) -> tuple[int, int]:
    """Return the bounds of the part of a query that is read; it ends between two words where it can."""
    if len(query) <= _MAX_CHARACTERS:
        return 0, len(query)
    start = len(query) - len(query.lstrip())
    end = min(start + _MAX_CHARACTERS, len(query))
    if end < len(query):
        # A query without spaces is cut where it may be.
        space = re.search(r"\s\S{0,200}\Z", query[start:end])
        end = start + space.start() if space else end
    return start, end


def _windows(length: int) -> Iterator[tuple[int, int]]:
    start = 0
    while True:
        yield start, min(start + _WINDOW, length)
        if start + _WINDOW >= length:
            return
        start += _STRIDE
