"""The linear probe: what it is given, and that it finds what is there and nothing else."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from zlib import crc32

import pytest
import torch
from torch import nn

from excise_integrations.bench import load_suite
from excise_integrations.bench.hidden import Encoded, LayerReader, backbone_layers
from excise_integrations.bench.probe import (
    draw_pairs,
    example_queries,
    probe_documents,
    probe_queries,
    suite_queries,
)
from excise_integrations.encode import Backbone
from excise_integrations.errors import InvalidInputError, SuiteError
from excise_integrations.train.examples import Example

WriteSuite = Callable[..., Path]


def pair(number: int, topic: str) -> list[Example]:
    texts = (f"rivers but not {topic}", f"rivers and also {topic}")
    at = texts[0].index(topic)
    key, topics = f"p{number}", (topic,)
    return [
        Example(texts[0], 1, topics, ((at, at + len(topic)),), "explicit", "short", key, "geography", topics),
        Example(texts[1], 0, (), (), "plain", "short", key, "geography", ()),
    ]


class Planted(LayerReader):
    """Layer "noise" holds random numbers; layer "told" holds whether "but" or "bad" is in the text, and noise."""

    def __init__(self) -> None:
        self.names = ("noise", "told")

    def read(self, texts: Sequence[str]) -> Iterator[Encoded]:
        for text in texts:
            offsets, at = [], 0
            for word in text.split(" "):
                offsets.append((at, at + len(word)))
                at += len(word) + 1
            states = torch.randn(2, len(offsets), 8, generator=torch.Generator().manual_seed(crc32(text.encode())))
            states[1, :, 0] = 5.0 if {"but", "bad"} & set(text.split()) else -5.0
            yield Encoded((states,), tuple(offsets))


@pytest.fixture
def examples() -> list[Example]:
    rng = random.Random(0)
    names = {"".join(rng.choices("abcdefghij", k=7)) for _ in range(120)}
    return [e for i, name in enumerate(sorted(names)) for e in pair(i, name)]


def test_the_same_topic_is_excluded_in_one_member_and_wanted_in_the_other() -> None:
    first, second = example_queries(pair(0, "the Old Bug"))
    assert [first.text[a:b] for a, b in first.excluded] == ["Old", "Bug"]
    assert first.wanted == ()
    assert [second.text[a:b] for a, b in second.wanted] == ["Old", "Bug"]
    assert second.excluded == ()
    assert (first.excludes, second.excludes) == (True, False)


def test_queries_of_a_suite_are_kept_where_they_are_known_to_exclude_or_not(write_suite: WriteSuite) -> None:
    found = suite_queries(load_suite(write_suite()))
    assert [(q.excludes, [q.text[a:b] for a, b in q.excluded]) for q in found] == [
        (True, ["violin"]), (True, ["guitar"]), (False, []),
    ]  # fmt: skip
    queries = [{"_id": "q3", "text": "animals", "excluded": ["otters"]}, {"_id": "q1", "text": "no tier"}]
    other = write_suite("other", queries=queries, qrels=[("q3", "otter", 1), ("q1", "cello", 1)])
    assert suite_queries(load_suite(other)) == []


def test_a_layer_that_knows_separates_and_noise_does_not(examples: list[Example], write_suite: WriteSuite) -> None:
    found = probe_queries(Planted(), examples, [load_suite(write_suite())])
    (noise, told), (_, queries) = found["tokens"]["layers"], found["queries"]["layers"]
    assert (noise["layer"], told["layer"]) == ("noise", "told")
    assert told["held_out"] == queries["held_out"] == 1.0
    assert 0.3 < noise["held_out"] < 0.7
    # Of the suite's queries only "but not the violin" has the word; "except the guitar" is missed.
    assert queries["suites"] == 0.75
    assert found["queries"]["train"] + found["queries"]["test"] == len(examples)
    assert probe_queries(Planted(), examples)["queries"]["layers"][0]["suites"] is None


def test_wanted_and_excluded_documents_are_probed_by_groups(write_suite: WriteSuite) -> None:
    documents = {f"{kind}{i}": ("", f"{kind} number {i}") for i in range(30) for kind in ("good", "bad")}
    queries = [{"_id": f"q{i}", "text": f"query {i}"} for i in range(30)]
    qrels = [(f"q{i}", f"{kind}{i}", score) for i in range(30) for kind, score in (("good", 1), ("bad", -1))]
    suite = load_suite(write_suite(documents=documents, queries=queries, qrels=qrels))
    found = probe_documents(Planted(), [suite])
    assert found["n"] == 60
    assert found["layers"][1]["accuracy"] == 1.0
    assert 0.25 < found["layers"][0]["accuracy"] < 0.75
    with pytest.raises(SuiteError, match="1 groups of judged documents are too few for 5 folds"):
        probe_documents(Planted(), [load_suite(write_suite("few", qrels=[("q1", "cello", 1), ("q1", "violin", -1)]))])


def test_too_few_examples_are_refused(examples: list[Example]) -> None:
    with pytest.raises(InvalidInputError, match="2 examples are too few"):
        probe_queries(Planted(), examples[:2])


def test_pairs_are_drawn_whole(examples: list[Example]) -> None:
    drawn = draw_pairs(examples, 10, 3)
    assert len(drawn) == 20
    assert len({e.pair for e in drawn}) == 10
    assert drawn == draw_pairs(examples, 10, 3) != draw_pairs(examples, 10, 4)


def test_the_last_layer_is_what_the_backbone_compares(backbone: Backbone) -> None:
    texts = ["wild otters without rivers", "a longer query about sourdough bread and yeast"]
    reader = backbone_layers(backbone)
    assert reader.names == ("embeddings", "1", "2", "3", "4", "5", "6", "projection")
    for encoded, vectors, text in zip(reader.read(texts), backbone.encode_queries(texts), texts, strict=True):
        assert "".join(text[a:b] for a, b in encoded.offsets) == text.replace(" ", "")
        last = nn.functional.normalize(encoded.states[-1][0], dim=-1)
        # The backbone keeps [CLS] and [SEP].
        assert torch.allclose(last, vectors.vectors[1:-1].float(), atol=0.02)
        assert encoded.states[0].shape == (7, len(encoded.offsets), 384)
