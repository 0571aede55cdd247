"""The rules that could stand in for the operator, one by one."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
import torch

from excise_integrations import Excise, ExciseConfig, InvalidInputError
from excise_integrations.bench import load_suite
from excise_integrations.bench.gate import readout, train_gate
from excise_integrations.bench.interventions import INTERVENTIONS, intervene, penalised
from excise_integrations.bench.lexical import LexicalIndex, content_words, positional
from excise_integrations.bench.matches import Matches
from excise_integrations.bench.prepared import Prepared
from excise_integrations.bench.variants import rank
from excise_integrations.bench.weights import best_weights, sweep_weights
from excise_integrations.encode import Backbone
from excise_integrations.errors import SuiteError
from excise_integrations.first_stage.memory import MemoryFirstStage

WriteSuite = Callable[..., Path]
CONFIG = ExciseConfig()


@pytest.fixture
def prepared(write_suite: WriteSuite, excise_rules: Excise) -> Prepared:
    suite = load_suite(write_suite())
    return Prepared(excise_rules, suite, suite.queries, k=100)


def place(prepared: Prepared, method: str, index: int, document: str, weight: float | None = None) -> int:
    row = [c.id for c in prepared.shortlists[index]]
    gate = train_gate(prepared.excise.backbone, prepared.suite) if method == "gate" else None
    found = intervene(method, prepared, index, "true", CONFIG, gate=gate, weight=weight)
    assert sorted(found.order) == list(range(len(row)))
    assert found.removed == ()
    return [row[i] for i in found.order].index(document)


@pytest.mark.parametrize("method", [m for m in INTERVENTIONS if m not in ("token-dropping", "conditional")])
def test_a_penalty_moves_the_excluded_document_down_and_no_weight_moves_nothing(
    prepared: Prepared, method: str
) -> None:
    row = [c.id for c in prepared.shortlists[0]]
    assert place(prepared, method, 0, "violin", weight=0.0) == row.index("violin")
    assert place(prepared, method, 0, "violin", weight=5.0) > row.index("violin")


def test_token_dropping_ranks_by_the_query_without_the_topic(prepared: Prepared, backbone: Backbone) -> None:
    stage = MemoryFirstStage.from_candidates(prepared.suite.documents, backbone=backbone)
    rest = "bowed string instruments of the orchestra, but not the"
    expected = [c.id for c in stage.search(rest, 10)]
    row = [c.id for c in prepared.shortlists[0]]
    found = intervene("token-dropping", prepared, 0, "true", CONFIG)
    assert [row[i] for i in found.order] == expected


def test_conditional_reads_only_flagged_candidates_again(prepared: Prepared, monkeypatch: pytest.MonkeyPatch) -> None:
    read: list[str] = []
    encode = Backbone.encode_documents

    def counted(self: Backbone, texts: list[str], **options: object) -> object:
        read.extend(texts)
        return encode(self, texts, **options)  # type: ignore[arg-type]

    assert len(prepared.shortlists[0]) == 7  # everything is embedded before
    monkeypatch.setattr(Backbone, "encode_documents", counted)
    plain = penalised("maxsim-z", prepared, 0, "true", CONFIG, weight=0.0)
    read.clear()
    scores = penalised("conditional", prepared, 0, "true", CONFIG)
    assert any(t.startswith("violin. Violin\n") for t in read)
    assert 0 < len(read) < 7
    assert all(t.startswith("violin. ") for t in read)
    assert int((scores != plain).sum()) == len(read)


def test_the_reference_has_an_absolute_cut(prepared: Prepared) -> None:
    evidence = prepared.matches(0, "true", "frozen").evidence()[:, 0]
    plain = penalised("maxsim-z", prepared, 0, "true", CONFIG, weight=0.0)
    got = penalised("maxsim-z", prepared, 0, "true", CONFIG.model_copy(update={"floor": 0.6}))
    assert torch.allclose(plain - got, 0.97 * torch.relu(evidence - 0.6).double(), atol=1e-6)


def test_unknown_methods_and_a_missing_gate(prepared: Prepared) -> None:
    with pytest.raises(InvalidInputError, match="no intervention 'magic'"):
        intervene("magic", prepared, 0, "true", CONFIG)
    with pytest.raises(InvalidInputError, match="training pairs"):
        intervene("gate", prepared, 0, "true", CONFIG)


# --- words --------------------------------------------------------------------------------


def test_bm25_is_a_share_of_the_corpus_highest() -> None:
    index = LexicalIndex(["a violin and a violin", "the violin is wooden and rather old today", "bread"])
    share = index.share("the violin")
    assert share[0] == 1.0
    assert 0.0 < share[1] < 1.0
    assert share[2] == 0.0
    assert list(index.share("saxophone")) == [0.0, 0.0, 0.0]
    assert index.idf("bread") > index.idf("violin") > 0.0
    assert content_words("The Violin, of Course") == ["violin", "course"]
    assert content_words("The Who") == ["the", "who"]


def test_positional_rules_read_where_the_topic_is_named() -> None:
    index = LexicalIndex(["violin bow", "other words"])

    def early(text: str) -> float:
        return positional(text, ["violin"], {"bow"}, index, reading="early", decay=0.5)

    def often(text: str) -> float:
        return positional(text, ["violin"], {"bow"}, index, reading="often", decay=0.5)

    far = "violin " + "word " * 30 + "bow"
    assert early("violin bow word word") > early("word word violin bow") > 0.0
    assert early("violin bow") > early(far)
    assert early("bow and arrow") == 0.0
    assert often("violin bow violin bow") > often("violin bow word word")
    assert often("violin bow word word") == pytest.approx(often("word word violin bow"))
    # One occurrence next to a wanted word: exp(-0.5) / (exp(-0.5) + 1).
    assert often("violin bow") == pytest.approx(0.6065 / 1.6065, abs=1e-3)
    assert 0.0 <= often("violin bow " * 50) <= 1.0


# --- the gate -------------------------------------------------------------------------------


def test_the_gate_learns_what_a_match_looks_like(prepared: Prepared) -> None:
    backbone = prepared.excise.backbone
    gate = train_gate(backbone, prepared.suite)
    encoded = prepared.encoded(1, "true", "frozen")
    probability = gate(readout(encoded.topics[0], prepared.documents(1, "frozen")))
    by_id = dict(zip([c.id for c in prepared.shortlists[1]], probability.tolist(), strict=True))
    assert by_id["guitar"] > 0.5 > by_id["harp"]
    assert bool((train_gate(backbone, prepared.suite).direction == gate.direction).all())


def test_the_gate_needs_pairs(write_suite: WriteSuite, backbone: Backbone) -> None:
    suite = load_suite(write_suite(qrels=[("q3", "otter", 1)]))
    with pytest.raises(SuiteError, match="nothing to learn from"):
        train_gate(backbone, suite)


def test_weights_are_swept_on_a_grid_and_ties_go_to_the_smaller(prepared: Prepared) -> None:
    found = sweep_weights(prepared, CONFIG, grid=(0.0, 0.5, 4.0, 8.0))
    assert "gate" not in found
    assert set(found) >= {"maxsim-z", "bm25-z", "contrastive"}
    # Ten of seven documents are shown, so nothing that is only moved leaves the top ten.
    assert set(best_weights([found, found]).values()) == {0.0}
    assert found["bm25-z"]["hit@10"] == {"0.0": 1.0, "0.5": 1.0, "4.0": 1.0, "8.0": 1.0}


def test_the_best_weight_counts_suites_alike_and_needs_all_of_them() -> None:
    wiki = {"bm25-z": {"success@10": {"0.1": 0.2, "0.4": 0.4}}, "gate": {"success@10": {"0.1": 1.0}}}
    film = {"bm25-z": {"success@10": {"0.1": 0.5, "0.4": 0.2}}}
    assert best_weights([wiki, film]) == {"bm25-z": 0.1}
    assert best_weights([wiki]) == {"bm25-z": 0.4, "gate": 0.1}


# --- variants of the operator ---------------------------------------------------------------


def matches(topics: list[list[list[float]]], scores: list[float]) -> Matches:
    """Five or so documents of one window each, a query of one token, and topics of some."""
    full = torch.tensor(scores)[:, None]
    return Matches(full, full, tuple(torch.tensor(t) for t in topics), torch.arange(len(scores)), len(scores), 9)


def test_pools() -> None:
    found = matches([[[0.9, 0.1, 0.5], [0.4, 0.4, 0.4]]], [1.0, 0.9])
    assert found.evidence("mean")[:, 0].tolist() == pytest.approx([0.5, 0.4])
    assert found.evidence("max")[:, 0].tolist() == pytest.approx([0.9, 0.4])
    assert found.evidence("top2")[:, 0].tolist() == pytest.approx([0.7, 0.4])
    two = matches([[[0.8], [0.2]], [[0.2], [0.5]]], [1.0, 0.9])
    assert two.evidence().tolist() == [pytest.approx([0.8, 0.2]), pytest.approx([0.2, 0.5])]
    assert two.evidence(joined=True)[:, 0].tolist() == pytest.approx([0.5, 0.35])
    assert Matches(two.full, two.wanted, (torch.zeros(2, 0),), two.owner, 2, 9).evidence().tolist() == [[-1.0]] * 2


def test_the_absolute_cut_penalises_what_the_relative_one_spares() -> None:
    soft = CONFIG.model_copy(update={"removal": False, "demotion": "paper"})
    found = matches([[[0.6], [0.5], [0.3], [0.3]]], [1.0, 0.98, 0.9, 0.89])
    # Cut 0.5 against 0.35.
    assert rank(found, soft, adapted=False).order == (1, 0, 2, 3)
    assert rank(found, soft, adapted=False, absolute=True).order == (2, 3, 1, 0)
    flat = matches([[[0.7], [0.7], [0.5], [0.7]]], [1.0, 0.98, 0.9, 0.89])
    # Relative to the shortlist nobody stands out; absolutely, three do.
    assert rank(flat, soft, adapted=False).order == (0, 1, 2, 3)
    assert rank(flat, soft, adapted=False, absolute=True).order == (2, 0, 1, 3)


def test_k_cuts_the_shortlist_and_no_topic_ranks_by_the_query() -> None:
    found = matches([[[0.1], [0.9], [0.1], [0.1], [0.2], [0.1]]], [0.1, 0.2, 0.3, 0.4, 0.5, 0.6])
    assert sorted(rank(found, CONFIG.model_copy(update={"k": 5}), adapted=True).order) == [0, 2, 3, 4]
    silent = Matches(found.full, found.wanted, (), found.owner, 6, 9)
    assert rank(silent, CONFIG, adapted=True).order == (5, 4, 3, 2, 1, 0)
