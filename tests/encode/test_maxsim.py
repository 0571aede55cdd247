"""MaxSim over packed windows, against its definition."""

from __future__ import annotations

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from excise_integrations.encode.maxsim import TokenVectors, best_matches, maxsim, pack_windows, sum_per_document
from excise_integrations.first_stage._packed import PackedVectors


def unit(*shape: int, seed: int = 0) -> torch.Tensor:
    generator = torch.Generator().manual_seed(seed)
    return torch.nn.functional.normalize(torch.randn(*shape, generator=generator), dim=-1)


def by_definition(query: torch.Tensor, document: TokenVectors) -> float:
    """S(q, d) = Σ_t max_u ⟨v_t, v_u⟩, of the best window."""
    scores, start = [], 0
    for size in document.windows:
        window = document.vectors[start : start + size]
        start += size
        scores.append(sum(max(float(t @ u) for u in window) for t in query))
    return max(scores)


@settings(max_examples=30, deadline=None)
@given(
    st.lists(st.lists(st.integers(1, 5), min_size=1, max_size=3), min_size=1, max_size=5),
    st.integers(1, 4),
    st.integers(0, 99),
)
def test_scores_are_by_definition(sizes: list[list[int]], tokens: int, seed: int) -> None:
    query = unit(tokens, 8, seed=seed)
    documents = [TokenVectors(unit(sum(s), 8, seed=seed + i + 1), tuple(s)) for i, s in enumerate(sizes)]
    scores = maxsim(query, documents)
    assert torch.allclose(scores, torch.tensor([by_definition(query, d) for d in documents]), atol=1e-5)


def test_padding_counts_for_nothing() -> None:
    # Every similarity is negative: a padded zero would win.
    query = torch.tensor([[1.0, 0.0]])
    short = TokenVectors(torch.tensor([[-1.0, 0.0]]), (1,))
    long = TokenVectors(torch.tensor([[-0.6, 0.8], [-0.8, 0.6]]), (2,))
    assert maxsim(query, [short, long]).tolist() == [-1.0, -0.6000000238418579]


def test_a_document_s_score_is_its_best_window_s_not_a_mixture() -> None:
    query = torch.eye(2)
    split = TokenVectors(torch.eye(2), (1, 1))
    whole = TokenVectors(torch.eye(2), (2,))
    assert maxsim(query, [split, whole]).tolist() == [1.0, 2.0]


def test_a_window_without_tokens_matches_nothing() -> None:
    document = TokenVectors(torch.eye(2), (0, 2))
    assert maxsim(torch.eye(2), [document]).tolist() == [2.0]
    block, mask, owner = pack_windows([document])
    assert mask.tolist() == [[False, False], [True, True]]
    assert owner.tolist() == [0, 0]
    assert best_matches(torch.eye(2), block, mask)[0].tolist() == [-1.0, -1.0]


def test_windows_are_reduced_by_their_document() -> None:
    values, owner = torch.tensor([1.0, 3.0, 2.0, -5.0]), torch.tensor([0, 0, 1, 2])
    assert sum_per_document(values, owner, 3).tolist() == [3.0, 2.0, -5.0]


def test_half_precision_documents_are_scored_in_float32() -> None:
    query, vectors = unit(3, 16), unit(7, 16, seed=5)
    half = maxsim(query, [TokenVectors(vectors.bfloat16(), (7,))])
    assert half.dtype == torch.float32
    assert torch.allclose(half, maxsim(query, [TokenVectors(vectors, (7,))]), atol=0.03)


@pytest.mark.parametrize("windows", [(300,), (7, 3), (1,)])
def test_scores_are_those_of_the_first_stage(windows: tuple[int, ...]) -> None:
    # In bfloat16 products these would tie, or change places.
    query = unit(9, 64)
    documents = [TokenVectors(unit(sum(windows), 64, seed=i).bfloat16(), windows) for i in range(40)]
    (exact,) = PackedVectors.of(documents, "cpu").score([query.bfloat16()])
    assert torch.allclose(maxsim(query.bfloat16(), documents), exact, atol=1e-5)


def test_bytes_are_the_vectors() -> None:
    assert TokenVectors(torch.zeros(3, 4), (3,)).nbytes == 48
    assert TokenVectors(torch.zeros(3, 4, dtype=torch.bfloat16), (3,)).nbytes == 24
