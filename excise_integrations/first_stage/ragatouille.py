"""A RAGatouille index as a first stage.

``from excise_integrations.first_stage.ragatouille import RAGPretrainedModel`` imports RAGatouille on every
supported version of langchain, llama-index and transformers; build an index with it as usual.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ..encode.maxsim import TokenVectors
from ..errors import InvalidInputError
from ..types import Candidate
from ._ragatouille_build import Passages, rebuild, replace_index, split_texts
from ._ragatouille_compat import check_installed, import_ragatouille
from ._ragatouille_index import find_checkpoint, read_index
from ._ragatouille_input import check_documents, check_metadata
from ._ragatouille_search import IndexSearcher
from ._snapshot import check_search

if TYPE_CHECKING:
    RAGPretrainedModel: Any

__all__ = ["RAGPretrainedModel", "RagatouilleFirstStage"]


def __getattr__(name: str) -> Any:
    # Importing RAGatouille takes seconds: only who asks for it pays.
    if name in ("RAGPretrainedModel", "RAGTrainer"):
        return getattr(import_ragatouille(), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


class RagatouilleFirstStage:
    """Search a RAGatouille index.

    Candidates are passages: their ``id`` is the passage id as a string, their metadata is the
    document's with ``document_id`` added. Queries are never cut short of the checkpoint's limit, and
    fewer than ``k`` candidates come back only when the index has no more. An object may be used from
    many threads; it is a handle on one index, so copies are the object itself and pickling carries
    paths only.

    Use :meth:`from_index` or :meth:`from_model`.
    """

    def __init__(self, searcher: IndexSearcher, checkpoint: Path, *, one_per_document: bool = False) -> None:
        self._searcher = searcher
        self._checkpoint = checkpoint
        self._one_per_document = one_per_document
        self._space: str | None = None
        self._change = threading.Lock()

    # --- construction -----------------------------------------------------------------------

    @classmethod
    def from_index(
        cls, path: str | Path, *, checkpoint: str | Path | None = None, one_per_document: bool = False
    ) -> RagatouilleFirstStage:
        """Open an index on disk.

        Args:
            path: its folder, which may have been moved or renamed since it was built.
            checkpoint: folder or hub id of the checkpoint that it was built with; None takes the
                one that the index names.
            one_per_document: return each document's best passage only.

        Raises:
            IndexDamagedError: there is no index, or it is incomplete or damaged.
            FirstStageError: the checkpoint is not there, or the index was built with another one.
            MissingExtraError: RAGatouille is not installed.
        """
        check_installed()
        files = read_index(path)
        found = find_checkpoint(files, checkpoint)
        return cls(IndexSearcher(files, found), found, one_per_document=one_per_document)

    @classmethod
    def from_model(
        cls, model: Any, *, checkpoint: str | Path | None = None, one_per_document: bool = False
    ) -> RagatouilleFirstStage:
        """Open the index of a ``RAGPretrainedModel``.

        The index is read from disk anew: what ``add_to_index`` wrote is seen, and searches on the
        model do not disturb those here.

        Args:
            model: a ``RAGPretrainedModel`` that has built or loaded an index.
            checkpoint: None takes the model's own.
            one_per_document: as for :meth:`from_index`.

        Raises:
            InvalidInputError: it is no such model, or it has no index.
            IndexDamagedError: ``delete_from_index`` has damaged the index.
        """
        inner = getattr(model, "model", None)
        if inner is None or not hasattr(inner, "checkpoint"):
            raise InvalidInputError(f"{type(model).__name__} is not a RAGPretrainedModel.")
        path = getattr(inner, "index_path", None)
        if path is None:
            raise InvalidInputError(
                "This RAGPretrainedModel has no index yet: call its index(...) first, or load one with from_index."
            )
        return cls.from_index(path, checkpoint=checkpoint or inner.checkpoint, one_per_document=one_per_document)

    @classmethod
    def repair(cls, path: str | Path, *, checkpoint: str | Path | None = None) -> RagatouilleFirstStage:
        """Rebuild an index that RAGatouille's ``delete_from_index`` has damaged, from the texts in it.

        Args:
            path: its folder; replaced when the new index is complete.
            checkpoint: as for :meth:`from_index`.

        Returns:
            The rebuilt index, opened.

        Raises:
            IndexDamagedError: the texts and document ids do not belong together either.
        """
        files = read_index(path, damaged=True)
        found = find_checkpoint(files, checkpoint)
        rebuild(files, found)
        return cls.from_index(files.folder, checkpoint=found)

    def __reduce__(self) -> tuple[Any, ...]:
        return (_open, (str(self.path), self.checkpoint, self._one_per_document))

    def __copy__(self) -> RagatouilleFirstStage:
        return self

    def __deepcopy__(self, memo: dict[int, Any]) -> RagatouilleFirstStage:
        return self

    # --- facts --------------------------------------------------------------------------------

    def __len__(self) -> int:
        """Return the number of passages."""
        return len(self._searcher)

    @property
    def path(self) -> Path:
        """Folder of the index."""
        return self._searcher.files.folder

    @property
    def checkpoint(self) -> str:
        """Folder of the checkpoint that the index was built with; ``Excise.from_pretrained`` loads it."""
        return str(self._checkpoint)

    @property
    def fingerprint(self) -> str:
        """Hash of the index as it is loaded; changes when its contents do."""
        return self._searcher.files.fingerprint

    @property
    def document_ids(self) -> list[str]:
        """Ids of all documents, in the order of their first passages."""
        return list(dict.fromkeys(self._searcher.files.document_ids))

    @property
    def vector_space(self) -> str:
        """Label of the backbone ``Backbone.from_pretrained(checkpoint)``, whose vectors these are."""
        if self._space is None:
            from ..encode.loading import hash_folder

            self._space = f"{self.checkpoint}@{hash_folder(self._checkpoint)[:12]}"
        return self._space

    # --- search -------------------------------------------------------------------------------

    def search(self, query: str, k: int, *, filter: Mapping[str, Any] | None = None) -> list[Candidate]:
        """Return the frozen top ``k`` passages, best first.

        Args:
            query: the query; all of it is searched for, up to the checkpoint's limit.
            k: at least 1; above the size of the index it gives the whole index, ranked.
            filter: metadata that a passage's document must carry, key by key equal; ``document_id``
                is such a key.

        Raises:
            InvalidInputError: the query is blank, ``k`` is below 1, or the filter is no mapping.
        """
        return self.search_batch([query], k, filter=filter)[0]

    def search_batch(
        self, queries: Sequence[str], k: int, *, filter: Mapping[str, Any] | None = None
    ) -> list[list[Candidate]]:
        """Return one list per query, each what :meth:`search` returns."""
        check_search(queries, k)
        # One searcher for the whole call, whatever is added meanwhile.
        searcher = self._searcher
        allowed = searcher.files.allowed(filter)
        search = searcher.search_documents if self._one_per_document else searcher.search
        found = [search(query, k, allowed) for query in searcher.query_vectors(queries)]
        return [[searcher.files.candidate(pid, score) for pid, score in hits] for hits in found]

    async def asearch(self, query: str, k: int, *, filter: Mapping[str, Any] | None = None) -> list[Candidate]:
        """Return what :meth:`search` returns, from a worker thread."""
        return await asyncio.to_thread(self.search, query, k, filter=filter)

    def vectors(self, ids: Sequence[str]) -> list[TokenVectors]:
        """Return the frozen vectors of passages, in order.

        They are the index's own, whose MaxSim is the search's score; where compression costs more
        than 2 % of the cosine (and where it has pooled tokens) they come from the checkpoint.

        Raises:
            InvalidInputError: a passage id is unknown.
        """
        searcher = self._searcher
        return searcher.vectors([searcher.files.pid(id) for id in ids])

    # --- changes --------------------------------------------------------------------------------

    def add(
        self,
        texts: Sequence[str],
        ids: Sequence[str | int] | None = None,
        metadatas: Sequence[Mapping[str, Any]] | None = None,
        *,
        split_documents: bool = True,
    ) -> list[str]:
        """Add documents. The index on disk is replaced when the new one is complete.

        Where the index's centroids represent the new passages faithfully only these are encoded;
        otherwise the whole index is built anew, which takes as long as the first time.

        Args:
            texts: the documents' texts.
            ids: their ids; None makes some up.
            metadatas: one mapping per document, of JSON types.
            split_documents: cut documents longer than a passage, as RAGatouille does.

        Returns:
            The ids of the documents.

        Raises:
            InvalidInputError: an id is in the index already or given twice, a document is blank, or
                the lists differ in length.
            FirstStageError: the index on disk has changed since it was opened, or another process
                is changing it.
        """
        texts, names = check_documents(texts, ids)
        extra = check_metadata(names, metadatas)
        with self._change:
            files = self._searcher.files
            if known := sorted(set(names) & set(files.document_ids)):
                raise InvalidInputError(
                    f"Documents {known[:5]} are in the index {self.path} already; delete them first."
                )
            owners = names
            if split_documents:
                texts, owners = split_texts(texts, names, int(files.config["doc_maxlen"]))
            passages = Passages([*files.texts, *texts], [*files.document_ids, *owners], {**files.metadata, **extra})
            self._searcher = replace_index(self._searcher, self._checkpoint, range(len(self)), texts, passages)
        return names

    def delete(self, ids: str | int | Sequence[str | int]) -> None:
        """Delete documents with all their passages. The index on disk is replaced when the new one is complete.

        Passage ids move up, as in an index built without these documents, so those of earlier searches
        no longer hold; vectors and scores of what stays do not change.

        Args:
            ids: document ids, compared whole.

        Raises:
            InvalidInputError: an id is unknown, or nothing would be left.
            FirstStageError: as for :meth:`add`.
        """
        gone = {str(id) for id in ([ids] if isinstance(ids, (str, int)) else ids)}
        with self._change:
            files = self._searcher.files
            if unknown := sorted(gone - set(files.document_ids)):
                raise InvalidInputError(f"The index {self.path} has no documents {unknown[:5]}.")
            kept = [pid for pid, document in enumerate(files.document_ids) if document not in gone]
            if not kept:
                raise InvalidInputError(
                    f"Deleting these would leave the index {self.path} empty, which colbert-ai cannot store; "
                    "remove the folder instead."
                )
            if not gone:
                return
            passages = Passages(
                [files.texts[pid] for pid in kept], [files.document_ids[pid] for pid in kept], files.metadata
            )
            self._searcher = replace_index(self._searcher, self._checkpoint, kept, [], passages)


def _open(path: str, checkpoint: str, one_per_document: bool) -> RagatouilleFirstStage:
    return RagatouilleFirstStage.from_index(path, checkpoint=checkpoint, one_per_document=one_per_document)
