"""A suite small enough to encode in no time."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any

import pytest

DOCUMENTS = {
    "cello": ("Cello", "The cello is a bowed string instrument with four strings tuned in fifths."),
    "violin": ("Violin", "The violin is the smallest bowed string instrument of the orchestra."),
    "guitar": ("Guitar", "The guitar is a plucked string instrument that usually has six strings."),
    "harp": ("", "The harp is a plucked string instrument whose strings stand upright."),
    "trumpet": ("Trumpet", "The trumpet is a brass instrument with three valves."),
    "otter": ("Otter", "Otters hunt fish and crabs along river banks."),
    "bread": ("Bread", "Sourdough bread rises slowly with wild yeast."),
    "nothing": ("", " "),
}
QUERIES: list[dict[str, Any]] = [
    {
        "_id": "q1",
        "text": "bowed string instruments of the orchestra, but not the violin",
        "tier": "T1",
        "form": "short",
        "wanted": "bowed string instruments",
        "excluded": ["violin"],
    },
    {
        "_id": "q2",
        "text": "Which plucked string instruments are there, except the guitar?",
        "tier": "T1",
        "form": "long",
        "wanted": "plucked string instruments",
        "excluded": ["guitar"],
    },
    {
        "_id": "q3",
        "text": "animals that live in and along rivers",
        "tier": "C-conj",
        "form": "short",
        "wanted": "",
        "excluded": [],
    },
    {"_id": "q4", "text": "never judged", "tier": "T1", "form": "short", "wanted": "", "excluded": ["judged"]},
]
QRELS = [("q1", "cello", 1), ("q1", "violin", -1), ("q2", "harp", 1), ("q2", "guitar", -1), ("q3", "otter", 1)]

WriteSuite = Callable[..., Path]


def jsonl(path: Path, records: Iterable[Mapping[str, Any]]) -> None:
    path.write_text("".join(json.dumps(r) + "\n" for r in records), encoding="utf-8")


@pytest.fixture
def write_suite(tmp_path: Path) -> WriteSuite:
    def write(
        name: str = "instruments",
        documents: Mapping[str, tuple[str, str]] = DOCUMENTS,
        queries: Iterable[Mapping[str, Any]] = QUERIES,
        qrels: Iterable[tuple[str, str, int]] = QRELS,
        split: str = "dev",
    ) -> Path:
        folder = tmp_path / name
        (folder / "qrels").mkdir(parents=True)
        jsonl(folder / "corpus.jsonl", ({"_id": i, "title": t, "text": x} for i, (t, x) in documents.items()))
        jsonl(folder / "queries.jsonl", queries)
        lines = ["query-id\tcorpus-id\tscore", *("\t".join(map(str, row)) for row in qrels)]
        (folder / "qrels" / f"{split}.tsv").write_text("\n".join(lines) + "\n", encoding="utf-8")
        return folder

    return write
