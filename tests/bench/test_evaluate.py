"""Evaluation from end to end on a tiny suite, and the store behind it."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from pathlib import Path

import pytest

from excise_integrations import Candidate, Detection, Excise, Span
from excise_integrations.bench import evaluate_queries, evaluate_suite, load_queries, load_suite
from excise_integrations.bench.metrics import METRICS
from excise_integrations.bench.store import StoredCache, VectorStore
from excise_integrations.detect import RulesDetector
from excise_integrations.encode import Backbone

WriteSuite = Callable[..., Path]


class Silent:
    def detect(self, queries: Sequence[str]) -> list[Detection]:
        return [Detection(fired=False) for _ in queries]


def test_true_topics_take_the_excluded_documents_out(write_suite: WriteSuite, excise_rules: Excise) -> None:
    result = evaluate_suite(excise_rules, load_suite(write_suite()), topics="true")
    summary = result.summary()
    json.dumps(summary)
    assert summary["n"] == 3
    assert list(summary["frozen"]) == list(summary["excise"]) == list(METRICS)
    assert (summary["frozen"]["leak"], summary["frozen"]["success@10"]) == (1.0, 0.0)
    assert (summary["excise"]["leak"], summary["excise"]["success@10"]) == (0.0, 1.0)
    assert summary["excise"]["fire_rate"] == pytest.approx(2 / 3)
    assert (summary["excise"]["span_f1"], summary["excise"]["topic_recall"]) == (1.0, 1.0)
    assert [summary["frozen"][m] for m in ("fire_rate", "span_f1", "topic_recall", "pairwise")] == [None] * 4
    assert {t: s["n"] for t, s in summary["tiers"].items()} == {"C-conj": 1, "T1": 2}
    assert {f: s["n"] for f, s in summary["forms"].items()} == {"long": 1, "short": 2}
    assert (summary["found"]["n"], summary["found"]["excise"]["success@10"]) == (2, 1.0)
    control = summary["tiers"]["C-conj"]
    assert control["excise"]["success@10"] is None
    assert control["excise"] == {**control["frozen"], "fire_rate": 0.0}
    outcome = result.outcomes[0]
    assert "violin" in outcome.removed
    assert "violin" in outcome.frozen_top
    assert "violin" not in outcome.excise_top
    json.dumps(outcome.record())


def test_a_query_whose_topics_were_not_all_found_is_not_among_the_found(
    write_suite: WriteSuite, excise_rules: Excise
) -> None:
    class Half:
        def detect(self, queries: Sequence[str]) -> list[Detection]:
            return [Detection(fired=True, spans=(Span(q.split()[0]),)) for q in queries]

    excise = Excise(excise_rules.backbone, detector=Half())
    summary = evaluate_suite(excise, load_suite(write_suite())).summary()
    assert summary["excise"]["fire_rate"] == 1.0
    assert summary["found"]["n"] == 0
    assert summary["found"]["excise"]["success@10"] is None


def test_detected_topics_come_from_the_pipelines_detector(write_suite: WriteSuite, excise_rules: Excise) -> None:
    suite = load_suite(write_suite())
    fired = evaluate_suite(excise_rules, suite).summary()["excise"]
    assert fired["fire_rate"] == pytest.approx(2 / 3)
    assert fired["span_f1"] == 1.0
    silent = evaluate_suite(Excise(excise_rules.backbone, detector=Silent()), suite).summary()
    assert silent["excise"]["fire_rate"] == 0.0
    assert silent["excise"]["span_f1"] == 0.0
    assert {m: silent["excise"][m] for m in METRICS[:8]} == {m: silent["frozen"][m] for m in METRICS[:8]}


def test_judged_candidates_only(write_suite: WriteSuite, excise_rules: Excise) -> None:
    result = evaluate_suite(excise_rules, load_suite(write_suite()), topics="true", candidates="judged")
    assert {frozenset(o.frozen_top) for o in result.outcomes} == {
        frozenset({"cello", "violin"}),
        frozenset({"harp", "guitar"}),
        frozenset({"otter"}),
    }
    summary = result.summary()
    assert summary["frozen"]["pairwise"] is not None
    assert summary["tiers"]["C-conj"]["frozen"]["pairwise"] is None


def test_limit_and_progress(write_suite: WriteSuite, excise_rules: Excise) -> None:
    seen: list[tuple[str, int, int]] = []
    result = evaluate_suite(excise_rules, load_suite(write_suite()), limit=1, progress=lambda *step: seen.append(step))
    assert [o.query.id for o in result.outcomes] == ["q1"]
    stages = [s for s, done, total in seen if done == total]
    assert list(dict.fromkeys(stages)) == ["embedding", "detecting", "searching", "re-ranking"]


class Counting:
    """A backbone that counts the documents it encodes and may be killed at one of them."""

    def __init__(self, backbone: Backbone) -> None:
        self.backbone = backbone
        self.encoded = 0
        self.die_at: int | None = None

    def __getattr__(self, name: str) -> object:
        return getattr(self.backbone, name)

    def encode_documents(self, texts: Sequence[str], **kwargs: object) -> object:
        if self.die_at is not None and self.encoded >= self.die_at:
            raise KeyboardInterrupt
        self.encoded += len(texts)
        return self.backbone.encode_documents(texts, **kwargs)  # type: ignore[arg-type]


def test_the_store_changes_nothing_and_encodes_once(
    write_suite: WriteSuite, backbone: Backbone, tmp_path: Path
) -> None:
    suite = load_suite(write_suite())
    counting = Counting(backbone)
    # A second encoder with a label of its own stands for one with an adapter.
    adapted = Counting(backbone)
    adapted.__dict__["label"] = backbone.label + "+test/exclusion@000000000000"
    excise = Excise(counting, detector=RulesDetector(), exclusion=adapted)  # type: ignore[arg-type]
    excise = excise.with_config(k=2)
    plain = evaluate_suite(excise, suite)
    before = counting.encoded, adapted.encoded
    cold = evaluate_suite(excise, suite, store=VectorStore(tmp_path / "cache")).summary()
    reembedded = {d for o in plain.outcomes if o.detection.fired for d in o.frozen_top}
    assert "otter" not in reembedded  # only a silent query found it
    assert (counting.encoded - before[0], adapted.encoded - before[1]) == (7, len(reembedded))
    after = counting.encoded, adapted.encoded
    warm = evaluate_suite(excise, suite, store=VectorStore(tmp_path / "cache")).summary()
    assert (counting.encoded, adapted.encoded) == after
    assert not isinstance(excise.cache, StoredCache)
    assert warm == cold
    assert plain.summary() == cold
    assert len(list((tmp_path / "cache").iterdir())) == 2


def test_the_store_survives_a_kill_and_a_damaged_shard(
    backbone: Backbone, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from excise_integrations.bench import store as module

    monkeypatch.setattr(module, "_SHARD_DOCUMENTS", 4)
    texts = [f"text number {i} " + "word " * i for i in range(10)]
    counting = Counting(backbone)
    counting.die_at = 8
    with pytest.raises(KeyboardInterrupt):
        VectorStore(tmp_path).encode(texts, counting)  # type: ignore[arg-type]
    counting.die_at = None
    seen: list[tuple[int, int]] = []
    got = VectorStore(tmp_path).encode(
        [*texts, texts[0]],
        counting,
        progress=lambda done, total: seen.append((done, total)),  # type: ignore[arg-type]
    )
    assert counting.encoded == 10
    assert (seen[0], seen[-1]) == ((8, 10), (10, 10))
    alone = backbone.encode_documents(texts)
    for a, b in zip(got, alone, strict=False):
        assert a.windows == b.windows
        assert float((a.vectors.float() * b.vectors.float()).sum(dim=1).min()) > 0.99
    shards = sorted(tmp_path.glob("*/*.safetensors"))
    assert len(shards) == 3
    shards[0].write_bytes(shards[0].read_bytes()[:-100])
    again = VectorStore(tmp_path).encode(texts, counting)  # type: ignore[arg-type]
    assert counting.encoded > 10
    assert [v.windows for v in again] == [v.windows for v in alone]
    assert [p.name for p in tmp_path.rglob(".*")] == []


def test_long_documents_keep_their_windows_in_the_store(backbone: Backbone, tmp_path: Path) -> None:
    text = "word " * 450
    got = VectorStore(tmp_path).encode(["short", text], backbone)
    again = VectorStore(tmp_path).encode([text, "short"], backbone)
    assert len(got[1].windows) == 3
    assert (again[0].windows, again[1].windows) == (got[1].windows, got[0].windows)
    assert bool((again[0].vectors == got[1].vectors).all())


class Fixed:
    """Fires on whatever stands behind "not"."""

    def detect(self, queries: Sequence[str]) -> list[Detection]:
        out = []
        for q in queries:
            _, cue, topic = q.partition("not ")
            out.append(Detection(bool(cue), 0.9, (Span(topic, q.index(topic), len(q), 0.9),) if cue else ()))
        return out


def test_query_files_are_measured_by_kind(tmp_path: Path) -> None:
    path = tmp_path / "pairs.jsonl"
    records = [
        {"text": "pets, not cats", "excluded": ["cats"], "kind": "explicit", "form": "short"},
        {"text": "pets beyond cats", "excluded": ["cats"], "kind": "implicit", "form": "short"},
        {"text": "why do cats not purr", "excluded": [], "kind": "hard", "form": "long"},
        {"text": "cats and dogs", "excluded": [], "kind": "plain", "form": "short"},
        {"text": "cats", "excluded": [], "kind": "plain", "form": "short"},
    ]
    path.write_text("".join(json.dumps(r) + "\n" for r in records))
    got = evaluate_queries(Fixed(), load_queries(path))
    assert (got["n"], got["fire_rate"], got["recall"]) == (5, 0.4, 0.5)
    assert got["false_fire_rate"] == pytest.approx(1 / 3)
    assert (got["span_f1"], got["topic_recall"]) == (0.5, 0.5)
    assert {k: v["fire_rate"] for k, v in got["kinds"].items()} == {
        "explicit": 1.0,
        "hard": 1.0,
        "implicit": 0.0,
        "plain": 0.0,
    }
    assert got["kinds"]["hard"]["span_f1"] is None
    assert got["kinds"]["hard"]["recall"] is None
    assert got["forms"]["short"]["n"] == 4
    assert got["queries"][0]["spans"][0]["text"] == "cats"
    json.dumps(got)


def test_candidates_are_not_needed_for_an_empty_limit(write_suite: WriteSuite, excise_rules: Excise) -> None:
    result = evaluate_suite(excise_rules, load_suite(write_suite()), limit=0)
    assert result.summary()["n"] == 0
    assert isinstance(load_suite(write_suite("again")).documents[0], Candidate)
