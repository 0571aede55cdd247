"""Files and folders are there as they were or as they are to be, and links and devices stay what they are."""

from __future__ import annotations

import os
import threading
from pathlib import Path

import pytest

from excise_integrations._files import recover, swap, write_text


def test_a_file_is_replaced_whole_and_nothing_stays_beside_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = tmp_path / "new" / "report.md"
    write_text(file, "one\nzwei „drei“\n")
    assert file.read_bytes() == "one\nzwei „drei“\n".encode()

    def full(*_: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(OSError, match="No space left"):
        write_text(file, "another")
    assert file.read_text().startswith("one")
    assert [p.name for p in file.parent.iterdir()] == ["report.md"]


def test_a_link_stays_and_what_it_leads_to_is_replaced(tmp_path: Path) -> None:
    (tmp_path / "target").write_text("old")
    (tmp_path / "link").symlink_to("target")
    write_text(tmp_path / "link", "new")
    assert (tmp_path / "link").is_symlink()
    assert (tmp_path / "target").read_text() == "new"


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="needs pipes with names")
def test_a_pipe_is_written_to(tmp_path: Path) -> None:
    pipe, read = tmp_path / "pipe", []
    os.mkfifo(pipe)
    reader = threading.Thread(target=lambda: read.append(pipe.read_text()))
    reader.start()
    write_text(pipe, "a text")
    reader.join(10)
    assert read == ["a text"]
    assert pipe.is_fifo()


@pytest.mark.parametrize("there", [True, False])
def test_a_folder_takes_the_place_of_another_or_of_none(tmp_path: Path, there: bool) -> None:
    for name in ("folder", "successor") if there else ("successor",):
        (tmp_path / name / "within").mkdir(parents=True)
        (tmp_path / name / "within" / name).write_text(name)
    swap(tmp_path / "folder", tmp_path / "successor")
    assert [p.name for p in tmp_path.rglob("*")] == ["folder", "within", "successor"]


def test_what_lies_aside_comes_back_only_where_nothing_is(tmp_path: Path) -> None:
    (tmp_path / ".folder.old").mkdir()
    recover(tmp_path / "folder")
    assert [p.name for p in tmp_path.iterdir()] == ["folder"]
    (tmp_path / ".folder.old").mkdir()
    recover(tmp_path / "folder")
    assert len(list(tmp_path.iterdir())) == 2
    recover(Path())
