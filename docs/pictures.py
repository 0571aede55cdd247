"""Draw the picture of the README from a real run over the documents of the demo.

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

PICTURE = Path(__file__).resolve().parent / "images" / "frozen-and-excise.svg"
_SHOWN = 5
_STYLE = """
text { font: 14px system-ui, "Segoe UI", Helvetica, Arial, sans-serif; fill: #1f2328 }
.head { font-weight: 600 } .small { font-size: 12px; fill: #59636e } .card { fill: #ffffff; stroke: #d1d9e0 }
.bad { fill: #ffebe9; stroke: #cf222e } .gone { fill: #cf222e } .page { fill: #f6f8fa }
@media (prefers-color-scheme: dark) {
  text { fill: #f0f6fc } .small { fill: #9198a1 } .card { fill: #0d1117; stroke: #3d444d } .page { fill: #151b23 }
  .bad { fill: #3c1618; stroke: #f85149 } .gone { fill: #ff7b72 }
}
"""


def draw(excise: Excise) -> str:
    """Return the picture as SVG: the frozen list beside the one of Excise, and what was removed."""
    stage = MemoryFirstStage.from_texts(list(DOCUMENTS.values()), ids=list(DOCUMENTS), backbone=excise.backbone)
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
            rows.append(f'<text x="{x + 12}" y="{y + 24}">{i + 1}. {escape(_short(c.text))}</text>')
    below = 92 + 44 * _SHOWN + 22
    reasons = ", ".join(f"{c.id} (evidence {result.verdicts[c.id].evidence:.2f})" for c in result.removed)
    names = [c.id for c in frozen]
    title = f"The frozen ranking of “{EXCLUDING}” beside the one of Excise"
    kept = ", ".join(c.id for c in result.candidates[:_SHOWN])
    description = f"Frozen: {', '.join(names)}. Excise: {kept}. Removed: {reasons}."
    return "\n".join(
        [
            f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 840 {below + 22}" role="img" '
            'aria-labelledby="title description">',
            f'<title id="title">{escape(title)}</title>',
            f'<desc id="description">{escape(description)}</desc>',
            f"<style>{_STYLE}</style>",
            f'<rect class="page" width="840" height="{below + 22}" rx="10"/>',
            f'<text x="20" y="34" class="head">{escape(before)}<tspan class="gone" text-decoration="line-through">'
            f"{escape(mark)}</tspan>{escape(after)}</text>",
            '<text x="20" y="74" class="small">frozen late interaction</text>',
            '<text x="430" y="74" class="small">the same index with Excise</text>',
            *rows,
            f'<text x="20" y="{below}" class="small">Removed for “{escape(span.text)}”: {escape(reasons)}</text>',
            "</svg>",
            "",
        ]
    )


def _short(text: str) -> str:
    return text if len(text) <= 48 else text[:47].rsplit(" ", 1)[0] + " …"


if __name__ == "__main__":
    PICTURE.write_text(draw(Excise.from_pretrained("minilm")), encoding="utf-8")
    print(PICTURE)
