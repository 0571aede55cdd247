"""A late-interaction encoder, frozen or with one adapter merged in."""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import torch
from torch import Tensor, nn

from .arithmetic import DType, default_device, resolve_dtype
from .fork_lock import ForkLock
from .maxsim import TokenVectors
from .windows import LONG_CONTEXT, LONG_CONTEXT_TOKENS, SHORT_CONTEXT, WindowPolicy, split_windows

if TYPE_CHECKING:
    from sentence_transformers import MultiVectorEncoder

    from ..weights import Adapter

__all__ = ["Backbone", "DType", "clean_text", "resolve_dtype"]

# More characters than this per token that is read are not tokenised: the tokenizer reads a whole text before it cuts
# it, and a megabyte takes seconds.
_CHARACTERS_PER_TOKEN = 32


class Backbone:
    """Turn queries and documents into token vectors.

    Use :meth:`from_pretrained`; the constructor takes an encoder that is already built.

    Args:
        encoder: a ``sentence_transformers.MultiVectorEncoder``.
        name: what the backbone is called in manifests and reports.
        weights_hash: sha256 that identifies its frozen weights.
        windows: how long documents are cut; None chooses by the encoder's context.
        dtype: arithmetic, see :func:`resolve_dtype`.
        batch_tokens: padded tokens per document batch.
    """

    def __init__(
        self,
        encoder: MultiVectorEncoder,
        *,
        name: str,
        weights_hash: str,
        windows: WindowPolicy | None = None,
        dtype: DType = "auto",
        batch_tokens: int = 4096,
    ) -> None:
        device = str(encoder.device)
        self.dtype = resolve_dtype(dtype, device)
        self.encoder = encoder.eval().to(self.dtype)
        self.name = name
        self.weights_hash = weights_hash
        self.device = device
        self.batch_tokens = batch_tokens
        self.adapter: str | None = None
        self._lock = ForkLock()
        transformer = self._transformer
        expansion = transformer.query_expansion
        if expansion is not None and self.tokenizer.mask_token_id == self.tokenizer.pad_token_id:
            # The checkpoint fills queries up with padding, which colbert-ai counts for nothing (see encode.export).
            expansion = transformer.query_expansion = None
        if expansion is not None and expansion["strategy"] == "fixed":
            # "fixed" would cut a long query's exclusion off.
            transformer.query_expansion = {**expansion, "strategy": "min"}
        limit = transformer.max_seq_length or 512
        if transformer.query_length is not None and transformer.query_expansion is None:
            transformer.query_length = max(transformer.query_length, limit)
        self.max_tokens = int(limit)
        self.windows = windows or (LONG_CONTEXT if limit >= LONG_CONTEXT_TOKENS else SHORT_CONTEXT)
        if transformer.document_length is not None and transformer.document_length < limit:
            # A Stanford checkpoint's 180 tokens would cut a 200-word window.
            transformer.document_length = min(limit, max(transformer.document_length, self.windows.words * 2))

    # --- construction -------------------------------------------------------------------

    @classmethod
    def from_pretrained(
        cls,
        name_or_path: str | Path = "minilm",
        *,
        path: str | Path | None = None,
        revision: str | None = None,
        device: str | None = None,
        dtype: DType = "auto",
        windows: WindowPolicy | None = None,
        offline: bool | None = None,
        projection: Tensor | Literal["bundled"] | None = "bundled",
    ) -> Backbone:
        """Load a backbone.

        Args:
            name_or_path: ``"minilm"`` (the embedded default), a folder, or a hub id of any
                checkpoint that ``MultiVectorEncoder`` loads: its own format, PyLate, or
                Stanford ColBERT.
            path: for ``"minilm"``, a folder with its weights.
            revision: hub revision.
            device: torch device; None chooses a GPU when there is one.
            dtype: "auto", "float32" or "bfloat16".
            windows: how long documents are cut.
            offline: forbid the hub; None forbids it for "minilm" and for existing folders only.
            projection: for ``"minilm"``: the bundled projection, a (dim, 384) tensor, or None.

        Returns:
            The frozen backbone.

        Raises:
            BackboneError: the checkpoint is missing, damaged, or not a late-interaction encoder.
        """
        from .loading import load_checkpoint, load_minilm

        device = device or default_device()
        if str(name_or_path) == "minilm":
            encoder, digest = load_minilm(path, device=device, offline=offline, projection=projection)
        else:
            encoder, digest = load_checkpoint(name_or_path, device=device, revision=revision, offline=offline)
        return cls(encoder, name=str(name_or_path), weights_hash=digest, windows=windows, dtype=dtype)

    def with_adapter(self, adapter: Adapter) -> Backbone:
        """Return a copy of this backbone with a LoRA adapter merged in.

        The copy shares nothing that changes, so frozen and adapted vectors can be computed by
        many threads at once and nobody sees another's adapter.

        Args:
            adapter: a verified adapter of the task "exclusion" made for this backbone.

        Raises:
            AdapterError: the adapter was made for other weights.
        """
        adapter.check_backbone(self.name, self.weights_hash)
        twin = copy.copy(self)
        encoder = copy.deepcopy(self.encoder).float()
        transformer: Any = encoder[0]
        transformer.model = adapter.merge_into(transformer.model)
        twin.encoder = encoder.eval().to(self.dtype)
        twin._lock = ForkLock()
        twin.adapter = adapter.label
        return twin

    def __getstate__(self) -> dict[str, Any]:
        state = self.__dict__.copy()
        del state["_lock"]
        return state

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state)
        self._lock = ForkLock()

    # --- facts ----------------------------------------------------------------------------

    @property
    def _transformer(self) -> Any:
        return self.encoder[0]

    @property
    def tokenizer(self) -> Any:
        """The tokenizer; hold no reference to it across threads."""
        return self._transformer.tokenizer

    @property
    def dim(self) -> int:
        """Dimension of a token vector."""
        dim: Any = self.encoder.get_embedding_dimension()
        return int(dim)

    @property
    def label(self) -> str:
        """Name and short weight hash, with the adapter if one is merged in."""
        base = f"{self.name}@{self.weights_hash[:12]}"
        return f"{base}+{self.adapter}" if self.adapter else base

    # --- encoding -------------------------------------------------------------------------

    def encode_queries(self, texts: Sequence[str], *, batch_size: int = 32) -> list[TokenVectors]:
        """Encode queries at their own length, up to the model's limit.

        Args:
            texts: queries or topics, none blank.
            batch_size: queries per forward.

        Returns:
            Token vectors with token strings and ids, in the order of ``texts``.
        """
        out: list[TokenVectors] = []
        for start in range(0, len(texts), batch_size):
            batch = list(texts[start : start + batch_size])
            for vectors, ids in self._encode_batch(batch, "query"):
                tokens = tuple(self.tokenizer.convert_ids_to_tokens(ids))
                out.append(TokenVectors(vectors, (vectors.shape[0],), tokens, tuple(ids)))
        return out

    def encode_documents(
        self, texts: Sequence[str], *, progress: Callable[[int], None] | None = None
    ) -> list[TokenVectors]:
        """Encode documents in windows, in batches of like length.

        Args:
            texts: documents.
            progress: called with the number of documents finished since the last call.

        Returns:
            Token vectors, in the order of ``texts``.
        """
        windows = [split_windows(text, self.windows) for text in texts]
        flat = [(d, w) for d, parts in enumerate(windows) for w in range(len(parts))]
        flat.sort(key=lambda at: len(windows[at[0]][at[1]]))
        done: dict[tuple[int, int], Tensor] = {}
        left = [len(parts) for parts in windows]
        for batch in self._batches(flat, windows):
            encoded = self._encode_batch([windows[d][w] for d, w in batch], "document")
            finished = 0
            for (d, w), (vectors, _) in zip(batch, encoded, strict=True):
                done[d, w] = vectors
                left[d] -= 1
                finished += left[d] == 0
            if progress is not None:
                progress(finished)
        out = []
        for d, parts in enumerate(windows):
            pieces = [done.pop((d, w)) for w in range(len(parts))]
            out.append(TokenVectors(torch.cat(pieces), tuple(p.shape[0] for p in pieces)))
        return out

    @property
    def special_tokens(self) -> frozenset[str]:
        """Token strings that never carry meaning: special tokens and the prompts' markers."""
        return frozenset(self.tokenizer.all_special_tokens)

    def encode_ids(self, text: str) -> list[int]:
        """Return the vocabulary ids of a text, without special tokens."""
        with self._lock:
            return list(self.tokenizer(self._readable(text), add_special_tokens=False, truncation=True)["input_ids"])

    def token_count(self, text: str) -> int:
        """Return how many tokens a query has, special tokens included, before it is cut to the model's limit.

        A query of very many characters is not counted to its end: it has more than the model reads.
        """
        with self._lock:
            count = len(self.tokenizer(self._readable(text), truncation=False, verbose=False)["input_ids"])
        return max(count, self.max_tokens + 1) if self._is_endless(text) else count

    def _is_endless(self, text: str) -> bool:
        limit = self.max_tokens * _CHARACTERS_PER_TOKEN
        return len(text) > limit and len(" ".join(text.split())) > limit

    def _readable(self, text: str) -> str:
        """Return what the tokenizer is given: no lone surrogates, and of an endless text its beginning."""
        limit = self.max_tokens * _CHARACTERS_PER_TOKEN
        if len(text) > limit:
            # A table may be long by its spaces alone.
            text = " ".join(text.split())[:limit]
        return clean_text(text)

    def _batches(self, flat: list[tuple[int, int]], windows: list[list[str]]) -> Iterator[list[tuple[int, int]]]:
        batch: list[tuple[int, int]] = []
        for at in flat:
            # About 4 characters a token; the sort makes the last one the longest.
            size = max(8, len(windows[at[0]][at[1]]) // 4)
            if batch and (len(batch) + 1) * size > self.batch_tokens:
                yield batch
                batch = []
            batch.append(at)
        if batch:
            yield batch

    def _encode_batch(self, texts: list[str], task: Literal["query", "document"]) -> list[tuple[Tensor, list[int]]]:
        try:
            return self._forward(texts, task)
        except (MemoryError, RuntimeError) as error:
            if len(texts) == 1 or not _is_out_of_memory(error):
                raise
        # Outside the handler, whose traceback would keep the failed batch's tensors alive.
        half = len(texts) // 2
        return self._encode_batch(texts[:half], task) + self._encode_batch(texts[half:], task)

    def _forward(self, texts: list[str], task: Literal["query", "document"]) -> list[tuple[Tensor, list[int]]]:
        prompt = self.encoder.prompts.get(task)
        with self._lock:
            # The tokenizer changes its own padding state and is not thread-safe.
            features = self.encoder.preprocess([self._readable(t) for t in texts], prompt=prompt, task=task)
        features = {k: v.to(self.device) if isinstance(v, Tensor) else v for k, v in features.items()}
        with torch.inference_mode():
            out = self.encoder(features, task=task)
            embeddings, masks = out["token_embeddings"], out["attention_mask"].bool()
            embeddings = nn.functional.normalize(embeddings.float(), dim=-1).to(self.dtype)
            ids = out["input_ids"]
            return [(embeddings[i][masks[i]].clone(), ids[i][masks[i]].tolist()) for i in range(len(texts))]


def _is_out_of_memory(error: Exception) -> bool:
    # torch.OutOfMemoryError is the GPU's; on a CPU PyTorch raises a plain RuntimeError.
    return isinstance(error, (MemoryError, torch.OutOfMemoryError)) or "can't allocate memory" in str(error)


def clean_text(text: str) -> str:
    """Replace lone surrogates, one character each, so that every offset stays."""
    # Tokenizers refuse lone surrogates.
    return text.encode("utf-8", "replace").decode("utf-8")
