"""Markup that is escaped by construction, for HTML and Markdown."""

from __future__ import annotations

import html
import re

__all__ = ["Safe", "el", "escape", "escape_markdown", "visible"]

_CONTROL = re.compile(r"[\x00-\x08\x0b\x0c\x0e-\x1f\x7f-\x9f\ud800-\udfff\ufffe\uffff]")
# They can make a text look like another one; in an audit they have to be seen.
_BIDI = re.compile(r"[\u202a-\u202e\u2066-\u2069]")
# Emphasis, code, links, HTML, tables, mathematics; what makes a link of a bare address; what opens a list, a heading
# or a quotation at the start of a line.
_MARKDOWN = re.compile(r"[\\`*_\[\]<>|~$#]|:(?=//)|(?<=www)\.|\A[-+=:]|(?<=\A\d)[.)]|(?<=\A\d\d)[.)]", re.IGNORECASE)
_ATTRIBUTE = re.compile(r"[a-z][a-z0-9:-]*\Z", re.IGNORECASE)
_VOID = frozenset({"br", "col", "hr", "input", "meta"})


class Safe(str):
    """Text that is markup already; everything else is escaped where it is used."""

    __slots__ = ()


def visible(text: str) -> str:
    """Replace what cannot be shown: control characters and lone surrogates by U+FFFD, bidi controls by their name."""
    text = _CONTROL.sub("\ufffd", text)
    return _BIDI.sub(lambda m: f"⟨U+{ord(m.group()):04X}⟩", text)


def escape(value: object) -> Safe:
    """Return a value as HTML text that is safe in an element and in a quoted attribute."""
    if isinstance(value, Safe):
        return value
    return Safe(html.escape(visible(str(value)), quote=True))


def el(tag: str, *children: object, **attributes: object) -> Safe:
    """Build an element.

    Args:
        tag: the tag's name, a literal of the program's.
        *children: text (escaped) or :class:`Safe` markup; None is left out.
        **attributes: names, with ``_`` for ``-`` and a trailing ``_`` for Python's own words; None and
            False leave an attribute out, True gives one without a value, everything else is escaped.
    """
    parts = [f"<{tag}"]
    for name, value in attributes.items():
        key = name.removesuffix("_").replace("_", "-")
        if not _ATTRIBUTE.match(key):
            raise ValueError(f"{name!r} is not an attribute's name.")
        if value is None or value is False:
            continue
        # A Safe string may hold quotes: in an attribute nothing is exempt.
        parts.append(f" {key}" if value is True else f' {key}="{html.escape(visible(str(value)), quote=True)}"')
    parts.append(">")
    if tag in _VOID:
        return Safe("".join(parts))
    parts.extend(escape(child) for child in children if child is not None)
    parts.append(f"</{tag}>")
    return Safe("".join(parts))


def escape_markdown(value: object) -> str:
    """Return a value as Markdown text of one line: no markup, no HTML, no table cell ends with it."""
    line = " ".join(visible(str(value)).split())
    return _MARKDOWN.sub(lambda m: "&lt;" if m.group() == "<" else "\\" + m.group(), line.replace("&", "&amp;"))
