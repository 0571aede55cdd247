"""Coverage-guided fuzzing with atheris: bytes become a query with documents, a suite, or a manifest.

    pip install atheris
    python tests/reliability/fuzz_atheris.py report -runs=100000

The first argument is a target: report, suites or manifests; the others are libFuzzer's. What must hold is what the
tests of hypothesis hold too. Atheris has wheels for Linux and macOS, from Python 3.11 on; pytest does not collect this.
"""

from __future__ import annotations

import contextlib
import importlib
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

_HERE = Path(__file__).resolve().parent
sys.path[:0] = [str(_HERE.parents[1]), str(_HERE), str(_HERE.parent), str(_HERE.parent / "audit")]

# Instrumenting them takes minutes and finds nothing of ours.
for name in ("torch", "transformers", "peft", "sentence_transformers", "pydantic", "hypothesis", "typer", "pytest"):
    importlib.import_module(name)

try:
    import atheris
except ImportError:
    sys.exit("atheris is not installed: pip install atheris")

with atheris.instrument_imports(include=["excise_integrations"]):
    from hostile import FRAGMENTS
    from pipeline_fakes import Stage
    from test_fuzz_files import DOCUMENT, QUERY, WORDS, bytes_of, outcome
    from test_fuzz_pipeline import VARIANTS, check_page, check_result
    from tiny_adapters import save_toy

    from excise_integrations import AdapterError, Candidate, ExciseError, SuiteError
    from excise_integrations.audit.report import Report
    from excise_integrations.bench.suites import load_suite
    from excise_integrations.first_stage.memory import MemoryFirstStage
    from excise_integrations.weights import load_adapter

Target = Callable[[bytes], None]
# A byte that UTF-8 never has parts what one input holds.
_APART = b"\xff"


def report(folder: Path) -> tuple[Target, list[bytes]]:
    """A way of working, a query, and documents: the result, its spans, its page."""

    def run(data: bytes) -> None:
        # Other bytes that are no UTF-8 become lone surrogates.
        query, *texts = (part.decode("utf-8", "surrogateescape") for part in data[1:].split(_APART))
        shortlist = [Candidate(str(i), text, 1.0, {"title": text}) for i, text in enumerate(texts[:8]) if text.strip()]
        if not query.strip():
            return
        excise = VARIANTS[data[0] % len(VARIANTS)]
        result = excise.search(query, Stage(shortlist))
        check_result(result, query, shortlist, excise.config.unit)
        check_page(Report(result).to_html())

    pieces = [f.encode("utf-8", "surrogatepass") for f in FRAGMENTS]
    return run, [b"\0pets, but not " + p + _APART + p + _APART + b"cats and dogs" for p in pieces]


def suites(folder: Path) -> tuple[Target, list[bytes]]:
    """The three files of a suite."""
    files = [folder / "corpus.jsonl", folder / "queries.jsonl", folder / "qrels" / "dev.tsv"]
    files[-1].parent.mkdir()

    def run(data: bytes) -> None:
        for path, content in zip(files, [*data.split(_APART), b"", b"", b""], strict=False):
            path.write_bytes(content)
        suite, message = outcome(lambda: load_suite(folder), SuiteError)
        if suite is None:
            assert str(folder) in message
            return
        assert all(c.text.strip() for c in suite.documents)
        assert {q.id for q in suite.queries} == set(suite.qrels)

    good = [bytes_of(DOCUMENT) + b"\n", bytes_of(QUERY) + b"\n", b"query-id\tcorpus-id\tscore\nq\tx\t1\n"]
    return run, [_APART.join(good), _APART.join([good[0] * 2, *good[1:]]), _APART.join(reversed(good))]


def manifests(folder: Path) -> tuple[Target, list[bytes]]:
    """The manifest of an adapter, and of an index."""
    adapter = save_toy(folder / "adapter").folder
    index = folder / "index"
    MemoryFirstStage.from_texts(["one document", "another one"], backbone=WORDS).save(index)
    seeds = [(place / "manifest.json").read_bytes() for place in (adapter, index)]

    def run(data: bytes) -> None:
        for place in (adapter, index):
            (place / "manifest.json").write_bytes(data)
        with contextlib.suppress(AdapterError):
            assert all((adapter / name).parent == adapter for name in load_adapter(adapter, "exclusion").manifest.files)
        with contextlib.suppress(ExciseError):
            found = MemoryFirstStage.load(index, backbone=WORDS).search("another one", 1)
            assert [c.text for c in found] == ["another one"]

    return run, seeds


TARGETS: dict[str, Any] = {"report": report, "suites": suites, "manifests": manifests}


def main() -> None:
    """Run from the command line."""
    if len(sys.argv) < 2 or sys.argv[1] not in TARGETS:
        sys.exit(f"usage: fuzz_atheris.py {{{','.join(TARGETS)}}} [-runs=N] [libFuzzer's options]")
    # libFuzzer ends the process itself, so that nothing here could clear up behind it.
    folder = Path(tempfile.mkdtemp(prefix="excise-fuzz-"))
    (folder / "seeds").mkdir()
    (folder / "work").mkdir()
    target, seeds = TARGETS[sys.argv[1]](folder / "work")
    for number, seed in enumerate(seeds):
        (folder / "seeds" / str(number)).write_bytes(seed)

    def guarded(data: bytes) -> None:
        if data:
            target(data)

    options = [f"-artifact_prefix={folder}/", "-max_len=2000", "-rss_limit_mb=0", *sys.argv[2:]]
    atheris.Setup([sys.argv[0], *options, str(folder / "seeds")], guarded)
    atheris.Fuzz()


if __name__ == "__main__":
    main()
