"""Windows over long documents."""

from __future__ import annotations

import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from excise_integrations import InvalidInputError
from excise_integrations.encode import WindowPolicy, split_windows


def words(count: int) -> str:
    return " ".join(f"w{i}" for i in range(count))


@pytest.mark.parametrize(
    ("count", "sizes"),
    [(1, [1]), (199, [199]), (200, [200]), (201, [200, 1]), (1000, [200] * 5), (1001, [200] * 5), (5000, [200] * 5)],
)
def test_windows_of_200_words_up_to_1000(count: int, sizes: list[int]) -> None:
    windows = split_windows(words(count), WindowPolicy())
    assert [len(w.split()) for w in windows] == sizes
    assert " ".join(windows).split() == words(min(count, 1000)).split()


def test_the_text_between_words_stays_as_it_is() -> None:
    assert split_windows("  one\n two\tthree  four ", WindowPolicy(3, 10)) == ["  one\n two\tthree", "four"]


@pytest.mark.parametrize("text", ["", " ", "\n\t"])
def test_a_blank_text_has_one_empty_window(text: str) -> None:
    assert split_windows(text, WindowPolicy()) == [""]


@given(st.text(max_size=200), st.integers(1, 4), st.integers(0, 8))
def test_no_word_is_lost_or_cut(text: str, size: int, more: int) -> None:
    policy = WindowPolicy(size, size + more)
    windows = split_windows(text, policy)
    assert windows
    assert [w for window in windows for w in window.split()] == text[: policy.max_words * 100].split()[: size + more]
    assert all(len(w.split()) <= size for w in windows)
    assert len(windows) == 1 or all(w.strip() for w in windows)


@pytest.mark.parametrize("text", ["a" * 5_000_000, " " * 5_000_000, "a " * 2_500_000])
def test_a_hostile_document_is_read_in_bounded_time(text: str) -> None:
    began = time.process_time()
    windows = split_windows(text, WindowPolicy())
    assert time.process_time() - began < 0.5
    assert sum(len(w) for w in windows) <= 100_000


@pytest.mark.parametrize(("size", "most"), [(0, 10), (-1, 10), (10, 9)])
def test_policies_that_cannot_be_used_are_refused(size: int, most: int) -> None:
    with pytest.raises(InvalidInputError, match="words must be at least 1"):
        WindowPolicy(size, most)
