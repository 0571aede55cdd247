"""Measure Excise on queries of your own: write them as a suite, evaluate it, read the table.

A suite is a BEIR folder with three files, so the same folder also goes to ``excise evaluate FOLDER --split dev``.
Needs the extra ``embedded``.

    python examples/scripts/evaluate_own_queries.py [FOLDER]     # FOLDER: where the suite goes; else a temporary one
"""

from __future__ import annotations

import json
import sys
import tempfile
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from excise_integrations import Excise
from excise_integrations.bench import evaluate_suite, load_suite

DATA = Path(__file__).parents[1] / "data"
METRICS = ("success@10", "hit@10", "leak", "ndcg@10")


def read(name: str) -> list[dict[str, Any]]:
    """Read a file of the examples."""
    return [json.loads(line) for line in (DATA / name).read_text(encoding="utf-8").splitlines()]


def write(path: Path, records: Iterable[dict[str, Any]]) -> None:
    """Write JSON lines."""
    path.write_text("".join(json.dumps(record) + "\n" for record in records), encoding="utf-8")


def write_suite(folder: Path, domain: str) -> Path:
    """Write the queries of one domain, with their documents, as a suite."""
    judged = [query for query in read("judged.jsonl") if query["domain"] == domain]
    (folder / "qrels").mkdir(parents=True, exist_ok=True)
    write(folder / "corpus.jsonl", ({key: d[key] for key in ("_id", "title", "text")} for d in read(f"{domain}.jsonl")))
    # "excluded" is what the detector should find; ranking is judged by the qrels alone.
    write(
        folder / "queries.jsonl",
        ({"_id": f"q{i}", "text": q["query"], "excluded": q["excluded"]} for i, q in enumerate(judged)),
    )
    lines = ["query-id\tcorpus-id\tscore"]
    for i, query in enumerate(judged):
        lines += [f"q{i}\t{wanted}\t1" for wanted in query["wanted"]]
        lines += [f"q{i}\t{unwanted}\t-1" for unwanted in query["unwanted"]]
    (folder / "qrels/dev.tsv").write_text("\n".join(lines) + "\n", encoding="utf-8")
    return folder


def main(folder: Path) -> None:
    """Write three suites and evaluate them."""
    excise = Excise.from_pretrained("minilm")
    print(f"\n  {'':<12}{'queries':>8}" + "".join(f"{metric:>18}" for metric in METRICS) + f"{'topics found':>15}")
    for domain in ("legal", "regulatory", "review"):
        suite = load_suite(write_suite(folder / domain, domain), "dev")
        measured = evaluate_suite(excise, suite).summary()
        frozen, ours = measured["frozen"], measured["excise"]
        columns = "".join(f"{frozen[metric]:>9.2f} → {ours[metric]:<6.2f}" for metric in METRICS)
        print(f"  {domain:<12}{measured['n']:>8}{columns}{ours['topic_recall']:>15.2f}")
        assert ours["success@10"] > frozen["success@10"]
    print("\n  Frozen → Excise. Eight queries show that it runs; a decision wants a hundred.")


if __name__ == "__main__":
    if len(sys.argv) > 1:
        main(Path(sys.argv[1]))
    else:
        with tempfile.TemporaryDirectory() as temporary:
            main(Path(temporary))
