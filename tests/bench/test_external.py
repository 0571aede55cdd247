"""Systems from outside: how they are named, loaded, skipped and kept."""

from __future__ import annotations

import sys
from collections.abc import Callable
from functools import partial
from pathlib import Path
from types import SimpleNamespace

import pytest
from tiny_adapters import save_exclusion

from excise_integrations import Excise, InvalidInputError
from excise_integrations.bench import load_suite
from excise_integrations.bench.external import KNOWN, External, parse_external
from excise_integrations.bench.model_files import load_model, weights_label
from excise_integrations.bench.rankers import external_ranker
from excise_integrations.bench.report import render_report
from excise_integrations.bench.rows import Row, read_folder
from excise_integrations.bench.run import run_suite
from excise_integrations.bench.store import VectorStore
from excise_integrations.bench.suites import Suite
from excise_integrations.bench.systems import choose
from excise_integrations.encode.minilm import find_minilm
from excise_integrations.errors import BackboneError

WriteSuite = Callable[..., Path]


@pytest.fixture
def suite(write_suite: WriteSuite) -> Suite:
    return load_suite(write_suite())


@pytest.fixture(scope="module")
def cross_encoder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A cross-encoder of random weights, two layers deep."""
    from transformers import AutoConfig, AutoModelForSequenceClassification, AutoTokenizer

    folder = tmp_path_factory.mktemp("cross-encoder")
    config = AutoConfig.from_pretrained(str(find_minilm()), local_files_only=True, num_labels=1, num_hidden_layers=2)
    AutoModelForSequenceClassification.from_config(config).save_pretrained(str(folder))
    AutoTokenizer.from_pretrained(str(find_minilm()), local_files_only=True).save_pretrained(str(folder))
    return folder


def run(excise: Excise, suite: Suite, out: Path, external: External, store: VectorStore | None = None) -> list[Row]:
    systems = [*choose(["frozen", "default"]), external.system]
    rankers = {external.name: partial(external_ranker, external, store)}
    return [row for row, _ in run_suite(excise, suite, out, systems=systems, external=rankers, store=store)]


def test_a_known_model_brings_its_kind_and_prompts() -> None:
    found = parse_external("mine=intfloat/e5-base-v2")
    assert (found.name, found.kind, found.query_prompt, found.document_prompt) == (
        "mine", "dense", "query: ", "passage: ",
    )  # fmt: skip
    assert parse_external("mine=dense-passages:intfloat/e5-base-v2").query_prompt == "query: "
    assert {e.kind for e in KNOWN.values()} == {"dense", "cross-encoder"}


def test_a_control_is_a_row_of_its_own_group() -> None:
    found = parse_external("full=control:late-interaction:some/folder")
    assert (found.system.group, found.model) == ("controls", "some/folder")
    assert parse_external("x=dense:some/folder").system.group == "rivals"


@pytest.mark.parametrize(
    ("text", "match"),
    [
        ("nothing", "is not NAME=KIND:MODEL"),
        ("x=sparse:folder", "'sparse' in 'x=sparse:folder' is no kind"),
        ("frozen=dense:folder", "'frozen' of .* is a row already"),
        ("a/b=dense:folder", "'a/b' of .* may hold letters"),
    ],
)
def test_a_bad_description_is_refused(text: str, match: str) -> None:
    with pytest.raises(InvalidInputError, match=match):
        parse_external(text)


@pytest.mark.parametrize("kind", ["dense", "dense-passages"])
def test_a_dense_model_ranks_the_corpus(kind: str, suite: Suite, excise_rules: Excise, tmp_path: Path) -> None:
    external = parse_external(f"other={kind}:{find_minilm()}")
    store = VectorStore(tmp_path / "cache")
    row = run(excise_rules, suite, tmp_path / "out", external, store)[-1]
    assert row.skipped is None
    assert row.queries[2].top[0] == "otter"
    assert row.average()["recall@100"] == 1.0
    # A second run embeds nothing.
    kept = list(store.folder.glob("dense-*/*.safetensors"))
    times = [p.stat().st_mtime_ns for p in kept]
    again = run(excise_rules, suite, tmp_path / "again", external, store)[-1]
    assert [q.top for q in again.queries] == [q.top for q in row.queries]
    assert [p.stat().st_mtime_ns for p in store.folder.glob("dense-*/*.safetensors")] == times
    assert len(kept) == 1


@pytest.mark.parametrize("kind", ["cross-encoder", "cross-encoder-passages"])
def test_a_cross_encoder_reranks_the_frozen_shortlist(
    kind: str, cross_encoder: Path, suite: Suite, excise_rules: Excise, tmp_path: Path
) -> None:
    rows = run(excise_rules, suite, tmp_path / "out", parse_external(f"ce={kind}:{cross_encoder}"))
    assert {q.id: sorted(q.top) for q in rows[-1].queries} == {q.id: sorted(q.top) for q in rows[0].queries}
    assert "`ce` cross-encoder" in render_report(read_folder(tmp_path / "out"))


@pytest.mark.parametrize("kind", ["adapter", "query-adapter"])
def test_an_adapter_changes_the_ranking(kind: str, suite: Suite, excise_rules: Excise, tmp_path: Path) -> None:
    folder = save_exclusion(tmp_path / "adapter", excise_rules.backbone.weights_hash, scale=3.0)
    rows = run(excise_rules, suite, tmp_path / "out", parse_external(f"tuned=control:{kind}:{folder}"))
    assert rows[-1].skipped is None
    assert [q.top for q in rows[-1].queries] != [q.top for q in rows[0].queries]


@pytest.mark.parametrize("kind", ["dense", "cross-encoder", "late-interaction", "adapter", "rerankers"])
def test_missing_weights_skip_the_row_and_say_so(kind: str, suite: Suite, excise_rules: Excise, tmp_path: Path) -> None:
    row = run(excise_rules, suite, tmp_path, parse_external(f"gone={kind}:{tmp_path / 'nowhere'}"))[-1]
    assert row.skipped
    assert not row.queries


def test_a_row_that_is_there_loads_no_model_and_one_that_lacked_weights_is_tried_again(
    cross_encoder: Path, suite: Suite, excise_rules: Excise, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    external = parse_external(f"ce=cross-encoder:{cross_encoder}")
    loads: list[str] = []

    def again() -> tuple[Row, bool]:
        ranker = external_ranker(external, None)
        load = ranker.load
        monkeypatch.setattr(ranker, "load", lambda: (loads.append(external.name), load()))
        ((row, new),) = run_suite(
            excise_rules, suite, tmp_path / "out", systems=[external.system], external={"ce": lambda: ranker}
        )
        return row, new

    weights = cross_encoder / "model.safetensors"
    weights.rename(weights.with_suffix(".away"))
    try:
        gone = [again(), again()]
    finally:
        weights.with_suffix(".away").rename(weights)
    assert [(bool(row.skipped), new) for row, new in gone] == [(True, True), (True, False)]
    assert len(loads) == 2
    assert (again()[1], again()[1]) == (True, False)
    assert len(loads) == 3


@pytest.mark.parametrize("kind", ["dense", "cross-encoder", "late-interaction"])
def test_weights_of_another_type_skip_the_row_and_say_so(
    kind: str, cross_encoder: Path, suite: Suite, excise_rules: Excise, tmp_path: Path
) -> None:
    folder = find_minilm() if kind == "cross-encoder" else cross_encoder
    row = run(excise_rules, suite, tmp_path, parse_external(f"wrong={kind}:{folder}"))[-1]
    assert row.skipped is not None
    assert folder.name in row.skipped
    assert not row.queries


def test_a_type_that_a_folder_declares_is_held_to(tmp_path: Path) -> None:
    with pytest.raises(BackboneError, match=r"is a dense model .SentenceTransformer., not a late-interaction"):
        load_model(str(find_minilm()), "MultiVectorEncoder", str)
    (tmp_path / "config.json").write_text('{"architectures": ["BertModel"]}')
    with pytest.raises(BackboneError, match=r"is a plain encoder .*, not a cross-encoder"):
        load_model(str(tmp_path), "CrossEncoder", str)
    (tmp_path / "config_sentence_transformers.json").write_text('{"model_type": "MultiVectorEncoder"}')
    with pytest.raises(BackboneError, match=r"is a late-interaction model .*, not a dense model"):
        load_model(str(tmp_path), "SentenceTransformer", str)
    assert load_model(str(tmp_path), "MultiVectorEncoder", str) == str(tmp_path)


def test_a_label_follows_the_weights_whatever_their_format(tmp_path: Path) -> None:
    labels = []
    for name, content in (("model.safetensors", b"a"), ("model.safetensors", b"b"), ("pytorch_model.bin", b"c")):
        folder = tmp_path / str(len(labels)) / "model"
        folder.mkdir(parents=True)
        (folder / name).write_bytes(content)
        labels.append(weights_label(str(folder)))
    (folder / "pytorch_model.bin").write_bytes(b"d")
    labels.append(weights_label(str(folder)))
    assert len(set(labels)) == 4
    assert all(label.startswith("model@") for label in labels)
    assert weights_label("nobody/no-such-model") == "nobody/no-such-model"


def test_a_model_of_the_rerankers_library_orders_the_shortlist(
    suite: Suite, excise_rules: Excise, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Fake:
        """Orders by the alphabet, answers in another order, and forgets the first document."""

        def __init__(self, model: str) -> None:
            assert Path(model) == tmp_path

        def rank(self, query: str, docs: list[str], doc_ids: list[str]) -> list[SimpleNamespace]:
            assert len(docs) == len(doc_ids)
            return [SimpleNamespace(doc_id=i, score=-ord(i[0])) for i in doc_ids[1:]]

    monkeypatch.setitem(sys.modules, "rerankers", SimpleNamespace(Reranker=Fake))
    rows = run(excise_rules, suite, tmp_path / "out", parse_external(f"alphabet=rerankers:{tmp_path}"))
    first, *rest = rows[0].queries[0].top
    assert list(rows[-1].queries[0].top) == [*sorted(rest), first]


def test_other_weights_run_the_row_again(suite: Suite, excise_rules: Excise, tmp_path: Path) -> None:
    keys = []
    for scale in (1.0, 2.0):
        folder = save_exclusion(tmp_path / "adapter", excise_rules.backbone.weights_hash, scale=scale)
        keys.append(run(excise_rules, suite, tmp_path / "out", parse_external(f"tuned=adapter:{folder}"))[-1].key)
    assert keys[0] != keys[1]


def test_bm25_with_not_drops_what_the_cue_names(suite: Suite, excise_rules: Excise, tmp_path: Path) -> None:
    rows = {r.system: r for r, _ in run_suite(excise_rules, suite, tmp_path, systems=choose(["bm25", "bm25-not"]))}
    assert rows["bm25"].average()["leak"] == 1.0
    assert rows["bm25-not"].queries[0].top[-1] == "violin"
