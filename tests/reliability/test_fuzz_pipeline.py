"""Any query over any documents: what must hold of every result, its report and its line in the log."""

from __future__ import annotations

import json
from collections.abc import Callable
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import pytest
from hostile import METADATA, cases, filled, texts
from hypothesis import given
from hypothesis import strategies as st
from pipeline_fakes import Stage
from word_backbone import word_excise

from excise_integrations import Candidate, Detection, Excise, ExciseResult, InvalidInputError
from excise_integrations._scoring import group_by_document
from excise_integrations.audit import AuditLog, read_log
from excise_integrations.audit.report import Report
from excise_integrations.detect import resolve

EXCISE = word_excise()
ADAPTED = word_excise(adapter=True)
SETTINGS: list[dict[str, Any]] = [
    {},
    {"demotion": "paper"},
    {"removed": "last", "unit": "document"},
    {"mode": "shadow"},
    {"min_shortlist": 1, "floor": -1.0, "cut_width": 0.0, "total_cap": 100},
    {"removal": False, "soft_penalty": True, "penalty_scale": 1e30},
    {"on_error": "frozen", "score_scale": "mean", "score_query": "full"},
]
VARIANTS = [base.with_config(**settings) for settings in SETTINGS for base in (EXCISE, ADAPTED)]
SCORES = st.none() | st.floats(allow_nan=False, allow_infinity=False) | st.integers(-(10**18), 10**18)


@st.composite
def shortlists(draw: st.DrawFn) -> list[Candidate]:
    ids = draw(st.lists(texts(2), max_size=5, unique=True))
    return [Candidate(i, draw(filled(4)), draw(SCORES), draw(METADATA)) for i in ids]


def check_spans(query: str, detection: Detection) -> None:
    end = 0
    for span in detection.spans:
        if span.start is None or span.end is None:
            continue
        assert query[span.start : span.end] == span.text
        assert span.start >= end or detection.source == "caller"
        end = span.end
        assert span.text.strip()
    assert detection.fired == bool(detection.spans)


def check_result(result: ExciseResult, query: str, shortlist: list[Candidate], unit: str) -> None:
    check_spans(query, result.detection)
    assert list(result.verdicts) == [c.id for c in shortlist]
    given_ids = {id(c) for c in shortlist}
    assert all(id(c) in given_ids for c in (*result.candidates, *result.removed))
    kept = [c.id for c in result.candidates]
    assert len(set(kept)) == len(kept)
    assert result.shadow or set(kept) | {c.id for c in result.removed} == {c.id for c in shortlist}
    if not result.detection.fired or result.shadow or result.error:
        assert list(result.candidates) == shortlist
    # A list is emptied only where each of its documents is the one that an excluded topic fits best.
    documents = group_by_document(shortlist, unit) or shortlist
    assert kept or len(documents) <= len(result.detection.spans)
    # Whoever reads the metadata reads plain JSON, however hostile the rest.
    for c in result.candidates:
        json.dumps(result.metadata(c), allow_nan=False)
    assert all(v.action == "unchanged" for v in result.verdicts.values()) or result.detection.fired


@cases(900)
@given(filled(), shortlists(), st.sampled_from(VARIANTS))
def test_rerank(query: str, shortlist: list[Candidate], excise: Excise) -> None:
    before = [(c.id, c.text, c.score, repr(dict(c.metadata))) for c in shortlist]
    result = excise.search(query, Stage(shortlist))
    assert result.error is None
    check_result(result, query, shortlist, excise.config.unit)
    assert [(c.id, c.text, c.score, repr(dict(c.metadata))) for c in shortlist] == before


@cases(250)
@given(filled(), shortlists(), st.lists(texts(3), max_size=4), st.none() | st.integers(1, 9))
def test_rerank_with_topics_of_the_caller(
    query: str, shortlist: list[Candidate], exclude: list[str], k: int | None
) -> None:
    if any(not topic.strip() for topic in exclude):
        with pytest.raises(InvalidInputError, match="exclude"):
            EXCISE.rerank(query, shortlist, exclude=exclude, k=k)
        return
    result = EXCISE.rerank(query, shortlist, exclude=exclude, k=k)
    check_spans(query, result.detection)
    assert len(result.candidates) == min(k or len(shortlist), len(shortlist) - len(result.removed))


@cases(150)
@given(texts(4), st.one_of(st.none(), st.integers(), st.floats(), st.binary(), st.lists(st.integers(), max_size=3)))
def test_what_is_no_query_or_no_shortlist_is_refused(query: str, junk: Any) -> None:
    calls: list[Callable[[], object]] = [
        lambda: EXCISE.rerank(junk, []),
        lambda: EXCISE.rerank("a query", [junk]),
        lambda: EXCISE.rerank_batch([query, junk], [[], []]),
        lambda: EXCISE.rerank("a query", [], detection=junk if junk is not None else "none"),
        lambda: EXCISE.rerank("a query", [], k=junk if not isinstance(junk, int) and junk is not None else 0),
    ]
    for call in calls:
        with pytest.raises(InvalidInputError):
            call()


class _Page(HTMLParser):
    def __init__(self, source: str) -> None:
        super().__init__()
        self.tags: set[str] = set()
        self.attributes: list[tuple[str, str]] = []
        self.feed(source)
        self.close()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.add(tag)
        self.attributes += [(name, value or "") for name, value in attrs]


def tags_of_our_own() -> set[str]:
    candidates = [Candidate(str(i), f"cats and dogs {i}", 1.0, {"a": {"b": [1]}}) for i in range(6)]
    page = _Page(Report(EXCISE.rerank("pets, but not cats", candidates)).to_html())
    silent = _Page(Report(EXCISE.rerank("pets", candidates)).to_html())
    return page.tags | silent.tags | {"mark", "em", "strong", "code", "details", "summary", "p", "ul", "li", "small"}


OWN_TAGS = tags_of_our_own()


def check_page(source: str) -> None:
    source.encode("utf-8")
    page = _Page(source)
    assert page.tags <= OWN_TAGS
    for name, value in page.attributes:
        assert not name.startswith("on")
        assert name not in ("src", "srcdoc", "action", "formaction")
        assert name != "href" or value.startswith("#")
    assert "\x1b" not in source
    assert "\u202e" not in source


@cases(200)
@given(filled(), shortlists(), st.sampled_from(VARIANTS))
def test_reports_escape_everything(query: str, shortlist: list[Candidate], excise: Excise) -> None:
    report = Report(excise.rerank(query, shortlist))
    for source in (report.to_html(), report._repr_html_()):
        check_page(source)
    report.to_markdown().encode("utf-8")
    json.dumps(report.to_dict(), allow_nan=False)


@cases(150)
@given(query=filled(), shortlist=shortlists(), plain=st.booleans())
def test_a_result_is_one_line_of_the_log(
    tmp_path_factory: pytest.TempPathFactory, query: str, shortlist: list[Candidate], plain: bool
) -> None:
    path = tmp_path_factory.mktemp("log") / "audit.jsonl"
    log = AuditLog(path, text="plain" if plain else "hash", documents=plain)
    result = EXCISE.rerank(query, shortlist)
    log.write(result)
    log.write(result)
    assert len(path.read_bytes().splitlines()) == len(list(read_log(path))) == 2
    if not plain and len(query.strip()) > 6:
        assert json.dumps(query)[1:-1] not in "".join(
            json.dumps({k: v for k, v in entry.items() if k not in ("returned", "removed", "verdicts")})
            for entry in read_log(path)
        )


@cases(600)
@given(st.lists(texts(12), min_size=1, max_size=4))
def test_rules(queries: list[str]) -> None:
    for query, detection in zip(queries, resolve("rules").detect(queries), strict=True):
        check_spans(query, detection)
        assert set("".join(detection.wanted.split())) <= set(query)


@pytest.fixture(scope="module")
def trained() -> Any:
    return resolve("auto", device=None, path=None, offline=None, threshold=None)


@cases(40)
@given(st.lists(texts(5), min_size=4, max_size=10))
def test_the_trained_detector(trained: Any, queries: list[str]) -> None:
    found = trained.detect(queries)
    assert len(found) == len(queries)
    for query, detection in zip(queries, found, strict=True):
        check_spans(query, detection)
        assert 0.0 <= detection.confidence <= 1.0


def test_a_megabyte_of_everything(tmp_path: Path) -> None:
    """One query of a megabyte through the detector of rules, the report and the log."""
    from hostile import FRAGMENTS

    query = ("".join(FRAGMENTS) * 1000)[:1_000_000]
    candidates = [Candidate(str(i), query[i * 1000 : i * 1000 + 5000]) for i in range(5)]
    log = AuditLog(tmp_path / "audit.jsonl", text="plain", documents=True)
    result = word_excise(log=log).rerank(query, candidates)
    check_result(result, query, candidates, "passage")
    assert any("too long" in w for w in result.warnings)
    Report(result).to_html().encode("utf-8")
    assert len(list(read_log(log.path))) == 1
