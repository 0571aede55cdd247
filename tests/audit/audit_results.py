"""Results made by hand: the report and the log need no model."""

from __future__ import annotations

from typing import Any

from excise_integrations import Candidate, Detection, ExciseResult, Span, Verdict

QUERY = "animals kept as pets, but not the domestic cat"
HOSTILE = (
    '</script><script>window.pwned=1</script><img src=x onerror="window.pwned=1">\'"><svg onload=window.pwned=1>'
    "</title></style><!-- ]]> [x](javascript:alert(1)) ![i](http://evil.test/i.png) | `a` \x00\x1b[31m "
    "\u202ecod.exe \ud800"
)


def make_result(**changes: Any) -> ExciseResult:
    """A firing over five candidates: one removed, one protected, one penalised, one reranked, one below k."""
    names = ["cat", "dog", "parrot", "kitten", "horse"]
    candidates = [
        Candidate(name, f"A text about the {name}. It is long.", 9.0 - i, {"kind": "animal"})
        for i, name in enumerate(names)
    ]
    rows: list[tuple[str, int | None, float, float, float]] = [
        # action, rank, score, evidence, penalty
        ("removed", None, 8.4, 0.875, 0.288),
        ("protected", 1, 7.5, 0.646, 0.066),
        ("reranked", 3, 2.9, 0.254, 0.0),
        ("penalised", 2, 6.2, 0.604, 0.026),
        ("reranked", 4, 1.0, 0.1, 0.0),
    ]
    verdicts = {
        c.id: Verdict(
            id=c.id,
            action=action,  # type: ignore[arg-type]
            rank=rank,
            first_stage_rank=i + 1,
            first_stage_score=c.score,
            score=score,
            evidence=evidence,
            topic_evidence=(evidence,),
            span=0,
            cut=0.578,
            penalty=penalty,
        )
        for i, (c, (action, rank, score, evidence, penalty)) in enumerate(zip(candidates, rows, strict=True))
    }
    values: dict[str, Any] = {
        "query": QUERY,
        "candidates": (candidates[1], candidates[3], candidates[2]),
        "removed": (candidates[0],),
        "detection": Detection(True, 0.97, (Span("domestic cat", 34, 46, 0.97),), "animals kept as pets"),
        "verdicts": verdicts,
        "warnings": ("A warning for the reader.",),
        "adapters": ("minilm/detector@0123456789ab",),
        "config": "",
        "floor": 0.35,
        "timings": {"detect": 0.01, "encode": 0.1},
    }
    return ExciseResult(**{**values, **changes})


def make_silent(**changes: Any) -> ExciseResult:
    """A query that excludes nothing."""
    candidates = tuple(Candidate(f"d{i}", f"text {i}", 5.0 - i) for i in range(3))
    values: dict[str, Any] = {
        "query": "animals kept as pets",
        "candidates": candidates,
        "removed": (),
        "detection": Detection(False, 0.02, (), ""),
        "verdicts": {
            c.id: Verdict(c.id, "unchanged", i, i, c.score, c.score) for i, c in enumerate(candidates, start=1)
        },
        "floor": 0.35,
    }
    return ExciseResult(**{**values, **changes})


def make_hostile(evil: str = HOSTILE) -> ExciseResult:
    """The same text wherever a stranger's text can stand."""
    candidate = Candidate(evil, evil, 1.0, {evil: evil, "nested": {"a": [evil, {evil: evil}]}})
    other = Candidate(evil + "2", evil, 0.5)
    verdicts = {
        c.id: Verdict(c.id, action, rank, at, c.score, 1.0, 0.8, (0.8, 0.1), 0, 0.4, 0.3)  # type: ignore[arg-type]
        for c, action, rank, at in ((candidate, "removed", None, 1), (other, "protected", 1, 2))
    }
    return make_result(
        query=evil + " but not " + evil,
        candidates=(other,),
        removed=(candidate,),
        detection=Detection(True, 0.9, (Span(evil, 0, len(evil), 0.9), Span(evil + "b")), evil, "caller", (evil,)),
        verdicts=verdicts,
        warnings=(evil,),
        adapters=(evil,),
        config=evil,
    )
