"""The tables of the HTML report, and the marked texts in them."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

from ._markup import Safe, el, escape
from ._segments import excerpt
from .markdown import where
from .reasons import number

__all__ = ["candidate_table", "marked_text", "rankings_table", "topics_table"]

_EXCERPT = 2000
_METADATA_CHARS = 300
_METADATA_ITEMS = 20
_BAR_WIDTH = 120
_COLUMNS = [
    ("Rank", True), ("First stage", True), ("Move", True), ("Document", False), ("Action", False), ("Topic", False),
    ("Evidence", True), ("Penalty", True), ("Score", True), ("First-stage score", True),
]  # fmt: skip


def candidate_table(record: dict[str, Any], candidates: Sequence[dict[str, Any]], *, interactive: bool) -> Safe:
    """Build the table of all candidates.

    Args:
        record: the report's record.
        candidates: the rows, in order.
        interactive: whether the headers are buttons and the rows have ids.
    """
    head = []
    for index, (name, numeric) in enumerate(_COLUMNS):
        sort = ("ascending" if index == 0 else "none") if interactive else None
        content: object = el("button", name, type="button") if interactive else name
        head.append(el("th", content, scope="col", class_="n" if numeric else None, aria_sort=sort))
    caption = "Bar: evidence for the excluded topic, from 0 to 1; solid line: the cut; dashed line: the safety floor."
    if interactive:
        caption += " The buttons in the header sort."
    return el(
        "table",
        el("caption", caption),
        el("thead", el("tr", *head)),
        el("tbody", *(_row(record, c, interactive=interactive) for c in candidates)),
    )


def _row(record: dict[str, Any], c: dict[str, Any], *, interactive: bool) -> Safe:
    topic = record["topics"][c["span"]]["text"] if c["span"] is not None else None
    rank = "–" if c["rank"] is None else str(c["rank"])
    document = el(
        "th",
        el("bdi", c["id"], class_="id"),
        el("div", c["reason"], class_="small"),
        None if c["returned"] or c["action"] == "removed" else el("div", _not_returned(record), class_="small"),
        _details(c),
        scope="row",
        class_="doc",
    )
    return el(
        "tr",
        _number_cell(c["rank"], rank),
        _number_cell(c["first_stage_rank"], str(c["first_stage_rank"])),
        _number_cell(c["move"], move(c)),
        document,
        el("td", el("span", c["action"], class_=f"badge {c['action']}")),
        el("td", el("bdi", topic) if topic is not None else "–"),
        el("td", _bar(c, record["floor"]), number(c["evidence"]), class_="n", data_v=_sortable(c["evidence"])),
        _number_cell(c["penalty"], number(c["penalty"])),
        _number_cell(c["score"], number(c["score"])),
        _number_cell(c["first_stage_score"], number(c["first_stage_score"])),
        id=f"c{c['first_stage_rank']}" if interactive else None,
        data_action=c["action"],
    )


def _not_returned(record: dict[str, Any]) -> str:
    returned = sum(c["returned"] for c in record["candidates"])
    return f"Not returned: below the {returned} asked for; its text is not kept."


def _number_cell(value: float | None, shown: str) -> Safe:
    return el("td", shown, class_="n", data_v=_sortable(value))


def _sortable(value: float | None) -> str:
    return "" if value is None else repr(value)


def move(candidate: dict[str, Any]) -> str:
    """Say how a candidate moved, with a sign and a word that a screen reader can say."""
    steps = candidate["move"]
    if steps is None:
        return "removed"
    if steps == 0:
        return "="
    return f"▲ up {steps}" if steps > 0 else f"▼ down {-steps}"


def _bar(c: dict[str, Any], floor: float | None) -> Safe | None:
    if c["evidence"] is None:
        return None
    label = f"Evidence {number(c['evidence'])}, cut {number(c['cut'])}, safety floor {number(floor)}"
    marks = [
        el("line", x1=_at(value), x2=_at(value), y1=1, y2=15, class_=name)
        for name, value in (("floor", floor), ("cut", c["cut"]))
        if value is not None
    ]
    # Widths are attributes, since the page's policy forbids styles in elements.
    return el(
        "svg",
        el("rect", x=0, y=4, width=_BAR_WIDTH, height=8, class_="track"),
        el("rect", x=0, y=4, width=_at(c["evidence"]), height=8, class_="value"),
        *marks,
        class_="bar",
        viewBox=f"0 0 {_BAR_WIDTH} 16",
        role="img",
        aria_label=label,
    )


def _at(value: float) -> str:
    return f"{_BAR_WIDTH * min(max(value, 0.0), 1.0):.1f}"


def _details(c: dict[str, Any]) -> Safe | None:
    if c["text"] is None:
        return None
    metadata = list((c["metadata"] or {}).items())
    rows = [Safe(el("dt", el("bdi", key)) + el("dd", _value(value))) for key, value in metadata[:_METADATA_ITEMS]]
    if len(metadata) > _METADATA_ITEMS:
        rows.append(Safe(el("dt", "…") + el("dd", f"{len(metadata) - _METADATA_ITEMS} more")))
    return el("details", el("summary", "Text"), marked_text(c), el("dl", *rows) if rows else None)


def _value(value: Any) -> str:
    text = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
    return text if len(text) <= _METADATA_CHARS else text[:_METADATA_CHARS] + "…"


def marked_text(c: dict[str, Any]) -> Safe | None:
    """Show the part of a candidate's text that decided, with the words that matched."""
    if c["text"] is None:
        return None
    pieces = [el("mark", text, class_=kind) if kind else escape(text) for kind, text in excerpt(c, _EXCERPT)]
    return Safe(el("p", Safe("".join(pieces)), class_="text", dir="auto") + (_note(c) or ""))


def _note(c: dict[str, Any]) -> Safe | None:
    found = c["highlight"]
    if found is None:
        return None
    notes = []
    if found["windows"] > 1:
        notes.append(f"Shown is the part that decided, {found['window']} of {found['windows']}.")
    if not any(w["best"] for w in found["words"]):
        notes.append("No single word matched best: the best matches are the markers at the text's edges.")
    if found["shared"]:
        notes.append(
            f"This passage by itself has evidence {number(found['evidence'])}; another passage of its document decided."
        )
    if not found["consistent"]:
        notes.append(
            f"Computed anew, the evidence is {number(found['evidence'])}: the marks come from another encoder or text "
            "than the ranking."
        )
    return el("p", " ".join(notes), class_="small") if notes else None


def rankings_table(record: dict[str, Any]) -> Safe:
    """Build the frozen and the final ranking side by side."""
    frozen = {c["first_stage_rank"]: c for c in record["candidates"]}
    final = {c["rank"]: c for c in record["candidates"] if c["rank"] is not None}
    rows = [
        el("tr", el("th", rank, scope="row", class_="n"), _place(frozen.get(rank), moved=False),
           _place(final.get(rank), moved=True))
        for rank in range(1, max([*frozen, *final, 0]) + 1)
    ]  # fmt: skip
    head = [
        el("th", "Rank", scope="col", class_="n"),
        el("th", "Frozen (first stage)", scope="col"),
        el("th", "Would have been" if record["shadow"] else "Final", scope="col"),
    ]
    return el("table", el("thead", el("tr", *head)), el("tbody", *rows))


def _place(c: dict[str, Any] | None, *, moved: bool) -> Safe:
    if c is None:
        return el("td", el("span", "empty", class_="sr"))
    link = el("a", el("bdi", c["id"]), href=f"#c{c['first_stage_rank']}", class_="id")
    if moved:
        return el("td", link, " ", el("span", move(c), class_="small"))
    badge = el("span", c["action"], class_=f"badge {c['action']}")
    return el("td", link, " ", badge if c["action"] in ("removed", "penalised", "protected") else None)


def topics_table(record: dict[str, Any]) -> Safe:
    """Build the table of the excluded topics."""
    names = [
        ("Topic", False), ("Where in the query", False), ("Confidence", True), ("Strongest evidence", True),
        ("Cut", True), ("Removed", True), ("Lowered", True),
    ]  # fmt: skip
    head = [el("th", name, scope="col", class_="n" if numeric else None) for name, numeric in names]
    rows = [
        el(
            "tr",
            el("th", el("bdi", t["text"], class_="id"), scope="row"),
            el("td", where(t)),
            *(el("td", number(t[key]), class_="n") for key in ("confidence", "strongest", "cut")),
            *(el("td", t[key], class_="n") for key in ("removed", "lowered")),
        )
        for t in record["topics"]
    ]
    return el("table", el("thead", el("tr", *head)), el("tbody", *rows))
