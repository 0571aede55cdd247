"""What the package never does, and what a hostile file or folder cannot make it do."""

from __future__ import annotations

import ast
import json
import logging
import os
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import pytest_socket
from pipeline_fakes import Raises, Stage
from word_backbone import WordBackbone, word_excise

import excise_integrations
from excise_integrations import Candidate, Excise, ExciseError, FirstStageError, IndexDamagedError
from excise_integrations._cli.sources import read_documents
from excise_integrations.audit import AuditLog
from excise_integrations.bench.store import VectorStore
from excise_integrations.encode.disk import DiskCache
from excise_integrations.first_stage.memory import MemoryFirstStage
from excise_integrations.weights import find_adapter

PACKAGE = Path(excise_integrations.__file__).parent
WORDS: Any = WordBackbone()

# --- what the source never says ---------------------------------------------------------------------

# Modules that run what they read, that unpack archives, or that open connections.
FORBIDDEN = {
    "pickle", "cPickle", "dill", "cloudpickle", "marshal", "shelve", "joblib", "yaml",
    "tarfile", "zipfile", "requests", "urllib", "http", "socket", "ftplib", "subprocess", "pty",
}  # fmt: skip
# colbert-ai's own form of tensors is written, with this; what reads it takes plain tensors only, see below.
WRITES = {"first_stage/_ragatouille_build.py": {"torch.save"}}
# The speed of a start is that of fresh processes: this Python, and a script that is in the source.
STARTS = {"bench/speed_start.py": {"subprocess"}}
CALLS = {"eval", "exec", "compile", "__import__", "execfile"}
ATTRIBUTES = {("os", "system"), ("os", "popen"), ("shutil", "unpack_archive"), ("torch", "load"), ("torch", "save"),
              ("tempfile", "mktemp"), ("numpy", "load"), ("np", "load")}  # fmt: skip


def sources() -> Iterator[tuple[str, ast.Module]]:
    for path in sorted(PACKAGE.rglob("*.py")):
        yield path.relative_to(PACKAGE).as_posix(), ast.parse(path.read_text(encoding="utf-8"))


def complaints(name: str, tree: ast.AST) -> list[str]:
    found = []
    for node in ast.walk(tree):
        where = f"{name}:{getattr(node, 'lineno', 0)}"
        modules = []
        if isinstance(node, ast.Import):
            modules = [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom) and node.level == 0:
            modules = [node.module or ""]
        for module in modules:
            if module.partition(".")[0] in FORBIDDEN - STARTS.get(name, set()):
                found.append(f"{where} imports {module}")
        if isinstance(node, ast.Call):
            function = node.func
            if isinstance(function, ast.Name) and function.id in CALLS:
                found.append(f"{where} calls {function.id}")
            if (
                isinstance(function, ast.Attribute)
                and isinstance(function.value, ast.Name)
                and (function.value.id, function.attr) in ATTRIBUTES
                and f"{function.value.id}.{function.attr}" not in WRITES.get(name, set())
            ):
                found.append(f"{where} calls {function.value.id}.{function.attr}")
            for keyword in node.keywords:
                value = keyword.value
                constant = value.value if isinstance(value, ast.Constant) else "not a constant"
                if keyword.arg in ("trust_remote_code", "shell", "allow_pickle") and constant is not False:
                    found.append(f"{where} passes {keyword.arg}={constant}")
                if keyword.arg in ("use_safetensors", "weights_only") and constant is False:
                    found.append(f"{where} passes {keyword.arg}=False")
    return found


def test_the_source_runs_nothing_that_it_reads() -> None:
    assert [c for name, tree in sources() for c in complaints(name, tree)] == []


@pytest.mark.parametrize(
    "line",
    ["import pickle", "from pickle import loads", "import os.path, dill", "eval('1')", "exec(code)", "torch.load(p)",
     "load(x, trust_remote_code=True)", "load(x, trust_remote_code=flag)", "run(c, shell=True)", "import subprocess",
     "import urllib.request", "load(x, use_safetensors=False)", "shutil.unpack_archive(p)"],
)  # fmt: skip
def test_the_check_of_the_source_sees(line: str) -> None:
    assert complaints("x.py", ast.parse(f"def f():\n    {line}\n"))


# --- no network -------------------------------------------------------------------------------------


def test_the_whole_suite_runs_without_sockets() -> None:
    with pytest.raises(pytest_socket.SocketBlockedError):
        socket.socket(socket.AF_INET)


def test_the_default_needs_no_network_and_asks_for_none(tmp_path: Path) -> None:
    """A process that may not connect, and that nobody told to stay offline."""
    code = """
import socket
def refuse(*args, **kwargs):
    raise AssertionError("a connection was tried")
socket.socket.connect = socket.getaddrinfo = socket.create_connection = refuse
from excise_integrations import Candidate, Excise
excise = Excise.from_pretrained("minilm")
result = excise.rerank("pets, but not cats", [Candidate(n, f"{n} are pets") for n in ("cats", "dogs", "birds", "fish")])
print([c.id for c in result.removed])
"""
    environment = {k: v for k, v in os.environ.items() if k not in ("HF_HUB_OFFLINE", "TRANSFORMERS_OFFLINE")}
    environment |= {"HOME": str(tmp_path), "HF_HOME": str(tmp_path), "PYTHONPATH": str(PACKAGE.parent)}
    done = subprocess.run([sys.executable, "-c", code], env=environment, capture_output=True, text=True, check=False)
    assert done.stdout.strip() == "['cats']", done.stderr[-2000:]


def test_offline_a_hub_name_is_refused_before_anything_is_asked() -> None:
    with pytest.raises(ExciseError, match="offline"):
        Excise.from_pretrained("someone/some-model", offline=True)


# --- paths ------------------------------------------------------------------------------------------

OUTSIDE = ["../outside", "/etc/passwd", "..", ".", "a/../../outside", "..\\outside", "\x00", "vectors/../../x"]


@pytest.mark.parametrize("name", OUTSIDE)
@pytest.mark.parametrize("field", ["vectors_file", "documents_file", "files"])
def test_an_index_cannot_name_a_file_elsewhere(tmp_path: Path, name: str, field: str) -> None:
    folder = tmp_path / "index"
    MemoryFirstStage.from_texts(["a text"], backbone=WORDS).save(folder)
    (tmp_path / "outside").write_text("secret")
    manifest = json.loads((folder / "manifest.json").read_text())
    if field == "files":
        manifest["files"][name] = "0" * 64
    else:
        manifest["files"][name] = manifest["files"].pop(manifest[field])
        manifest[field] = name
    (folder / "manifest.json").write_text(json.dumps(manifest))
    with pytest.raises(IndexDamagedError, match="names the file"):
        MemoryFirstStage.load(folder, backbone=WORDS)
    # Saving over it deletes nothing outside either.
    with pytest.raises(FirstStageError):
        MemoryFirstStage.from_texts(["another"], backbone=WORDS).save(folder)
    assert (tmp_path / "outside").read_text() == "secret"


@pytest.mark.parametrize("name", OUTSIDE)
def test_ids_are_data_and_no_paths(tmp_path: Path, name: str) -> None:
    folder = tmp_path / "inside" / "index"
    MemoryFirstStage.from_texts(["a text"], ids=[name], metadatas=[{name: name}], backbone=WORDS).save(folder)
    assert MemoryFirstStage.load(folder, backbone=WORDS).ids == [name]
    VectorStore(tmp_path / "inside" / "store").encode([name], WORDS)
    excise = word_excise(
        adapter=True, cache_dir=tmp_path / "inside" / "cache", log=AuditLog(tmp_path / "inside" / "audit.jsonl")
    )
    excise.rerank("pets, but not cats", [Candidate(name, "cats"), Candidate("other", "dogs")])
    assert [p.name for p in tmp_path.iterdir()] == ["inside"]


@pytest.mark.parametrize("name", ["../../tmp", "minilm/..", "/etc", "", ".", "..", "a b", "minilm\x00"])
def test_a_backbone_s_name_finds_no_adapter_elsewhere(name: str) -> None:
    assert find_adapter(name, "detector") is None


def test_a_store_of_vectors_stays_in_its_folder_whatever_the_backbone_is_called(tmp_path: Path) -> None:
    hostile: Any = WordBackbone()
    hostile.label = "../../outside/\x00/.."
    VectorStore(tmp_path / "store").encode(["a text"], hostile)
    assert [p.name for p in tmp_path.iterdir()] == ["store"]


@pytest.mark.skipif(os.name != "posix", reason="links of POSIX")
def test_links(tmp_path: Path) -> None:
    """A link out of a folder of texts to another folder is not followed; one that leads in circles neither."""
    texts, secrets = tmp_path / "texts", tmp_path / "secrets"
    texts.mkdir()
    secrets.mkdir()
    (texts / "a.txt").write_text("a text")
    (secrets / "b.txt").write_text("secret")
    (texts / "out").symlink_to(secrets, target_is_directory=True)
    (texts / "loop").symlink_to(texts, target_is_directory=True)
    (texts / "gone.txt").symlink_to(tmp_path / "nothing.txt")
    assert [c.id for c in read_documents(texts)] == ["a.txt"]
    # An index behind a link is the index, and saving replaces its contents, not the link.
    stage = MemoryFirstStage.from_texts(["a text"], backbone=WORDS)
    stage.save(tmp_path / "index")
    (tmp_path / "current").symlink_to(tmp_path / "index", target_is_directory=True)
    MemoryFirstStage.from_texts(["another"], backbone=WORDS).save(tmp_path / "current")
    assert (tmp_path / "current").is_symlink()
    assert MemoryFirstStage.load(tmp_path / "index", backbone=WORDS).search("a", 1)[0].text == "another"


# --- folders that others can write to ---------------------------------------------------------------


@pytest.mark.skipif(os.name != "posix", reason="rights of POSIX")
def test_a_cache_is_its_owner_s_and_says_when_it_is_everybody_s(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    with DiskCache(tmp_path / "own"):
        assert (tmp_path / "own").stat().st_mode & 0o777 == 0o700
    assert caplog.text == ""
    (tmp_path / "open").mkdir()
    (tmp_path / "open").chmod(0o777)
    with DiskCache(tmp_path / "open"):
        assert "Everybody can write" in caplog.text


# --- what logs tell ---------------------------------------------------------------------------------


@pytest.mark.parametrize("detector", [None, Raises(RuntimeError("broke on SECRETQUERY"))], ids=["works", "fails"])
def test_no_text_reaches_the_logs(detector: Any, tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG)
    excise = word_excise(
        adapter=True, on_error="frozen", cache_dir=tmp_path / "cache", log=AuditLog(tmp_path / "a.jsonl")
    )
    if detector is not None:
        excise.detector = detector
    shortlist = [Candidate(str(i), f"SECRETDOCUMENT {i}", metadata={"key": "SECRETKEY"}) for i in range(6)]
    excise.search("SECRETQUERY, but not SECRETTOPIC", Stage(shortlist))
    excise.search("SECRETQUERY", Stage(shortlist))
    assert "SECRET" not in caplog.text
    assert "SECRET" not in (tmp_path / "a.jsonl").read_text()
