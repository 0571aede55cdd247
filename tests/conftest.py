"""Shared fixtures: offline, one MiniLM a session."""

from __future__ import annotations

import os

# Before torch is imported anywhere: two busy threads on a shared machine are slower than one.
os.environ.setdefault("OMP_NUM_THREADS", "1")
os.environ.setdefault("HF_HUB_OFFLINE", "1")
os.environ.setdefault("TOKENIZERS_PARALLELISM", "false")

from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from excise_integrations import Candidate, Excise
    from excise_integrations.encode import Backbone

ANIMALS = {
    "cat": "The domestic cat is a small carnivorous mammal that people keep as a pet and that hunts mice.",
    "dog": "The dog is a domesticated descendant of the wolf; dogs are kept as pets and work with people.",
    "parrot": "Parrots are colourful birds with curved beaks; some species learn to imitate human speech.",
    "goldfish": "The goldfish is a freshwater fish that is commonly kept as a pet in indoor aquariums.",
    "hamster": "Hamsters are small rodents that carry food in their cheek pouches and are kept as house pets.",
    "rabbit": "Rabbits are small mammals with long ears; several breeds are kept as pets in houses and gardens.",
    "tortoise": "Tortoises are slow reptiles with a domed shell; kept as pets they can live for many decades.",
    "horse": "Horses are large hoofed mammals that were bred for riding, racing and work on farms.",
}


@pytest.fixture(scope="session")
def backbone() -> Backbone:
    """The frozen MiniLM backbone."""
    from excise_integrations.encode import Backbone

    return Backbone.from_pretrained("minilm")


@pytest.fixture(scope="session")
def excise_rules() -> Excise:
    """MiniLM with the rules detector: fires on explicit cues, needs no trained weights of ours."""
    from excise_integrations import Excise

    return Excise.from_pretrained("minilm", detector="rules")


@pytest.fixture
def animals() -> list[Candidate]:
    """Eight candidates about animals, in a fixed order with falling scores."""
    from excise_integrations import Candidate

    return [
        Candidate(id=name, text=text, score=10.0 - rank, metadata={"kind": "animal"})
        for rank, (name, text) in enumerate(ANIMALS.items())
    ]
