"""Adding to and deleting from a RAGatouille index: correct on disk, whole at every moment."""

from __future__ import annotations

import json
import multiprocessing
from pathlib import Path
from typing import Any

import pytest
from ragatouille_fixtures import LONG, RagatouilleIndex

from excise_integrations import _files
from excise_integrations.errors import FirstStageError, IndexDamagedError, InvalidInputError
from excise_integrations.first_stage import _ragatouille_build
from excise_integrations.first_stage.ragatouille import RagatouilleFirstStage

QUERY = "history of jazz music"


def by_document(stage: RagatouilleFirstStage, query: str = QUERY) -> dict[tuple[str, str], float | None]:
    return {(c.metadata["document_id"], c.text): c.score for c in stage.search(query, 1000)}


def centroids(path: Path) -> bytes:
    return (path / "centroids.pt").read_bytes()


@pytest.fixture
def own(ragatouille_index: RagatouilleIndex, tmp_path: Path) -> RagatouilleFirstStage:
    return RagatouilleFirstStage.from_index(ragatouille_index.copy(tmp_path, "own"))


def check_same_as_reopened(stage: RagatouilleFirstStage) -> None:
    again = RagatouilleFirstStage.from_index(stage.path)
    assert again.fingerprint == stage.fingerprint
    assert by_document(again) == by_document(stage)
    for candidate in again.search("river cats cars", 1000):
        assert json.loads((stage.path / "collection.json").read_text())[int(candidate.id)] == candidate.text
    assert [p.name for p in stage.path.parent.iterdir()] == [stage.path.name]


def test_delete(own: RagatouilleFirstStage) -> None:
    before, fingerprint, size = by_document(own), own.fingerprint, len(own)
    own.delete(["music-history", LONG])
    expected = {key: score for key, score in before.items() if key[0] not in ("music-history", LONG)}
    # What stays has the very vectors and scores that it had.
    assert by_document(own) == pytest.approx(expected, abs=1e-4)
    assert len(own) == len(expected) < size
    assert own.fingerprint != fingerprint
    assert LONG not in own.document_ids
    # Nothing of what was deleted lingers on disk.
    written = "".join(path.read_text() for path in own.path.glob("*.json"))
    assert "Chapter" not in written
    assert LONG not in json.loads((own.path / "docid_metadata_map.json").read_text())
    assert [c.id for c in sorted(own.search("x", 1000), key=lambda c: int(c.id))] == [str(i) for i in range(len(own))]
    check_same_as_reopened(own)


def test_delete_compares_whole_ids(own: RagatouilleFirstStage) -> None:
    # RAGatouille takes a string for a set of substrings.
    own.delete("cats-prices")
    assert len(own.document_ids) == 35
    with pytest.raises(InvalidInputError, match=r"no documents.*'cats'"):
        own.delete("cats")
    with pytest.raises(InvalidInputError, match=r"would leave the index .* empty"):
        own.delete(own.document_ids)
    own.delete([])
    assert len(own.document_ids) == 35


def test_add_what_the_centroids_represent(own: RagatouilleFirstStage) -> None:
    before, old = by_document(own), centroids(own.path)
    text = next(text for document, text in before if document == "cats-prices")
    assert own.add([text], [7], [{"subject": "both"}]) == ["7"]
    after = by_document(own)
    assert after.pop(("7", text)) is not None
    assert after == pytest.approx(before, abs=1e-4)
    assert centroids(own.path) == old
    assert {c.metadata["document_id"] for c in own.search(text, 2)} == {"7", "cats-prices"}
    (found,) = own.search("cats", 5, filter={"subject": "both"})
    assert (found.id, found.text) == (str(len(own) - 1), text)
    assert dict(found.metadata) == {"subject": "both", "document_id": "7"}
    check_same_as_reopened(own)


def test_add_what_the_centroids_do_not_represent(own: RagatouilleFirstStage) -> None:
    old = centroids(own.path)
    texts = [f"Quarterly {word} of deep-sea submarine volcanoes reached ten degrees." for word in ("lava", "tremor")]
    (first, second) = own.add(texts, split_documents=False)
    assert centroids(own.path) != old
    assert {c.metadata["document_id"] for c in own.search("submarine volcanoes", 2)} == {first, second}
    assert own.search(QUERY, 1)[0].metadata["document_id"] == "music-history"
    record = json.loads((own.path / "metadata.json").read_text())
    assert record["config"]["root"] == str(own.path.parent)
    assert record["config"]["index_name"] == own.path.name
    check_same_as_reopened(own)


def test_long_documents_are_split_unless_told_otherwise(own: RagatouilleFirstStage) -> None:
    long = own.search("river", 1, filter={"document_id": LONG})[0].text + " Cats."
    text = " ".join([long] * 3)
    size = len(own)
    own.add([text], ["split"])
    assert len(own) > size + 1
    assert {c.metadata["document_id"] for c in own.search("river", 3, filter={"document_id": "split"})} == {"split"}
    size = len(own)
    own.add([text], ["whole"], split_documents=False)
    assert len(own) == size + 1


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ((["text"], ["cats-prices"]), "cats-prices.*already"),
        ((["one", "two"], ["a", "a"]), "given twice"),
        ((["one", " "], ["a", "b"]), "'b' has no text"),
        ((["one"], ["a", "b"]), "1 documents but 2 ids"),
        ((["one"], [" "]), "blank"),
        ((["one"], ["a"], [{}, {}]), "1 documents but 2 metadata"),
        ((["one"], ["a"], [{"when": object()}]), "JSON"),
        (([],), "no document"),
        (("one",), "list of documents"),
    ],
)
def test_what_cannot_be_added(stage: RagatouilleFirstStage, arguments: Any, message: str) -> None:
    before = stage.fingerprint
    with pytest.raises(InvalidInputError, match=message):
        stage.add(*arguments)
    assert RagatouilleFirstStage.from_index(stage.path).fingerprint == before


def test_an_index_changed_by_somebody_else_is_not_overwritten(own: RagatouilleFirstStage) -> None:
    RagatouilleFirstStage.from_index(own.path).delete("cats-prices")
    with pytest.raises(FirstStageError, match="changed on disk"):
        own.delete("cats-history")
    assert "cats-history" in RagatouilleFirstStage.from_index(own.path).document_ids


def _hold(path: Path, held: Any, done: Any) -> None:
    with _ragatouille_build.locked(path):
        held.set()
        done.wait(30)


def test_two_processes_do_not_change_an_index_at_once(own: RagatouilleFirstStage) -> None:
    context = multiprocessing.get_context("fork")
    held, done = context.Event(), context.Event()
    other = context.Process(target=_hold, args=(own.path, held, done))
    other.start()
    try:
        assert held.wait(30)
        with pytest.raises(FirstStageError, match="Another process"):
            own.delete("cats-prices")
    finally:
        done.set()
        other.join(30)
    own.delete("cats-prices")


class Killed(BaseException):
    pass


@pytest.mark.parametrize("moment", ["write", "load", "first rename", "second rename", "exchange"])
def test_a_killed_change_leaves_the_old_index_or_the_new_one(
    own: RagatouilleFirstStage, monkeypatch: pytest.MonkeyPatch, moment: str
) -> None:
    before, old_fingerprint = by_document(own), own.fingerprint
    _kill_at(moment, monkeypatch)
    with pytest.raises(Killed):
        own.delete("music-history")
    # The process is gone, so nothing of it cleaned up or went on.
    monkeypatch.undo()
    again = RagatouilleFirstStage.from_index(own.path)
    if moment == "exchange":
        assert "music-history" not in again.document_ids
    else:
        assert again.fingerprint == old_fingerprint
        assert by_document(again) == before
    # The next change clears away what is left lying.
    again.delete("cats-prices")
    check_same_as_reopened(again)


def _kill_at(moment: str, monkeypatch: pytest.MonkeyPatch) -> None:
    def die(*args: Any, **kwargs: Any) -> Any:
        raise Killed

    # A killed process does not clean up behind itself.
    monkeypatch.setattr(_ragatouille_build.shutil, "rmtree", lambda *a, **k: None)
    if moment == "write":
        monkeypatch.setattr(_ragatouille_build, "_copy_record", die)
    elif moment == "load":
        monkeypatch.setattr(_ragatouille_build, "swap", die)
    else:
        renames = {"first rename": 1, "second rename": 2, "exchange": 1}[moment]
        if moment != "exchange":
            monkeypatch.setattr(_files, "_exchange", lambda *a: False)
        rename, done = Path.rename, []

        def counted(self: Path, target: Any) -> Path:
            done.append(self)
            if len(done) == renames:
                raise Killed
            return rename(self, target)

        monkeypatch.setattr(Path, "rename", counted)


def test_a_successor_that_does_not_open_replaces_nothing(
    own: RagatouilleFirstStage, monkeypatch: pytest.MonkeyPatch
) -> None:
    write, before = _ragatouille_build._write_from_vectors, by_document(own)

    def spoilt(folder: Path, *rest: Any) -> bool:
        written = write(folder, *rest)
        (folder / "0.residuals.pt").write_text("not a tensor")
        return written

    monkeypatch.setattr(_ragatouille_build, "_write_from_vectors", spoilt)
    with pytest.raises(IndexDamagedError):
        own.delete("cats-prices")
    assert by_document(own) == before
    check_same_as_reopened(own)


def test_without_an_atomic_exchange(own: RagatouilleFirstStage, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(_files, "_exchange", lambda *a: False)
    own.delete("music-history")
    check_same_as_reopened(own)
