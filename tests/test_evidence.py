"""Evidence: which tokens count, and how they are averaged."""

from __future__ import annotations

import pytest
import torch

from excise_integrations.encode.maxsim import TokenVectors
from excise_integrations.evidence import (
    content_mask,
    evidence_of,
    opening_evidence,
    pooled,
    topic_mask,
    wanted_mask,
)

SPECIAL = frozenset({"[CLS]", "[SEP]", "[UNK]"})


def tokens(*names: str, ids: list[int] | None = None) -> TokenVectors:
    return TokenVectors(
        torch.zeros(len(names), 2), (len(names),), names, tuple(ids or [hash(n) % 10_000 for n in names])
    )


def kept(mask: list[bool], vectors: TokenVectors) -> list[str]:
    return [t for t, m in zip(vectors.tokens, mask, strict=True) if m]


# --- which tokens -------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("names", "content"),
    [
        (["[CLS]", "the", "battle", "of", "hast", "##ings", "[SEP]"], ["battle", "hast", "##ings"]),
        (["[CLS]", "c", "+", "+", "[SEP]"], ["c"]),
        (["ĠThe", "ĠTesla"], ["ĠTesla"]),
        (["▁the", "▁tesla"], ["▁tesla"]),
        # Only stop words: then they count.
        (["[CLS]", "the", "who", "[SEP]"], ["the", "who"]),
        (["[CLS]", "!", "[SEP]"], []),
        (["[CLS]", "[UNK]", "[SEP]"], []),
    ],
)
def test_content_tokens(names: list[str], content: list[str]) -> None:
    vectors = tokens(*names)
    assert kept(content_mask(vectors, special=SPECIAL), vectors) == content


def test_a_topic_s_tokens_are_those_that_the_query_has_nowhere_else() -> None:
    topic = tokens("[CLS]", "electric", "bikes", "[SEP]", ids=[1, 20, 30, 2])
    assert kept(topic_mask(topic, [20, 40], special=SPECIAL), topic) == ["bikes"]
    assert kept(topic_mask(topic, [], special=SPECIAL), topic) == ["electric", "bikes"]
    # A topic that repeats the wanted words has nothing else: then they count.
    assert kept(topic_mask(topic, [20, 30], special=SPECIAL), topic) == ["electric", "bikes"]


def test_punctuation_counts_when_there_is_nothing_else() -> None:
    topic = tokens("[CLS]", "!", "?", "[SEP]")
    assert kept(topic_mask(topic, [], special=SPECIAL), topic) == ["!", "?"]
    unknown = tokens("[CLS]", "[UNK]", "[SEP]")
    assert kept(topic_mask(unknown, [], special=SPECIAL), unknown) == []


def test_wanted_tokens_are_those_outside_the_topics() -> None:
    query = tokens("[CLS]", "cars", "but", "not", "tesla", "cars", "[SEP]", ids=[1, 10, 11, 12, 20, 10, 2])
    topic = tokens("[CLS]", "tesla", "cars", "[SEP]", ids=[1, 20, 10, 2])
    assert kept(wanted_mask(query, [topic], special=SPECIAL), query) == ["[CLS]", "cars", "but", "not", "[SEP]"]
    # A topic that does not stand in the query hides nothing, and nothing is left of a query that only excludes.
    absent = tokens("[CLS]", "audi", "[SEP]", ids=[1, 33, 2])
    assert all(wanted_mask(query, [absent], special=SPECIAL))
    only = tokens("[CLS]", "not", "tesla", "[SEP]", ids=[1, 12, 20, 2])
    assert all(wanted_mask(only, [tokens("[CLS]", "tesla", ids=[1, 20])], special=SPECIAL))


# --- how they are averaged ------------------------------------------------------------------------


def test_evidence_is_the_mean_over_topic_tokens_of_the_best_match() -> None:
    topic = torch.eye(2)
    both = TokenVectors(torch.eye(2), (2,))
    one = TokenVectors(torch.tensor([[1.0, 0.0]]), (1,))
    none = TokenVectors(torch.tensor([[-1.0, 0.0]]), (1,))
    assert evidence_of([topic], [both, one, none]).T.tolist() == [[1.0, 0.5, -0.5]]


def test_evidence_is_the_best_window_s() -> None:
    apart = TokenVectors(torch.eye(2), (1, 1))
    assert evidence_of([torch.eye(2)], [apart]).tolist() == [[0.5]]


def test_every_topic_has_its_own_column() -> None:
    topics = [torch.tensor([[1.0, 0.0]]), torch.eye(2), torch.tensor([[0.0, 1.0]])]
    document = TokenVectors(torch.tensor([[1.0, 0.0]]), (1,))
    assert evidence_of(topics, [document]).tolist() == [[1.0, 0.5, 0.0]]


def test_a_topic_without_tokens_gives_the_least_evidence() -> None:
    documents = [TokenVectors(torch.eye(2), (2,)), TokenVectors(torch.eye(2), (1, 1))]
    out = evidence_of([torch.zeros(0, 2), torch.eye(2)], documents)
    assert out[:, 0].tolist() == [-1.0, -1.0]
    assert out[:, 1].tolist() == [1.0, 0.5]
    assert evidence_of([torch.zeros(0, 2)], documents).tolist() == [[-1.0], [-1.0]]


def test_evidence_stays_within_one() -> None:
    # bfloat16 vectors are a little longer or shorter than one.
    vectors = torch.nn.functional.normalize(torch.randn(50, 7), dim=-1).bfloat16() * 1.01
    out = evidence_of([vectors], [TokenVectors(vectors, (50,)), TokenVectors(-vectors[:1], (1,))])
    assert out.dtype == torch.float32
    assert float(out.max()) <= 1.0
    assert float(out.min()) >= -1.0


def test_the_paper_s_topic_is_one_mean_over_all_tokens() -> None:
    (joined,) = pooled([torch.tensor([[1.0, 0.0]]), torch.tensor([[0.0, 1.0], [0.0, 1.0]])])
    document = TokenVectors(torch.tensor([[1.0, 0.0]]), (1,))
    assert evidence_of([joined], [document]).item() == pytest.approx(1 / 3)


def test_an_opening_is_the_first_tokens_of_the_first_window() -> None:
    topic = torch.eye(4)[:1]
    rows = torch.eye(4)[torch.tensor([1, 2, 0, 3])]
    early, late = TokenVectors(rows[[2, 0, 1, 3]], (4,)), TokenVectors(rows, (4,))
    second = TokenVectors(rows, (2, 2))
    assert opening_evidence([topic], [early, late, second], 2).flatten().tolist() == [1.0, 0.0, 0.0]
    # Three tokens reach the topic in one window, and never leave the first of two.
    assert opening_evidence([topic], [early, late, second], 3).flatten().tolist() == [1.0, 1.0, 0.0]
    assert evidence_of([topic], [early, late, second]).flatten().tolist() == [1.0, 1.0, 1.0]
