"""Training the exclusion adapter: a tiny run separates its triples, fits its backbone only, and is used."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
import torch

from excise_integrations import AdapterError, Candidate, Excise, InvalidInputError
from excise_integrations.encode import Backbone
from excise_integrations.train.exclusion_adapter import AdapterRecipe, select_learning_rate, train_adapter
from excise_integrations.train.triples import Triple, grouped_split
from excise_integrations.weights import load_adapter

if TYPE_CHECKING:
    from excise_integrations.weights import Adapter

RECIPE = AdapterRecipe(rank=4, epochs=3, learning_rate=2e-3, batch_size=4, document_tokens=32, query_tokens=32)
NAMES = [("rivers of Poland", "Oder", "Vistula"), ("castles in England", "Dover", "Windsor"),
         ("novels by Austen", "Persuasion", "Emma"), ("French cheeses", "Comté", "Brie"),
         ("bridges in Scotland", "Tay", "Forth"), ("songs of the sixties", "Respect", "Yesterday")]  # fmt: skip


def triples() -> list[Triple]:
    return [
        Triple(f"{x}, but not {z}", (z,), f"{y} is one of the {x}.", f"{z} is one of the {x}.", f"g{i}")
        for i, (x, y, z) in enumerate(NAMES)
    ]


@pytest.fixture(scope="module")
def adapter(backbone: Backbone, tmp_path_factory: pytest.TempPathFactory) -> Adapter:
    folder = tmp_path_factory.mktemp("exclusion") / "adapter"
    return train_adapter(backbone, triples(), folder, recipe=RECIPE, progress=lambda line: None, command="excise …")


def test_training_changes_the_vectors_of_a_copy_only(backbone: Backbone, adapter: Adapter) -> None:
    text = ["Vistula is one of the rivers of Poland."]
    before = backbone.encode_documents(text)[0].vectors
    adapted = backbone.with_adapter(adapter)
    assert not torch.allclose(adapted.encode_documents(text)[0].vectors.float(), before.float(), atol=1e-3)
    assert torch.equal(backbone.encode_documents(text)[0].vectors, before)
    assert adapted.label != backbone.label
    assert adapter.label in adapted.label


def test_the_pipeline_re_embeds_with_it(adapter: Adapter) -> None:
    excise = Excise.from_pretrained("minilm", detector="rules", adapter=adapter.folder)
    shortlist = [Candidate(z, f"{z} is one of the {x}.") for x, _, z in NAMES]
    shortlist += [Candidate(y, f"{y} is one of the {x}.") for x, y, _ in NAMES]
    result = excise.rerank("rivers of Poland, but not Vistula", shortlist)
    assert adapter.label in result.adapters
    assert not any("No exclusion adapter" in w for w in result.warnings)
    assert result.verdicts["Vistula"].evidence == max(v.evidence or 0.0 for v in result.verdicts.values())


def test_an_adapter_of_other_weights_is_refused(adapter: Adapter) -> None:
    other = Backbone.from_pretrained("minilm", projection=None)
    with pytest.raises(AdapterError, match="was trained on"):
        other.with_adapter(adapter)


def test_the_manifest_names_backbone_and_recipe(backbone: Backbone, adapter: Adapter) -> None:
    manifest = load_adapter(adapter.folder, "exclusion").manifest
    assert manifest.backbone_sha256 == backbone.weights_hash
    assert manifest.settings["learning_rate"] == RECIPE.learning_rate
    assert manifest.training_data["triples"] == len(NAMES)


def test_a_stopped_run_resumes(backbone: Backbone, tmp_path: Path) -> None:
    lines: list[str] = []
    recipe = replace(RECIPE, epochs=1)
    train_adapter(backbone, triples(), tmp_path / "a", recipe=recipe, checkpoint=tmp_path / "c", progress=lines.append)
    train_adapter(
        backbone, triples(), tmp_path / "b", recipe=replace(RECIPE, epochs=2), checkpoint=tmp_path / "c", resume=True,
        progress=lines.append,
    )  # fmt: skip
    assert any("resumed after epoch 1" in line for line in lines)


def test_the_learning_rate_is_chosen_by_held_out_success(backbone: Backbone) -> None:
    rate, success = select_learning_rate(
        backbone, triples(), recipe=RECIPE, rates=(1e-9, 1e-8), held_out=0.5, progress=lambda line: None
    )
    assert set(success) == {1e-9, 1e-8}
    # Neither learns anything: a tie goes to the smaller.
    assert rate == 1e-9


def test_groups_stay_on_one_side() -> None:
    data = [*triples(), *triples()]
    kept, held = grouped_split(data, 0.4, seed=1)
    assert len(kept) + len(held) == len(data)
    assert not {t.group for t in kept} & {t.group for t in held}


def test_no_triples_is_an_error(backbone: Backbone, tmp_path: Path) -> None:
    with pytest.raises(InvalidInputError, match="no training triple"):
        train_adapter(backbone, [], tmp_path / "x")
