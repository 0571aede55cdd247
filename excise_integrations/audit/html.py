"""The report as one HTML page, and as a fragment for notebooks."""

from __future__ import annotations

import base64
import hashlib
from typing import Any

from ._markup import Safe, el, escape
from ._script import SCRIPT
from ._segments import query_segments
from ._style import CSS
from ._table import candidate_table, marked_text, rankings_table, topics_table
from .markdown import provenance
from .reasons import quoted

__all__ = ["html_fragment", "html_page"]

_FRAGMENT_ROWS = 25
_HIGHLIGHT_NOTE = (
    "Words in bold are the best match of a word of the excluded topic: the evidence is the mean of their similarities. "
    "Lightly marked words match nearly as well."
)


def html_page(record: dict[str, Any]) -> str:
    """Render a report's record as one self-contained page.

    The content policy names the hashes of the page's own style and script: nothing else runs and
    nothing is loaded, even if a text got past the escaping.
    """
    policy = (
        f"default-src 'none'; style-src '{_hash(CSS)}'; script-src '{_hash(SCRIPT)}'; base-uri 'none'; "
        "form-action 'none'"
    )
    head = el(
        "head",
        el("meta", charset="utf-8"),
        el("meta", http_equiv="Content-Security-Policy", content=policy),
        el("meta", name="viewport", content="width=device-width, initial-scale=1"),
        el("meta", name="referrer", content="no-referrer"),
        el("title", f"Excise report: {quoted(record['query'])}"),
        el("style", Safe(CSS)),
    )
    page = el(
        "div",
        el("a", "Skip to the candidates", href="#candidates", class_="skip"),
        el("header", el("h1", "Excise report"), _query(record), _summary(record)),
        el("main", _warnings(record), _topics(record), _removed(record), _rankings(record), _candidates(record)),
        el("footer", _provenance(record)),
        class_="xr-page",
    )
    body = el("body", page, el("script", Safe(SCRIPT)), class_="xr")
    return f"<!DOCTYPE html>\n{el('html', head, body, lang='en')}\n"


def html_fragment(record: dict[str, Any]) -> str:
    """Render a report's record for a notebook: no script, no ids, its style kept to itself."""
    candidates = sorted(record["candidates"], key=_by_rank)
    rows = candidates[:_FRAGMENT_ROWS]
    more = len(candidates) - len(rows)
    return el(
        "div",
        el("style", Safe(CSS)),
        _query(record),
        _summary(record),
        _warnings(record),
        _removed(record, anchors=False),
        el("div", candidate_table(record, rows, interactive=False), class_="scroll") if rows else None,
        el("p", f"{more} more in the full report (to_html).", class_="small") if more > 0 else None,
        class_="xr",
    )


def _hash(source: str) -> str:
    return "sha256-" + base64.b64encode(hashlib.sha256(source.encode()).digest()).decode()


def _by_rank(candidate: dict[str, Any]) -> tuple[bool, int]:
    rank = candidate["rank"]
    return (rank is None, rank or candidate["first_stage_rank"])


def _query(record: dict[str, Any]) -> Safe:
    pieces = []
    for kind, text in query_segments(record):
        if not kind:
            pieces.append(escape(text))
            continue
        # Colour alone says nothing to a screen reader.
        opening, closing = el("span", f"[{kind}: ", class_="sr"), el("span", "]", class_="sr")
        pieces.append(el("mark", opening, text, closing, class_=kind))
    legend = el(
        "p",
        "In the query: ",
        el("mark", "excluded", class_="excluded"),
        " and ",
        el("mark", "wanted", class_="wanted"),
        class_="legend",
        aria_hidden="true",
    )
    query = el(
        "div", Safe("".join(pieces)), class_="query", role="region", aria_label="Query", tabindex="0", dir="auto"
    )
    return Safe(query + (legend if record["detection"]["fired"] else ""))


def _summary(record: dict[str, Any]) -> Safe:
    return Safe("".join(el("p", sentence) for sentence in record["summary"]))


def _warnings(record: dict[str, Any]) -> Safe | None:
    if not record["warnings"]:
        return None
    items = [el("li", warning) for warning in record["warnings"]]
    return el("div", el("strong", "Warnings"), el("ul", *items), class_="warn", role="note", aria_label="Warnings")


def _topics(record: dict[str, Any]) -> Safe | None:
    if not record["topics"]:
        return None
    return _section("topics", "Excluded topics", el("div", topics_table(record), class_="scroll"))


def _removed(record: dict[str, Any], *, anchors: bool = True) -> Safe | None:
    if not record["detection"]["fired"] or not record["candidates"]:
        return None
    removed = [c for c in record["candidates"] if c["action"] == "removed"]
    title = "Documents that would have been removed" if record["shadow"] else "Removed documents"
    cards = []
    for c in removed:
        rank = f"First-stage rank {c['first_stage_rank']}"
        link: object = el("a", rank, href=f"#c{c['first_stage_rank']}") if anchors else rank
        cards.append(
            el(
                "li",
                el("h3", el("bdi", c["id"], class_="id")),
                el("p", c["reason"]),
                marked_text(c),
                el("p", link, class_="small"),
                class_="card",
            )
        )
    content = el("ol", *cards, class_="removal") if cards else el("p", "None.")
    note = el("p", _HIGHLIGHT_NOTE, class_="small") if record["highlighted"] and cards else None
    if not anchors:
        return Safe(el("p", el("strong", title)) + content)
    return _section("removed", title, note, content)


def _rankings(record: dict[str, Any]) -> Safe | None:
    if not record["detection"]["fired"] or not record["candidates"]:
        return None
    label = "Frozen and final ranking, scrolls"
    table = el("div", rankings_table(record), class_="scroll tall", role="region", aria_label=label, tabindex="0")
    details = el("details", el("summary", "Side by side"), table, open=True)
    return _section("rankings", "Frozen and final ranking", details)


def _candidates(record: dict[str, Any]) -> Safe:
    if not record["candidates"]:
        return _section("candidates", "Candidates", el("p", "The shortlist was empty."))
    actions = list(dict.fromkeys(c["action"] for c in record["candidates"]))
    boxes = [el("label", el("input", type="checkbox", value=action, checked=True), f" {action}") for action in actions]
    controls = el(
        "div",
        el("div", el("label", "Search ids, texts and reasons", for_="search"), el("br"),
           el("input", type="search", id="search", autocomplete="off")),
        el("fieldset", el("legend", "Actions shown"), *boxes),
        el("button", "Show all", type="button", id="reset"),
        el("span", id="status", role="status", aria_live="polite"),
        class_="controls",
    )  # fmt: skip
    rows = sorted(record["candidates"], key=_by_rank)
    table = el(
        "div",
        candidate_table(record, rows, interactive=True),
        class_="scroll",
        role="region",
        aria_label="Candidates, scrolls sideways",
        tabindex="0",
    )
    return _section("candidates", "Candidates", controls, table)


def _provenance(record: dict[str, Any]) -> Safe:
    rows = [Safe(el("dt", name) + el("dd", value)) for name, value in provenance(record)]
    return _section("made-with", "Made with", el("dl", *rows))


def _section(name: str, title: str, *content: Safe | None) -> Safe:
    return el("section", el("h2", title, id=f"{name}-title"), *content, id=name, aria_labelledby=f"{name}-title")
