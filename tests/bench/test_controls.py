"""Fine-tuned controls: each kind learns its triples, and leaves a folder that the benchmark ranks with."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from dataclasses import fields, replace
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file
from typer.testing import CliRunner, Result

from excise_integrations import Excise, InvalidInputError
from excise_integrations._cli.app import app
from excise_integrations.bench.control_models import LateModel
from excise_integrations.bench.control_run import Run
from excise_integrations.bench.controls import Control, ControlSettings, train_control
from excise_integrations.bench.external import parse_external
from excise_integrations.bench.prepared import Prepared
from excise_integrations.bench.rankers import external_ranker
from excise_integrations.bench.suites import Query, load_suite
from excise_integrations.encode import Backbone
from excise_integrations.encode.maxsim import maxsim
from excise_integrations.errors import MissingExtraError
from excise_integrations.train.triples import Triple, read_triples
from excise_integrations.weights import load_adapter

WriteSuite = Callable[..., Path]
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
ORDINARY = [(f"where does river {i} flow", f"River {i} flows to the sea.") for i in range(9)]


@pytest.fixture
def suite(write_suite: WriteSuite) -> Path:
    return write_suite(
        documents={name: ("", f"{name} is one of the {x}.") for x, *names in NAMES for name in names},
        queries=[{"_id": x, "text": f"{x}, but not {z}", "excluded": [z]} for x, _, z in NAMES],
        qrels=[(x, name, score) for x, y, z in NAMES for name, score in ((y, 1), (z, -1))],
        split="train",
    )


def train(kind: Control, triples: list[Triple], folder: Path, backbone: Backbone, **options: Any) -> Path:
    names = {f.name for f in fields(ControlSettings)}
    settings: dict[str, Any] = {"rates": (KINDS.get(kind, ("", 1e-4))[1],), "batch_size": 6, "rank": 4}
    settings |= {n: options.pop(n) for n in names & set(options)}
    options = {"progress": str, **options}
    return train_control(kind, triples, folder, backbone=backbone, settings=ControlSettings(**settings), **options)


def record_of(folder: Path) -> dict[str, Any]:
    return dict(json.loads((folder / "control.json").read_text(encoding="utf-8")))


def excise(*arguments: object) -> Result:
    return CliRunner().invoke(app, ["bench", "train", *map(str, arguments)], prog_name="excise", terminal_width=200)


def inverted(queries: Sequence[Query], rows: Sequence[Sequence[str]]) -> set[str]:
    """Queries whose excluded document stands above the wanted one."""
    wanted = {x: (y, z) for x, y, z in NAMES}
    return {
        q.id for q, row in zip(queries, rows, strict=True) if row.index(wanted[q.id][1]) < row.index(wanted[q.id][0])
    }


@pytest.mark.parametrize("kind", KINDS)
def test_a_control_learns_its_triples_and_ranks_a_suite(
    kind: Control, suite: Path, backbone: Backbone, excise_rules: Excise, tmp_path: Path
) -> None:
    before = backbone.encode_documents(["Oder"])[0].vectors
    folder = train(kind, read_triples([suite]), tmp_path / kind, backbone, epochs=5)
    assert torch.equal(backbone.encode_documents(["Oder"])[0].vectors, before)
    loaded = load_suite(suite, "train")
    prepared = Prepared(excise_rules, loaded, loaded.queries, k=12)
    ranker = external_ranker(parse_external(f"x=control:{KINDS[kind][0]}:{folder}"), None)
    frozen = inverted(loaded.queries, [[c.id for c in row] for row in prepared.shortlists])
    assert len(inverted(loaded.queries, ranker.rank(prepared, None))) < len(frozen)


def test_a_query_only_control_reads_documents_as_the_frozen_index_holds_them(
    suite: Path, backbone: Backbone, tmp_path: Path
) -> None:
    triples = read_triples([suite])
    weights = {}
    for kind in ("query-only", "lora"):
        folder = train(kind, triples, tmp_path / kind, backbone, epochs=2)  # type: ignore[arg-type]
        weights[kind] = load_file(str(folder / "adapter_model.safetensors"))
    # Of one seed: they come apart by the documents' share in the gradient alone.
    assert any(not torch.allclose(weights["lora"][n], w, atol=1e-5) for n, w in weights["query-only"].items())
    model = LateModel(backbone, "query-only", rank=4)
    model.fit([(t.query, t.wanted, t.negative) for t in triples], Run(1e-2, epochs=3, batch_size=6))
    model.write(tmp_path / "written", record_of(tmp_path / "query-only"))
    query, documents = triples[0].query, [triples[0].wanted, triples[0].negative]
    adapted = backbone.with_adapter(load_adapter(tmp_path / "written", "exclusion"))
    expected = maxsim(adapted.encode_queries([query])[0].vectors, backbone.encode_documents(documents))
    assert model.scores([query], documents)[0] == pytest.approx(expected.float(), abs=0.3)
    moved = maxsim(adapted.encode_queries([query])[0].vectors, adapted.encode_documents(documents))
    assert (moved - expected).abs().max() > 0.5


def test_the_rate_is_the_best_by_held_out_success_and_the_smaller_of_equals(
    suite: Path, backbone: Backbone, tmp_path: Path
) -> None:
    # What is held out stands among the rest under another wanted document's name.
    triples = [replace(t, group=f"{t.group}{i}") for t in read_triples([suite]) for i in range(3)]
    folder = train("lora", triples, tmp_path / "made", backbone, rates=(1e-2, 1e-9), batch_size=2, max_minutes=0)
    record = record_of(folder)
    assert record["held_out_success"]["0.01"] > record["held_out_success"]["1e-09"]
    assert (record["learning_rate"], record["selection_triples"]) == (1e-2, 18)
    folder = train("lora", triples, folder, backbone, rates=(2e-9, 1e-9), batch_size=18)
    assert record_of(folder)["learning_rate"] == 1e-9
    assert load_adapter(folder, "exclusion").manifest.settings["control"] == "lora"


def test_as_many_ordinary_pairs_as_triples_are_rehearsed(suite: Path, backbone: Backbone, tmp_path: Path) -> None:
    triples = read_triples([suite])
    plain = record_of(train("dense", triples, tmp_path / "a", backbone, batch_size=2))
    mixed = record_of(train("dense", triples[::-1], tmp_path / "b", backbone, batch_size=2, ordinary=ORDINARY))
    assert plain["training_data"] == {**mixed["training_data"], "ordinary": 0}
    assert mixed["training_data"]["ordinary"] == len(triples)
    assert (plain["steps"], mixed["steps"]) == (3, 6)


def test_a_training_ends_when_its_minutes_are_over(suite: Path, backbone: Backbone, tmp_path: Path) -> None:
    lines: list[str] = []
    triples = read_triples([suite])
    folder = train(
        "query-only", triples, tmp_path / "x", backbone, epochs=9, max_minutes=0.0, progress=lines.append
    )  # fmt: skip
    assert (record_of(folder)["steps"], record_of(folder)["stopped"]) == (1, True)
    assert "1 steps" in lines[-1]


def test_the_command_estimates_and_trains(suite: Path, tmp_path: Path) -> None:
    ordinary = tmp_path / "pairs.jsonl"
    ordinary.write_text("".join(json.dumps({"query": q, "positive": p}) + "\n" for q, p in ORDINARY))
    options = ("dense", "--triples", suite, "--out", tmp_path / "made", "--rate", "1e-4", "--rehearsal", ordinary)
    done = excise(*options, "--dry-run")
    assert done.exit_code == 0, done.output
    assert "6 triples, about 0 minutes" in done.stdout
    assert not (tmp_path / "made").exists()
    done = excise(*options, "--max-minutes", "0")
    assert done.exit_code == 0, done.output
    assert record_of(tmp_path / "made")["training_data"]["sources"] == [suite.name]


def test_a_rehearsal_without_passages_names_its_line(suite: Path, tmp_path: Path) -> None:
    ordinary = tmp_path / "pairs.jsonl"
    ordinary.write_text('{"query": "a", "positive": "b"}\n{"query": "a", "passage": "b"}\n')
    done = excise("dense", "--triples", suite, "--out", tmp_path / "made", "--rehearsal", ordinary)
    assert done.exit_code == 1
    assert "pairs.jsonl, line 2: 'query' and 'positive'" in " ".join(done.output.split())


def test_what_cannot_be_trained_is_refused_before_it_is_tried(
    suite: Path, backbone: Backbone, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    triples = read_triples([suite])
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "notes.txt").write_text("mine")
    for kind, given, folder, settings, words in [
        ("sparse", triples, "x", {}, "'sparse' is no control"),
        ("full", [], "x", {}, "no training triple"),
        ("full", triples, "mine", {}, "holds no control"),
        ("full", triples, "x", {"rates": ()}, "learning rates"),
        ("full", triples, "x", {"rates": (1e-4, -1e-4)}, r"-0\.0001"),
        ("full", [replace(t, group="g") for t in triples], "x", {"rates": (1e-4, 2e-4)}, "none can be held out"),
    ]:
        with pytest.raises(InvalidInputError, match=words):
            train(kind, given, tmp_path / folder, backbone, **settings)  # type: ignore[arg-type]
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    with pytest.raises(MissingExtraError, match=r"excise-integrations\[bench\]"):
        train_control("full", triples, tmp_path / "x", backbone=backbone)
    assert not (tmp_path / "x").exists()
