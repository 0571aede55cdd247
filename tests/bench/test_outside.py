"""The report on systems from outside, on rows made by hand."""

from __future__ import annotations

from excise_integrations.bench.report import render_report
from excise_integrations.bench.rows import QueryRow, Row

SECTION, BEST, BUDGETS = "## Excise against each system from outside", "### Where Excise is not", "## Document budgets"


def row(suite: str, system: str, successes: str, ordinary: float = 0.5, *, group: str = "", **head: object) -> Row:
    """Outcomes: s for success, l for a leak beside the hit, . for neither; and one query that excludes nothing."""
    values = {"s": (1.0, 1.0, 0.0), "l": (0.0, 1.0, 1.0), ".": (0.0, 0.0, 0.0)}
    queries = [
        QueryRow(
            str(i), {"tier": "T1"}, 1,
            {"success@10": success, "hit@10": hit, "leak": leak, "leak_docs": leak, "xndcg@10": hit - leak,
             "ndcg@10": hit},
        )
        for i, (success, hit, leak) in enumerate(values[c] for c in successes)
    ]  # fmt: skip
    queries.append(QueryRow("plain", {"tier": "C-conj"}, 0, {"ndcg@10": ordinary, "hit@10": 0.0}))
    return Row(suite, system, "key", {"group": group, "title": system, **head}, None, tuple(queries))


def lines(text: str, start: str, end: str, name: str) -> list[list[str]]:
    part = text.split(start)[1].split(end)[0]
    return [[c.strip() for c in x.split("|")[1:-1]] for x in part.splitlines() if f"`{name}`" in x]


def test_excise_stands_against_each_of_them_per_suite_and_pooled() -> None:
    rows = [
        row("film", "default", "ssss"), row("wiki", "default", "ss.."),
        row("film", "frozen", "llll", 0.6), row("wiki", "frozen", "llll", 0.7),
        row("film", "mine", "l.ll", 0.3, group="controls"), row("wiki", "mine", "s...", 0.5, group="controls"),
    ]  # fmt: skip
    text = render_report(rows)
    film, wiki, pooled = lines(text, SECTION, BEST, "mine")
    assert film[:4] == ["`mine`", "4", "-1.000 [-1.000, -1.000]", "< 0.001"]
    # The query that excludes nothing is not among them, but alone in the last column, against frozen.
    assert [c.split(" ")[0] for c in film[4::2]] == ["-0.250", "+0.750", "+0.750", "-1.000", "-0.300"]
    assert pooled[1] == "8"
    assert [c.split(" ")[0] for c in pooled[2::2]] == ["-0.625", "-0.250", "+0.375", "+0.375", "-0.625", "-0.250"]
    assert wiki[2].startswith("-0.250 [")
    assert "Excise is the best row in every exclusion column" in text
    # Ablations stand apart.
    assert not lines(text, SECTION, BEST, "frozen")


def test_the_columns_where_excise_is_not_best_are_named_with_what_was_found() -> None:
    rows = [row("film", "default", "sl"), row("film", "bm25", "..")]
    found = lines(render_report(rows), BEST, BUDGETS, "bm25")
    assert [f[:2] for f in found] == [["film", "leak"], ["film", "leak_docs"]]
    assert found[0][3:5] == ["0.000", "0.500"]
    assert found[0][-2:] == ["0.000", "1.000"]


def test_budgets_say_what_is_read_and_what_passages_change() -> None:
    rows = [
        row("film", "dense", "lll."), row("film", "dense-passages", "sll."),
        row("wiki", "dense", "ll.."), row("wiki", "dense-passages", "ss.."),
    ]  # fmt: skip
    text = render_report(rows)
    budgets = text.split(BUDGETS)[1]
    assert "| 200 words | 1,000 words | best window |" in budgets
    assert "| 512 words | 10,000 words | best window |" in budgets
    assert "In this run every system read" not in budgets
    film, _, pooled = lines(text, BUDGETS, "## Who beats", "dense")
    assert film[1:5] == ["film", "4", "0.750", "0.500"]
    assert film[5].startswith("-0.250 [")
    assert pooled[1:5] == ["pooled", "8", "0.625", "0.250"]
    assert pooled[7].startswith("+0.375 [")
    cut = [row("film", "dense", "l", budget=200)]
    assert "every system read the first 200 words of a document only" in render_report(cut)


def test_a_second_run_over_shortened_documents_stands_beside_the_first() -> None:
    whole = [row("film", "default", "sss."), row("film", "dense", "lls."), row("wiki", "dense", "l...")]
    cut = [row("film", "default", "ss..", budget=350), row("film", "dense", "l.s.", budget=350)]
    budgets = render_report(whole, shortened=cut).split(BUDGETS)[1].split("## Who beats")[0]
    assert "The same with the first 350 words of a document only, for every system:" in budgets
    excise, dense = ([c.strip() for c in x.split("|")[1:-1]] for x in budgets.splitlines() if "| film |" in x)
    assert excise[:4] == ["`default`", "film", "0.750", "0.500"]
    assert excise[4].startswith("-0.250 [")
    assert dense[6:8] == ["0.500", "0.250"]
    assert "The same with" not in render_report(whole)


def test_a_run_without_systems_from_outside_has_neither_section() -> None:
    text = render_report([row("film", "default", "s"), row("film", "frozen", "l")])
    assert SECTION not in text
    assert BUDGETS not in text
