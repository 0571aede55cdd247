"""A real RAGatouille index on disk, built once a session from an exported MiniLM."""

from __future__ import annotations

import os
import shutil
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

# Before colbert-ai is imported anywhere: never compile, and never wait for somebody else's stale lock.
os.environ.setdefault("EXCISE_COLBERT_KERNELS", "python")
os.environ.setdefault("TORCH_EXTENSIONS_DIR", tempfile.mkdtemp(prefix="excise-extensions-"))

SUBJECTS = [
    "jazz music",
    "electric cars",
    "Italian cooking",
    "mountain hiking",
    "house cats",
    "contract law",
    "astronomy",
]
ASPECTS = ["history", "prices", "beginners", "famous people", "scientific research"]
LONG = "river"


def documents() -> tuple[list[str], list[str], list[dict[str, Any]]]:
    """36 documents, the last of them long enough for several passages: texts, ids, metadata."""
    texts, ids, metadata = [], [], []
    for subject in SUBJECTS:
        for aspect in ASPECTS:
            texts.append(f"This short article is about {subject}, and in particular about {aspect} of {subject}.")
            ids.append(f"{subject.split()[-1]}-{aspect.split()[0]}")
            metadata.append({"subject": subject, "aspect": aspect, "tags": [aspect]})
    chapters = [
        "its springs in the snow",
        "the boats on it",
        "fish and fishing",
        "the bridges of the towns",
        "its delta",
    ]
    texts.append(
        " ".join(
            f"Chapter {number} on the river tells of {chapter}. " + f"Much is known about {chapter} of this river. " * 3
            for number, chapter in enumerate(chapters, start=1)
        )
    )
    ids.append(LONG)
    metadata.append({"subject": "rivers"})
    return texts, ids, metadata


@dataclass(frozen=True)
class RagatouilleIndex:
    """Where the index and its checkpoint lie."""

    path: Path
    checkpoint: Path

    def copy(self, folder: Path, name: str = "copied") -> Path:
        """Copy the index, for a test that changes it."""
        return Path(shutil.copytree(self.path, folder / name))


def projection(seed: int = 0, dim: int = 128) -> Any:
    """A random orthonormal (dim, 384) projection: tests do not hang on the weights that are shipped."""
    import torch

    generator = torch.Generator().manual_seed(seed)
    return torch.linalg.qr(torch.randn(384, dim, generator=generator))[0].T.contiguous()


_BUILT: list[RagatouilleIndex] = []


def build(folder: Path) -> RagatouilleIndex:
    """Export the checkpoint and build the index below ``folder``."""
    from excise_integrations.encode.export import export_minilm
    from excise_integrations.first_stage.ragatouille import RAGPretrainedModel

    checkpoint = export_minilm(folder / "checkpoint", projection=projection())
    texts, ids, metadata = documents()
    model = RAGPretrainedModel.from_pretrained(str(checkpoint), verbose=0, index_root=str(folder / "root"))
    path = model.index(
        texts,
        document_ids=ids,
        document_metadatas=metadata,
        index_name="articles",
        max_document_length=64,
        overwrite_index=False,
    )
    return RagatouilleIndex(Path(path), checkpoint)


@pytest.fixture(scope="session")
def ragatouille_index(tmp_path_factory: pytest.TempPathFactory) -> RagatouilleIndex:
    """The index; do not change it, copy it."""
    pytest.importorskip("colbert")
    # Folders of tests that import this fixture have one each; they share the index.
    if not _BUILT:
        _BUILT.append(build(tmp_path_factory.mktemp("ragatouille")))
    return _BUILT[0]


@pytest.fixture(scope="session")
def stage(ragatouille_index: RagatouilleIndex) -> Any:
    """The index as a first stage; do not change it."""
    from excise_integrations.first_stage.ragatouille import RagatouilleFirstStage

    return RagatouilleFirstStage.from_index(ragatouille_index.path)
