"""How a query looks: lower case, typos, quotes, missing punctuation. Meaning and spans stay.

A :class:`Style` is drawn once per minimal pair and applied to both members, so that the looks of a
query never tell its label (paper, section 3).
"""

from __future__ import annotations

import random
import re
from collections.abc import Sequence
from dataclasses import dataclass

from .constructions import Piece

__all__ = ["Style", "apply_style", "draw_style", "join"]

_QUOTES = ('""', "“”", "''", "«»")
_WORD = re.compile(r"[^\W\d_]+")


@dataclass(frozen=True)
class Style:
    """Surface changes shared by both members of a pair.

    Args:
        case: ``"keep"``, ``"lower"`` or ``"upper"``.
        quotes: opening and closing mark around every topic Z, or "".
        bare: drop commas, semicolons and the last full stop or question mark.
        dash: write a semicolon as a dash.
        typo: a word and its misspelling, or None.
    """

    case: str = "keep"
    quotes: str = ""
    bare: bool = False
    dash: bool = False
    typo: tuple[str, str] | None = None


def draw_style(rng: random.Random, members: Sequence[Sequence[Piece]]) -> Style:
    """Draw the surface changes of a pair.

    Args:
        rng: source of chance.
        members: the pieces of each member; a typo only hits a word that all of them contain.

    Returns:
        The style; about half of all styles change nothing.

    Paper, section 3.
    """
    case = rng.choices(("keep", "lower", "upper"), (0.76, 0.225, 0.015))[0]
    quotes = rng.choice(_QUOTES) if rng.random() < 0.06 else ""
    bare, dash = rng.random() < 0.1, rng.random() < 0.08
    typo = None
    if rng.random() < 0.07:
        shared = set.intersection(*({w for p in m for w in _WORD.findall(p.text) if len(w) > 4} for m in members))
        if shared:
            word = rng.choice(sorted(shared))
            typo = (word, _misspell(rng, word))
    return Style(case, quotes, bare, dash, typo)


def apply_style(pieces: Sequence[Piece], style: Style) -> list[Piece]:
    """Apply surface changes piece by piece, so that the pieces' bounds stay exact."""
    out = _quote(pieces, style.quotes) if style.quotes else list(pieces)
    if style.dash:
        out = [p if p.role else Piece(p.text.replace("; ", " – "), p.role) for p in out]
    if style.bare:
        out = [p if p.role else Piece(re.sub(r"[,;](?=\s|$)", "", p.text)) for p in out]
        if not out[-1].role:
            out[-1] = Piece(re.sub(r"(?<=\w)[.?]$", "", out[-1].text))
    if style.typo:
        word, wrong = style.typo
        # A function, so that a misspelling is never read as a pattern.
        out = [Piece(re.sub(rf"\b{re.escape(word)}\b", lambda _: wrong, p.text), p.role) for p in out]
    if style.case != "keep":
        out = [Piece(p.text.lower() if style.case == "lower" else p.text.upper(), p.role) for p in out]
    return [p for p in out if p.text]


def join(pieces: Sequence[Piece]) -> tuple[str, list[tuple[int, int]]]:
    """Join pieces to a text.

    Returns:
        The text and, per topic Z in order, its character offsets.
    """
    text, spans = "", []
    for piece in pieces:
        if piece.is_topic:
            spans.append((len(text), len(text) + len(piece.text)))
        text += piece.text
    return text, spans


def _quote(pieces: Sequence[Piece], marks: str) -> list[Piece]:
    out: list[Piece] = []
    for i, piece in enumerate(pieces):
        before = pieces[i - 1].text if i else ""
        after = pieces[i + 1].text if i + 1 < len(pieces) else ""
        clear = not before.endswith(("-", "~", "!", '"', "'", "[")) and not after.startswith(("-", '"', "'", "]"))
        if piece.is_topic and clear and not set(piece.text) & set("\"“”'’«»"):
            out += [Piece(marks[0]), piece, Piece(marks[1])]
        else:
            out.append(piece)
    return out


def _misspell(rng: random.Random, word: str) -> str:
    at = rng.randrange(1, len(word) - 2)
    how = rng.randrange(3)
    if how == 0 and word[at] != word[at + 1]:
        return word[:at] + word[at + 1] + word[at] + word[at + 2 :]
    if how == 1:
        return word[: at + 1] + word[at:]
    return word[:at] + word[at + 1 :]
