"""One Excise of real models without and with an adapter, and helpers of the other folders."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest
from ragatouille_fixtures import ragatouille_index
from tiny_adapters import save_exclusion

from excise_integrations import Excise
from excise_integrations.weights import load_adapter

__all__ = ["excise_adapted", "ragatouille_index", "shared"]

# The hand-made results and the page checks of the audit's tests, and the corpus of the mining's, serve here too.
sys.path += [str(Path(__file__).parents[1] / name) for name in ("audit", "train")]


@pytest.fixture(scope="session")
def excise_adapted(excise_rules: Excise, tmp_path_factory: pytest.TempPathFactory) -> Excise:
    """The same models, re-embedding with an exclusion adapter that moves every vector."""
    backbone = excise_rules.backbone
    folder = save_exclusion(tmp_path_factory.mktemp("adapter"), backbone.weights_hash, scale=0.05)
    adapted = backbone.with_adapter(load_adapter(folder, "exclusion"))
    return Excise(backbone, detector=excise_rules.detector, exclusion=adapted)


@pytest.fixture(params=["frozen", "adapter"])
def shared(request: pytest.FixtureRequest, excise_rules: Excise, excise_adapted: Excise) -> Excise:
    """A pipeline with a cache of its own, on frozen vectors or re-embedding with an adapter."""
    base = excise_rules if request.param == "frozen" else excise_adapted
    return Excise(base.backbone, detector=base.detector, exclusion=base.exclusion)
