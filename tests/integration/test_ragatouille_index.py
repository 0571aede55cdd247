"""RAGatouille itself beside us: the same results, its pitfalls, and a process that stays as it was."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from ragatouille_fixtures import RagatouilleIndex, documents

from excise_integrations.errors import IndexDamagedError, InvalidInputError
from excise_integrations.first_stage._ragatouille_isolation import isolated
from excise_integrations.first_stage.ragatouille import RagatouilleFirstStage, RAGPretrainedModel

QUERIES = ["history of jazz music", "who is famous in astronomy", "prices of contract law for beginners"]


@pytest.fixture(scope="module")
def upstream(ragatouille_index: RagatouilleIndex) -> Any:
    return RAGPretrainedModel.from_index(str(ragatouille_index.path), verbose=0)


def test_short_queries_give_what_ragatouille_gives(stage: RagatouilleFirstStage, upstream: Any) -> None:
    for query in QUERIES:
        theirs = upstream.search(query, k=10)
        ours = stage.search(query, 10)
        assert [c.score for c in ours] == pytest.approx([hit["score"] for hit in theirs], abs=1e-3)
        assert {c.id for c in ours[:9]} <= {str(hit["passage_id"]) for hit in theirs}
        by_id = {c.id: c for c in ours}
        for hit in theirs[:9]:
            same = by_id[str(hit["passage_id"])]
            assert same.text == hit["content"]
            assert dict(same.metadata) == {**hit["document_metadata"], "document_id": hit["document_id"]}


def test_from_model(ragatouille_index: RagatouilleIndex, stage: RagatouilleFirstStage, upstream: Any) -> None:
    opened = RagatouilleFirstStage.from_model(upstream)
    assert opened.fingerprint == stage.fingerprint
    assert opened.checkpoint == stage.checkpoint
    fresh = RAGPretrainedModel.from_pretrained(str(ragatouille_index.checkpoint), verbose=0)
    with pytest.raises(InvalidInputError, match="no index yet"):
        RagatouilleFirstStage.from_model(fresh)


def test_what_we_change_ragatouille_reads(ragatouille_index: RagatouilleIndex, tmp_path: Path) -> None:
    ours = RagatouilleFirstStage.from_index(ragatouille_index.copy(tmp_path, "articles"))
    ours.delete(["music-history", "cats-prices"])
    ours.add([documents()[0][0]], ["again"], [{"subject": "jazz again"}])
    model = RAGPretrainedModel.from_index(str(ours.path), verbose=0)
    hits = model.search("history of jazz music", k=5)
    assert [str(hit["passage_id"]) for hit in hits] == [c.id for c in ours.search("history of jazz music", 5)]
    assert hits[0]["content"] == documents()[0][0]
    assert hits[0]["document_metadata"] == {"subject": "jazz again"}


def test_an_index_damaged_by_delete_from_index_is_refused_and_can_be_repaired(
    ragatouille_index: RagatouilleIndex, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    root = tmp_path / "root" / "colbert" / "indexes"
    path = ragatouille_index.copy(root, "articles")
    model = RAGPretrainedModel.from_index(str(path), verbose=0)
    # RAGatouille finds the index it deletes from by the root and the name that the index was built with.
    with isolated():
        sys.modules["colbert.infra"].Run().config.index_root = str(root)
        model.delete_from_index(["cars-history", "cats-prices"])
    with pytest.raises(IndexDamagedError, match=r"other\s+documents' texts.*repair"):
        RagatouilleFirstStage.from_index(path)
    with pytest.raises(IndexDamagedError):
        RagatouilleFirstStage.from_model(model)
    # What models leave behind in the process has no say in where it is built.
    monkeypatch.setattr(sys.modules["colbert.infra"].Run().config, "index_root", str(tmp_path / "wrong"))
    repaired = RagatouilleFirstStage.repair(path)
    assert not (tmp_path / "wrong").exists()
    texts, ids, metadata = documents()
    by_id = dict(zip(ids, zip(texts, metadata, strict=True), strict=True))
    found = {c.metadata["document_id"]: c for c in repaired.search("anything", 1000)}
    assert found.keys() == set(ids) - {"cars-history", "cats-prices"}
    for document, candidate in found.items():
        assert candidate.metadata["subject"] == by_id[document][1]["subject"]
        assert candidate.text in by_id[document][0]
    assert repaired.search("history of mountain hiking", 1)[0].metadata["document_id"] == "hiking-history"


SCRIPT = r"""
import importlib.util, json, logging, multiprocessing, os, random, sys
from pathlib import Path

messages = []
handler = logging.Handler()
handler.emit = lambda record: messages.append(record.getMessage())
logger = logging.getLogger("excise_integrations")
logger.addHandler(handler)
logger.setLevel(logging.INFO)

import numpy, sentence_transformers, torch, transformers  # themselves draw random numbers
random.seed(1); numpy.random.seed(1); torch.manual_seed(1)


def state():
    return {
        "start method": multiprocessing.get_start_method(allow_none=True),
        "environment": dict(os.environ),
        "random": [repr(random.getstate()), repr(numpy.random.get_state()), torch.get_rng_state().tolist()],
        "streams": [id(sys.stdout), id(sys.stderr)],
    }


before = state()
from excise_integrations.first_stage.ragatouille import RagatouilleFirstStage
imported_early = [name for name in ("ragatouille", "colbert", "langchain_core") if name in sys.modules]
stage = RagatouilleFirstStage.from_index(sys.argv[1])
stage.search("cats", 3)
needed_to_search = "ragatouille" in sys.modules
texts = ["Volcanoes under the sea spit lava.", "Ants build hills in the wood."]
stage.add(texts, ["volcanoes", "ants"])
found = [c.metadata["document_id"] for c in stage.search("ants in the wood", 2)]
from excise_integrations.first_stage.ragatouille import RAGPretrainedModel
after = state()
import langchain
print(json.dumps({
    "changed": [key for key in before if before[key] != after[key]],
    "imported early": imported_early,
    "needed to search": needed_to_search,
    "found": found,
    "model": RAGPretrainedModel.__name__,
    "stubs": [n for n in sys.modules if n.startswith("langchain.retrievers")],
    "attribute": hasattr(langchain, "retrievers"),
    "langchain": importlib.util.find_spec("langchain").origin,
    "here": sorted(os.listdir()),
    "messages": messages,
    "launcher": sys.modules["colbert.infra.launcher"].mp.get_start_method(),
}))
"""


def test_a_machine_without_tools_and_a_process_that_stays_as_it_was(
    ragatouille_index: RagatouilleIndex, tmp_path: Path
) -> None:
    index = ragatouille_index.copy(tmp_path / "elsewhere")
    here = tmp_path / "here"
    here.mkdir()
    environment = {
        **{k: v for k, v in os.environ.items() if not k.startswith(("EXCISE_", "CUDA_", "TOKENIZERS_", "GIT_"))},
        "PATH": str(here),
        "CXX": "/nonexistent",
        "PYTHONPATH": str(Path(__file__).parents[2]),
        "TORCH_EXTENSIONS_DIR": str(tmp_path / "extensions"),
    }
    result = subprocess.run(
        [sys.executable, "-c", SCRIPT, str(index)],
        cwd=here, env=environment, capture_output=True, text=True, timeout=300,
    )  # fmt: skip
    assert result.returncode == 0, result.stderr
    # One line on stdout: nobody else printed.
    report = json.loads(result.stdout)
    assert report["changed"] == []
    assert report["imported early"] == []
    assert report["needed to search"] is False
    assert report["found"][0] == "ants"
    assert report["model"] == "RAGPretrainedModel"
    assert report["stubs"] == []
    assert report["attribute"] is False
    assert report["langchain"].endswith("langchain/__init__.py")
    assert report["here"] == []
    assert report["launcher"] == "spawn"
    for reason in ("post_init", "langchain.retrievers", "no C++ compiler"):
        assert any(reason in message for message in report["messages"])
    assert len(report["messages"]) == len(set(report["messages"]))
    assert all("\n" not in message for message in report["messages"])


COMPILED = r"""
import json, sys
from excise_integrations.first_stage.ragatouille import RagatouilleFirstStage
import colbert.search.index_storage as storage
stage = RagatouilleFirstStage.from_index(sys.argv[1])
assert "cpp" in repr(storage.IndexScorer.filter_pids) or "builtin" in repr(storage.IndexScorer.filter_pids)
queries = json.loads(sys.argv[2])
print(json.dumps([[(c.id, c.score) for c in stage.search(q, k)] for q in queries for k in (3, 10, 1000)]))
"""


@pytest.mark.compiler
def test_the_compiled_kernels_give_the_same(
    ragatouille_index: RagatouilleIndex, stage: RagatouilleFirstStage, tmp_path: Path
) -> None:
    extensions = Path(os.environ.get("EXCISE_TEST_EXTENSIONS_DIR", tmp_path))
    for lock in extensions.glob("*/lock"):
        # Of a run that was killed; PyTorch would wait for it forever.
        lock.unlink()
    environment = {
        **os.environ,
        "EXCISE_COLBERT_KERNELS": "compiled",
        "TORCH_EXTENSIONS_DIR": str(extensions),
        "PYTHONPATH": str(Path(__file__).parents[2]),
    }
    result = subprocess.run(
        [sys.executable, "-c", COMPILED, str(ragatouille_index.path), json.dumps(QUERIES)],
        cwd=tmp_path, env=environment, capture_output=True, text=True, timeout=900,
    )  # fmt: skip
    assert result.returncode == 0, result.stderr
    ours = [stage.search(query, k) for query in QUERIES for k in (3, 10, 1000)]
    for compiled, plain in zip(json.loads(result.stdout), ours, strict=True):
        assert [score for _, score in compiled] == pytest.approx([c.score for c in plain], abs=1e-4)
        assert [i for i, _ in compiled] == [c.id for c in plain]
