"""What is shipped: the sdist, the wheel built from it, the commands of the Makefile, the examples."""

from __future__ import annotations

import email
import os
import re
import shutil
import subprocess
import sys
import tarfile
import zipfile
from email.message import Message
from pathlib import Path

import pytest
from packaging.requirements import Requirement

from excise_integrations import __version__
from excise_integrations.weights import bundled_root, load_adapter

ROOT = Path(__file__).resolve().parents[1]
PROJECT = (ROOT / "pyproject.toml").read_text(encoding="utf-8")
# Sockets are blocked in this process only; child processes get this before anything else.
OFFLINE = (
    "import socket, runpy, sys\n"
    "def refuse(*_): raise OSError('the network was used')\n"
    "socket.socket.connect = socket.socket.connect_ex = socket.getaddrinfo = refuse\n"
)


def tree(folder: str, pattern: str = "**/*") -> set[str]:
    """Files below a folder of the checkout, relative to it."""
    return {
        path.relative_to(ROOT / folder).as_posix()
        for path in (ROOT / folder).glob(pattern)
        if path.is_file() and "__pycache__" not in path.parts
    }


def run(arguments: list[str], cwd: Path, **environment: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        arguments, cwd=cwd, env={**os.environ, **environment}, capture_output=True, text=True, timeout=280
    )


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with the sdist, and the wheel that was built from it."""
    pytest.importorskip("build")
    pytest.importorskip("hatchling")
    folder = tmp_path_factory.mktemp("dist")
    done = run([sys.executable, "-m", "build", "--no-isolation", "--outdir", str(folder), str(ROOT)], folder)
    assert done.returncode == 0, done.stdout + done.stderr
    return folder


@pytest.fixture(scope="module")
def sdist(built: Path) -> set[str]:
    """Names in the sdist, without its top folder."""
    with tarfile.open(built / f"excise_integrations-{__version__}.tar.gz") as archive:
        return {member.name.partition("/")[2] for member in archive.getmembers() if member.isfile()}


@pytest.fixture(scope="module")
def installed(built: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The wheel, unpacked as an installer does it."""
    folder = tmp_path_factory.mktemp("site")
    with zipfile.ZipFile(built / f"excise_integrations-{__version__}-py3-none-any.whl") as archive:
        archive.extractall(folder)
    return folder


@pytest.fixture(scope="module")
def metadata(installed: Path) -> Message:
    (path,) = installed.glob("*.dist-info/METADATA")
    return email.message_from_string(path.read_text(encoding="utf-8"))


def extra(metadata: Message, name: str) -> set[str]:
    """What an extra asks for, beyond what is always asked for."""
    asked = [Requirement(line) for line in metadata.get_all("Requires-Dist", [])]
    return {
        f"{requirement.name}{requirement.specifier}"
        for requirement in asked
        if requirement.marker is not None and requirement.marker.evaluate({"extra": name})
    }


# --- the packages ---------------------------------------------------------------------------


def test_the_sdist_has_the_sources_and_nothing_else(sdist: set[str]) -> None:
    for folder in ("adapters", "docs", "examples", "excise_integrations", "tests"):
        assert {f"{folder}/{name}" for name in tree(folder)} == {n for n in sdist if n.startswith(f"{folder}/")}
    assert "adapters/README.md" in sdist
    files = {name for name in sdist if "/" not in name}
    assert files == {
        ".gitignore", "CHANGELOG.md", "CONTRIBUTING.md", "LICENSE", "Makefile", "NOTICE", "PKG-INFO", "README.md",
        "SECURITY.md", "mkdocs.yml",
        "constraints.txt", "pyproject.toml",
    }  # fmt: skip


def test_the_wheel_is_the_package_with_the_weights_beside_it(installed: Path) -> None:
    inside = {
        path.relative_to(installed).as_posix()
        for path in installed.rglob("*")
        if path.is_file() and ".dist-info" not in path.parts[-2] and "licenses" not in path.parts
    }
    package = {f"excise_integrations/{name}" for name in tree("excise_integrations")}
    weights = {f"excise_integrations/_weights/{name}" for name in tree("adapters")}
    assert inside == package | weights
    assert "excise_integrations/py.typed" in inside
    assert any(name.startswith("excise_integrations/train/data/") and name.endswith(".jsonl") for name in inside)
    for name in tree("adapters"):
        packed = installed / "excise_integrations/_weights" / name
        assert packed.read_bytes() == (ROOT / "adapters" / name).read_bytes()


def test_the_metadata(metadata: Message, installed: Path) -> None:
    assert metadata["Name"] == "excise-integrations"
    assert metadata["Version"] == __version__
    assert metadata["License-Expression"] == "Apache-2.0"
    assert set(metadata.get_all("License-File", [])) == {"LICENSE", "NOTICE"}
    assert set(metadata["Requires-Python"].split(",")) == {">=3.10", "<3.14"}
    extras = set(metadata.get_all("Provides-Extra", []))
    assert extras == {
        "all", "bench", "cli", "embedded", "irds", "langchain", "llama-index", "openvino", "otel", "qdrant",
        "ragatouille", "train",
    }  # fmt: skip
    assert extra(metadata, "all") == set().union(*(extra(metadata, name) for name in extras))
    assert "ragatouille<0.0.10,>=0.0.9" in extra(metadata, "ragatouille")
    (scripts,) = installed.glob("*.dist-info/entry_points.txt")
    assert "excise = excise_integrations.cli:main" in scripts.read_text()


def test_an_extra_that_an_error_names_exists(metadata: Message) -> None:
    named = {
        name
        for path in (ROOT / "excise_integrations").rglob("*.py")
        for match in re.findall(
            r"MissingExtraError\([^()]*,\s*[\"']([\w-]+)[\"']\)|excise-integrations\[([a-z,-]+)\]",
            path.read_text(encoding="utf-8"),
        )
        for name in "".join(match).split(",")
    }
    assert named
    assert named <= set(metadata.get_all("Provides-Extra", []))


def test_an_installed_wheel_works(installed: Path, tmp_path: Path) -> None:
    code = OFFLINE + (
        f"sys.path.insert(0, {str(installed)!r})\n"
        "import excise_integrations\n"
        "from excise_integrations.weights import bundled_root\n"
        f"assert excise_integrations.__file__.startswith({str(installed)!r}), excise_integrations.__file__\n"
        "assert bundled_root().name == '_weights', bundled_root()\n"
        "from excise_integrations import Candidate, Excise\n"
        "animals = ['a cat that purrs', 'a dog that barks', 'a parrot that talks', 'a horse that trots']\n"
        "candidates = [Candidate(text.split()[1], text) for text in animals]\n"
        "result = Excise.from_pretrained('minilm').rerank('animals, but not dogs', candidates)\n"
        "print([c.id for c in result.removed])\n"
    )
    done = run([sys.executable, "-c", code], tmp_path, PYTHONPATH="")
    assert done.returncode == 0, done.stderr
    assert "dog" in done.stdout


def test_a_checkout_sees_new_weights(tmp_path: Path) -> None:
    assert bundled_root() == ROOT / "adapters"
    shutil.copytree(ROOT / "excise_integrations", tmp_path / "excise_integrations")
    (tmp_path / "adapters").mkdir()
    code = (
        "from excise_integrations.weights import bundled_root, find_adapter\n"
        "assert find_adapter('new', 'projection') is None\n"
        "folder = bundled_root() / 'new' / 'projection'\n"
        "folder.mkdir(parents=True)\n"
        "(folder / 'manifest.json').touch()\n"
        "print(find_adapter('new', 'projection') == folder, folder)\n"
    )
    done = run([sys.executable, "-c", code], tmp_path, PYTHONPATH=str(tmp_path))
    assert done.returncode == 0, done.stderr
    assert done.stdout.split() == ["True", str(tmp_path / "adapters/new/projection")]


def test_the_bundled_weights_are_whole() -> None:
    folders = [path.parent for path in bundled_root().glob("*/*/manifest.json")]
    assert folders
    for folder in bundled_root().glob("*/*"):
        assert not folder.is_dir() or folder in folders, f"{folder} has no manifest"
    for folder in folders:
        adapter = load_adapter(folder, folder.name)  # type: ignore[arg-type]
        assert adapter.manifest.backbone == folder.parent.name
        assert (folder / "README.md").read_text(encoding="utf-8").startswith("#")


# --- texts ----------------------------------------------------------------------------------


def test_the_notice_names_what_is_required(metadata: Message) -> None:
    notice = (ROOT / "NOTICE").read_text(encoding="utf-8")
    for line in metadata.get_all("Requires-Dist", []):
        name = re.match(r"[\w-]+", line)
        assert name is not None
        assert re.search(rf"^(    )?{name[0]}\b", notice, flags=re.MULTILINE), f"NOTICE does not name {name[0]}"


def test_the_changelog_knows_this_version() -> None:
    lines = (ROOT / "CHANGELOG.md").read_text(encoding="utf-8").splitlines()
    headings = [line for line in lines if line.startswith("## ")]
    assert headings[0] == "## [Unreleased]" or headings[0].startswith(f"## [{__version__}] - ")
    assert all(re.fullmatch(r"## \[(Unreleased|\d+\.\d+\.\d+\S*)\]( - \d{4}-\d\d-\d\d)?", line) for line in headings)
    parts = {line for line in lines if line.startswith("### ")}
    assert parts <= {f"### {part}" for part in ("Added", "Changed", "Deprecated", "Removed", "Fixed", "Security")}


# --- commands -------------------------------------------------------------------------------

needs_make = pytest.mark.skipif(shutil.which("make") is None, reason="make is not installed")


@needs_make
def test_the_environment_is_kept_until_its_recipe_changes(tmp_path: Path) -> None:
    for name in ("Makefile", "pyproject.toml", "constraints.txt"):
        shutil.copy(ROOT / name, tmp_path)

    def plan(target: str = "demo") -> str:
        # MAKEFLAGS: this test may itself run under make.
        done = run(["make", "-n", target, f"PYTHON={sys.executable}"], tmp_path, MAKEFLAGS="", MAKELEVEL="")
        assert done.returncode == 0, done.stderr
        return done.stdout

    first = plan()
    assert "pip" in first
    assert "examples/demo.py" in first
    (tmp_path / ".make/venv").mkdir(parents=True)
    for name in re.findall(r"^touch (\S+)", first, flags=re.MULTILINE):
        (tmp_path / name).touch()
    assert plan().splitlines() == [".make/venv/bin/python examples/demo.py"]
    # What make test needs more is still to be installed, into the same environment.
    assert "[all]" in plan("test")
    assert "rm -rf" not in plan("test")
    (tmp_path / "constraints.txt").write_text("torch==2.13.0\n")
    assert "rm -rf .make/venv" in plan()


@needs_make
def test_a_machine_without_a_fitting_python(tmp_path: Path) -> None:
    for name in ("Makefile", "pyproject.toml", "constraints.txt"):
        shutil.copy(ROOT / name, tmp_path)
    done = run(["make", "demo", "PYTHON="], tmp_path, MAKEFLAGS="", MAKELEVEL="")
    assert done.returncode != 0
    assert "make PYTHON=" in done.stderr


@pytest.mark.parametrize(
    ("script", "status", "last"),
    [
        ("echo '310 passed, 2 skipped in 200.10s (0:03:20)'", 0, "310 passed, 0 failed"),
        ("echo '1 passed in 9.00s'; echo '3 failed, 20 passed, 1 error in 7.00s'; exit 2", 2, "20 passed, 4 failed"),
        ("echo 'ruff found an error'; exit 2", 2, "0 passed, 1 failed"),
        ("echo '10 passed in 9.00s'; exit 2", 2, "10 passed, 1 failed"),
    ],
)
def test_the_last_line_of_ci_counts(tmp_path: Path, script: str, status: int, last: str) -> None:
    (tmp_path / ".ci").mkdir()
    shutil.copy(ROOT / ".ci/run", tmp_path / ".ci")
    (tmp_path / "bin").mkdir()
    (tmp_path / "bin/make").write_text(f'#!/bin/sh\n[ "$1" = test ] || exit 9\n[ -t 0 ] && exit 9\n{script}\n')
    (tmp_path / "bin/make").chmod(0o755)
    done = run([str(tmp_path / ".ci/run")], tmp_path / "bin", PATH=f"{tmp_path / 'bin'}:{os.environ['PATH']}")
    assert done.returncode == status
    assert done.stdout.splitlines()[-1] == last


# --- examples -------------------------------------------------------------------------------


@pytest.mark.parametrize("name", sorted(tree("examples", "*.py")))
def test_an_example_runs_without_network(name: str, tmp_path: Path) -> None:
    code = OFFLINE + f"runpy.run_path({str(ROOT / 'examples' / name)!r}, run_name='__main__')\n"
    done = run([sys.executable, "-c", code], tmp_path, PYTHONPATH=str(ROOT))
    assert done.returncode == 0, done.stderr
    assert done.stdout.strip()
    if name == "demo.py":
        check_demo(done.stdout)


def check_demo(text: str) -> None:
    def rows(part: str) -> list[list[str]]:
        return [line.split() for line in part.splitlines() if re.match(r"\s+\d+  ", line)]

    excluding, ordinary = text.split("Query: ")[1:]
    tesla = {"model-3", "model-y", "supercharger"}
    assert "Excluded: 'Tesla', characters 23 to 28 of the query" in excluding
    assert {row[1] for row in rows(excluding)[:3]} == tesla
    assert not {row[3] for row in rows(excluding)[:3]} & tesla
    assert "removed: supercharger" in excluding
    assert "Excluded: nothing" in ordinary
    assert rows(ordinary)
    assert all(row[1:3] == row[3:5] and row[5:] == ["-", "unchanged"] for row in rows(ordinary))
