"""The report in a real browser."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from audit_browser import CHROMIUM, Browser
from audit_results import make_hostile, make_result

pytestmark = pytest.mark.skipif(CHROMIUM is None, reason="Chromium is not installed")


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    browser = Browser()
    yield browser
    browser.close()


def ids(browser: Browser) -> list[str]:
    return browser.js(
        "Array.from(document.querySelectorAll('#candidates tbody tr')).filter(r => r.offsetParent !== null)"
        ".map(r => r.querySelector('.id').textContent)"
    )


def show(browser: Browser, source: str, folder: Path) -> None:
    page = folder / "report.html"
    page.write_text(source, encoding="utf-8")
    browser.errors.clear()
    browser.requests.clear()
    browser.open(page)


def test_it_sorts_filters_and_prints(browser: Browser, tmp_path: Path) -> None:
    show(browser, make_result().report().to_html(), tmp_path)
    assert ids(browser) == ["dog", "kitten", "parrot", "horse", "cat"]

    # By the keyboard: the header is a button.
    browser.js("document.querySelectorAll('#candidates th button')[6].focus()")
    browser.press("Enter", 13, "\r")
    assert ids(browser) == ["horse", "parrot", "kitten", "dog", "cat"]
    browser.press("Enter", 13, "\r")
    assert ids(browser) == ["cat", "dog", "kitten", "parrot", "horse"]
    assert browser.js("document.querySelectorAll('#candidates th[aria-sort]')[6].ariaSort") == "descending"
    assert browser.js("document.querySelectorAll('#candidates th[aria-sort=none]').length") == 9
    # What has no value stays last in both directions.
    for _ in range(2):
        browser.js("document.querySelectorAll('#candidates th button')[0].click()")
        assert ids(browser)[-1] == "cat"

    browser.js("document.querySelector('input[value=reranked]').click()")
    assert sorted(ids(browser)) == ["cat", "dog", "kitten"]
    browser.js("var s = document.querySelector('#search'); s.value = 'KITTEN'; s.dispatchEvent(new Event('input'))")
    assert ids(browser) == ["kitten"]
    assert browser.js("document.querySelector('#status').textContent") == "1 of 5 candidates shown"
    # A link to a row that is filtered out shows it again.
    browser.js("document.querySelector('#rankings a[href=\"#c5\"]').click()")
    browser.js("new Promise(done => setTimeout(done, 100))")
    assert len(ids(browser)) == 5

    assert browser.pdf().startswith(b"%PDF")
    assert browser.errors == []
    assert browser.requests == [(tmp_path / "report.html").as_uri()]


def test_dark_and_print_change_the_colours(browser: Browser, tmp_path: Path) -> None:
    show(browser, make_result().report().to_html(), tmp_path)
    background = "getComputedStyle(document.body).backgroundColor"
    browser.media(prefers_color_scheme="light")
    assert browser.js(background) == "rgb(255, 255, 255)"
    browser.media(prefers_color_scheme="dark")
    assert browser.js(background) == "rgb(20, 24, 29)"
    browser.media("print", prefers_color_scheme="dark")
    assert browser.js(background) == "rgb(255, 255, 255)"
    assert browser.js("getComputedStyle(document.querySelector('.controls')).display") == "none"
    browser.media()


@pytest.mark.parametrize("form", ["to_html", "_repr_html_"])
def test_hostile_texts_do_nothing(browser: Browser, tmp_path: Path, form: str) -> None:
    source = getattr(make_hostile().report(), form)()
    show(browser, source if form == "to_html" else f"<!DOCTYPE html><meta charset=utf-8>{source}", tmp_path)
    assert browser.js("typeof window.pwned") == "undefined"
    assert browser.js("document.images.length") == 0
    assert browser.js("document.scripts.length") == (1 if form == "to_html" else 0)
    assert len(browser.requests) == 1
    assert browser.errors == []
