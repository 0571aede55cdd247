"""Numbers and tables as a report writes them."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from .significance import Comparison

__all__ = ["interval", "markdown", "number", "probability"]


def number(value: float | None) -> str:
    """Three decimals, or a dash."""
    return "–" if value is None else f"{value:.3f}"


def probability(value: float | None) -> str:
    """A p value; one below what is worth telling apart says so."""
    return "–" if value is None else "< 0.001" if value < 0.001 else f"{value:.3f}"


def interval(found: Comparison) -> str:
    """A difference with its confidence interval."""
    if found.difference is None:
        return "–"
    return f"{found.difference:+.3f} [{found.low:+.3f}, {found.high:+.3f}]"


def markdown(head: Sequence[str], body: Iterable[Sequence[str]]) -> str:
    """A table."""
    lines = [head, ["---"] * len(head), *body]
    return "\n".join("| " + " | ".join(str(c).replace("|", "\\|") for c in line) + " |" for line in lines)
