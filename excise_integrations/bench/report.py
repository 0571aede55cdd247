"""The report of a run, from its result files alone."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from .budgets import document_budgets
from .hit_rate_report import hit_rate_section
from .markdown import interval, markdown, number, probability
from .metrics import mean
from .outside import against_outside
from .results import REFERENCE, Results
from .rows import Row
from .significance import align, paired_bootstrap
from .systems import GROUPS, SYSTEMS, System

__all__ = ["render_report"]

_SIGNIFICANT = 0.05


def render_report(
    rows: Iterable[Row],
    figures: Sequence[str] = (),
    *,
    shortened: Iterable[Row] = (),
    latency: Mapping[str, Any] | None = None,
) -> str:
    """Render a run as Markdown.

    Args:
        rows: the rows of a run.
        figures: paths of figures to show, relative to the report.
        shortened: the rows of a second run, of documents that end after so many words.
        latency: what :func:`~excise_integrations.bench.hit_rate_report.read_hit_rates` returns.

    Returns:
        The report. Every number in it comes from the rows.
    """
    results = Results(tuple(rows))
    parts = ["# Benchmark", _provenance(results)]
    parts += [f"![{path.rsplit('/', 1)[-1].rsplit('.', 1)[0]}]({path})" for path in figures]
    for group, title in GROUPS.items():
        systems = [s for s in results.systems if s.group == group]
        if systems:
            parts += [f"## {title}", _suite_table(results, systems), _pooled_table(results, systems)]
    parts += ["## By tier and length", _breakdown(results), "## No harm", _no_harm(results)]
    outside = against_outside(results)
    if outside:
        parts += ["## Excise against each system from outside", outside]
    if any(s.group in ("rivals", "controls") for s in results.systems):
        parts += ["## Document budgets", document_budgets(results, Results(tuple(shortened)))]
    if latency is not None:
        parts += ["## Latency against the cache's hit rate", hit_rate_section(latency)]
    parts += ["## Who beats Excise", _better(results)]
    skipped = _skipped(results)
    if skipped:
        parts += ["## Not run", skipped]
    return "\n\n".join(p for p in parts if p) + "\n"


# --- tables -----------------------------------------------------------------------------


def _suite_table(results: Results, systems: Sequence[System]) -> str:
    head = ["system", *(f"{s} {results.headline(s)}" for s in results.suites)]
    body = []
    for system in _with_reference(results, systems):
        cells = []
        for suite in results.suites:
            row = results.row(system.name, suite)
            cells.append(number(row.average()[results.headline(suite)] if row else None))
        body.append([f"`{system.name}` {system.title}", *cells])
    return markdown(head, body)


def _pooled_table(results: Results, systems: Sequence[System]) -> str:
    suites = [s for s in results.suites if results.headline(s) == "success@10"]
    if not suites:
        return ""
    metrics = ("success@10", "hit@10", "leak", "leak_docs", "xndcg@10", "recall@100")
    head = ["system", "queries", *metrics, "against Excise [95 %]", "p", "ordinary nDCG@10", "re-ranked"]
    body = []
    for system in _with_reference(results, systems):
        queries = results.queries(system.name)
        exclusions = [q for q in queries if q.values.get("leak") is not None]
        cells = [number(mean(q.values.get(m) for q in exclusions)) for m in metrics]
        ordinary = [q for q in queries if q.ordinary]
        share = mean(float(q.fired or system.every_query) for q in queries)
        body.append(
            [
                f"`{system.name}`", str(len(exclusions)), *cells, *_difference(results, system.name, suites),
                number(mean(q.values.get("ndcg@10") for q in ordinary)), number(share),
            ]
        )  # fmt: skip
    note = (
        f"Pooled over {', '.join(suites)}, each system over those of them that it ran on; success@10 against Excise on "
        "the queries that both ran."
    )
    return note + "\n\n" + markdown(head, body)


def _difference(results: Results, system: str, suites: Sequence[str]) -> list[str]:
    if system == REFERENCE or not results.has(REFERENCE):
        return ["–", "–"]
    found = results.against(system, suites, "success@10")
    return [interval(found), probability(found.p)]


def _breakdown(results: Results) -> str:
    systems = [s for s in SYSTEMS if s.group == "ladder" and results.has(s.name)]
    tables = []
    for key, name in (("tier", "tier"), ("form", "length")):
        head = [name, "queries", *(f"{s.name} {m}" for m in ("success@10", "leak") for s in systems)]
        groups: dict[str, None] = {}
        for system in systems:
            groups.update(dict.fromkeys(q.groups[key] for q in results.queries(system.name) if key in q.groups))
        body = []
        for group in sorted(groups):
            members = {s.name: [q for q in results.queries(s.name) if q.groups.get(key) == group] for s in systems}
            cells = [
                number(mean(q.values.get(m) for q in members[s.name])) for m in ("success@10", "leak") for s in systems
            ]
            if any(c != "–" for c in cells):
                body.append([group, str(max(len(m) for m in members.values())), *cells])
        if body:
            tables.append(markdown(head, body))
    return "\n\n".join(tables) or "No suite names tiers or lengths."


def _no_harm(results: Results) -> str:
    """Compare Excise with the frozen ranking on the queries that exclude nothing."""
    body = []
    pairs: list[tuple[list[float], list[float]]] = []
    for suite in results.suites:
        excise, frozen = results.row(REFERENCE, suite), results.row("frozen", suite)
        if excise is None or frozen is None or results.headline(suite) == "pairwise":
            continue
        ordinary = {q.id: q.values.get("ndcg@10") for q in excise.queries if q.ordinary}
        _, a, b = align(ordinary, frozen.values("ndcg@10"))
        if a:
            pairs.append((a, b))
            fired = mean(float(q.fired) for q in excise.queries if q.ordinary)
            found = paired_bootstrap(a, b)
            body.append([suite, str(found.n), number(found.b), number(found.a), interval(found), number(fired)])
    if len(pairs) > 1:
        found = paired_bootstrap([x for a, _ in pairs for x in a], [y for _, b in pairs for y in b])
        body.append(["pooled", str(found.n), number(found.b), number(found.a), interval(found), "–"])
    if not body:
        return "No suite here has queries that exclude nothing, or `frozen` and `default` did not both run."
    return "nDCG@10 of queries that exclude nothing.\n\n" + markdown(
        ["suite", "queries", "frozen", "Excise", "difference [95 %]", "fired"], body
    )


def _better(results: Results) -> str:
    """Name every system whose headline is above Excise's, with its interval."""
    if not results.has(REFERENCE):
        return "The row `default` is not in this run."
    body = []
    exclusion = [s for s in results.suites if results.headline(s) == "success@10"]
    places = [([s], s) for s in results.suites] + ([(exclusion, "pooled")] if len(exclusion) > 1 else [])
    for system in results.systems:
        if system.name == REFERENCE:
            continue
        for suites, name in places:
            found = results.against(system.name, suites, results.headline(suites[0]))
            if found.difference is not None and found.difference > 0:
                clear = "yes" if (found.p or 0) < _SIGNIFICANT else "no"
                topics = {"true": "true topics", "forced": "no threshold"}.get(system.topics, "")
                metric = results.headline(suites[0])
                body.append([f"`{system.name}`", topics, name, metric, interval(found), probability(found.p), clear])
    if not body:
        return "No system's headline is above Excise's on any suite."
    return markdown(["system", "given", "suite", "metric", "above Excise by [95 %]", "p", "p < 0.05"], body)


def _skipped(results: Results) -> str:
    reasons: dict[tuple[str, str], list[str]] = {}
    for row in results.rows:
        if row.skipped is not None:
            reasons.setdefault((row.system, row.skipped), []).append(row.suite)
    return "\n".join(f"- `{system}` on {', '.join(suites)}: {reason}" for (system, reason), suites in reasons.items())


def _provenance(results: Results) -> str:
    head = ["suite", "split", "data", "documents", "queries", "seed", "backbone", "detector", "adapter"]
    body: list[list[str]] = []
    commands: dict[str, None] = {}
    machines: dict[str, None] = {}
    for suite in dict.fromkeys(r.suite for r in results.rows):
        for row in sorted((r for r in results.rows if r.suite == suite), key=lambda r: r.system != REFERENCE):
            if isinstance(row.head.get("command"), str):
                commands[row.head["command"]] = None
            machines[str(row.head.get("machine", "unknown"))] = None
        first = next((r for r in results.rows if r.suite == suite and r.queries), None)
        if first is not None:
            facts: Mapping[str, Any] = first.head
            names = ("split", "data", "documents", "n", "seed", "backbone", "detector", "adapter")
            body.append([suite, *(str("–" if (v := facts.get(n)) is None else v) for n in names)])
    seconds = sum(float(r.head.get("seconds") or 0.0) for r in results.rows)
    version = ", ".join(sorted({str(r.head.get("version", "unknown")) for r in results.rows}))
    lines = ["```console", *commands, "```"] if commands else []
    about = f"Version {version}; {'; '.join(machines)}; {seconds / 60:.1f} minutes over all rows."
    return "\n".join(lines) + ("\n\n" if lines else "") + about + "\n\n" + markdown(head, body)


# --- text -------------------------------------------------------------------------------


def _with_reference(results: Results, systems: Sequence[System]) -> list[System]:
    reference = [s for s in SYSTEMS if s.name == REFERENCE and s not in systems and results.has(REFERENCE)]
    return [*reference, *systems]
