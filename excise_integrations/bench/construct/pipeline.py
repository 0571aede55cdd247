"""The build: mine groups, write queries, repair, gates, and the suite."""

from __future__ import annotations

import hashlib
import json
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from ...encode.backbone import Backbone
from ...errors import ExciseError, InvalidInputError
from ...first_stage.base import FirstStage
from ...first_stage.memory import MemoryFirstStage
from ...train.confusable import MinedTriple, MiningSettings
from ...train.descriptions import Document
from ...train.mining import eligible, mine
from ...train.mining_files import check_target, document_row, write_folder
from ...train.near_duplicates import NearDuplicates
from ...types import Candidate
from ...version import __version__
from ..lexical import LexicalIndex
from ..store import VectorStore
from ..suites import suite_files, to_json_lines
from .answers import AnswerBook, Model, check_different
from .audit import cohen_kappa
from .estimate import Estimate, estimate_calls
from .gates import GATES, Tools, first_failure
from .judging import reads_as_meant
from .prompts import prompts_hash
from .records import BenchRecord, BuildReport, BuildSettings, Shape
from .repair import has_cue, verify_and_repair
from .writing import GroupNames, shape_of_templates, write_record

__all__ = ["build_bench"]

_MARKER = "build.json"
_WHAT = "a built suite"

Progress = Callable[[str, int, int], None]


def build_bench(
    documents: Sequence[Document],
    out: str | Path,
    *,
    writer: Any | None,
    judge: Any | None,
    second_judge: Any | None = None,
    backbone: Backbone | None = None,
    first_stage: FirstStage | None = None,
    settings: BuildSettings | None = None,
    references: Sequence[str] | None = None,
    split: str = "test",
    answers: str | Path | None = None,
    store: VectorStore | None = None,
    confirm: Callable[[Estimate], bool] | None = None,
    progress: Progress | None = None,
) -> BuildReport:
    """Build an X-Bench suite on a corpus (paper, X-Bench construction).

    A build that was ended goes on when it is called again, and one that was not changes nothing: every answer is
    kept, and asked for once.

    Args:
        documents: the corpus, which becomes the suite's.
        out: folder of the suite; it appears whole or not at all, and replaces a built suite.
        writer: writes the queries: a LangChain chat model, a LlamaIndex LLM, or a function from prompt to answer;
            None takes templates.
        judge: another model; None leaves its questions out, which ``build.json`` says. A writer needs one.
        second_judge: a third model, whose agreement with the judge is measured.
        backbone: encodes the corpus; None is the embedded default.
        first_stage: for the round trip; None searches the corpus by exact MaxSim.
        settings: see :class:`BuildSettings`.
        references: texts that the suite must not contain, such as the backbone's training corpus.
        split: name of the split.
        answers: the file of answers; None is ``OUT.answers.jsonl`` beside the folder.
        store: keeps the documents' vectors between builds.
        confirm: is shown the estimate before a model is asked, and says whether to go on.
        progress: called with what is done ("encoding", "mining", "writing", "gates"), how much, and the total.

    Returns:
        The report.

    Raises:
        InvalidInputError: writer and judge are one model, a writer has no judge, or the corpus is too small.
        SuiteError: ``out`` holds something else.
        ExciseError: ``confirm`` said no, nothing passed the gates, or a model failed again and again.
    """
    out, settings = Path(out), settings or BuildSettings()
    check_target(out, _MARKER, _WHAT)
    check_different(writer, judge, second_judge)
    if judge is None and (writer is not None or second_judge is not None):
        raise InvalidInputError(
            "A judge is needed beside a writing model or a second judge; only templates do without."
        )
    book = AnswerBook(answers or out.with_name(out.name + ".answers.jsonl"))

    def model(llm: Any | None, role: str) -> Model | None:
        return None if llm is None else Model(llm, role, book, attempts=settings.attempts, timeout=settings.timeout)

    models = {role: model(llm, role) for role, llm in
              (("writer", writer), ("judge", judge), ("second judge", second_judge))}  # fmt: skip
    backbone = backbone or Backbone.from_pretrained("minilm")
    mined = mine(
        documents,
        backbone,
        settings=MiningSettings(
            count=settings.count, seed=settings.seed, tiers=settings.tiers, forms=settings.forms, band=settings.band,
            near_duplicate=settings.near_duplicate, max_uses=settings.max_uses, round_trip=0,
        ),
        writer=GroupNames() if writer is not None else None,
        progress=progress,
    )  # fmt: skip
    estimate = estimate_calls(mined.triples, models, book)
    if estimate.calls and confirm is not None and not confirm(estimate):
        raise ExciseError("The build was not confirmed; no model was asked.")
    counts: Counter[str] = Counter()
    records = _written(mined.triples, models["writer"], counts, progress)
    tools = _tools(documents, backbone, first_stage, settings, references, models["judge"], store)
    kept, rejected = _through_gates(records, tools, progress)
    if not kept:
        raise ExciseError(
            f"No query is left of {len(mined.triples)} groups: {dict(counts)}, rejected by gates: "
            f"{dict(Counter(gate for gate, _ in rejected))}. Give a larger corpus, or loosen a bound of the settings."
        )
    facts = {
        "queries": len(kept),
        "kinds": _kinds(kept),
        "groups": len(mined.triples),
        "mining_refused": mined.refused,
        "band": list(mined.band),
        "writing": {name: counts[name] for name in ("unwritten", "repaired", "dropped_by_tier")},
        "gates": _gate_counts(records, rejected, tools),
        "cue_test": _cue_test(kept),
        "second_judge": _second_opinion(records, kept, rejected, models),
        "models": {role: m.name if m is not None else ("templates" if role == "writer" else None)
                   for role, m in models.items()},
        "prompts": prompts_hash(),
        "settings": asdict(settings),
        "backbone": backbone.label,
        "version": __version__,
    }  # fmt: skip
    contents = _contents(documents, kept, rejected, split)
    facts["sha256"] = {name: hashlib.sha256(text.encode()).hexdigest() for name, text in contents.items()}
    write_folder(out, {**contents, _MARKER: json.dumps(facts, indent=2) + "\n"}, marker=_MARKER, what=_WHAT)
    return BuildReport(out, tuple(kept), tuple(rejected), facts)


def _written(
    triples: Sequence[MinedTriple], writer: Model | None, counts: Counter[str], progress: Progress | None
) -> list[BenchRecord]:
    records: list[BenchRecord] = []
    compound = 0
    for number, triple in enumerate(triples, start=1):
        name, shape = f"x-{number}", None
        if triple.draft.tier == "T3":
            shape = ("disjunctive", "mixed")[compound % 2]
            compound += 1
        record = _record(name, triple, writer, shape)  # type: ignore[arg-type]
        if progress is not None:
            progress("writing", number, len(triples))
        if record is None:
            counts["unwritten"] += 1
            continue
        # A template's T1 and T3 are what they are by construction, beyond what the cue rules know.
        by_rule = writer is not None or record.draft.tier == "T2"
        repaired = verify_and_repair(record) if by_rule else record
        if repaired is None:
            counts["dropped_by_tier"] += 1
            continue
        counts["repaired"] += repaired.repaired
        records.append(repaired)
    return records


def _record(name: str, triple: MinedTriple, writer: Model | None, shape: Shape | None) -> BenchRecord | None:
    if writer is not None:
        return write_record(name, triple, writer, shape=shape)
    return shape_of_templates(BenchRecord(name, triple.draft, triple.group))


def _tools(
    documents: Sequence[Document],
    backbone: Backbone,
    first_stage: FirstStage | None,
    settings: BuildSettings,
    references: Sequence[str] | None,
    judge: Model | None,
    store: VectorStore | None,
) -> Tools:
    usable = [documents[i] for i in eligible(documents)]
    if first_stage is None:
        candidates = [Candidate(d.id, d.full_text) for d in usable]
        vectors = store.encode([c.text for c in candidates], backbone) if store is not None else None
        first_stage = MemoryFirstStage.from_candidates(candidates, vectors=vectors, backbone=backbone)
    return Tools(
        settings,
        first_stage,
        backbone,
        LexicalIndex([d.full_text for d in usable]),
        {d.id: place for place, d in enumerate(usable)},
        NearDuplicates(settings.near_duplicate),
        NearDuplicates(settings.leakage, references) if references is not None else None,
        judge,
    )


def _through_gates(
    records: Sequence[BenchRecord], tools: Tools, progress: Progress | None
) -> tuple[list[BenchRecord], list[tuple[str, BenchRecord]]]:
    kept: list[BenchRecord] = []
    rejected: list[tuple[str, BenchRecord]] = []
    for number, record in enumerate(records, start=1):
        gate = first_failure(record, tools)
        if gate is None:
            kept.append(record)
        else:
            rejected.append((gate, record))
        if progress is not None:
            progress("gates", number, len(records))
    return kept, rejected


def _gate_counts(
    records: Sequence[BenchRecord], rejected: Sequence[tuple[str, BenchRecord]], tools: Tools
) -> dict[str, dict[str, Any]]:
    failed = Counter(gate for gate, _ in rejected)
    left = len(records)
    out: dict[str, dict[str, Any]] = {}
    for gate in GATES:
        out[gate] = {"checked": left, "rejected": failed[gate]}
        left -= failed[gate]
    if tools.references is None:
        out["leakage"] = {"checked": 0, "rejected": 0, "not_run": "no reference corpus was given"}
    if tools.judge is None:
        out["query_judge"] = {"checked": 0, "rejected": 0, "not_run": "there was no judge"}
        out["topic_not_in_gold"]["not_run"] = "the judge's part; there was no judge"
    return out


def _cue_test(kept: Sequence[BenchRecord]) -> dict[str, dict[str, int]]:
    """Count, per tier, the queries in which the cue rules see an exclusion: none of T2 may be among them."""
    out: dict[str, dict[str, int]] = {}
    for record in kept:
        tier = out.setdefault(record.draft.tier, {"queries": 0, "with_cue": 0})
        tier["queries"] += 1
        tier["with_cue"] += has_cue(record.draft.text)
    return dict(sorted(out.items()))


def _second_opinion(
    records: Sequence[BenchRecord],
    kept: Sequence[BenchRecord],
    rejected: Sequence[tuple[str, BenchRecord]],
    models: dict[str, Model | None],
) -> dict[str, Any] | None:
    """Put the judge's question about the query to another model, for every query that the judge was asked about."""
    second = models["second judge"]
    if second is None:
        return None
    first = {r.id: True for r in kept} | {r.id: False for gate, r in rejected if gate == "query_judge"}
    opinions = {r.id: reads_as_meant(second, r) for r in records if r.id in first}
    return dict(cohen_kappa(first, {name: value for name, value in opinions.items() if value is not None}))


def _kinds(kept: Sequence[BenchRecord]) -> dict[str, int]:
    names = [" ".join(filter(None, (r.draft.tier, r.draft.form, r.shape))) for r in kept]
    return dict(sorted(Counter(names).items()))


def _contents(
    documents: Sequence[Document],
    kept: Sequence[BenchRecord],
    rejected: Sequence[tuple[str, BenchRecord]],
    split: str,
) -> dict[str, str]:
    every = [(None, r) for r in kept] + list(rejected)
    records = [
        {**r.row(), "documents": {name: score for _, name, score in r.judgments()}, "repaired": r.repaired, "gate": g}
        for g, r in every
    ]
    files = suite_files(
        [document_row(documents[i]) for i in eligible(documents)],
        [r.row() for r in kept],
        [judgment for r in kept for judgment in r.judgments()],
        split=split,
    )
    return {**files, "records.jsonl": to_json_lines(records)}
