from __future__ import annotations

import json
from collections import Counter
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from mining_corpus import WordEncoder, corpus
from typer.testing import CliRunner

from excise_integrations._cli.app import app
from excise_integrations.bench.suites import load_suite
from excise_integrations.encode import Backbone
from excise_integrations.errors import InvalidInputError, MissingExtraError, SuiteError
from excise_integrations.train.confusable import MinedTriple
from excise_integrations.train.descriptions import Document
from excise_integrations.train.mining import Mined, MiningSettings, documents_of, mine
from excise_integrations.train.mining_files import forbidden_by, load_documents, write_suite
from excise_integrations.train.near_duplicates import NearDuplicates
from excise_integrations.train.neighbours import pool_documents
from excise_integrations.train.triples import read_triples

SETTINGS = MiningSettings(count=18, round_trip=30, max_uses=4)


def run(documents: list[Document] | None = None, settings: MiningSettings = SETTINGS, **options: Any) -> Mined:
    return mine(documents or corpus(), WordEncoder(), settings=settings, **options)  # type: ignore[arg-type]


@pytest.fixture(scope="module")
def mined() -> Mined:
    return run()


def kind_of(document: Document) -> str:
    return document.id.split("-")[0]


def ids(mined: Mined) -> set[str]:
    return {d.id for d in documents_of(mined.triples)}


# --- what is mined --------------------------------------------------------------------------


def test_triples_are_confusable_and_their_queries_name_the_excluded(mined: Mined) -> None:
    assert len(mined.triples) == 18
    for triple in mined.triples:
        draft, group = triple.draft, triple.group
        assert len(draft.excluded) == len(group.excluded) == (2 if draft.tier == "T3" else 1)
        for topic, document in zip(draft.excluded, group.excluded, strict=True):
            assert topic in draft.text
            # Styles may change the case and misspell one word.
            assert len(set(topic.lower()) ^ set(document.title.lower())) <= 2
            assert kind_of(document) == kind_of(group.wanted)
            assert document.id != group.wanted.id
            assert topic.lower() not in group.wanted.full_text.lower()
            assert topic.lower() not in draft.wanted.lower()
        words = len(draft.text.split())
        assert words <= 18 if draft.form == "short" else 20 <= words <= 60


def test_tiers_and_forms_come_in_equal_shares(mined: Mined) -> None:
    kinds = Counter((t.draft.tier, t.draft.form) for t in mined.triples)
    assert len(kinds) == 6
    assert max(kinds.values()) - min(kinds.values()) <= 2
    only = run(settings=replace(SETTINGS, count=5, tiers=("T2",), forms=("long",)))
    assert {(t.draft.tier, t.draft.form) for t in only.triples} == {("T2", "long")}


def test_a_document_is_wanted_once_and_used_no_more_than_allowed() -> None:
    found = run(settings=replace(SETTINGS, count=60, max_uses=2))
    wanted = [t.group.wanted.id for t in found.triples]
    assert len(wanted) == len(set(wanted))
    uses = Counter(d.id for t in found.triples for d in (t.group.wanted, *t.group.excluded))
    assert max(uses.values()) == 2


def test_the_seed_decides(mined: Mined) -> None:
    assert run() == mined
    assert run(settings=replace(SETTINGS, seed=1)).triples != mined.triples


def test_given_vectors_are_used_in_the_documents_order(mined: Mined) -> None:
    encoder = WordEncoder()
    vectors = pool_documents([d.full_text for d in corpus()], encoder)  # type: ignore[arg-type]
    assert run(vectors=vectors) == mined
    with pytest.raises(InvalidInputError, match="59 vectors were given for 60"):
        run(vectors=vectors[1:])


@pytest.mark.parametrize("similarity", ["dense", "maxsim"])
def test_pairs_lie_within_the_band(similarity: Any) -> None:
    wide = run(settings=replace(SETTINGS, similarity=similarity, band=(-1.0, 1.0)))
    values = sorted(s for t in wide.triples for s in t.similarity)
    band = (values[len(values) // 4], values[-len(values) // 4])
    narrow = run(settings=replace(SETTINGS, similarity=similarity, band=band))
    assert narrow.triples
    assert all(band[0] <= s <= band[1] for t in narrow.triples for s in t.similarity)
    assert narrow.band == band


def test_the_usual_band_leaves_strangers_out(mined: Mined) -> None:
    encoder = WordEncoder()
    vectors = pool_documents([d.full_text for d in corpus()], encoder)  # type: ignore[arg-type]
    across = float((vectors[0] @ vectors[10:].T).max())
    assert mined.band[0] > across


def test_documents_that_say_the_same_are_no_pair() -> None:
    documents = corpus()
    for number in range(10):
        # Ten documents of one text; only their titles differ.
        documents[number] = replace(documents[number], text=documents[0].text.replace("Ambra", "stream"))
    found = run(documents, replace(SETTINGS, count=60))
    assert found.triples
    assert "river" not in {kind_of(d) for t in found.triples for d in t.group.excluded}
    assert found.refused["too few confusable neighbours"] >= 10


def test_a_wanted_document_does_not_name_the_excluded_topic() -> None:
    documents = corpus()
    for place in range(1, 10):
        documents[place] = replace(documents[place], text=documents[place].text + " It is no match for the ambra.")
    found = run(documents, replace(SETTINGS, count=60))
    assert "river" in {kind_of(t.group.wanted) for t in found.triples}
    assert "river-0" not in {d.id for t in found.triples for d in t.group.excluded}


def test_the_first_stage_must_reach_every_document() -> None:
    near = run(settings=replace(SETTINGS, count=60, round_trip=10))
    assert near.refused.keys() & {
        "a document is out of the wanted topic's reach", "the wanted document is out of the query's reach",
    }  # fmt: skip
    free = run(settings=replace(SETTINGS, count=60, round_trip=0))
    assert not any("reach" in reason for reason in free.refused)
    assert len(free.triples) > len(near.triples)


# --- what is never touched ------------------------------------------------------------------


def test_judged_documents_their_titles_and_their_copies_are_never_used(mined: Mined) -> None:
    documents = corpus()
    used = [d for d in documents if d.id in ids(mined)]
    judged, by_id = used[:12], {used[12].id, used[13].id}
    copy = replace(judged[0], id="copy", title="Another title")
    namesake = Document("namesake", f" {judged[1].title.upper()} ", documents[-1].text.replace("Jubilee", "bridge"))
    found = run([*documents, copy, namesake], replace(SETTINGS, count=60), forbidden=judged, forbidden_ids=by_id)
    assert found.triples
    assert not ids(found) & {*(d.id for d in judged), *by_id, "copy", "namesake"}
    assert found.refused["near-duplicate of a judged document"] >= 1


def test_copies_of_judged_documents_are_not_excluded_ones_either() -> None:
    documents = corpus()
    judged = Document("judged", "Harrow", documents[30].text.replace("Eryn", "Harrow"))
    for place in range(30, 38):
        # Eight castles say what the judged one says, two do not.
        name = documents[place].title
        documents[place] = replace(documents[place], text=judged.text.replace("Harrow", name))
    found = run(documents, replace(SETTINGS, count=60, band=(-1.0, 1.0)), forbidden=[judged])
    assert {d.id for d in documents_of(found.triples) if kind_of(d) == "castle"} <= {"castle-8", "castle-9"}


def test_repeated_ids_and_blank_texts_are_passed_over() -> None:
    documents = corpus()
    twin = replace(documents[0], text="Something else altogether.")
    blank = replace(documents[1], text="  ")
    found = run([twin, blank, *documents[:1], *documents[2:]], replace(SETTINGS, count=60))
    assert not ids(found) & {documents[0].id, documents[1].id}


def test_nothing_left_is_an_error() -> None:
    with pytest.raises(InvalidInputError, match="1 of 60 documents"):
        run(forbidden_ids={d.id for d in corpus()[1:]})


def test_judgments_are_read_with_their_corpora(tmp_path: Path) -> None:
    suite = tmp_path / "suite"
    (suite / "qrels").mkdir(parents=True)
    rows = [{"_id": d.id, "title": d.title, "text": d.text} for d in corpus()[:3]]
    (suite / "corpus.jsonl").write_text("".join(json.dumps(r) + "\n" for r in rows))
    (suite / "qrels" / "test.tsv").write_text("query-id\tcorpus-id\tscore\nq1\triver-0\t1\nq1\triver-2\t-1\n")
    (tmp_path / "bare.tsv").write_text("q1\tsome-id\t1\n")
    documents, names = forbidden_by([suite / "qrels" / "test.tsv", tmp_path / "bare.tsv"])
    assert documents == [corpus()[0], corpus()[2]]
    assert names == {"river-0", "river-2", "some-id"}
    (tmp_path / "empty.tsv").write_text("query-id\tcorpus-id\tscore\n")
    (tmp_path / "odd.tsv").write_text("q1 river-0 1\n")
    for name, message in (("empty", "no judgments"), ("odd", "line 1: three fields"), ("gone", "no file")):
        with pytest.raises(SuiteError, match=message):
            forbidden_by([tmp_path / f"{name}.tsv"])


# --- files ----------------------------------------------------------------------------------


def test_a_mined_suite_is_a_suite(tmp_path: Path, mined: Mined) -> None:
    folder = write_suite(tmp_path / "a" / "mined", mined, SETTINGS, source=["corpus"], excluded_qrels=["dev.tsv"])
    suite = load_suite(folder, "train")
    assert len(suite.queries) == 18
    assert {d.id for d in suite.documents} == ids(mined)
    first = mined.triples[0]
    assert suite.queries[0].excluded == first.draft.excluded
    assert suite.queries[0].groups == {"tier": first.draft.tier, "form": first.draft.form}
    assert suite.qrels["mined-1"] == {first.group.wanted.id: 1, **{d.id: -1 for d in first.group.excluded}}
    triples = read_triples([folder])
    assert len(triples) == sum(len(t.group.excluded) for t in mined.triples)
    assert triples[0].wanted == first.group.wanted.full_text
    record = json.loads((folder / "mining.json").read_text())
    assert record["triples"] == 18
    assert record["excluded_qrels"] == ["dev.tsv"]
    assert record["settings"]["seed"] == 0
    before = {p.name: p.read_bytes() for p in folder.rglob("*") if p.is_file()}
    write_suite(folder, mined, SETTINGS, source=["corpus"], excluded_qrels=["dev.tsv"])
    assert {p.name: p.read_bytes() for p in folder.rglob("*") if p.is_file()} == before
    assert [p.name for p in folder.parent.iterdir()] == ["mined"]


def test_a_foreign_folder_is_left_alone(tmp_path: Path, mined: Mined) -> None:
    (tmp_path / "mine.txt").write_text("hello")
    with pytest.raises(SuiteError, match="not a mined suite"):
        write_suite(tmp_path, mined, SETTINGS)
    assert (tmp_path / "mine.txt").read_text() == "hello"


@pytest.mark.parametrize(
    ("line", "message"),
    [("{", "line 2"), ('{"_id": "x"}', "record 2"), ('{"text": "x"}', "record 2"), ("[]", "line 2")],
)
def test_bad_corpora_are_named(tmp_path: Path, line: str, message: str) -> None:
    (tmp_path / "corpus.jsonl").write_text('{"_id": "1", "title": "t", "text": "x"}\n' + line + "\n")
    with pytest.raises(SuiteError, match=message):
        load_documents(tmp_path)
    with pytest.raises(SuiteError, match="no corpus at"):
        load_documents(tmp_path / "gone")


@pytest.mark.parametrize(
    ("bad", "message"),
    [
        ({"count": 0}, "count=0"),
        ({"neighbours": 1}, "neighbours=1"),
        ({"max_uses": 0}, "max_uses=0"),
        ({"round_trip": -1}, "round_trip=-1"),
        ({"tiers": ()}, "tiers"),
        ({"similarity": "sparse"}, "sparse"),
        ({"band": (0.5, 0.5)}, "band"),
        ({"near_duplicate": 0.0}, "near-duplicate"),
    ],
)
def test_settings_are_checked(bad: dict[str, Any], message: str) -> None:
    with pytest.raises(InvalidInputError, match=message):
        run(settings=replace(SETTINGS, **bad))


def test_near_duplicates_by_shingles(monkeypatch: pytest.MonkeyPatch) -> None:
    text = corpus()[0].text
    same = NearDuplicates(0.5, [text])
    assert same.is_forbidden(text.upper().replace(".", " ;"))
    assert not same.is_forbidden(corpus()[1].text)
    assert same.same("one two", "One, two!")
    monkeypatch.setitem(__import__("sys").modules, "datasketch", None)
    with pytest.raises(MissingExtraError, match="datasketch"):
        NearDuplicates(0.5)


# --- the command ----------------------------------------------------------------------------


@pytest.fixture
def corpus_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    rows = [{"_id": d.id, "title": d.title, "text": d.text} for d in corpus()]
    (tmp_path / "corpus.jsonl").write_text("".join(json.dumps(r) + "\n" for r in rows))
    monkeypatch.setattr(Backbone, "from_pretrained", lambda name: WordEncoder())
    return tmp_path


def test_the_command_writes_a_suite(corpus_folder: Path) -> None:
    qrels = corpus_folder / "dev.tsv"
    qrels.write_text("q\triver-0\t1\nq\triver-1\t-1\n")
    out = corpus_folder / "out"
    arguments = ["mine", corpus_folder, "--out", out, "--exclude-qrels", qrels, "--count", 6, "--band", -1, 1, "--json"]
    result = CliRunner().invoke(app, [str(a) for a in arguments])
    assert result.exit_code == 0, result.output
    record = json.loads(result.stdout)
    assert record["triples"] == 6
    assert record["protected"] == 2
    suite = load_suite(out, "train")
    assert len(suite.queries) == 6
    assert not {d.id for d in suite.documents} & {"river-0", "river-1"}


def test_the_command_says_why_nothing_was_mined(corpus_folder: Path) -> None:
    arguments = ["mine", corpus_folder, "--out", corpus_folder / "out", "--band", "0.99", "0.999"]
    result = CliRunner().invoke(app, [str(a) for a in arguments])
    assert result.exit_code == 1
    assert "too few confusable neighbours" in result.stderr
    assert not (corpus_folder / "out").exists()


def test_an_unknown_model_is_an_error(corpus_folder: Path) -> None:
    arguments = ["mine", corpus_folder, "--out", corpus_folder / "out", "--llm", "no-such-maker:model"]
    result = CliRunner().invoke(app, [str(a) for a in arguments])
    assert result.exit_code == 1
    assert "no-such-maker" in result.stderr


def test_triples_are_plain_records(mined: Mined) -> None:
    assert all(isinstance(t, MinedTriple) for t in mined.triples)
    assert torch.tensor([s for t in mined.triples for s in t.similarity]).isfinite().all()
