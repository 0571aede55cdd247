"""Training the detector: a tiny run learns its examples, resumes, starts from another one, and loads."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from excise_integrations import InvalidInputError
from excise_integrations.detect.lora import LoraDetector
from excise_integrations.train.detector import DetectorRecipe, train_detector
from excise_integrations.train.detector_data import detector_examples, source_counts, swap_topics
from excise_integrations.train.examples import Example, load_natural
from excise_integrations.weights import load_adapter, update_manifest

RECIPE = DetectorRecipe(rank=4, epochs=2, learning_rate=3e-3, batch_tokens=512, mask=0.0)


def examples() -> list[Example]:
    subjects = ["rivers", "castles", "lamps", "novels", "trains", "cheeses", "bridges", "songs"]
    names = ["Vistula", "Windsor", "Tizio", "Emma", "Mallard", "Brie", "Forth", "Yesterday"]
    out = []
    for i, (x, z) in enumerate(zip(subjects, names, strict=True)):
        fires, silent = f"{x}, but not {z}", f"{x}, and also {z}"
        at = fires.index(z)
        out.append(Example(fires, 1, (z,), ((at, at + len(z)),), "explicit", "short", f"p{i}", "test"))
        out.append(Example(silent, 0, (), (), "conjunction", "short", f"p{i}", "test"))
    return out


def quiet(line: str) -> None:
    pass


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("detector") / "first"
    train_detector(
        examples(), folder, recipe=replace(RECIPE, epochs=12), progress=quiet, sources={"test": 16}, command="excise …"
    )
    return folder


def test_it_learns_the_pairs(trained: Path) -> None:
    detector = LoraDetector.from_folder(trained, threshold=0.5)
    data = examples()
    found = detector.detect([e.text for e in data])
    right = sum(d.fired == bool(e.label) for d, e in zip(found, data, strict=True))
    assert right >= 14
    named = [d for d, e in zip(found, data, strict=True) if e.label and d.fired]
    assert sum(e.excluded[0] in [s.text for s in d.spans] for d, e in zip(named, data[::2], strict=False)) >= 5


def test_the_manifest_says_what_it_was_made_of(trained: Path) -> None:
    manifest = load_adapter(trained, "detector").manifest
    assert manifest.rank == 4
    assert manifest.training_data["examples"] == 16
    assert manifest.training_data["sources"] == {"test": 16}
    assert manifest.settings["epochs"] == 12
    changed = update_manifest(trained, threshold=0.61).manifest
    assert changed.threshold == 0.61
    assert LoraDetector.from_folder(trained).threshold == 0.61


def test_a_stopped_run_goes_on_from_its_checkpoint(tmp_path: Path) -> None:
    lines: list[str] = []
    checkpoint = tmp_path / "checkpoint"
    train_detector(
        examples(), tmp_path / "a", recipe=RECIPE, checkpoint=checkpoint, max_minutes=0.0, progress=lines.append
    )
    assert any("stopped after epoch 1" in line for line in lines)
    whole = train_detector(examples(), tmp_path / "whole", recipe=RECIPE, progress=quiet)
    resumed = train_detector(
        examples(), tmp_path / "b", recipe=RECIPE, checkpoint=checkpoint, resume=True, progress=lines.append
    )
    assert any("resumed after epoch 1" in line for line in lines)
    assert resumed.manifest.files.keys() == whole.manifest.files.keys()


def test_a_wider_run_starts_from_a_narrower_detector(trained: Path, tmp_path: Path) -> None:
    recipe = replace(RECIPE, rank=8, epochs=1, learning_rate=1e-9)
    train_detector(examples(), tmp_path / "wide", recipe=recipe, start=trained, progress=quiet)
    texts = [e.text for e in examples()]
    before = LoraDetector.from_folder(trained).detect(texts)
    after = LoraDetector.from_folder(tmp_path / "wide").detect(texts)
    for a, b in zip(before, after, strict=True):
        assert a.confidence == pytest.approx(b.confidence, abs=0.05)


def test_nothing_to_learn_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(InvalidInputError, match="no training example"):
        train_detector([], tmp_path / "none")
    with pytest.raises(InvalidInputError, match="no such file"):
        detector_examples(generated=0, seed=0, shared=tmp_path)


def test_swapped_topics_keep_the_pair_minimal_and_the_spans_right() -> None:
    natural = load_natural()
    swapped = swap_topics(natural, seed=1)
    assert len(swapped) == len(natural)
    assert sum(a.text != b.text for a, b in zip(natural, swapped, strict=True)) > len(natural) / 2
    for before, after in zip(natural, swapped, strict=True):
        assert after.label == before.label
        assert len(after.spans) == len(before.spans)
        assert [after.text[a:b] for a, b in after.spans] == list(after.excluded)
    assert swap_topics(natural, seed=1) == swapped


def test_the_packaged_set_is_assembled_without_any_other_data() -> None:
    data = detector_examples(generated=40, seed=3, natural_repeats=2)
    counts = source_counts(data)
    assert counts["generated"] == 40
    assert counts["natural"] == 2 * len(load_natural())


def test_a_smaller_draw_of_natural_pairs_is_part_of_a_larger_one() -> None:
    draws = [{e.pair for e in detector_examples(generated=0, seed=3, natural_share=s)} for s in (0.0, 0.25, 0.5, 1.0)]
    assert draws[0] == set()
    assert draws[1] < draws[2] < draws[3] == {f"{e.pair}#0" for e in load_natural()}
    assert len(draws[2]) == round(len(draws[3]) / 2)
    with pytest.raises(InvalidInputError, match=r"natural_share=1\.5"):
        detector_examples(generated=0, seed=3, natural_share=1.5)
