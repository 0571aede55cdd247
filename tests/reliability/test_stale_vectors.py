"""No vector outlives the text it was made of."""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from pipeline_fakes import Stage
from word_backbone import WordBackbone, word_excise

from excise_integrations import Candidate, Excise
from excise_integrations.encode.cache import VectorCache
from excise_integrations.first_stage.memory import MemoryFirstStage

QUERY = "pets, but not cats"
BEFORE = {"a": "cats are pets", "b": "dogs are pets", "c": "parrots are pets", "d": "fish are pets"}
# The first two have exchanged their subjects, under their old ids, lengths and places.
AFTER = {**BEFORE, "a": "dogs are pets", "b": "cats are pets"}


def stage_of(texts: dict[str, str], *, fingerprint: str = "never changes") -> Stage:
    stage = Stage([Candidate(name, text) for name, text in texts.items()])
    stage.fingerprint = fingerprint  # type: ignore[misc]
    return stage


def removed(excise: Excise, stage: Any) -> list[str]:
    return [c.id for c in excise.search(QUERY, stage).removed]


def check_changed_text(make: Callable[[], Excise]) -> None:
    """An index that changes a text and forgets to change its fingerprint is judged by the new text."""
    excise = make()
    assert removed(excise, stage_of(BEFORE)) == ["a"]
    assert removed(excise, stage_of(AFTER)) == ["b"]
    # A later process, over the same folder.
    assert removed(make(), stage_of(AFTER)) == ["b"]
    assert removed(make(), stage_of(BEFORE)) == ["a"]


def check_rebuilt_index(make: Callable[[], Excise]) -> None:
    """An index that is deleted from, added to and built anew, under the same ids."""
    backbone: Any = WordBackbone()
    excise = make()
    stage = MemoryFirstStage.from_texts(list(BEFORE.values()), ids=list(BEFORE), backbone=backbone)
    assert removed(excise, stage) == ["a"]
    stage.delete(["a", "b"])
    stage.add([AFTER["a"], AFTER["b"]], ids=["a", "b"])
    assert removed(excise, stage) == ["b"]
    rebuilt = MemoryFirstStage.from_texts(list(BEFORE.values()), ids=list(BEFORE), backbone=backbone)
    assert removed(excise, rebuilt) == ["a"]


CHECKS = [check_changed_text, check_rebuilt_index]


@pytest.fixture(params=["memory", "disk", "small memory and disk"])
def make(request: pytest.FixtureRequest, tmp_path: Path) -> Callable[[], Excise]:
    settings: dict[str, Any] = {} if request.param == "memory" else {"cache_dir": tmp_path}
    if request.param.startswith("small"):
        settings["cache_bytes"] = 2000
    return lambda: word_excise(adapter=True, **settings)


@pytest.mark.parametrize("check", CHECKS)
def test_a_document_is_judged_by_the_text_it_has_now(make: Callable[[], Excise], check: Any) -> None:
    check(make)


def test_frozen_vectors_are_of_the_text_it_has_now() -> None:
    check_rebuilt_index(word_excise)


def test_the_checks_see_a_key_without_the_content(monkeypatch: pytest.MonkeyPatch) -> None:
    """The checks above fail when the content is left out of the key."""
    monkeypatch.setattr(VectorCache, "key", staticmethod(_by_place()))
    with pytest.raises(AssertionError):
        check_changed_text(lambda: word_excise(adapter=True))
    monkeypatch.setattr(VectorCache, "key", staticmethod(lambda text, space, fingerprint="": "0" * 64))
    for check in CHECKS:
        with pytest.raises(AssertionError):
            check(lambda: word_excise(adapter=True))


def _by_place() -> Callable[..., str]:
    """A key of the place in the shortlist, as a cache by document id would have."""
    calls = iter(range(10**9))

    def key(text: str, space: str, fingerprint: str = "") -> str:
        return hashlib.sha256(f"{space} {fingerprint} {next(calls) % len(BEFORE)}".encode()).hexdigest()

    return key
