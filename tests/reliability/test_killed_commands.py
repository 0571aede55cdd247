"""SIGKILL in the middle of a command that works for long: what was done is kept, and the next run goes on."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest
import torch
from child_processes import killed_before, killed_when
from mining_corpus import WordEncoder, corpus
from tiny_adapters import save_exclusion
from typer.testing import CliRunner, Result

from excise_integrations._cli.app import app
from excise_integrations.bench.suites import load_suite, suite_files
from excise_integrations.encode import Backbone, cache
from excise_integrations.encode.disk import DiskCache
from excise_integrations.train.mining_files import document_row, write_folder
from excise_integrations.weights import Adapter, Task, load_adapter

pytestmark = [
    pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork"),
    pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning"),
]


def run(*command: object) -> Result:
    result = CliRunner().invoke(app, [str(part) for part in command])
    assert result.exit_code == 0, result.output
    return result


def same_weights(one: Adapter, other: Adapter) -> bool:
    names = [name for name in one.manifest.files if name.endswith(".safetensors")]
    assert names
    pairs = [(one.tensors(name), other.tensors(name)) for name in names]
    return all(a.keys() == b.keys() and all(torch.equal(a[k], b[k]) for k in a) for a, b in pairs)


def check_resumes(tmp_path: Path, task: Task, *command: object) -> None:
    """Kill the command after its first checkpoint; resumed it gives what it gives undisturbed."""
    out, checkpoint = tmp_path / "out", tmp_path / "checkpoint"
    killed_when((checkpoint / "state.json").exists, lambda: run(*command, "--out", out, "--checkpoint", checkpoint))
    assert not out.exists()
    finished = json.loads((checkpoint / "state.json").read_text())["epoch"]
    lines = CliRunner().invoke(
        app, [*map(str, command), "--out", str(out), "--checkpoint", str(checkpoint), "--resume"]
    )
    assert lines.exit_code == 0, lines.output
    assert f"resumed after epoch {finished}" in lines.stderr
    run(*command, "--out", tmp_path / "undisturbed")
    assert same_weights(load_adapter(out, task), load_adapter(tmp_path / "undisturbed", task))
    assert not [p.name for p in tmp_path.iterdir() if p.name.startswith(".")]


def test_train_detector(tmp_path: Path) -> None:
    """Its masks and its dropout are drawn at random; a resumed run draws what the killed one would have drawn."""
    check_resumes(
        tmp_path, "detector", "train", "detector", "--generated", 8, "--natural-repeats", 0, "--rank", 2, "--epochs", 3
    )  # fmt: skip


def test_train_adapter(tmp_path: Path, backbone: Backbone, monkeypatch: pytest.MonkeyPatch) -> None:
    documents = corpus()[:8]
    queries = [{"_id": f"q{i}", "text": f"{documents[i].text}, but not {documents[i + 1].title}",
                "excluded": [documents[i + 1].title]} for i in range(0, 8, 2)]  # fmt: skip
    judgments = [(f"q{i}", documents[i + at].id, (1, -1)[at]) for i in range(0, 8, 2) for at in (0, 1)]
    files = suite_files([document_row(d) for d in documents], queries, judgments, split="train")
    write_folder(tmp_path / "suite", files, marker="corpus.jsonl", what="a suite")
    monkeypatch.setattr(Backbone, "from_pretrained", lambda *_, **__: backbone)
    check_resumes(
        tmp_path, "exclusion", "train", "adapter", "--triples", tmp_path / "suite", "--rank", 2, "--epochs", 3,
        "--learning-rate", 1e-3,
    )  # fmt: skip


def test_warm(tmp_path: Path, backbone: Backbone, monkeypatch: pytest.MonkeyPatch) -> None:
    """Every batch that was written is kept; the next run encodes the rest and nothing twice."""
    count = 200
    source, folder = tmp_path / "documents.jsonl", tmp_path / "cache"
    source.write_text("".join(json.dumps({"_id": str(i), "text": f"number {i}"}) + "\n" for i in range(count)))
    adapter = save_exclusion(tmp_path / "adapter", backbone.weights_hash)
    monkeypatch.setattr(Backbone, "from_pretrained", lambda *_, **__: backbone)
    monkeypatch.setattr(cache, "_WARM_BATCH", 16)
    command = ("warm", source, "--cache", folder, "--adapter", adapter, "--json")

    def entries() -> int:
        if not list(folder.glob("*")):
            return 0
        with DiskCache(folder) as disk:
            return disk.stats().entries

    killed_when(lambda: entries() > 0, lambda: run(*command))
    kept = entries()
    assert 0 < kept < count
    record = json.loads(run(*command).stdout)
    assert (record["encoded"], record["entries"]) == (count - kept, count)
    assert json.loads(run(*command).stdout)["encoded"] == 0


def test_bench_build(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A suite is not there before it is whole."""
    monkeypatch.setattr(Backbone, "from_pretrained", lambda *_, **__: WordEncoder())
    source, out = tmp_path / "corpus.jsonl", tmp_path / "suites" / "built"
    source.write_text("".join(json.dumps(document_row(d)) + "\n" for d in corpus()))
    command = ("bench", "build", "--corpus", source, "--writer", "template", "--judge", "none", "--count", 6,
               "--out", out)  # fmt: skip
    assert killed_before(4, lambda: run(*command), out.parent)
    assert not out.exists()
    run(*command)
    assert len(load_suite(out, "test").queries) == len((out / "queries.jsonl").read_text().splitlines()) > 0


@pytest.mark.parametrize("exchange", [True, False], ids=["exchange", "two renames"])
def test_a_suite_is_replaced_whole(tmp_path: Path, exchange: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """Kill the process before its first change of the disk, before its second, and so on."""
    from excise_integrations import _files

    if not exchange:
        monkeypatch.setattr(_files, "_exchange", lambda *_: False)
    folder, found = tmp_path / "suite", []

    def write(kind: str) -> None:
        contents = {"a.txt": kind, "qrels/b.txt": kind, "mark": kind}
        write_folder(folder, contents, marker="mark", what="a suite")

    change, going = 0, True
    while going:
        write("old")
        going = killed_before(change, lambda: write("new"), tmp_path)
        # Where two folders cannot be exchanged, the old one lies aside for a moment.
        _files.recover(folder)
        kinds = {p.read_text() for p in folder.rglob("*") if p.is_file()}
        assert len(kinds) == 1
        found += kinds
        change += 1
    assert set(found) == {"old", "new"}
    assert found[-1] == "new"
