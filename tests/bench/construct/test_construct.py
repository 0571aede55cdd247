"""Building a suite end to end, with models that answer well, badly, not at all, or too late."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from mining_corpus import WordEncoder, corpus
from scripted import Scripted, judge, slow, write

from excise_integrations.bench.construct import BuildReport, BuildSettings, build_bench
from excise_integrations.bench.suites import load_suite
from excise_integrations.errors import ExciseError, InvalidInputError, SuiteError

SETTINGS = BuildSettings(count=12, max_uses=4, bm25=0.3, maxsim=0.5, timeout=5)


def build(out: Path, **options: Any) -> BuildReport:
    models = {"writer": Scripted("w", write), "judge": Scripted("j", judge)}
    return build_bench(corpus(), out, **{"backbone": WordEncoder(), "settings": SETTINGS, **models, **options})


def files(folder: Path) -> dict[str, bytes]:
    return {str(p.relative_to(folder)): p.read_bytes() for p in sorted(folder.rglob("*")) if p.is_file()}


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> BuildReport:
    return build(tmp_path_factory.mktemp("built") / "suite", second_judge=Scripted("s", judge))


def test_good_models_give_a_suite_of_every_kind(built: BuildReport) -> None:
    suite = load_suite(built.folder, "test")
    assert len(suite.queries) == len(built.kept) == built.facts["queries"] == 12
    assert len(suite.documents) == 60
    assert {(q.groups["tier"], q.groups["form"]) for q in suite.queries} == {
        (t, f) for t in ("T1", "T2", "T3") for f in ("short", "long")
    }
    assert {r.shape for r in built.kept if r.draft.tier == "T3"} == {"disjunctive", "mixed"}
    for query in suite.queries:
        assert all(topic in query.text for topic in query.excluded)
        scores = sorted(suite.qrels[query.id].values())
        assert scores == [-1] * len(query.excluded) + [1]


def test_the_record_of_the_build(built: BuildReport) -> None:
    facts = json.loads((built.folder / "build.json").read_text())
    assert len(facts["gates"]) == 9
    assert facts["gates"]["query_judge"] == {"checked": 12, "rejected": 0}
    assert facts["gates"]["leakage"]["not_run"]
    assert facts["cue_test"]["T2"]["with_cue"] == 0
    assert facts["cue_test"]["T1"] == {"queries": 4, "with_cue": 4}
    assert facts["second_judge"] == {"n": 12, "agreement": 1.0, "kappa": None}
    assert facts["models"] == {"writer": "w", "judge": "j", "second judge": "s"}


def test_a_second_build_pays_nothing_and_changes_nothing(built: BuildReport, tmp_path: Path) -> None:
    before = files(built.folder)
    silent = [Scripted(name, slow) for name in "wjs"]
    build(built.folder, writer=silent[0], judge=silent[1], second_judge=silent[2])
    assert [len(m.prompts) for m in silent] == [0, 0, 0]
    assert files(built.folder) == before


def test_a_killed_build_goes_on_without_paying_again(tmp_path: Path) -> None:
    out, book = tmp_path / "suite", tmp_path / "suite.answers.jsonl"
    build(out)
    whole, lines = files(out), book.read_text().splitlines(keepends=True)
    # What a kill leaves: some answers, the last one unfinished.
    book.write_text("".join(lines[:9]) + lines[9][:30])
    models = {"writer": Scripted("w", write), "judge": Scripted("j", judge)}
    build(out, **models)
    assert sum(len(m.prompts) for m in models.values()) == len(lines) - 9
    assert files(out) == whole
    assert book.read_text().splitlines(keepends=True) == lines


def test_malformed_answers_are_asked_for_again(tmp_path: Path) -> None:
    def clumsy(good: Callable[[str], str]) -> Callable[[str], str]:
        return lambda prompt: good(prompt) if "cannot be used" in prompt else "Sure, here you are!"

    writer, judging = Scripted("w", clumsy(write)), Scripted("j", clumsy(judge))
    assert len(build(tmp_path / "suite", writer=writer, judge=judging).kept) == 12
    assert len(writer.prompts) == 2 * 20  # 4 groups of one step, 8 of two


def test_a_model_that_refuses_gives_nothing_and_ends(tmp_path: Path) -> None:
    writer = Scripted("w", lambda prompt: "I cannot help with that.")
    with pytest.raises(ExciseError, match=r"No query is left of 12 groups: .*'unwritten': 12"):
        build(tmp_path / "suite", writer=writer)
    # The second complaint is about the same answer as the first, and is not paid for again.
    assert len(writer.prompts) == 2 * 12
    assert not (tmp_path / "suite").exists()


def test_a_judge_that_refuses_drops_records(tmp_path: Path) -> None:
    def refusing(prompt: str) -> str:
        return judge(prompt) if "TOPIC: " in prompt or len(prompt) % 2 else "No comment."

    report = build(tmp_path / "suite", judge=Scripted("j", refusing))
    assert 0 < len(report.kept) < 12
    assert report.facts["gates"]["query_judge"]["rejected"] == 12 - len(report.kept) == len(report.rejected)


def test_a_model_that_hangs_or_is_down_stops_the_build(tmp_path: Path) -> None:
    quick = BuildSettings(count=12, max_uses=4, timeout=0.02, attempts=2)
    with pytest.raises(ExciseError, match=r"writer w gave no answer 5 times in a row .*no answer within 0.02 seconds"):
        build(tmp_path / "suite", writer=Scripted("w", slow), settings=quick)

    def down(prompt: str) -> str:
        raise ConnectionError("offline")

    with pytest.raises(ExciseError, match=r"ConnectionError: offline.*run the build again"):
        build(tmp_path / "suite", writer=Scripted("w", down))


def test_one_timeout_is_tried_again(tmp_path: Path) -> None:
    late = [True]

    def once(prompt: str) -> str:
        if late.pop() if late else False:
            raise TimeoutError
        return write(prompt)

    assert len(build(tmp_path / "suite", writer=Scripted("w", once)).kept) == 12


def test_templates_need_no_model(tmp_path: Path) -> None:
    report = build(tmp_path / "suite", writer=None, judge=None, settings=BuildSettings(count=12, max_uses=4, bm25=0))
    assert report.facts["models"]["writer"] == "templates"
    assert report.facts["writing"]["repaired"] == 0
    assert "not_run" in report.facts["gates"]["query_judge"]
    assert len(report.kept) >= 4
    assert report.facts["cue_test"].get("T2", {"with_cue": 0})["with_cue"] == 0
    assert not (tmp_path / "suite.answers.jsonl").exists()


def test_writer_and_judge_must_differ(tmp_path: Path) -> None:
    one = Scripted("a", write)
    for other in (one, Scripted("a", judge)):
        with pytest.raises(InvalidInputError, match="writer and the judge are the same model, a"):
            build(tmp_path / "suite", writer=one, judge=other)
    with pytest.raises(InvalidInputError, match="judge and the second judge"):
        build(tmp_path / "suite", second_judge=Scripted("j", judge))
    with pytest.raises(InvalidInputError, match="A judge is needed"):
        build(tmp_path / "suite", judge=None)


def test_the_estimate_comes_first(tmp_path: Path) -> None:
    shown = []
    models = {"writer": Scripted("w", write), "judge": Scripted("j", judge)}

    def no(estimate: Any) -> bool:
        shown.append(estimate)
        return False

    with pytest.raises(ExciseError, match="not confirmed"):
        build(tmp_path / "suite", confirm=no, **models)
    assert shown[0].calls == {"writer": 20, "judge": 28}
    assert shown[0].prompt_tokens > 2000
    assert not any(m.prompts for m in models.values())
    build(tmp_path / "suite", confirm=lambda estimate: True, **models)
    assert [len(m.prompts) for m in models.values()] == [20, 28]
    assert sum(len(p) for m in models.values() for p in m.prompts) / 4 == pytest.approx(shown[0].prompt_tokens, rel=0.2)


def test_a_folder_of_something_else_is_left_alone(tmp_path: Path) -> None:
    (tmp_path / "mine.txt").write_text("x")
    with pytest.raises(SuiteError, match="is not a built suite"):
        build(tmp_path)


def test_langchain_and_llama_index_models(tmp_path: Path) -> None:
    chat = pytest.importorskip("langchain_core.language_models")
    llms = pytest.importorskip("llama_index.core.llms")

    class Writer(chat.SimpleChatModel):  # type: ignore[misc,name-defined]
        @property
        def _llm_type(self) -> str:
            return "scripted"

        def _call(self, prompt: list[Any], *args: Any, **kwargs: Any) -> str:
            return write(str(prompt[0].content))

    class Judge(llms.CustomLLM):  # type: ignore[misc,name-defined]
        @property
        def metadata(self) -> Any:
            return llms.LLMMetadata(model_name="judging")

        def complete(self, prompt: str, formatted: bool = False, **kwargs: Any) -> Any:
            return llms.CompletionResponse(text=judge(prompt))

        def stream_complete(self, prompt: str, formatted: bool = False, **kwargs: Any) -> Any:
            raise NotImplementedError

    report = build(tmp_path / "suite", writer=Writer(), judge=Judge())
    assert len(report.kept) == 12
    assert report.facts["models"]["judge"] == "judging"
