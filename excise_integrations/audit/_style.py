"""The look of the report: one palette for light, one for dark, and the rules."""

from __future__ import annotations

__all__ = ["CONTRASTS", "CSS", "DARK", "LIGHT"]

LIGHT = {
    "page": "#ffffff", "text": "#1b1f24", "muted": "#57606a", "line": "#8c959f", "panel": "#f3f5f7", "link": "#0550ae",
    "excluded": "#ffd9d4", "excluded-text": "#7a0b0b", "wanted": "#d6f2dc", "wanted-text": "#0b4d1d",
    "best": "#ffc94d", "near": "#ffefbf", "mark-text": "#1b1f24", "warn": "#fff4d6", "warn-text": "#5b3c00",
    "removed": "#a40e26", "penalised": "#8a4600", "protected": "#0a5c2b", "plain": "#57606a", "badge-text": "#ffffff",
    "bar": "#9a5b00", "track": "#e3e7eb", "tick": "#1b1f24",
}  # fmt: skip
DARK = {
    "page": "#14181d", "text": "#e6e9ed", "muted": "#a3adb8", "line": "#6b7682", "panel": "#1f252c", "link": "#8cc2ff",
    "excluded": "#5c1512", "excluded-text": "#ffd9d4", "wanted": "#123d20", "wanted-text": "#c9f2d3",
    "best": "#8a5c00", "near": "#4a3a10", "mark-text": "#fff8e5", "warn": "#3d2f0a", "warn-text": "#ffe3a3",
    "removed": "#ff9d94", "penalised": "#ffbe73", "protected": "#86dba0", "plain": "#a3adb8", "badge-text": "#14181d",
    "bar": "#b0741e", "track": "#262c33", "tick": "#e6e9ed",
}  # fmt: skip
CONTRASTS = [
    ("text", "page", 4.5), ("muted", "page", 4.5), ("link", "page", 4.5), ("text", "panel", 4.5),
    ("muted", "panel", 4.5),
    ("excluded-text", "excluded", 4.5), ("wanted-text", "wanted", 4.5), ("mark-text", "best", 4.5),
    ("mark-text", "near", 4.5), ("warn-text", "warn", 4.5), ("badge-text", "removed", 4.5),
    ("badge-text", "penalised", 4.5), ("badge-text", "protected", 4.5), ("badge-text", "plain", 4.5),
    ("bar", "track", 3.0), ("bar", "page", 3.0), ("tick", "track", 3.0), ("tick", "bar", 3.0), ("line", "page", 3.0),
]  # fmt: skip
"""Foreground, background and the least contrast (WCAG 2.1: 4.5 for text, 3 for graphics)."""


def _variables(palette: dict[str, str]) -> str:
    return "".join(f"--{name}:{value};" for name, value in palette.items())


# Everything hangs on .xr, so that a notebook around the report keeps its own look.
_RULES = """
.xr { background: var(--page); color: var(--text); font: 15px/1.5 system-ui, sans-serif; text-align: left; }
.xr * { box-sizing: border-box; }
.xr-page { max-width: 90rem; margin: 0 auto; padding: 1rem 1.5rem 3rem; }
.xr h1 { font-size: 1.6em; margin: .5rem 0; } .xr h2 { font-size: 1.3em; margin: 2rem 0 .5rem; }
.xr h3 { font-size: 1.07em; margin: 0 0 .25rem; } .xr p { margin: .4rem 0; }
.xr a { color: var(--link); }
.xr :focus-visible { outline: 3px solid var(--link); outline-offset: 2px; }
.xr .query { font-size: 1.25em; padding: .75rem 1rem; background: var(--panel); border-left: 4px solid var(--link);
  overflow-wrap: anywhere; white-space: pre-wrap; margin: .5rem 0; max-height: 24rem; overflow-y: auto; }
.xr mark { border-radius: 3px; padding: 0 .15em; color: var(--mark-text); }
.xr mark.excluded { background: var(--excluded); color: var(--excluded-text); border-bottom: 2px solid currentColor; }
.xr mark.wanted { background: var(--wanted); color: var(--wanted-text); border-bottom: 2px dotted currentColor; }
.xr mark.best { background: var(--best); font-weight: 600; border-bottom: 2px solid currentColor; }
.xr mark.near { background: var(--near); }
.xr .legend, .xr .small { font-size: .93em; color: var(--muted); }
.xr .warn { background: var(--warn); color: var(--warn-text); border: 1px solid var(--line); padding: .5rem 1rem;
  margin: 1rem 0; } .xr .warn ul { margin: .25rem 0; padding-left: 1.2rem; }
.xr .scroll { overflow-x: auto; } .xr .tall { max-height: 30rem; overflow-y: auto; }
.xr table { border-collapse: collapse; width: 100%; font-size: .96em; margin: 0; }
.xr caption { text-align: left; color: var(--muted); font-size: .93em; padding: .25rem 0; }
.xr th, .xr td { border-bottom: 1px solid var(--line); padding: .4rem .5rem; vertical-align: top; text-align: left;
  background: var(--page); color: var(--text); }
.xr thead th { vertical-align: bottom; } .xr th.n, .xr td.n { text-align: right; }
.xr td.n { font-variant-numeric: tabular-nums; white-space: nowrap; }
.xr tr:target th, .xr tr:target td { background: var(--panel); }
.xr .id { font-weight: 600; overflow-wrap: anywhere; unicode-bidi: isolate; }
.xr .doc { min-width: 16rem; max-width: 34rem; font-weight: 400; }
.xr .badge { display: inline-block; border-radius: 3px; padding: 0 .45em; font-size: .9em; color: var(--badge-text);
  background: var(--plain); } .xr .badge.removed { background: var(--removed); }
.xr .badge.penalised { background: var(--penalised); } .xr .badge.protected { background: var(--protected); }
.xr .text { white-space: pre-wrap; overflow-wrap: anywhere; unicode-bidi: isolate; margin: .3rem 0; max-width: 50rem; }
.xr .card { border: 1px solid var(--line); border-left: 4px solid var(--removed); padding: .6rem .9rem;
  margin: .6rem 0; }
.xr .removal { list-style: none; padding: 0; margin: 0; }
.xr dl { display: grid; grid-template-columns: fit-content(12rem) minmax(0, 1fr); gap: .15rem 1rem; margin: .4rem 0;
  font-size: .96em; }
.xr dt { color: var(--muted); overflow-wrap: anywhere; } .xr dd { margin: 0; overflow-wrap: anywhere; }
.xr summary { cursor: pointer; } .xr .bar { display: block; width: 120px; height: 16px; }
.xr .bar .track { fill: var(--track); } .xr .bar .value { fill: var(--bar); }
.xr .bar .cut { stroke: var(--tick); stroke-width: 2; }
.xr .bar .floor { stroke: var(--tick); stroke-width: 1.5; stroke-dasharray: 2 2; }
.xr .sr { position: absolute; width: 1px; height: 1px; overflow: hidden; clip-path: inset(50%); white-space: nowrap; }
.xr .skip { position: absolute; left: -99rem; } .xr .skip:focus { left: 1rem; top: 1rem; background: var(--page); }
.xr .controls { display: none; flex-wrap: wrap; gap: .75rem 1.25rem; align-items: end; margin: .5rem 0; }
.xr.js .controls { display: flex; } .xr .controls fieldset { border: 0; padding: 0; margin: 0; }
.xr .controls label { margin-right: .75rem; } .xr .controls input[type=search] { font: inherit; padding: .25rem .5rem;
  border: 1px solid var(--line); background: var(--page); color: var(--text); min-width: 16rem; }
.xr button { font: inherit; color: inherit; background: none; border: 1px solid var(--line); border-radius: 3px; }
.xr th button { font-weight: 600; border: 0; padding: 0; cursor: pointer; text-align: inherit;
  text-decoration: underline dotted; }
.xr th[aria-sort=ascending] button::after { content: " ▲"; }
.xr th[aria-sort=descending] button::after { content: " ▼"; }
.xr [hidden] { display: none; }
@media print {
  @page { margin: 14mm; }
  .xr-page { max-width: none; padding: 0; } .xr { font-size: 9pt; } .xr table { font-size: 7pt; }
  .xr th, .xr td { padding: 2px 4px; } .xr .bar { width: 64px; height: 9px; } .xr .doc, .xr .text { max-width: none; }
  .xr .controls, .xr .skip { display: none !important; }
  .xr .scroll { overflow: visible; max-height: none; } .xr tr, .xr .card { break-inside: avoid; }
  .xr thead { display: table-header-group; }
  .xr mark, .xr .badge, .xr .bar, .xr .query { print-color-adjust: exact; -webkit-print-color-adjust: exact; }
  .xr .query { max-height: none; } .xr .doc { min-width: 0; }
  .xr details::details-content { content-visibility: visible; }
}
"""

CSS = (
    f".xr {{ color-scheme: light dark; {_variables(LIGHT)} }}\n"
    # On paper the light palette stays.
    f"@media screen and (prefers-color-scheme: dark) {{ .xr {{ {_variables(DARK)} }} }}\n{_RULES}"
)
