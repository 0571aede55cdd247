"""The kernels of a firing under pytest-benchmark; ``--benchmark-only`` prints their times."""

from __future__ import annotations

import pytest
import torch
from pytest_benchmark.fixture import BenchmarkFixture
from torch.nn.functional import normalize

from excise_integrations import ExciseConfig
from excise_integrations.demotion import demote
from excise_integrations.detect.decode import TokenScores, decode
from excise_integrations.encode.maxsim import TokenVectors, maxsim
from excise_integrations.evidence import evidence_of
from excise_integrations.first_stage._packed import PackedVectors

ROUNDS = {"rounds": 5, "iterations": 1, "warmup_rounds": 1}
QUERY = "bowed string instruments of the orchestra, but not the violin"


@pytest.fixture(scope="module")
def shortlist() -> list[TokenVectors]:
    """A hundred documents of about a hundred tokens, in the default backbone's size and arithmetic."""
    draw = torch.Generator().manual_seed(0)
    sizes = torch.randint(60, 140, (100,), generator=draw).tolist()
    return [
        TokenVectors(normalize(torch.randn(n, 256, generator=draw), dim=-1).to(torch.bfloat16), (n,)) for n in sizes
    ]


def test_maxsim_over_a_shortlist(benchmark: BenchmarkFixture, shortlist: list[TokenVectors]) -> None:
    query = shortlist[7].vectors[:20]
    scores = benchmark.pedantic(maxsim, (query, shortlist), **ROUNDS)
    assert int(scores.argmax()) == 7
    assert float(scores[7]) == pytest.approx(20, abs=0.1)


def test_maxsim_over_a_collection(benchmark: BenchmarkFixture, shortlist: list[TokenVectors]) -> None:
    packed = PackedVectors.of(shortlist * 10, "cpu")
    query = shortlist[7].vectors[:20]
    (scores,) = benchmark.pedantic(lambda: list(packed.score([query])), **ROUNDS)
    assert torch.allclose(scores[:100], maxsim(query, shortlist), atol=1e-4)


def test_evidence_of_two_topics(benchmark: BenchmarkFixture, shortlist: list[TokenVectors]) -> None:
    topics = [shortlist[3].vectors[:4].float(), shortlist[5].vectors[:2].float()]
    evidence = benchmark.pedantic(evidence_of, (topics, shortlist), **ROUNDS)
    assert evidence.argmax(dim=0).tolist() == [3, 5]


def test_demotion(benchmark: BenchmarkFixture) -> None:
    evidence = torch.linspace(0.2, 0.3, 100)[:, None].repeat(1, 2)
    evidence[4, 0] = evidence[9, 1] = 0.95
    outcome = benchmark.pedantic(demote, (torch.linspace(9, 1, 100), evidence, ExciseConfig()), **ROUNDS)
    assert outcome.removed == (4, 9)


def test_spans_from_token_scores(benchmark: BenchmarkFixture) -> None:
    tokens, at = [], 0
    for word in QUERY.split():
        at = QUERY.index(word, at)
        named = word == "violin"
        tokens.append(TokenScores(at, at + len(word), 0.9 * named, 0.95 * named, False))
    spans = benchmark.pedantic(decode, (QUERY, tokens), **ROUNDS)
    assert [s.text for s in spans] == ["violin"]
