"""The Markdown report."""

from __future__ import annotations

import pytest
from audit_results import make_hostile, make_result
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from excise_integrations import ExciseResult

markdown_it = pytest.importorskip("markdown_it")
ALLOWED = {
    "heading_open", "heading_close", "paragraph_open", "paragraph_close", "inline", "bullet_list_open",
    "bullet_list_close", "list_item_open", "list_item_close", "blockquote_open", "blockquote_close", "table_open",
    "table_close", "thead_open", "thead_close", "tbody_open", "tbody_close", "tr_open", "tr_close", "th_open",
    "th_close", "td_open", "td_close",
}  # fmt: skip
INLINE = {"text", "text_special", "strong_open", "strong_close", "softbreak", "hardbreak"}


def check(source: str) -> list[str]:
    parser = markdown_it.MarkdownIt("commonmark", {"html": True}).enable("table")
    texts = []
    for token in parser.parse(source):
        assert token.type in ALLOWED, token
        for child in token.children or []:
            assert child.type in INLINE, child
        if token.type == "inline":
            texts.append("".join(c.content for c in token.children or []))
    return texts


def blocks(result: ExciseResult) -> list[str]:
    parser = markdown_it.MarkdownIt("commonmark").enable("table")
    return [token.type for token in parser.parse(result.report().to_markdown())]


def test_it_reads_well(fired: ExciseResult) -> None:
    source = fired.report().to_markdown()
    assert "**domestic cat** (excluded)" in source
    assert "## Removed documents" in source
    assert "0.875" in source
    check(source)


def test_hostile_texts_make_no_markup(hostile: ExciseResult) -> None:
    texts = check(hostile.report().to_markdown())
    assert any("<img src=x onerror=" in text for text in texts)
    assert any("[x](javascript:alert(1))" in text for text in texts)
    assert "<" not in hostile.report().to_markdown()


@pytest.mark.parametrize(
    "start", ["# a", "- a", "+ a", "> a", "1. a", "12) a", "* a", "```", "---", "===", "| a |", "    a"]
)
def test_what_opens_a_block_opens_none(start: str) -> None:
    report = make_hostile(start).report()
    assert any(start.strip() in text for text in check(report.to_markdown()))
    assert blocks(make_result(warnings=(start,))) == blocks(make_result(warnings=("plain",)))


@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(st.text(st.characters() | st.sampled_from("<>&\\`*_[]()#+-.!|~:\n1 "), min_size=1, max_size=30))
def test_any_text_makes_no_markup(evil: str) -> None:
    check(make_hostile(evil).report().to_markdown())
