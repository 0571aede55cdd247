"""The LangChain retriever over a first stage: fields, keywords, ids, modes, events, copies."""

from __future__ import annotations

import copy
import json
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, ClassVar

import pytest
from langchain_core.documents import Document

from excise_integrations import Candidate, Detection, DetectorError, Excise, FirstStageError, InvalidInputError
from excise_integrations.langchain import ExciseRetriever

QUERY = "animals that people keep as pets, but not dogs"
PLAIN = "animals that people keep as pets"


class Stage:
    """A first stage that returns a fixed list and remembers what it was asked."""

    fingerprint = "fixed"

    def __init__(self, candidates: Sequence[Candidate]) -> None:
        self.candidates = list(candidates)
        self.asked: list[tuple[str, int, Any]] = []

    def search(self, query: str, k: int, *, filter: Mapping[str, Any] | None = None) -> list[Candidate]:
        self.asked.append((query, k, filter))
        return self.candidates[:k]


class Broken:
    def detect(self, queries: Sequence[str]) -> list[Detection]:
        raise RuntimeError("no detector today")


@pytest.fixture
def stage(animals: list[Candidate]) -> Stage:
    return Stage(animals)


@pytest.fixture
def retriever(stage: Stage, excise_rules: Excise) -> ExciseRetriever:
    return ExciseRetriever(first_stage=stage, excise=excise_rules, k=5)


def ids(documents: Sequence[Document]) -> list[str | None]:
    return [d.id for d in documents]


# --- what comes back ----------------------------------------------------------------------


def test_excluded_topic_is_left_out_and_explained(retriever: ExciseRetriever, animals: list[Candidate]) -> None:
    documents = retriever.invoke(QUERY)
    assert len(documents) == 5
    assert "dog" not in ids(documents)
    texts = {c.id: c.text for c in animals}
    for rank, document in enumerate(documents, start=1):
        verdict = document.metadata["excise"]
        assert json.loads(json.dumps(verdict)) == verdict
        assert (verdict["fired"], verdict["source"], verdict["rank"]) == (True, "detector", rank)
        assert [s["text"] for s in verdict["spans"]] == ["dogs"]
        assert document.page_content == texts[document.id or ""]
        assert document.metadata["kind"] == "animal"


def test_silent_query_returns_the_first_stage_untouched(retriever: ExciseRetriever, animals: list[Candidate]) -> None:
    documents = retriever.invoke(PLAIN)
    assert ids(documents) == [c.id for c in animals[:5]]
    assert [d.page_content for d in documents] == [c.text for c in animals[:5]]
    verdicts = [d.metadata["excise"] for d in documents]
    assert [v["first_stage_score"] for v in verdicts] == [v["score"] for v in verdicts] == [10.0, 9.0, 8.0, 7.0, 6.0]
    assert {v["action"] for v in verdicts} == {"unchanged"}


def test_without_annotation_equal_documents_stay_equal(retriever: ExciseRetriever) -> None:
    bare = retriever.model_copy(update={"annotate": False})
    assert [d.metadata for d in bare.invoke(QUERY)] == [{"kind": "animal"}] * 5
    assert bare.invoke(QUERY, exclude=["parrot"])[0] in bare.invoke(PLAIN)


def test_caller_names_the_topic(retriever: ExciseRetriever) -> None:
    documents = retriever.invoke(QUERY, exclude=["parrots and other birds"])
    assert "parrot" not in ids(documents)
    verdict = documents[0].metadata["excise"]
    assert verdict["source"] == "caller"
    assert verdict["spans"] == [{"text": "parrots and other birds", "start": None, "end": None, "confidence": None}]
    assert {d.metadata["excise"]["action"] for d in retriever.invoke(QUERY, exclude=[])} == {"unchanged"}
    for bad in ("dogs", [""], [3]):
        with pytest.raises(InvalidInputError, match="exclude"):
            retriever.invoke(QUERY, exclude=bad)  # type: ignore[arg-type]


def test_explain_shows_what_was_removed(retriever: ExciseRetriever) -> None:
    result = retriever.explain(QUERY)
    assert [c.id for c in result.removed] == ["dog"]
    assert [c.id for c in result.candidates] == ids(retriever.invoke(QUERY))
    assert len(result.verdicts) == 8


# --- k, filter, wrong input -----------------------------------------------------------------


def test_k_and_shortlist(retriever: ExciseRetriever, stage: Stage) -> None:
    assert len(retriever.invoke(QUERY, k=2)) == 2
    assert len(retriever.invoke(PLAIN, k=200)) == 8
    assert len(retriever.invoke(QUERY)) == 5
    retriever.shortlist = 6
    retriever.invoke(QUERY, k=1)
    asked = [k for _, k, _ in stage.asked]
    assert asked[0] == asked[2] == 100
    assert asked[1] > 200
    assert 6 <= asked[3] <= 10


@pytest.mark.parametrize("k", [0, -1, True, "3", 2.5])
def test_bad_k_is_refused_everywhere(retriever: ExciseRetriever, stage: Stage, excise_rules: Excise, k: Any) -> None:
    with pytest.raises(InvalidInputError, match=f"k={k!r}"):
        ExciseRetriever(first_stage=stage, excise=excise_rules, k=k)
    with pytest.raises(InvalidInputError, match=f"k={k!r}"):
        retriever.k = k
    with pytest.raises(InvalidInputError, match=f"k={k!r}"):
        retriever.invoke(QUERY, k=k)
    assert retriever.k == 5


def test_filter_reaches_the_first_stage(retriever: ExciseRetriever, stage: Stage) -> None:
    retriever.invoke(QUERY, filter={"kind": "animal"})
    assert stage.asked[-1][2] == {"kind": "animal"}


def test_wrong_arguments_are_named(retriever: ExciseRetriever, stage: Stage, excise_rules: Excise) -> None:
    with pytest.raises(InvalidInputError, match="top_k"):
        retriever.invoke(QUERY, top_k=3)
    wrong: list[tuple[dict[str, Any], str]] = [
        ({"first_stage": stage, "topk": 3}, "topk=3"),
        ({"first_stage": stage, "exclude": "dogs"}, "exclude='dogs'"),
        ({"first_stage": 3}, r"first_stage=3.*search\("),
        ({}, "exactly one"),
    ]
    for fields, message in wrong:
        with pytest.raises(InvalidInputError, match=message):
            ExciseRetriever(excise=excise_rules, **fields)
    for query in ("", "  \n", {"input": QUERY}):
        with pytest.raises(InvalidInputError, match="query"):
            retriever.invoke(query)  # type: ignore[arg-type]
    assert len(retriever.invoke(PLAIN, verbose=True)) == 5


def test_failing_first_stage_is_named(excise_rules: Excise) -> None:
    class Down(Stage):
        def search(self, query: str, k: int, *, filter: Mapping[str, Any] | None = None) -> list[Candidate]:
            raise ConnectionError("index is down")

    with pytest.raises(FirstStageError, match=r"Down.*index is down"):
        ExciseRetriever(first_stage=Down([]), excise=excise_rules).invoke(QUERY)


# --- over texts and documents --------------------------------------------------------------


def test_from_texts(excise_rules: Excise, animals: list[Candidate]) -> None:
    texts = [c.text for c in animals]
    built = ExciseRetriever.from_texts(
        texts,
        ids=[c.id for c in animals],
        metadatas=[{"legs": 0 if c.id == "goldfish" else 2 if c.id == "parrot" else 4} for c in animals],
        excise=excise_rules,
        progress=False,
        k=3,
    )
    found = built.invoke(QUERY)
    assert len(found) == 3
    assert "dog" not in ids(found)
    assert ids(built.invoke(PLAIN, filter={"legs": 2})) == ["parrot"]
    with pytest.raises(InvalidInputError, match="2 ids"):
        ExciseRetriever.from_texts(texts, ids=["a", "b"], excise=excise_rules, progress=False)
    with pytest.raises(InvalidInputError, match="one string"):
        ExciseRetriever.from_texts("text", excise=excise_rules, progress=False)
    with pytest.raises(InvalidInputError, match="rank 1 is a str"):
        ExciseRetriever.from_documents(["text"], excise=excise_rules, progress=False)  # type: ignore[list-item]
    with pytest.raises(InvalidInputError):
        ExciseRetriever.from_texts(["one", " "], excise=excise_rules, progress=False)
    with pytest.raises(InvalidInputError, match="twin"):
        ExciseRetriever.from_texts(["one", "two"], ids=["twin", "twin"], excise=excise_rules, progress=False)


def test_from_documents_keeps_ids_and_their_absence(excise_rules: Excise, animals: list[Candidate]) -> None:
    documents = [
        Document(id=c.id if n % 2 else None, page_content=c.text, metadata={"n": n, "tags": ["a"]})
        for n, c in enumerate(animals)
    ]
    before = copy.deepcopy(documents)
    built = ExciseRetriever.from_documents(documents, excise=excise_rules, progress=False, k=8)
    found = built.invoke(PLAIN)
    assert {(d.id, d.page_content, d.metadata["n"]) for d in found} == {
        (d.id, d.page_content, d.metadata["n"]) for d in documents
    }
    assert documents == before
    # Whatever comes back is the caller's: changing it changes nothing inside.
    found[0].metadata["n"] = "changed"
    assert built.invoke(PLAIN)[0].metadata["n"] != "changed"


def test_add_and_delete(excise_rules: Excise, retriever: ExciseRetriever) -> None:
    built = ExciseRetriever.from_texts(["The cat is a pet."], excise=excise_rules, progress=False)
    (added,) = built.add([Document(page_content="A canary is a small bird.", metadata={"kind": "bird"})])
    found = built.invoke("small singing bird")
    assert (found[0].page_content, found[0].id) == ("A canary is a small bird.", None)
    assert found[0].metadata["kind"] == "bird"
    built.delete([added])
    assert [d.page_content for d in built.invoke("small singing bird")] == ["The cat is a pet."]
    with pytest.raises(InvalidInputError, match="Stage has no method add"):
        retriever.add([Document(page_content="text")])


def test_from_ragatouille_opens_paths_and_models(
    monkeypatch: pytest.MonkeyPatch, animals: list[Candidate], excise_rules: Excise
) -> None:
    from excise_integrations.first_stage.ragatouille import RagatouilleFirstStage

    class Index(Stage):
        checkpoint = "/models/colbert"
        document_ids: ClassVar[list[str]] = ["cat"]

        def add(self, documents: Any, ids: Any = None, metadatas: Any = None) -> None:
            self.added = (documents, ids, metadatas)

    opened: list[Any] = []

    def opener(source: Any, **options: Any) -> Index:
        opened.append((source, options))
        return Index(animals)

    loaded: list[str] = []

    def from_pretrained(name: str = "minilm") -> Excise:
        loaded.append(name)
        return excise_rules

    monkeypatch.setattr(RagatouilleFirstStage, "from_index", opener)
    monkeypatch.setattr(RagatouilleFirstStage, "from_model", opener)
    monkeypatch.setattr(Excise, "from_pretrained", from_pretrained)
    model = object()
    for index, checkpoint in (("an/index", "moved"), (Path("an/index"), None), (model, None)):
        over = ExciseRetriever.from_ragatouille(index, checkpoint=checkpoint, one_per_document=True, k=2)
        assert len(over.invoke(QUERY)) == 2
    ExciseRetriever.from_ragatouille("an/index", excise=excise_rules)
    assert opened == [
        ("an/index", {"checkpoint": "moved", "one_per_document": True}),
        (Path("an/index"), {"checkpoint": None, "one_per_document": True}),
        (model, {"one_per_document": True}),
        ("an/index", {"checkpoint": None, "one_per_document": False}),
    ]
    assert loaded == ["/models/colbert"] * 3
    with pytest.raises(InvalidInputError, match="checkpoint='moved'"):
        ExciseRetriever.from_ragatouille(model, checkpoint="moved")
    over.add([Document(id="dog", page_content="text", metadata={"a": 1})])
    assert over.first_stage.added == (["text"], ["dog"], [{"a": 1}])  # type: ignore[union-attr]


# --- modes -------------------------------------------------------------------------------------


def test_shadow_returns_the_frozen_ranking_with_verdicts(retriever: ExciseRetriever, animals: list[Candidate]) -> None:
    retriever.mode = "shadow"
    documents = retriever.invoke(QUERY)
    assert ids(documents) == [c.id for c in animals[:5]]
    assert {d.id: d.metadata["excise"]["action"] for d in documents}["dog"] == "removed"


def test_removed_last_keeps_them_flagged_at_the_end(retriever: ExciseRetriever) -> None:
    retriever.removed = "last"
    documents = retriever.invoke(QUERY, k=8)
    assert len(documents) == 8
    assert documents[-1].id == "dog"
    verdicts = [d.metadata["excise"] for d in documents]
    assert verdicts[-1]["action"] == "removed"
    assert verdicts[-1]["score"] < min(v["score"] for v in verdicts[:-1])


def test_document_unit_takes_siblings_along(excise_rules: Excise, animals: list[Candidate]) -> None:
    sibling = Candidate("basket", "A woven basket with a blanket in it.", 1.0, {"document_id": "kennel"})
    shortlist = [
        Candidate(c.id, c.text, c.score, {"document_id": "kennel" if c.id == "dog" else c.id}) for c in animals
    ]
    over = ExciseRetriever(first_stage=Stage([*shortlist, sibling]), excise=excise_rules, k=9)
    assert "basket" in ids(over.invoke(QUERY))
    over.unit = "document"
    assert not {"basket", "dog"} & set(ids(over.invoke(QUERY)))


def test_on_error(stage: Stage, excise_rules: Excise, animals: list[Candidate]) -> None:
    broken = Excise(excise_rules.backbone, detector=Broken())
    over = ExciseRetriever(first_stage=stage, excise=broken)
    with pytest.raises(DetectorError, match="no detector today"):
        over.invoke(QUERY)
    over.on_error = "frozen"
    documents = over.invoke(QUERY)
    assert ids(documents) == [c.id for c in animals]
    assert "no detector today" in documents[0].metadata["excise"]["error"]


def test_missing_langchain_names_the_extra() -> None:
    code = (
        "import sys; sys.modules['langchain_core'] = None\n"
        "try: import excise_integrations.langchain\n"
        "except ImportError as error: print(type(error).__name__, error)"
    )
    out = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout
    assert "MissingExtraError" in out
    assert "excise-integrations[langchain]" in out
