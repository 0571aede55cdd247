"""Published benchmarks become suites: small files of the same formats, and what is wrong with bad ones."""

from __future__ import annotations

import csv
import json
import sys
from collections.abc import Iterable, Mapping
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
from typer.testing import CliRunner

from excise_integrations._cli.app import app
from excise_integrations.bench import Suite, load_suite
from excise_integrations.bench.loaders import FORMATS, import_suite
from excise_integrations.errors import MissingExtraError, SuiteError


def jsonl(path: Path, records: Iterable[Mapping[str, Any]]) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("".join(json.dumps(r) + "\n" for r in records), encoding="utf-8")


@pytest.fixture
def source(tmp_path: Path) -> Path:
    folder = tmp_path / "source"
    folder.mkdir()
    return folder


def imported(name: str, source: Path, *, split: str | None = None, **options: Any) -> Suite:
    out = source.parent / "suite"
    import_suite(name, source, out, split=split, **options)
    return load_suite(out, split or FORMATS[name].split)


# --- BEIR and NegConstraint -----------------------------------------------------------------

BEIR_DOCUMENTS = [
    {"_id": "d1", "title": "Cello", "text": "A bowed string instrument."},
    {"_id": "d2", "title": "", "text": "A plucked string instrument."},
    {"_id": "d3", "title": "", "text": "A brass instrument."},
    {"_id": "d4", "title": "", "text": " "},
]
BEIR_QUERIES = [
    {"_id": "q1", "text": "strings, but not plucked", "metadata": {}, "excluded": ["plucked"], "tier": "T1"},
    {"_id": "q2", "text": "brass"},
    {"_id": "q3", "text": "of another split"},
]


def beir(folder: Path, qrels: str = "q1\td1\t2\nq1\td2\t-1\nq2\td3\t1\n", file: str = "qrels/test.tsv") -> Path:
    jsonl(folder / "corpus.jsonl", BEIR_DOCUMENTS)
    jsonl(folder / "queries.jsonl", BEIR_QUERIES)
    (folder / file).parent.mkdir(exist_ok=True)
    (folder / file).write_text("query-id\tcorpus-id\tscore\n" + qrels)
    return folder


def test_a_beir_folder_keeps_what_its_queries_know(source: Path) -> None:
    suite = imported("beir", beir(source))
    assert suite.qrels == {"q1": {"d1": 2, "d2": -1}, "q2": {"d3": 1}}
    assert [d.id for d in suite.documents] == ["d1", "d2", "d3"]
    assert suite.documents[0].text == "Cello\nA bowed string instrument."
    assert [(q.id, q.excluded, dict(q.groups)) for q in suite.queries] == [
        ("q1", ("plucked",), {"tier": "T1"}), ("q2", (), {}),
    ]  # fmt: skip


def test_judgments_of_mteb_are_json_lines_with_scores_of_1_0(source: Path) -> None:
    folder = beir(source)
    (folder / "qrels" / "test.tsv").unlink()
    rows = [("q1", "d1", 1.0), ("q2", "d3", 1.0)]
    jsonl(folder / "qrels" / "test.jsonl", ({"query-id": q, "corpus-id": d, "score": s} for q, d, s in rows))
    assert imported("beir", folder).qrels == {"q1": {"d1": 1}, "q2": {"d3": 1}}


def test_negconstraint_has_its_judgments_beside_the_corpus(source: Path) -> None:
    folder = beir(source, "q1\td1\t1\n", file="test.tsv")
    notes = import_suite("negconstraint", folder, folder.parent / "suite")
    assert load_suite(folder.parent / "suite", "test").qrels == {"q1": {"d1": 1}}
    assert any("No document is marked as excluded" in n for n in notes)
    assert any("1 documents without text" in n for n in notes)


@pytest.mark.parametrize(
    ("qrels", "message"),
    [
        ("q1\td9\t1\n", r"test\.tsv, line 2: there is no document 'd9'"),
        ("q1\td1\t1\nq9\td1\t1\n", r"test\.tsv, line 3: there is no query 'q9'"),
        ("q1\td1\t1\nq1\td1\t-1\n", r"test\.tsv, line 3: the document 'd1' is judged twice for 'q1'"),
        ("q1\td1\n", r"test\.tsv, line 2: three fields"),
        ("q1\td1\thigh\n", r"test\.tsv, line 2: the score 'high'"),
        ("q1\td4\t1\n", r"corpus\.jsonl, line 4: the judged document 'd4' has no text"),
        ("", r"No query is judged"),
    ],
)
def test_bad_judgments_are_named_by_file_and_line(source: Path, qrels: str, message: str) -> None:
    with pytest.raises(SuiteError, match=message):
        imported("beir", beir(source, qrels))
    assert not (source.parent / "suite").exists()


def test_ids_that_occur_twice_and_empty_queries_are_named(source: Path) -> None:
    folder = beir(source)
    jsonl(folder / "corpus.jsonl", [*BEIR_DOCUMENTS, BEIR_DOCUMENTS[1]])
    with pytest.raises(SuiteError, match=r"corpus\.jsonl, line 5: the document id 'd2' occurs twice"):
        imported("beir", folder)
    jsonl(folder / "corpus.jsonl", BEIR_DOCUMENTS)
    jsonl(folder / "queries.jsonl", [*BEIR_QUERIES, BEIR_QUERIES[0]])
    with pytest.raises(SuiteError, match=r"line 4: the query id 'q1' occurs twice; first in .*queries\.jsonl, line 1"):
        imported("beir", folder)
    jsonl(folder / "queries.jsonl", [{"_id": "q1", "text": ""}, *BEIR_QUERIES[1:]])
    with pytest.raises(SuiteError, match=r"queries\.jsonl, line 1: the query 'q1' has no text"):
        imported("beir", folder)
    jsonl(folder / "queries.jsonl", [{"_id": "q1"}])
    with pytest.raises(SuiteError, match=r"queries\.jsonl, line 1: there is no 'text'"):
        imported("beir", folder)


def test_missing_files_are_named(source: Path) -> None:
    with pytest.raises(SuiteError, match=r"has no corpus\.jsonl"):
        imported("beir", source)
    beir(source)
    with pytest.raises(SuiteError, match=r"has no qrels/dev\.tsv and no qrels/dev\.jsonl and no dev\.tsv"):
        imported("beir", source, split="dev")
    with pytest.raises(SuiteError, match="is no folder"):
        import_suite("beir", source / "nowhere", source.parent / "suite")
    with pytest.raises(SuiteError, match="no format 'trec'; there are beir, boolquestions"):
        import_suite("trec", source, source.parent / "suite")


def test_an_import_replaces_an_import_and_nothing_else(source: Path) -> None:
    out = source.parent / "suite"
    import_suite("beir", beir(source), out)
    import_suite("beir", source, out, documents="judged")
    facts = json.loads((out / "import.json").read_text())
    assert (facts["format"], facts["documents"], facts["queries"], facts["with_excluded_document"]) == ("beir", 3, 2, 1)
    with pytest.raises(SuiteError, match="exists and is not an imported suite"):
        import_suite("beir", source, source)


# --- ExcluIR and NevIR ----------------------------------------------------------------------


def excluir(folder: Path, entries: list[dict[str, Any]]) -> Path:
    (folder / "corpus.json").write_text(json.dumps(["about Ada", "about Grace", "about both", "about neither"]))
    (folder / "test_manual_final.json").write_text(json.dumps(entries, indent=1))
    return folder


@pytest.mark.parametrize(("query", "index"), [("ExcluQ", "index"), ("RQ_rewrite", "corpus_sub_index")])
def test_excluir_lists_the_excluded_document_first(source: Path, query: str, index: str) -> None:
    entry = {"question0": "Who?", query: "Pioneers, except Ada?", index: [0, 1, 2, 1]}
    suite = imported("excluir", excluir(source, [entry]))
    assert suite.queries[0].text == "Pioneers, except Ada?"
    assert suite.qrels == {"excluir-0": {"0": -1, "1": 1, "2": 1}}
    assert [d.text for d in suite.documents] == ["about Ada", "about Grace", "about both", "about neither"]


@pytest.mark.parametrize(
    ("entry", "message"),
    [
        ({"ExcluQ": "Not Ada", "index": [1]}, r"final\.json, entry 2: 'index' must list the places"),
        ({"ExcluQ": "Not Ada"}, r"final\.json, entry 2: 'index' .* not None"),
        ({"ExcluQ": "Not Ada", "index": [0, 7]}, r"final\.json, entry 2: there is no document '7'"),
        ({"index": [0, 1]}, r"final\.json, entry 2: there is no 'ExcluQ' or 'RQ_rewrite'"),
        (["ExcluQ"], r"final\.json, entry 2: a JSON object is needed"),
    ],
)
def test_an_excluir_entry_without_both_documents_is_named(source: Path, entry: Any, message: str) -> None:
    with pytest.raises(SuiteError, match=message):
        imported("excluir", excluir(source, [{"ExcluQ": "Not Grace", "index": [1, 0]}, entry]))


def test_broken_json_is_named_with_its_line(source: Path) -> None:
    excluir(source, [])
    (source / "corpus.json").write_text('["a",\n "b"\n "c"]')
    with pytest.raises(SuiteError, match=r"corpus\.json: not JSON .*line 3"):
        imported("excluir", source)
    (source / "corpus.json").write_text('{"a": 1}')
    with pytest.raises(SuiteError, match=r"corpus\.json: a JSON array is needed, not dict"):
        imported("excluir", source)


NEVIR = [
    {
        "id": "7-1",
        "q1": "Which bird flies?",
        "q2": "Which bird cannot fly?",
        "doc1": "It flies.",
        "doc2": "It does not.",
    },
    {"id": "7-2", "q1": "open today?", "q2": "closed today?", "doc1": "Open,\ndaily.", "doc2": "Never open."},
]


def test_each_query_of_nevir_wants_its_own_document(source: Path) -> None:
    jsonl(source / "validation.jsonl", NEVIR)
    suite = imported("nevir", source, split="validation")
    assert len(suite.documents) == len(suite.queries) == 4
    assert suite.qrels["7-1_q1"] == {"7-1_doc1": 1, "7-1_doc2": -1}
    assert suite.qrels["7-1_q2"] == {"7-1_doc1": -1, "7-1_doc2": 1}
    assert {q.id: q.text for q in suite.queries}["7-2_q2"] == "closed today?"


def test_nevir_is_read_from_csv_too(source: Path) -> None:
    with (source / "test.csv").open("w", newline="") as handle:
        writer = csv.DictWriter(handle, ["WorkerId", "q1", "q2", "doc1", "doc2"])
        writer.writeheader()
        writer.writerows([{**{k: v for k, v in r.items() if k != "id"}, "WorkerId": 0} for r in NEVIR])
    suite = imported("nevir", source)
    assert {d.id: d.text for d in suite.documents}["2_doc1"] == "Open,\ndaily."
    out = source.parent / "again"
    import_suite("nevir", source / "test.csv", out)
    assert load_suite(out, "test").qrels == suite.qrels


def test_a_row_of_nevir_without_a_document_is_named(source: Path) -> None:
    jsonl(source / "test.jsonl", [NEVIR[0], {k: v for k, v in NEVIR[1].items() if k != "doc2"}])
    with pytest.raises(SuiteError, match=r"test\.jsonl, line 2: there is no 'doc2'"):
        imported("nevir", source)
    (source / "test.jsonl").unlink()
    (source / "test.csv").write_text("q1,q2,doc1,doc2\na,b,c\n")
    with pytest.raises(SuiteError, match=r"test\.csv, line 2: 4 fields are needed"):
        imported("nevir", source)


# --- BoolQuestions and QUEST ----------------------------------------------------------------


def bool_question(qid: int, kind: str, right: list[int | None], wrong: list[int | None]) -> dict[str, Any]:
    contexts = {
        key: [{"passage_id": p, "answer": "yes"} for p in ids]
        for key, ids in (("positive_ctxs", right), ("negative_ctxs", wrong))
    }
    return {"qid": qid, "question": f"question {qid}?", "question_type": kind, **contexts}


@pytest.mark.parametrize("lines", [False, True])
def test_boolquestions_are_tiers_over_their_judged_passages(source: Path, lines: bool) -> None:
    jsonl(source / "corpus.jsonl", ({"docid": i, "doc": f"passage {i}", "title": f"T{i}"} for i in range(6)))
    rows = [
        bool_question(1, "not", [0, 3], [1, 3, 1]),
        bool_question(2, "and", [2], [4]),
        bool_question(3, "or", [2], []),
        bool_question(4, "or", [2], [None]),
    ]
    text = "".join(json.dumps(r) + "\n" for r in rows) if lines else json.dumps(rows)
    (source / "eval.json").write_text(text)
    out = source.parent / "suite"
    notes = import_suite("boolquestions", source, out)
    suite = load_suite(out, "eval")
    assert notes == ("2 questions without a right or a wrong passage were left out.",)
    assert {q.id: q.groups["tier"] for q in suite.queries} == {"1": "NOT", "2": "AND"}
    assert suite.qrels == {"1": {"0": 1, "3": 1, "1": -1}, "2": {"2": 1, "4": -1}}
    assert [d.id for d in suite.documents] == ["0", "1", "2", "3", "4"]
    assert suite.documents[0].text == "T0\npassage 0"


def test_boolquestions_that_measure_nothing_are_refused(source: Path) -> None:
    jsonl(source / "corpus.jsonl", [{"docid": 0, "doc": "passage"}])
    (source / "eval.json").write_text(json.dumps([bool_question(1, "not", [0], [])]))
    with pytest.raises(SuiteError, match=r"eval\.json: no question has a right and a wrong passage"):
        imported("boolquestions", source)
    (source / "eval.json").write_text(json.dumps([bool_question(1, "xor", [0], [0])]))
    with pytest.raises(SuiteError, match=r"eval\.json, entry 1: 'question_type' must be one of and, or, not"):
        imported("boolquestions", source)


def test_quest_names_documents_by_title_and_the_excluded_category(source: Path) -> None:
    titles = ["Emma", "Ivanhoe", "Middlemarch"]
    jsonl(source / "documents.jsonl", ({"title": t, "text": f"{t} is a novel."} for t in titles))
    rows = [
        ("Not historical 1815 novels", ["Emma", "Emma"], "_ that are not _", ["1815 novels", "Historical novels"]),
        ("Scottish or English novels", ["Ivanhoe", "Middlemarch"], "_ or _", ["Scottish novels", "English novels"]),
        ("Novels about towns which are long", ["Middlemarch"], "_ that are also _", ["Town novels", "Long novels"]),
        ("Novels", ["Emma"], "_", ["Novels"]),
    ]  # fmt: skip
    jsonl(
        source / "val.jsonl",
        (
            {
                "query": query, "docs": docs, "scores": None, "metadata": {"template": template, "domain": "books"},
                "original_query": " ".join(f"<mark>{a}</mark>" for a in atoms),
            }
            for query, docs, template, atoms in rows
        ),
    )  # fmt: skip
    suite = imported("quest", source, split="val")
    assert suite.qrels["quest-1"] == {"Emma": 1}
    assert suite.qrels["quest-2"] == {"Ivanhoe": 1, "Middlemarch": 1}
    assert [q.groups.get("tier") for q in suite.queries] == ["NOT", "OR", "AND", None]
    assert [q.excluded for q in suite.queries] == [("Historical novels",), (), (), ()]
    jsonl(source / "val.jsonl", [{"query": "novels", "docs": []}])
    with pytest.raises(SuiteError, match=r"val\.jsonl, line 1: 'docs' must be a list of titles"):
        imported("quest", source, split="val")


# --- ir_datasets ----------------------------------------------------------------------------


def test_a_collection_of_ir_datasets_is_read_by_name(
    source: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("IR_DATASETS_HOME", str(tmp_path / "home"))
    ir_datasets = pytest.importorskip("ir_datasets")
    (source / "docs.tsv").write_text("d1\tcello and violin\nd2\ttrumpet\n")
    (source / "queries.tsv").write_text("q1\tstrings\nq2\tnever judged\n")
    (source / "qrels.trec").write_text("q1 0 d1 2\n")
    dataset = ir_datasets.create_dataset(
        docs_tsv=str(source / "docs.tsv"),
        queries_tsv=str(source / "queries.tsv"),
        qrels_trec=str(source / "qrels.trec"),
    )
    monkeypatch.setattr(ir_datasets.registry, "_registered", {"local/strings": dataset})
    suite_folder = tmp_path / "suite"
    import_suite("irds", "local/strings", suite_folder)
    suite = load_suite(suite_folder, "test")
    assert [(d.id, d.text) for d in suite.documents] == [("d1", "cello and violin"), ("d2", "trumpet")]
    assert [(q.id, q.text) for q in suite.queries] == [("q1", "strings")]
    assert suite.qrels == {"q1": {"d1": 2}}
    with pytest.raises(SuiteError, match="no collection 'local/brass'"):
        import_suite("irds", "local/brass", suite_folder)
    monkeypatch.setattr(
        ir_datasets.registry,
        "_registered",
        {"local/bare": ir_datasets.create_dataset(docs_tsv=str(source / "docs.tsv"))},
    )
    with pytest.raises(SuiteError, match="'local/bare' of ir_datasets has no queries"):
        import_suite("irds", "local/bare", suite_folder)


def test_without_ir_datasets_the_extra_is_named(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    missing: ModuleType | None = None
    monkeypatch.setitem(sys.modules, "ir_datasets", missing)  # type: ignore[arg-type]
    with pytest.raises(MissingExtraError, match=r"excise-integrations\[irds\]"):
        import_suite("irds", "beir/scifact/test", tmp_path / "suite")


# --- the command ----------------------------------------------------------------------------


def test_the_command_says_what_was_left_out_and_how_to_read_the_suite(source: Path) -> None:
    out = source.parent / "suite"
    done = CliRunner().invoke(app, ["bench", "import", "beir", str(beir(source)), "--out", str(out)])
    assert done.exit_code == 0, done.output
    assert done.stdout.strip() == f"{out}:test"
    assert "note: 1 documents without text were left out." in done.stderr


def test_every_format_has_its_name_in_the_command() -> None:
    done = CliRunner().invoke(app, ["bench", "import", "nothing", "x", "--out", "y"])
    assert done.exit_code == 2
    assert all(f"'{name}'" in done.output for name in FORMATS)
