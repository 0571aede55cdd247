"""The README's picture shows what this version does."""

from __future__ import annotations

import importlib.util
import re
import sys
from pathlib import Path
from xml.etree import ElementTree

import pytest

from excise_integrations import Excise

ROOT = Path(__file__).resolve().parents[1]


def test_the_picture_is_that_of_a_run(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "path", [str(ROOT / "examples"), *sys.path])
    spec = importlib.util.spec_from_file_location("pictures", ROOT / "docs" / "pictures.py")
    assert spec is not None
    assert spec.loader is not None
    pictures = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(pictures)
    drawn, kept = pictures.draw(Excise.from_pretrained("minilm")), pictures.PICTURE.read_text(encoding="utf-8")
    ElementTree.fromstring(kept)
    # Other arithmetic moves the last digit of evidence.
    numbers = re.compile(r"0\.\d+")
    assert numbers.sub("0", drawn) == numbers.sub("0", kept)


def test_the_readme_shows_it_and_says_what_it_shows() -> None:
    readme = (ROOT / "README.md").read_text(encoding="utf-8")
    shown = re.search(r"!\[([^\]]+)\]\(([^)]+)\)", readme)
    assert shown is not None
    assert "Tesla" in shown.group(1)
    assert (ROOT / shown.group(2)).is_file()
    assert readme.index(shown.group(0)) < readme.index("pip install")
