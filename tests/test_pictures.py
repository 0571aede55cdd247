"""The pictures of the README and the pages show what this version does."""

from __future__ import annotations

import importlib.util
import re
import sys
from collections.abc import Iterator
from pathlib import Path
from xml.etree import ElementTree

import pytest

from excise_integrations import Excise

ROOT = Path(__file__).resolve().parents[1]
IMAGES = ROOT / "docs" / "images"
NUMBER = re.compile(r"\d+(?:\.\d+)?")


def shape(picture: str) -> str:
    """Return a picture without its numbers."""
    return NUMBER.sub("0", picture)


def numbers(picture: str) -> list[float]:
    """Return the numbers of a picture."""
    return [float(number) for number in NUMBER.findall(picture)]


@pytest.fixture(scope="module")
def drawn() -> Iterator[dict[str, str]]:
    spec = importlib.util.spec_from_file_location("pictures", ROOT / "docs" / "pictures.py")
    assert spec is not None
    assert spec.loader is not None
    pictures = importlib.util.module_from_spec(spec)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(sys, "path", [str(ROOT / "examples"), *sys.path])
        spec.loader.exec_module(pictures)
        yield pictures.pictures(Excise.from_pretrained("minilm", dtype="float32"))


@pytest.mark.parametrize("name", ["frozen-and-excise.svg", "inversion.svg", "operator.svg"])
def test_a_picture_is_that_of_a_run(drawn: dict[str, str], name: str) -> None:
    kept = (IMAGES / name).read_text(encoding="utf-8")
    ElementTree.fromstring(kept)
    assert shape(drawn[name]) == shape(kept)
    # Other arithmetic moves the last digit of a number, and a coordinate by a pixel.
    assert numbers(drawn[name]) == pytest.approx(numbers(kept), abs=2.01)
    texts = [re.findall(r"\d+\.\d+", picture) for picture in (drawn[name], kept)]
    assert [float(n) for n in texts[0]] == pytest.approx([float(n) for n in texts[1]], abs=0.02)


def test_the_pictures_are_those_that_the_pages_show(drawn: dict[str, str]) -> None:
    assert sorted(drawn) == sorted(path.name for path in IMAGES.glob("*.svg"))
    concepts = (ROOT / "docs" / "concepts.md").read_text(encoding="utf-8")
    assert re.findall(r"!\[[^\]]+\]\(images/([^)]+)\)", concepts) == ["inversion.svg", "operator.svg"]


def test_they_show_what_the_page_says(drawn: dict[str, str]) -> None:
    (said,) = re.findall(r"<desc[^>]*>(.+)</desc>", drawn["inversion.svg"])
    low, high, count, low_other, high_other = map(float, re.findall(r"\d+\.\d+|(?<=the )\d(?= doc)", said))
    assert count == 3
    assert low > high_other > low_other
    assert high > low
    (said,) = re.findall(r"<desc[^>]*>(.+)</desc>", drawn["operator.svg"])
    floor, cut = map(float, re.findall(r"(?:floor is at|the cut at) (\d\.\d+)", said))
    judged = re.findall(r"(\S+) (\d\.\d+) \((\w+)\)", said)
    assert len(judged) == 12
    assert {name for name, evidence, _ in judged if float(evidence) > cut} == {"model-3", "model-y", "supercharger"}
    assert all((action == "removed") is (float(evidence) > cut) for _, evidence, action in judged)
    assert floor < cut


def test_the_readme_shows_it_and_says_what_it_shows() -> None:
    readme = (ROOT / "README.md").read_text(encoding="utf-8")
    shown = re.search(r"!\[([^\]]+)\]\(([^)]+)\)", readme)
    assert shown is not None
    assert "Tesla" in shown.group(1)
    assert (ROOT / shown.group(2)).is_file()
    assert readme.index(shown.group(0)) < readme.index("pip install")
