"""Draw the pictures of the README and of ``concepts.md`` from a real run over the documents of the demo.

From the root of a checkout, with the extra ``embedded``:

    python docs/pictures.py
"""

from __future__ import annotations

import sys
from html import escape
from pathlib import Path

if __name__ == "__main__":
    ROOT = Path(__file__).resolve().parents[1]
    sys.path[:0] = [str(ROOT), str(ROOT / "examples")]

from demo import DOCUMENTS, EXCLUDING

from excise_integrations import Excise
from excise_integrations.first_stage.memory import MemoryFirstStage

IMAGES = Path(__file__).resolve().parent / "images"
# The query of the demo without its exclusion.
_PLAIN = "electric cars"
_SHOWN = 5
_STYLE = """
text { font: 14px system-ui, "Segoe UI", Helvetica, Arial, sans-serif; fill: #1f2328 }
.head { font-weight: 600 } .small { font-size: 12px; fill: #59636e } .card { fill: #ffffff; stroke: #d1d9e0 }
.bad { fill: #ffebe9; stroke: #cf222e } .gone { fill: #cf222e } .page { fill: #f6f8fa } .on { fill: #ffffff }
.base { fill: #9aa4af } .kept { fill: #0969da } .line { stroke: #59636e } .dash { stroke-dasharray: 5 4 }
@media (prefers-color-scheme: dark) {
  text { fill: #f0f6fc } .small { fill: #9198a1 } .card { fill: #0d1117; stroke: #3d444d } .page { fill: #151b23 }
  .bad { fill: #3c1618; stroke: #f85149 } .gone { fill: #ff7b72 } .on { fill: #0d1117 }
  .base { fill: #59636e } .kept { fill: #58a6ff } .line { stroke: #9198a1 }
}
"""


def pictures(excise: Excise) -> dict[str, str]:
    """Return every picture as SVG, by the name of its file in ``docs/images``."""
    stage = MemoryFirstStage.from_texts(list(DOCUMENTS.values()), ids=list(DOCUMENTS), backbone=excise.backbone)
    return {
        "frozen-and-excise.svg": frozen_and_excise(excise, stage),
        "inversion.svg": inversion(excise, stage),
        "operator.svg": operator(excise, stage),
    }


def frozen_and_excise(excise: Excise, stage: MemoryFirstStage) -> str:
    """Draw the frozen list beside the one of Excise, and what was removed."""
    frozen = stage.search(EXCLUDING, _SHOWN)
    result = excise.search(EXCLUDING, stage)
    gone = {c.id for c in result.removed}
    span = result.detection.spans[0]
    before, mark, after = EXCLUDING[: span.start], EXCLUDING[span.start : span.end], EXCLUDING[span.end :]
    rows = []
    for i in range(_SHOWN):
        y = 92 + 44 * i
        for x, c in ((20, frozen[i]), (430, result.candidates[i])):
            kind = "bad" if c.id in gone else "card"
            rows.append(f'<rect class="{kind}" x="{x}" y="{y}" width="390" height="38" rx="6"/>')
            rows.append(_text(x + 12, y + 24, f"{i + 1}. {_short(c.text)}"))
    below = 92 + 44 * _SHOWN + 22
    reasons = ", ".join(f"{c.id} (evidence {result.verdicts[c.id].evidence:.2f})" for c in result.removed)
    kept = ", ".join(c.id for c in result.candidates[:_SHOWN])
    return _svg(
        below + 22,
        f"The frozen ranking of “{EXCLUDING}” beside the one of Excise",
        f"Frozen: {', '.join(c.id for c in frozen)}. Excise: {kept}. Removed: {reasons}.",
        [
            f'<text x="20" y="34" class="head">{escape(before)}<tspan class="gone" text-decoration="line-through">'
            f"{escape(mark)}</tspan>{escape(after)}</text>",
            _text(20, 74, "frozen late interaction", "small"),
            _text(430, 74, "the same index with Excise", "small"),
            *rows,
            _text(20, below, f"Removed for “{span.text}”: {reasons}", "small"),
        ],
    )


def inversion(excise: Excise, stage: MemoryFirstStage) -> str:
    """Draw what the excluding words add to each document's frozen score."""
    plain = {c.id: c.score or 0.0 for c in stage.search(_PLAIN, len(DOCUMENTS))}
    full = {c.id: c.score or 0.0 for c in stage.search(EXCLUDING, len(DOCUMENTS))}
    about = {c.id for c in excise.search(EXCLUDING, stage).removed}
    unit = 600 / max(full.values())
    rows = []
    for i, (name, score) in enumerate(list(full.items())[:8]):
        y, start, kind = 92 + 34 * i, 130 + unit * plain[name], "gone" if name in about else "kept"
        added = unit * (score - plain[name])
        rows += [
            _text(118, y + 17, name, "head" if name in about else "", "end"),
            f'<rect class="base" x="130" y="{y}" width="{start - 130:.0f}" height="24"/>',
            f'<rect class="{kind}" x="{start:.0f}" y="{y}" width="{added:.0f}" height="24"/>',
            _text(start + added / 2, y + 17, f"+{score - plain[name]:.2f}", "on", "middle"),
            _text(start + added + 10, y + 17, f"{score:.2f}"),
        ]
    rises = max(about, key=lambda name: list(plain).index(name) - list(full).index(name))
    moved = f"{rises} rises from rank {list(plain).index(rises) + 1} to {list(full).index(rises) + 1}."
    lifted, others = (sorted(full[n] - plain[n] for n in full if (n in about) is side) for side in (True, False))
    words = EXCLUDING.removeprefix(_PLAIN)
    return _svg(
        92 + 34 * 8 + 40,
        "Words that name a topic lift the documents about it",
        f"“{words}” adds {lifted[0]:.2f} to {lifted[-1]:.2f} to the {len(lifted)} documents about Tesla and "
        f"{others[0]:.2f} to {others[-1]:.2f} to the others. {moved}",
        [
            _text(20, 34, "Words that name a topic lift the documents about it", "head"),
            '<rect class="base" x="20" y="54" width="14" height="14"/>',
            _text(40, 66, f"score for “{_PLAIN}”"),
            '<rect class="gone" x="222" y="54" width="14" height="14"/>',
            '<rect class="kept" x="238" y="54" width="14" height="14"/>',
            _text(258, 66, f"what “{words}” adds: documents about Tesla, the others"),
            *rows,
            _text(20, 92 + 34 * 8 + 20, f"Frozen MaxSim scores on the documents of examples/demo.py; {moved}", "small"),
        ],
    )


def operator(excise: Excise, stage: MemoryFirstStage) -> str:
    """Draw each document's evidence against the floor and the cut."""
    result = excise.search(EXCLUDING, stage)
    (span,) = result.detection.spans
    judged = sorted(result.verdicts.values(), key=lambda verdict: -(verdict.evidence or 0.0))
    cut = judged[0].cut or 0.0
    bottom = 76 + 30 * len(judged)

    def across(evidence: float) -> float:
        return 130 + 620 * evidence

    rows = []
    for i, verdict in enumerate(judged):
        y, x = 92 + 30 * i, across(verdict.evidence or 0.0)
        kind = "gone" if verdict.action == "removed" else "kept"
        rows += [
            _text(118, y + 5, verdict.id, "", "end"),
            f'<rect class="{kind}" x="130" y="{y - 1}" width="{x - 130:.0f}" height="3"/>',
            f'<circle class="{kind}" cx="{x:.0f}" cy="{y}" r="7"/>',
        ]
        if verdict.action in ("removed", "protected"):
            rows.append(_text(across(1) + 8, y + 5, verdict.action, "small"))
    lines = []
    for name, value in (("floor", excise.config.floor), ("cut", cut)):
        x = across(value)
        lines.append(f'<line class="line dash" x1="{x:.0f}" x2="{x:.0f}" y1="56" y2="{bottom}"/>')
        lines.append(_text(x + 6, 68, f"{name} {value:.2f}"))
    evidence = ", ".join(f"{v.id} {v.evidence:.2f} ({v.action})" for v in judged)
    return _svg(
        bottom + 34,
        f"Evidence: how well “{span.text}” alone matches each document",
        f"The floor is at {excise.config.floor:.2f}, the cut at {cut:.2f}. Evidence: {evidence}.",
        [
            _text(20, 34, f"Evidence: how well “{span.text}” alone matches each document", "head"),
            f'<rect class="bad" x="{across(cut):.0f}" y="56" width="{across(1) - across(cut):.0f}" '
            f'height="{bottom - 56}" style="stroke: none"/>',
            *lines,
            *rows,
            f'<line class="line" x1="130" x2="{across(1):.0f}" y1="{bottom}" y2="{bottom}"/>',
            *(_text(across(at), bottom + 20, f"{at:g}", "small", "middle") for at in (0, 0.25, 0.5, 0.75, 1)),
            _text(across(1) - 6, bottom - 8, "penalised, or removed", "small", "end"),
        ],
    )


def _svg(height: int, title: str, description: str, parts: list[str]) -> str:
    head = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 840 {height}" role="img" '
        'aria-labelledby="title description">',
        f'<title id="title">{escape(title)}</title>',
        f'<desc id="description">{escape(description)}</desc>',
        f"<style>{_STYLE}</style>",
        f'<rect class="page" width="840" height="{height}" rx="10"/>',
    ]
    return "\n".join([*head, *parts, "</svg>", ""])


def _text(x: float, y: float, text: str, kind: str = "", anchor: str = "") -> str:
    attributes = "".join(f' {name}="{value}"' for name, value in (("class", kind), ("text-anchor", anchor)) if value)
    return f'<text x="{x:.0f}" y="{y}"{attributes}>{escape(text)}</text>'


def _short(text: str) -> str:
    return text if len(text) <= 48 else text[:47].rsplit(" ", 1)[0] + " …"


if __name__ == "__main__":
    # In float32, so that every machine draws the same.
    for name, picture in pictures(Excise.from_pretrained("minilm", dtype="float32")).items():
        (IMAGES / name).write_text(picture, encoding="utf-8")
        print(IMAGES / name)
