"""Write a changed index beside the old one: from its own vectors where that is exact, else anew."""

from __future__ import annotations

import contextlib
import dataclasses
import importlib
import json
import os
import shutil
import sys
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from .._files import staging_folder, swap
from ..errors import FirstStageError
from ._ragatouille_compat import import_ragatouille
from ._ragatouille_index import IndexFiles, read_index
from ._ragatouille_isolation import isolated
from ._ragatouille_search import IndexSearcher

__all__ = ["Passages", "locked", "rebuild", "replace_index", "split_texts"]

_CODEC_FILES = ("centroids.pt", "buckets.pt", "avg_residual.pt")
# The old centroids serve new passages as well where these lose no more by compression than a token's vector may, or
# little more than the old passages do.
_FAITHFUL = 0.98
_LITTLE = 0.01
_KMEANS_UP_TO = 75_000


class Passages:
    """The passages of an index to be written.

    Args:
        texts: their texts, in order of their ids.
        document_ids: document of each.
        metadata: document id → metadata; ids that no passage has are dropped.
    """

    def __init__(
        self, texts: Sequence[str], document_ids: Sequence[str], metadata: Mapping[str, Mapping[str, Any]]
    ) -> None:
        known = set(document_ids)
        self.texts = list(texts)
        self.document_ids = list(document_ids)
        self.metadata = {key: dict(value) for key, value in metadata.items() if key in known}


def replace_index(
    searcher: IndexSearcher, checkpoint: Path, kept: Sequence[int], added: Sequence[str], passages: Passages
) -> IndexSearcher:
    """Replace the index of an open searcher, on disk and whole.

    Args:
        searcher: the open index; it goes on working.
        checkpoint: its checkpoint.
        kept: its passages that stay, ascending.
        added: texts of new passages, which follow them.
        passages: all of these.

    Returns:
        The new index, open.

    Raises:
        FirstStageError: the index on disk is not the open one any more, another process is changing
            it, or it could not be built.
    """
    folder = searcher.files.folder
    with locked(folder), _staging(folder) as staging:
        if read_index(folder).fingerprint != searcher.files.fingerprint:
            raise FirstStageError(f"The index {folder} has changed on disk since it was opened; open it again.")
        written = _write_from_vectors(staging, searcher, kept, added, passages)
        built = staging if written else _write_anew(staging, searcher.files, checkpoint, passages)
        # Whatever does not open does not replace what does.
        fresh = IndexSearcher(read_index(built), checkpoint)
        swap(folder, built)
    fresh.files = dataclasses.replace(fresh.files, folder=folder)
    return fresh


def rebuild(files: IndexFiles, checkpoint: Path) -> None:
    """Replace an index by one built anew from its texts and document ids."""
    with locked(files.folder), _staging(files.folder) as staging:
        passages = Passages(files.texts, files.document_ids, files.metadata)
        swap(files.folder, _write_anew(staging, files, checkpoint, passages))


@contextlib.contextmanager
def locked(folder: Path) -> Iterator[None]:
    """Keep other processes from changing the same index meanwhile.

    Raises:
        FirstStageError: another process is changing it.
    """
    if sys.platform == "win32":
        yield
        return
    import fcntl

    # The lock is on the folder itself: it needs no file of its own and dies with its process.
    handle = os.open(folder, os.O_RDONLY)
    try:
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
            same = os.fstat(handle).st_ino == folder.stat().st_ino
        except OSError:
            same = False
        if not same:
            raise FirstStageError(f"Another process is changing the index {folder}; try again when it is done.")
        yield
    finally:
        os.close(handle)


@contextlib.contextmanager
def _staging(folder: Path) -> Iterator[Path]:
    staging = staging_folder(folder)
    try:
        yield staging
    finally:
        shutil.rmtree(staging, ignore_errors=True)


def split_texts(texts: Sequence[str], document_ids: Sequence[str], tokens: int) -> tuple[list[str], list[str]]:
    """Split documents into passages as RAGatouille does.

    Returns:
        The passages and the document id of each.
    """
    import_ragatouille()
    split = importlib.import_module("ragatouille.data.preprocessors").llama_index_sentence_splitter
    chunks = split(list(texts), list(document_ids), chunk_size=tokens)
    return [chunk["content"] for chunk in chunks], [chunk["document_id"] for chunk in chunks]


def _write_from_vectors(
    folder: Path, searcher: IndexSearcher, kept: Sequence[int], added: Sequence[str], passages: Passages
) -> bool:
    """Write an index from the vectors of an open one, which stay bit for bit what they are.

    Args:
        folder: where to; empty.
        searcher: the open index.
        kept: its passages that stay, ascending.
        added: texts of new passages, which follow them.
        passages: all of these.

    Returns:
        False, with nothing written, when the index's centroids are no good for the new passages.
    """
    ranker = searcher.ranker
    rows = torch.repeat_interleave(
        torch.isin(torch.arange(len(searcher)), torch.tensor(kept, dtype=torch.long)), ranker.doclens
    )
    total = rows.shape[0]
    codes = [ranker.embeddings.codes[:total][rows]]
    residuals = [ranker.embeddings.residuals[:total][rows]]
    doclens = ranker.doclens[torch.tensor(kept, dtype=torch.long)].tolist()
    if added:
        fresh, lengths = searcher.encode(added)
        with torch.inference_mode():
            # Indexes hold half precision.
            packed = ranker.codec.compress(fresh.half() if ranker.use_gpu else fresh.half().float())
            faithful = float((ranker.codec.decompress(packed).float().cpu() * fresh).sum(-1).mean())
        if faithful < min(_FAITHFUL, searcher.fidelity - _LITTLE):
            return False
        codes.append(packed.codes)
        residuals.append(packed.residuals)
        doclens += lengths
    old = searcher.files.folder
    for name in _CODEC_FILES:
        shutil.copyfile(old / name, folder / name)
    all_codes = torch.cat(codes)
    torch.save(all_codes, folder / "0.codes.pt")
    torch.save(torch.cat(residuals), folder / "0.residuals.pt")
    partitions = int(ranker.codec.centroids.shape[0])
    torch.save(_lists(all_codes, torch.tensor(doclens), partitions), folder / "ivf.pid.pt")
    _write(folder / "doclens.0.json", doclens)
    counts = {"passage_offset": 0, "num_passages": len(doclens), "num_embeddings": len(all_codes)}
    _write(folder / "0.metadata.json", {**counts, "embedding_offset": 0})
    _copy_record(old, folder, doclens, passages)
    _write_passages(folder, passages)
    return True


def _lists(codes: Tensor, doclens: Tensor, partitions: int) -> tuple[Tensor, Tensor]:
    """Return the passages of each centroid, packed and padded as colbert-ai does, and their counts."""
    count = doclens.shape[0]
    owner = torch.repeat_interleave(torch.arange(count), doclens)
    pairs = torch.unique(codes.long() * count + owner)
    lengths = torch.bincount(pairs // count, minlength=partitions)
    passages = (pairs % count).to(torch.int32)
    return torch.cat([passages, torch.zeros(int(lengths.max()), dtype=torch.int32)]), lengths


def _copy_record(old: Path, folder: Path, doclens: list[int], passages: Passages) -> None:
    count = len(passages.texts)
    for name in ("metadata.json", "plan.json"):
        if not (old / name).is_file():
            continue
        record = json.loads((old / name).read_text(encoding="utf-8"))
        record["num_chunks"] = 1
        # As colbert-ai writes it; what was deleted must not linger here.
        shown = passages.texts if count <= 100 else [f"list with {count} elements starting with...", passages.texts[:3]]
        record["config"].update(collection=shown, index_name=old.name, root=str(old.parent))
        if name == "metadata.json":
            record.update(num_embeddings=sum(doclens), avg_doclen=sum(doclens) / count)
            record.setdefault("RAGatouille", {"index_config": {"index_type": "PLAID"}})
            record["RAGatouille"]["index_config"]["index_name"] = old.name
        _write(folder / name, record)


def _write_anew(folder: Path, files: IndexFiles, checkpoint: Path, passages: Passages) -> Path:
    """Build an index with RAGatouille: every passage is encoded, the centroids are new.

    Args:
        folder: an empty folder to work in.
        files: the index that it replaces; its settings are kept.
        checkpoint: the checkpoint.
        passages: what it is to hold.

    Returns:
        The folder of the new index, below ``folder``.

    Raises:
        FirstStageError: RAGatouille failed.
    """
    name = files.folder.name
    import_ragatouille()
    try:
        with isolated():
            # One process: several would import the caller's main module again. What `model_name` is for: see
            # IndexSearcher.
            model = importlib.import_module("ragatouille.models").ColBERT(
                str(checkpoint), n_gpu=1, verbose=0, index_root=str(folder), model_name=str(checkpoint)
            )
            try:
                model.index(
                    passages.texts,
                    pid_docid_map=dict(enumerate(passages.document_ids)),
                    docid_metadata_map=passages.metadata or None,
                    index_name=name,
                    max_document_length=int(files.config["doc_maxlen"]),
                    overwrite="force_silent_overwrite",
                    bsize=int(files.config.get("index_bsize") or 32),
                    use_faiss=len(passages.texts) >= _KMEANS_UP_TO,
                )
            finally:
                model.run_context.__exit__(None, None, None)
    except Exception as error:
        raise FirstStageError(f"RAGatouille could not build the index {files.folder} anew: {error}") from error
    built = folder / "colbert" / "indexes" / name
    record = json.loads((built / "metadata.json").read_text(encoding="utf-8"))
    # It was built elsewhere than it will lie.
    record["config"]["root"] = str(files.folder.parent)
    record["config"]["checkpoint"] = str(checkpoint)
    record["config"]["model_name"] = files.config.get("model_name")
    _write(built / "metadata.json", record)
    return built


def _write_passages(folder: Path, passages: Passages) -> None:
    _write(folder / "collection.json", passages.texts)
    _write(folder / "pid_docid_map.json", dict(enumerate(passages.document_ids)))
    if passages.metadata:
        _write(folder / "docid_metadata_map.json", passages.metadata)


def _write(path: Path, content: Any) -> None:
    path.write_text(json.dumps(content), encoding="utf-8")
