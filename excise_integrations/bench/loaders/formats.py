"""The formats by name."""

from __future__ import annotations

import shlex
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from ...errors import SuiteError
from .beir import read_beir
from .boolean import read_boolquestions, read_quest
from .exclusion import read_excluir, read_nevir
from .irds import read_irds
from .records import Collection, write_collection

__all__ = ["FORMATS", "Format", "import_suite"]


@dataclass(frozen=True)
class Format:
    """A published format.

    Args:
        read: reads a folder, a file or a name, and a split.
        split: what is read when no split is named.
        documents: whether the whole corpus is written when nothing is said.
    """

    read: Callable[[Path, str], Collection]
    split: str = "test"
    documents: Literal["all", "judged"] = "all"


FORMATS = {
    "beir": Format(read_beir),
    # The corpora have millions of passages, and the questions are ranked over two or three.
    "boolquestions": Format(read_boolquestions, split="eval", documents="judged"),
    "excluir": Format(read_excluir),
    "irds": Format(read_irds),
    "negconstraint": Format(read_beir),
    "nevir": Format(read_nevir),
    "quest": Format(read_quest),
}


def import_suite(
    name: str,
    path: str | Path,
    out: str | Path,
    *,
    split: str | None = None,
    documents: Literal["all", "judged"] | None = None,
) -> tuple[str, ...]:
    """Write a published benchmark as a suite.

    Args:
        name: one of :data:`FORMATS`.
        path: its folder or file as it is distributed; for ``irds`` the collection's name.
        out: the suite's folder; an imported suite that is there already is replaced.
        split: which part to read, and what the qrels are called; None for the usual one.
        documents: write the corpus, or the judged documents alone; None for what suits the format.

    Returns:
        Notes: what was left out, and what the suite cannot measure.

    Raises:
        SuiteError: the format is unknown, a file is missing or malformed, an id is unknown or occurs twice, a text is
            empty. File and line are named.
    """
    if name not in FORMATS:
        raise SuiteError(f"There is no format {name!r}; there are {', '.join(sorted(FORMATS))}.")
    form = FORMATS[name]
    chosen = split or form.split
    collection = form.read(Path(path), chosen)
    facts = {"format": name, "source": str(path), "command": shlex.join(["excise", *sys.argv[1:]])}
    return write_collection(collection, out, split=chosen, documents=documents or form.documents, facts=facts)
