"""The HTML report: safe whatever the texts are, readable for everybody."""

from __future__ import annotations

import base64
import hashlib
import itertools
import re
from html.parser import HTMLParser

import pytest
from audit_results import HOSTILE, make_hostile, make_result, make_silent
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from excise_integrations import Detection, ExciseResult, Span, Verdict
from excise_integrations.audit import Report
from excise_integrations.audit._markup import Safe, el, visible
from excise_integrations.audit._style import CONTRASTS, DARK, LIGHT

VOID = {"meta", "br", "input"}
TAGS = VOID | {
    "html", "head", "title", "style", "body", "div", "a", "header", "h1", "h2", "h3", "p", "span", "mark", "bdi",
    "strong", "ul", "ol", "li", "main", "section", "table", "caption", "thead", "tbody", "tr", "th", "td", "details",
    "summary", "dl", "dt", "dd", "footer", "svg", "rect", "line", "label", "fieldset", "legend", "button", "script",
}  # fmt: skip
ATTRIBUTES = {
    "charset", "http-equiv", "content", "name", "lang", "class", "id", "href", "role", "tabindex", "dir", "scope",
    "for", "type", "value", "checked", "open", "autocomplete", "x", "y", "x1", "x2", "y1", "y2", "width", "height",
    "viewbox",
}  # fmt: skip


class Page(HTMLParser):
    def __init__(self, source: str) -> None:
        super().__init__(convert_charrefs=True)
        self.tags: list[tuple[str, dict[str, str | None]]] = []
        self.text: list[str] = []
        self.raw: dict[str, list[str]] = {"style": [], "script": [], "title": []}
        self._open: list[str] = []
        self.feed(source)
        self.close()
        assert self._open == [], "every element is closed"

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, dict(attrs)))
        if tag not in VOID:
            self._open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        assert self._open.pop() == tag

    def handle_data(self, data: str) -> None:
        inside = self._open[-1] if self._open else ""
        self.raw.get(inside, self.text).append(data)

    def handle_comment(self, data: str) -> None:
        raise AssertionError(f"a comment: {data}")

    def every(self, tag: str) -> list[dict[str, str | None]]:
        return [attrs for name, attrs in self.tags if name == tag]


def check_safe(source: str, scripts: int) -> Page:
    page = Page(source)
    for tag, attrs in page.tags:
        assert tag in TAGS
        for name in attrs:
            assert name in ATTRIBUTES or name.startswith(("aria-", "data-"))
    for link in page.every("a"):
        assert re.fullmatch(r"#[\w-]+", link["href"] or "")
    assert len(page.every("script")) == scripts
    assert len(page.every("style")) == 1
    source.encode("utf-8")
    assert not re.search(r"[\x00-\x08\x0b\x0c\x0e-\x1f\u202a-\u202e\u2066-\u2069]", source)
    return page


@pytest.mark.parametrize(
    "result", [make_result(), make_silent(), make_hostile(), make_result(verdicts={}, candidates=(), removed=())]
)
def test_only_our_own_elements_stand_in_it(result: ExciseResult) -> None:
    report = result.report()
    check_safe(report.to_html(), scripts=1)
    fragment = check_safe(report._repr_html_(), scripts=0)
    assert not any("id" in attrs for _, attrs in fragment.tags)


def test_hostile_texts_are_shown_as_they_are(hostile: ExciseResult) -> None:
    page = check_safe(hostile.report().to_html(), scripts=1)
    shown = visible(HOSTILE.encode("utf-8", "replace").decode())
    # query (twice), summary, warnings, topics, removed documents, rankings, candidates, metadata, adapters.
    assert "".join(page.text).count(shown) >= 12


@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(st.text(st.characters() | st.sampled_from("<>&\"'`=/!-\x00\u202e\ud800"), min_size=1, max_size=40))
def test_any_text_is_safe(evil: str) -> None:
    report = make_hostile(evil).report()
    check_safe(report.to_html(), scripts=1)
    check_safe(report._repr_html_(), scripts=0)


def test_the_policy_allows_only_our_style_and_script(fired: ExciseResult) -> None:
    page = Page(fired.report().to_html())
    policy = next(m["content"] or "" for m in page.every("meta") if m.get("http-equiv") == "Content-Security-Policy")
    assert "default-src 'none'" in policy
    assert "unsafe" not in policy
    for directive, tag in (("style-src", "style"), ("script-src", "script")):
        digest = base64.b64encode(hashlib.sha256("".join(page.raw[tag]).encode()).digest()).decode()
        assert f"{directive} 'sha256-{digest}'" in policy


def test_it_loads_nothing(fired: ExciseResult) -> None:
    source = fired.report().to_html()
    assert not re.search(r"https?://|//[a-z]|url\(|@import|\ssrc=", source)


def test_structure_for_screen_readers_and_keyboards(fired: ExciseResult) -> None:
    page = Page(fired.report().to_html())
    assert page.every("html") == [{"lang": "en"}]
    assert len(page.every("h1")) == 1
    levels = [int(tag[1]) for tag, _ in page.tags if re.fullmatch(r"h[1-6]", tag)]
    assert all(b <= a + 1 for a, b in itertools.pairwise(levels))
    assert all(th.get("scope") in ("col", "row") for th in page.every("th"))
    ids = [attrs["id"] for _, attrs in page.tags if "id" in attrs]
    assert len(ids) == len(set(ids))
    for _, attrs in page.tags:
        for reference in (attrs.get("aria-labelledby"), attrs.get("for"), (attrs.get("href") or "").removeprefix("#")):
            assert not reference or reference in ids
    for svg in page.every("svg"):
        assert svg["role"] == "img"
        assert re.search(r"Evidence .*, cut .*, safety floor", svg["aria-label"] or "")
    assert any(attrs.get("role") == "status" for attrs in page.every("span"))
    assert sum("aria-sort" in th for th in page.every("th")) == 10
    assert "[excluded: " in page.text


def test_the_query_is_marked(fired: ExciseResult) -> None:
    source = fired.report().to_html()
    assert '<mark class="wanted"><span class="sr">[wanted: </span>animals kept as pets<' in source
    assert '<mark class="excluded"><span class="sr">[excluded: </span>domestic cat<' in source


def test_wanted_words_are_found_around_the_topic_or_not_marked_at_all() -> None:
    query = "nothing about cats please: animals kept as pets"
    detection = Detection(True, 0.9, (Span("cats", 14, 18, 0.9),), "animals kept as pets")
    source = make_result(query=query, detection=detection).report().to_html()
    assert "please: <mark" in source
    assert ">[wanted: </span>animals kept as pets<" in source
    # A detector of the user's own may put the wanted part in words that are not the query's.
    detection = Detection(True, 0.9, (Span("cats", 14, 18, 0.9),), "pet animals")
    assert "[wanted: " not in make_result(query=query, detection=detection).report().to_html()


def luminance(colour: str) -> float:
    parts = [int(colour[i : i + 2], 16) / 255 for i in (1, 3, 5)]
    r, g, b = (p / 12.92 if p <= 0.03928 else ((p + 0.055) / 1.055) ** 2.4 for p in parts)
    return 0.2126 * r + 0.7152 * g + 0.0722 * b


@pytest.mark.parametrize("palette", [LIGHT, DARK])
def test_contrast(palette: dict[str, str]) -> None:
    for front, back, least in CONTRASTS:
        light, dark = sorted((luminance(palette[front]), luminance(palette[back])), reverse=True)
        assert (light + 0.05) / (dark + 0.05) >= least, (front, back)


def test_a_shortlist_of_hundreds_stays_short_in_a_notebook() -> None:
    verdicts = {f"d{i}": Verdict(f"d{i}", "unchanged", i + 1, i + 1, 1.0, 1.0) for i in range(300)}
    fragment = Report(make_silent(verdicts=verdicts))._repr_html_()
    assert fragment.count("<tr") == 26
    assert "275 more in the full report" in fragment


def test_attributes_are_escaped_even_when_the_value_is_markup() -> None:
    assert el("p", title=Safe('"><script>')) == '<p title="&quot;&gt;&lt;script&gt;"></p>'
    assert el("p", Safe("<b>x</b>"), "<b>") == "<p><b>x</b>&lt;b&gt;</p>"
    with pytest.raises(ValueError, match="attribute"):
        el("p", **{"on x": "1"})
