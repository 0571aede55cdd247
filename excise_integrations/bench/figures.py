"""Figures of a run, from its result files alone."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from importlib import import_module
from pathlib import Path
from typing import Any

from ..errors import MissingExtraError
from .metrics import mean
from .results import Results
from .systems import SYSTEMS

__all__ = ["draw_figure", "draw_figures", "draw_hit_rates"]

_COLOURS = {
    "ladder": "#0072B2", "paper-ladder": "#CC79A7", "leave-one-out": "#56B4E9", "alternatives": "#999999",
    "k": "#CCCCCC", "topics": "#009E73", "interventions": "#D55E00",
    "rivals": "#000000", "controls": "#E69F00",
}  # fmt: skip


def draw_figures(results: Results, folder: Path) -> list[Path]:
    """Draw what a run has the rows for, each as PNG and SVG.

    Args:
        results: the rows.
        folder: where the figures go.

    Returns:
        The PNG files.

    Raises:
        MissingExtraError: matplotlib is not installed.
    """
    drawn = []
    for name, draw in (
        ("success-against-no-harm", _scatter),
        ("ladder", _ladder),
        ("leak-by-tier", _tiers),
        ("shortlist-size", _sizes),
    ):
        path = draw_figure(folder, name, partial(draw, results))
        if path is not None:
            drawn.append(path)
    return drawn


def draw_figure(folder: Path, name: str, draw: Callable[[Any], bool]) -> Path | None:
    """Draw one figure as PNG and SVG.

    Args:
        folder: where it goes; made when it is not there.
        name: of the files.
        draw: is given the axes, and says whether there was anything to draw.

    Returns:
        The PNG file, or None when there was nothing to draw.

    Raises:
        MissingExtraError: matplotlib is not installed.
    """
    try:
        matplotlib = import_module("matplotlib.figure")
    except ImportError:
        raise MissingExtraError("matplotlib", "bench") from None
    figure = matplotlib.Figure(figsize=(7.0, 4.2), layout="constrained")
    if not draw(figure.add_subplot()):
        return None
    folder.mkdir(parents=True, exist_ok=True)
    for suffix in ("png", "svg"):
        # Without a date, equal results give equal files.
        figure.savefig(folder / f"{name}.{suffix}", dpi=150, metadata={"Date": None} if suffix == "svg" else None)
    return folder / f"{name}.png"


def draw_hit_rates(record: Mapping[str, Any], folder: Path) -> Path | None:
    """Draw the latency of firings against the cache's hit rate, as PNG and SVG.

    Args:
        record: what :func:`~excise_integrations.bench.hit_rate_report.read_hit_rates` returns.
        folder: where the figure goes.

    Returns:
        The PNG file, or None when there is nothing to draw.

    Raises:
        MissingExtraError: matplotlib is not installed.
    """

    def draw(axes: Any) -> bool:
        rows = record["hit_rates"]
        for name in ("p50", "p95"):
            axes.plot([r["hit_rate"] for r in rows], [r[name] for r in rows], marker="o", label=name)
        axes.set_xlabel(f"hit rate of the cache, {record['k']} candidates from {record['suite']}")
        axes.set_ylabel("milliseconds per firing")
        axes.set_ylim(bottom=0.0)
        axes.legend(fontsize=7)
        return bool(rows)

    return draw_figure(folder, "latency-against-hit-rate", draw)


def _mean_of(results: Results, system: str, metric: str) -> float | None:
    queries = results.queries(system)
    if metric == "ordinary":
        return mean(q.values.get("ndcg@10") for q in queries if q.ordinary)
    return mean(q.values.get(metric) for q in queries if q.values.get("leak") is not None)


def _scatter(results: Results, axes: Any) -> bool:
    seen: set[str] = set()
    places: dict[tuple[float, float], list[str]] = {}
    for system in results.systems:
        x, y = _mean_of(results, system.name, "ordinary"), _mean_of(results, system.name, "success@10")
        if x is None or y is None or system.topics != "detected" or system.group == "k":
            continue
        label = None if system.group in seen else system.group
        axes.scatter(x, y, color=_COLOURS[system.group], label=label, s=40 if system.name == "default" else 18)
        seen.add(system.group)
        if system.group in ("ladder", "paper-ladder", "interventions", "rivals", "controls"):
            places.setdefault((round(x, 3), round(y, 3)), []).append(system.name)
    for place, names in places.items():
        axes.annotate(", ".join(names), place, fontsize=6, xytext=(3, 3), textcoords="offset points")
    axes.set_xlabel("nDCG@10 on ordinary queries")
    axes.set_ylabel("success@10")
    if seen:
        axes.legend(fontsize=7)
    return bool(seen)


def _ladder(results: Results, axes: Any) -> bool:
    suites = [s for s in results.suites if results.headline(s) == "success@10"]
    rungs = [s.name for s in SYSTEMS if s.group == "ladder" and results.has(s.name)]
    width = 0.8 / max(len(rungs), 1)
    for r, rung in enumerate(rungs):
        rows = [results.row(rung, s) for s in suites]
        heights = [(row.average()["success@10"] or 0.0) if row else 0.0 for row in rows]
        axes.bar([i + r * width for i in range(len(suites))], heights, width, label=rung)
    axes.set_xticks([i + 0.4 - width / 2 for i in range(len(suites))], suites)
    axes.set_ylabel("success@10")
    if rungs:
        axes.legend(fontsize=7)
    return bool(suites and rungs)


def _tiers(results: Results, axes: Any) -> bool:
    systems = [s for s in ("frozen", "default") if results.has(s)]
    groups = sorted(
        {q.groups["tier"] for s in systems for q in results.queries(s) if "tier" in q.groups and _leaks(q.values)}
    )
    for s, system in enumerate(systems):
        heights = [
            mean(q.values.get("leak") for q in results.queries(system) if q.groups.get("tier") == g) or 0.0
            for g in groups
        ]
        axes.bar([i + s * 0.4 for i in range(len(groups))], heights, 0.4, label=system)
    axes.set_xticks([i + 0.2 for i in range(len(groups))], groups)
    axes.set_ylabel("leak: queries with an excluded document in the top ten")
    if systems:
        axes.legend(fontsize=7)
    return bool(systems and groups)


def _leaks(values: Any) -> bool:
    return values.get("leak") is not None


def _sizes(results: Results, axes: Any) -> bool:
    systems = [s for s in SYSTEMS if s.group == "k" and results.has(s.name)]
    sizes = [int(s.settings["k"]) for s in systems]
    for metric in ("success@10", "hit@10", "leak"):
        axes.plot(sizes, [_mean_of(results, s.name, metric) for s in systems], marker="o", label=metric)
    axes.set_xlabel("shortlist size k")
    axes.set_ylim(0.0, 1.0)
    if systems:
        axes.legend(fontsize=7)
    return len(systems) > 1
