"""Where documents come from: JSON lines, text files, a suite, a saved index, a RAGatouille index."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from ..errors import InvalidInputError
from ..types import Candidate

if TYPE_CHECKING:
    from ..encode.backbone import Backbone
    from ..first_stage.base import FirstStage

__all__ = ["Source", "read_documents"]

_TEXT_FILES = {".txt", ".md", ".rst", ".text"}
_NAMES = ("_id", "id", "title", "text", "metadata")


@dataclass
class Source:
    """Something to search.

    Args:
        path: file or folder.
        kind: what it is.
    """

    path: Path
    kind: Literal["documents", "memory", "ragatouille"]
    _opened: Any = None

    @classmethod
    def at(cls, path: Path) -> Source:
        """Recognise what lies at a path.

        Raises:
            InvalidInputError: there is nothing, or nothing that can be searched.
        """
        if path.is_file() or (path / "corpus.jsonl").is_file():
            return cls(path, "documents")
        if not path.is_dir():
            raise InvalidInputError(f"There is nothing at {path}. Give a JSONL file, a folder of texts, or an index.")
        if (path / "manifest.json").is_file():
            return cls(path, "memory")
        if (path / "pid_docid_map.json").is_file() or (path / "plan.json").is_file():
            return cls(path, "ragatouille")
        return cls(path, "documents")

    def backbone(self) -> str:
        """Return the backbone that goes with the source."""
        if self.kind == "memory":
            from ..first_stage._memory_disk import read_manifest

            return read_manifest(self.path).backbone
        if self.kind == "ragatouille":
            return str(self._ragatouille().checkpoint)
        return "minilm"

    def open(self, backbone: Backbone, progress: Callable[[int, int], None] | None = None) -> FirstStage:
        """Return a first stage over the source, encoding documents that have no index."""
        if self.kind == "ragatouille":
            return self._ragatouille()  # type: ignore[no-any-return]
        from ..first_stage.memory import MemoryFirstStage

        if self.kind == "memory":
            return MemoryFirstStage.load(self.path, backbone=backbone)
        documents = read_documents(self.path)
        return MemoryFirstStage.from_candidates(documents, backbone=backbone, progress=progress or False)

    def _ragatouille(self) -> Any:
        if self._opened is None:
            from ..first_stage.ragatouille import RagatouilleFirstStage

            self._opened = RagatouilleFirstStage.from_index(self.path)
        return self._opened


def read_documents(path: Path) -> list[Candidate]:
    """Read documents from a JSONL file, a folder with ``corpus.jsonl``, or a folder of text files.

    A JSON line has a ``text`` and, if there are, ``_id`` or ``id``, ``title``, ``metadata``; further
    keys become metadata. A text file is called by its path within the folder.

    Raises:
        InvalidInputError: nothing is there, or a line or a file cannot be used; it is named.
    """
    if (path / "corpus.jsonl").is_file():
        path = path / "corpus.jsonl"
    documents = _json_lines(path) if path.is_file() else _text_files(path)
    if not documents:
        raise InvalidInputError(f"There are no documents in {path}.")
    return documents


def _json_lines(path: Path) -> list[Candidate]:
    documents: list[Candidate] = []
    lines: dict[str, int] = {}
    with path.open("rb") as handle:
        for number, raw in enumerate(handle, start=1):
            where = f"{path}, line {number}"
            try:
                line = raw.decode("utf-8-sig" if number == 1 else "utf-8")
                record = json.loads(line) if line.strip() else None
            except (ValueError, RecursionError) as error:
                raise InvalidInputError(
                    f"{where}: not JSON in UTF-8 ({error}). One JSON object a line is needed; for plain texts give "
                    "the folder they lie in."
                ) from None
            if record is None:
                continue
            document = _document(record, str(number), where)
            if document.id in lines:
                raise InvalidInputError(f"{where}: the id {document.id!r} is that of line {lines[document.id]}.")
            lines[document.id] = number
            documents.append(document)
    return documents


def _document(record: Any, number: str, where: str) -> Candidate:
    text = record.get("text") if isinstance(record, dict) else None
    if not isinstance(text, str):
        raise InvalidInputError(f"{where}: an object with the key 'text', a string, is needed.")
    title, metadata = record.get("title") or "", record.get("metadata") or {}
    if not isinstance(title, str) or not isinstance(metadata, dict):
        raise InvalidInputError(f"{where}: 'title' must be a string and 'metadata' an object.")
    name = record.get("_id", record.get("id", number))
    if not isinstance(name, (str, int)) or isinstance(name, bool) or name == "":
        raise InvalidInputError(f"{where}: the id {name!r} is not a string.")
    if not text.strip() and not title.strip():
        raise InvalidInputError(f"{where}: the document {name!r} has no text; leave it out.")
    extra = {key: value for key, value in record.items() if key not in _NAMES}
    if title:
        extra["title"] = title
    return Candidate(str(name), f"{title}\n{text}" if title.strip() else text, None, {**extra, **metadata})


def _text_files(folder: Path) -> list[Candidate]:
    documents: list[Candidate] = []
    for path in sorted(folder.rglob("*")):
        name = path.relative_to(folder)
        if path.suffix.lower() not in _TEXT_FILES or not path.is_file() or any(p.startswith(".") for p in name.parts):
            continue
        try:
            text = path.read_text(encoding="utf-8-sig")
        except UnicodeDecodeError as error:
            raise InvalidInputError(f"{path} is not UTF-8 ({error.reason}); convert it or move it away.") from None
        # An empty file has nothing to find.
        if text.strip():
            documents.append(Candidate(name.as_posix(), text, None, {"path": str(path)}))
    if not documents:
        raise InvalidInputError(
            f"{folder} is no index, and no text files ({', '.join(sorted(_TEXT_FILES))}) with text lie in it."
        )
    return documents
