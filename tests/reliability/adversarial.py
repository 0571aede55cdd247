"""What documents that are written against Excise do to it: evidence, verdict and rank, measured.

From the root of a checkout:

    python tests/reliability/adversarial.py

For every judged query of the examples one unwanted document (for "footer": one wanted document) is rewritten, and the
query is asked again with its topics given; "strict" are the settings in ``STRICT``. Printed is a Markdown table: of
how many documents, which share was removed, which share still stands in the top ten, and their mean evidence as a
share of the topic's strongest.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from statistics import mean

if __name__ == "__main__":
    sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from excise_integrations import Candidate, Excise
from excise_integrations.encode import Backbone
from excise_integrations.encode.maxsim import TokenVectors
from excise_integrations.first_stage.memory import MemoryFirstStage

_DATA = Path(__file__).resolve().parents[2] / "examples" / "data"


@dataclass(frozen=True)
class Case:
    """A judged query with the document that is rewritten for it."""

    domain: str
    query: str
    topics: tuple[str, ...]
    wanted: str
    unwanted: str


@dataclass(frozen=True)
class Effect:
    """What happened to the rewritten document of one case."""

    removed: bool
    shown: bool
    share: float


def cases() -> list[Case]:
    """Return one case per judged query that names an unwanted and a wanted document."""
    found = []
    for line in (_DATA / "judged.jsonl").read_text(encoding="utf-8").splitlines():
        r = json.loads(line)
        if r["excluded"] and r["wanted"] and r["unwanted"]:
            found.append(Case(r["domain"], r["query"], tuple(r["excluded"]), r["wanted"][0], r["unwanted"][0]))
    return found


def documents(domain: str) -> dict[str, str]:
    """Return text by id."""
    lines = (_DATA / f"{domain}.jsonl").read_text(encoding="utf-8").splitlines()
    return {r["_id"]: f"{r['title']}\n{r['text']}" for r in map(json.loads, lines)}


def _words(text: str) -> list[str]:
    return [w.strip(".,;:()\"'") for w in text.split() if len(w.strip(".,;:()\"'")) > 3]


def _misspelt(word: str) -> str:
    middle = len(word) // 2
    return word[: middle - 1] + word[middle] + word[middle - 1] + word[middle + 1 :]


def _replace(text: str, case: Case, change: Callable[[str], str]) -> str:
    for topic in case.topics:
        for word in _words(topic):
            for form in (word, word.lower(), word.capitalize()):
                text = text.replace(form, change(form))
    return text


def _wanted(case: Case) -> str:
    return _replace(case.query, case, lambda _: "")


def _stuffed(text: str, case: Case) -> str:
    return f"{text} {(_wanted(case) + ' ') * 8}"


STRICT = {"opening_tokens": 0, "dominance": None, "dominance_slope": 0.0}
"""Settings under which no likeness with the wanted words, and no opening, spares a document."""

REWRITES: dict[str, tuple[str, Callable[[str, Case], str]]] = {
    "as it is": ("unwanted", lambda text, case: text),
    "stuffed with the wanted words": ("unwanted", _stuffed),
    "opens with the wanted words": (
        "unwanted",
        lambda text, case: f"{_replace(case.query, case, lambda _: '')}. {text}",
    ),
    "the topic misspelt": ("unwanted", lambda text, case: _replace(text, case, _misspelt)),
    "the topic hidden (“it”)": ("unwanted", lambda text, case: _replace(text, case, lambda _: "it")),
    "wanted, the topic in a footer": ("wanted", lambda text, case: f"{text} See also: {', '.join(case.topics)}."),
}


@cache
def _vectors(backbone: Backbone, text: str) -> TokenVectors:
    return backbone.encode_documents([text])[0]


def measure(excise: Excise, case: Case, rewrite: str) -> Effect:
    """Rewrite one document, ask the query with its topics, and look at that document."""
    which, change = REWRITES[rewrite]
    target = getattr(case, which)
    texts = documents(case.domain)
    texts[target] = change(texts[target], case)
    vectors = [_vectors(excise.backbone, text) for text in texts.values()]
    candidates = [Candidate(i, t) for i, t in texts.items()]
    stage = MemoryFirstStage.from_candidates(candidates, vectors=vectors, backbone=excise.backbone)
    result = excise.search(case.query, stage, k=10, exclude=list(case.topics))
    verdict = result.verdicts[target]
    top = max(v.evidence for v in result.verdicts.values() if v.evidence is not None and v.span == verdict.span)
    return Effect(
        removed=verdict.action == "removed",
        shown=target in {c.id for c in result.candidates},
        share=(verdict.evidence or 0.0) / top,
    )


def table(excise: Excise, found: list[Case]) -> str:
    """Return the effects as Markdown, with the default settings and with the strict ones."""
    lines = [
        "| document | documents | removed | in the top ten | evidence / strongest | removed, strict | shown, strict |",
        "|---|---|---|---|---|---|---|",
    ]
    strict = excise.with_config(**STRICT)
    for rewrite in REWRITES:
        default, hard = ([measure(e, case, rewrite) for case in found] for e in (excise, strict))
        numbers = (
            mean(e.removed for e in default), mean(e.shown for e in default), mean(e.share for e in default),
            mean(e.removed for e in hard), mean(e.shown for e in hard),
        )  # fmt: skip
        lines.append(f"| {rewrite} | {len(default)} | " + " | ".join(f"{n:.2f}" for n in numbers) + " |")
    return "\n".join(lines)


if __name__ == "__main__":
    print(table(Excise.from_pretrained("minilm"), cases()))
