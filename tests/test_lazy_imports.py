"""Importing the package is light, and its parts pull in no framework they do not need."""

from __future__ import annotations

import json
import subprocess
import sys

import pytest

import excise_integrations

HEAVY = {"torch", "transformers", "peft", "sentence_transformers", "numpy"}
FRAMEWORKS = {"langchain_core", "llama_index", "ragatouille", "colbert", "qdrant_client", "typer", "ir_measures"}


def modules_after(code: str) -> set[str]:
    script = f"{code}\nimport sys, json; print(json.dumps(sorted(m.split('.')[0] for m in sys.modules)))"
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    return set(json.loads(done.stdout.splitlines()[-1]))


def test_importing_the_package_imports_no_model_and_no_framework() -> None:
    code = (
        "import excise_integrations as e\n"
        "e.__version__; e.Candidate('a', 'text'); e.Detection(False); e.InvalidInputError('x'); dir(e)\n"
        "from excise_integrations import ExciseConfig; ExciseConfig()"
    )
    assert not modules_after(code) & (HEAVY | FRAMEWORKS)


def test_the_pipeline_imports_no_framework() -> None:
    found = modules_after("from excise_integrations import Excise; import excise_integrations.first_stage.memory")
    assert not found & FRAMEWORKS


def test_every_public_name_is_there() -> None:
    for name in excise_integrations.__all__:
        assert getattr(excise_integrations, name) is not None
        assert name in dir(excise_integrations)
    with pytest.raises(AttributeError, match="no attribute 'Excised'"):
        _ = excise_integrations.Excised
