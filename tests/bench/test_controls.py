"""Fine-tuned controls: each kind learns its triples, and leaves a folder that the benchmark ranks with."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
import torch

from excise_integrations import Excise
from excise_integrations.bench.controls import Control, train_control
from excise_integrations.bench.external import parse_external
from excise_integrations.bench.prepared import Prepared
from excise_integrations.bench.rankers import external_ranker
from excise_integrations.bench.suites import load_suite
from excise_integrations.encode import Backbone
from excise_integrations.train.triples import Triple, read_triples

if TYPE_CHECKING:
    from .conftest import WriteSuite

pytest.importorskip("datasets")
pytest.importorskip("accelerate")

NAMES = [("rivers of Poland", "Oder", "Vistula"), ("castles in England", "Dover", "Windsor"),
         ("novels by Austen", "Persuasion", "Emma"), ("French cheeses", "Comté", "Brie"),
         ("bridges in Scotland", "Tay", "Forth"), ("songs of the sixties", "Respect", "Yesterday")]  # fmt: skip
KINDS: dict[Control, tuple[str, float]] = {
    "dense": ("dense", 5e-4),
    "cross-encoder": ("cross-encoder", 5e-4),
    "full": ("late-interaction", 5e-4),
    "lora": ("adapter", 1e-2),
    "query-only": ("query-adapter", 1e-2),
}


@pytest.fixture
def suite(write_suite: WriteSuite) -> Path:
    return write_suite(
        documents={name: ("", f"{name} is one of the {x}.") for x, *names in NAMES for name in names},
        queries=[{"_id": x, "text": f"{x}, but not {z}", "excluded": [z]} for x, _, z in NAMES],
        qrels=[(x, name, score) for x, y, z in NAMES for name, score in ((y, 1), (z, -1))],
        split="train",
    )


def train(kind: Control, triples: list[Triple], folder: Path, backbone: Backbone, **settings: Any) -> Path:
    settings = {"rates": (KINDS[kind][1],), "epochs": 6, "batch_size": 6, "rank": 4, "progress": str, **settings}
    return train_control(kind, triples, folder, backbone=backbone, **settings)


def record_of(folder: Path) -> dict[str, Any]:
    return dict(json.loads((folder / "control.json").read_text(encoding="utf-8")))


@pytest.mark.parametrize("kind", KINDS)
def test_a_control_learns_its_triples_and_ranks_a_suite(
    kind: Control, suite: Path, backbone: Backbone, excise_rules: Excise, tmp_path: Path
) -> None:
    before = backbone.encode_documents(["Oder"])[0].vectors
    folder = train(kind, read_triples([suite]), tmp_path / kind, backbone)
    assert torch.equal(backbone.encode_documents(["Oder"])[0].vectors, before)
    loaded = load_suite(suite, "train")
    prepared = Prepared(excise_rules, loaded, loaded.queries, k=12)
    ranker = external_ranker(parse_external(f"x=control:{KINDS[kind][0]}:{folder}"), None)
    inverted = {q.id for q, row in zip(loaded.queries, prepared.shortlists, strict=True) if _inverted(q.id, row)}
    left = {q.id for q, row in zip(loaded.queries, ranker.rank(prepared, None), strict=True) if _inverted(q.id, row)}
    print(kind, len(inverted), len(left))
    assert len(left) < len(inverted)
    assert record_of(folder)["learning_rate"] == KINDS[kind][1]


def _inverted(query: str, row: Any) -> bool:
    _, wanted, excluded = next(names for names in NAMES if names[0] == query)
    ids = [getattr(c, "id", c) for c in row]
    return ids.index(excluded) < ids.index(wanted)
