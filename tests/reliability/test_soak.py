"""A short soak; the long one is ``python tests/reliability/soak.py``."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import pytest
from soak import Soak
from word_backbone import WordBackbone

SECONDS = float(os.environ.get("EXCISE_SOAK_SECONDS") or ("60" if os.environ.get("CI") else "10"))


@pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")
@pytest.mark.timeout(SECONDS + 300)
def test_nothing_grows_and_nothing_stale_is_served(tmp_path: Path, record_property: pytest.RecordProperty) -> None:
    soak = Soak(documents=2000, cache_dir=tmp_path, cache_bytes=1_000_000, disk_bytes=4_000_000)
    report = soak.run(SECONDS)
    record_property("queries", report.queries)
    record_property("growth", round(report.growth, 4))
    assert report.errors == []
    assert report.queries > 10
    assert report.fired > 3
    assert report.changes > 2
    assert report.cache_bytes <= report.cache_budget
    assert report.disk_bytes <= report.disk_budget
    # Ten seconds cannot tell a slow leak from noise; thirty minutes can.
    assert report.growth < (0.05 if SECONDS >= 60 else 0.15)


def test_the_soak_sees_vectors_of_another_text(monkeypatch: pytest.MonkeyPatch) -> None:
    """An encoder whose vectors are not those of the text is found out at once."""
    soak = Soak(documents=300, threads=1)
    honest = WordBackbone("adapter")
    soak._reader = honest
    monkeypatch.setattr(
        soak.excise.exclusion,
        "encode_documents",
        lambda texts, **_: honest.encode_documents(["something else entirely" for _ in texts]),
    )
    report = soak.run(20)
    assert not report.ok
    assert "its text says" in report.errors[0]
