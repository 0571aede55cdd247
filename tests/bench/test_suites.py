"""Suites as files: what is read, and how errors name file and line."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from excise_integrations.bench import load_queries, load_suite
from excise_integrations.errors import SuiteError

WriteSuite = Callable[..., Path]


def test_a_suite_is_read(write_suite: WriteSuite) -> None:
    suite = load_suite(write_suite())
    assert suite.name == "instruments"
    assert [q.id for q in suite.queries] == ["q1", "q2", "q3"]
    assert suite.queries[0].excluded == ("violin",)
    assert suite.queries[0].groups == {"tier": "T1", "form": "short"}
    assert suite.qrels["q1"] == {"cello": 1, "violin": -1}
    texts = {d.id: d.text for d in suite.documents}
    assert texts["cello"].startswith("Cello\nThe cello is")
    assert texts["harp"].startswith("The harp")
    assert "nothing" not in texts
    assert any("without text" in w for w in suite.warnings)


def test_a_suite_without_tiers_or_exclusions_is_read(write_suite: WriteSuite) -> None:
    folder = write_suite(queries=[{"_id": "q3", "text": "animals"}], qrels=[("q3", "otter", 2)], split="test")
    suite = load_suite(folder, "test")
    assert suite.queries[0].groups == {}
    assert suite.queries[0].excluded == ()
    assert suite.qrels == {"q3": {"otter": 2}}


def test_an_id_taken_twice_keeps_both_documents_unless_judged(write_suite: WriteSuite) -> None:
    folder = write_suite()
    corpus = folder / "corpus.jsonl"
    lines = corpus.read_text()
    corpus.write_text(lines + '{"_id": "bread", "title": "", "text": "Rye bread."}\n')
    suite = load_suite(folder)
    assert [d.text for d in suite.documents if d.id.startswith("bread")][1] == "Rye bread."
    assert any("line 9" in w and "'bread'" in w for w in suite.warnings)
    corpus.write_text(lines + '{"_id": "cello", "title": "", "text": "Another cello."}\n')
    with pytest.raises(SuiteError, match=r"dev\.tsv, line 2: .*more than one document 'cello'"):
        load_suite(folder)


@pytest.mark.parametrize(
    ("file", "line", "reason"),
    [
        ("corpus.jsonl", '{"_id": "x", "text": ', "line 9: not JSON"),
        ("corpus.jsonl", '["x"]', "line 9: a JSON object"),
        ("corpus.jsonl", '{"text": "x"}', "line 9: '_id'"),
        ("corpus.jsonl", '{"_id": "x"}', "line 9: 'text'"),
        ("corpus.jsonl", '{"_id": "x", "text": "y", "title": 3}', "line 9: 'title'"),
        ("queries.jsonl", '{"_id": "q1", "text": "again"}', "line 5: the query id 'q1' occurs twice"),
        ("queries.jsonl", '{"_id": "q9", "text": " "}', "line 5: 'text'"),
        ("queries.jsonl", '{"_id": "q9", "text": "x", "excluded": "y"}', "line 5: 'excluded'"),
        ("queries.jsonl", '{"_id": "q9", "text": "x", "excluded": [" "]}', "line 5: 'excluded'"),
        ("qrels/dev.tsv", "q1\tbread", "line 7: three fields"),
        ("qrels/dev.tsv", "q1\tbread\tyes", "line 7: the score 'yes'"),
        ("qrels/dev.tsv", "q9\tbread\t1", "line 7: the query 'q9'"),
        ("qrels/dev.tsv", "q1\tpiano\t1", "line 7: the document 'piano'"),
        ("qrels/dev.tsv", "q1\tcello\t1", "line 7: the document 'cello' is judged twice"),
    ],
)
def test_a_bad_line_is_named(write_suite: WriteSuite, file: str, line: str, reason: str) -> None:
    folder = write_suite()
    with (folder / file).open("a") as handle:
        handle.write(line + "\n")
    with pytest.raises(SuiteError) as caught:
        load_suite(folder)
    assert f"{folder / file}, {reason}" in str(caught.value)


def test_missing_files_and_splits_are_named(write_suite: WriteSuite, tmp_path: Path) -> None:
    folder = write_suite()
    with pytest.raises(SuiteError, match="no such folder"):
        load_suite(tmp_path / "nowhere")
    with pytest.raises(SuiteError, match=r"no split 'test'.*Splits there: dev"):
        load_suite(folder, "test")
    (folder / "queries.jsonl").unlink()
    with pytest.raises(SuiteError, match=r"queries\.jsonl cannot be read"):
        load_suite(folder)
    (folder / "queries.jsonl").write_bytes(b'{"_id": "q1", "text": "\xff"}\n')
    with pytest.raises(SuiteError, match=r"queries\.jsonl, line 1: not UTF-8"):
        load_suite(folder)


def test_a_qrels_file_without_a_header_keeps_its_first_line(write_suite: WriteSuite) -> None:
    folder = write_suite()
    (folder / "qrels" / "dev.tsv").write_text("q1\tcello\t1\n")
    assert load_suite(folder).qrels == {"q1": {"cello": 1}}
    (folder / "qrels" / "dev.tsv").write_text("query-id\tcorpus-id\tscore\n")
    with pytest.raises(SuiteError, match="no judgments"):
        load_suite(folder)


def test_query_files_need_only_a_text(tmp_path: Path) -> None:
    path = tmp_path / "some.jsonl"
    path.write_text('{"text": "a but not b", "excluded": ["b"], "kind": "explicit"}\n\n{"text": "c"}\n')
    queries = load_queries(path)
    assert [(q.id, q.text, q.excluded, dict(q.groups)) for q in queries] == [
        ("1", "a but not b", ("b",), {"kind": "explicit"}),
        ("3", "c", (), {}),
    ]
