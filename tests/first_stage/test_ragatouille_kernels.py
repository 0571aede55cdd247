"""The plain kernels do what colbert-ai's compiled ones are written to do."""

from __future__ import annotations

import itertools
import logging
from pathlib import Path
from typing import Any

import numpy
import pytest
import torch

from excise_integrations.errors import InvalidInputError
from excise_integrations.first_stage import _ragatouille_compile as compile_
from excise_integrations.first_stage import _ragatouille_kernels as kernels

DOCLENS = torch.tensor([3, 1, 5, 2, 4, 1])
OFFSETS = torch.cat([torch.zeros(1, dtype=torch.long), DOCLENS.cumsum(0)])
TOKENS = int(DOCLENS.sum())


@pytest.fixture(autouse=True)
def seeded() -> None:
    torch.manual_seed(0)


@pytest.mark.parametrize("shape", [(TOKENS,), (TOKENS, 4)])
@pytest.mark.parametrize("dtype", [torch.uint8, torch.int32, torch.float32])
def test_lookup(shape: tuple[int, ...], dtype: torch.dtype) -> None:
    values = torch.randint(0, 200, shape).to(dtype)
    pids = torch.tensor([4, 0, 0, 3])
    expected = torch.cat([values[OFFSETS[p] : OFFSETS[p] + DOCLENS[p]] for p in pids.tolist()])
    found = kernels.segmented_lookup(values, pids, DOCLENS[pids], OFFSETS[pids])
    assert found.dtype == dtype
    assert torch.equal(found, expected)


def test_maxsim_counts_from_zero() -> None:
    scores = torch.randn(TOKENS, 3) - 1.0
    expected = [part.amax(0).clamp(min=0).sum() for part in scores.split(DOCLENS.tolist())]
    torch.testing.assert_close(kernels.segmented_maxsim(scores, DOCLENS), torch.stack(expected))


@pytest.mark.parametrize("rows", [1, 4, 1 << 18])
@pytest.mark.parametrize(("ndocs", "passes"), [(24, 5), (8, 2), (4, 1)])
def test_filter(rows: int, ndocs: int, passes: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(kernels, "_ROWS", rows)
    codes = torch.randint(0, 7, (TOKENS + 10,), dtype=torch.int32)
    scores, kept = torch.randn(7, 3), torch.tensor([True, False, True, True, False, False, True])
    pids = torch.tensor([0, 1, 2, 4, 5], dtype=torch.int32)

    def step(pids: list[int], count: int, mask: torch.Tensor) -> list[int]:
        ranked = []
        for pid in pids:
            best = torch.full((3,), -9999.0)
            for code in codes[OFFSETS[pid] : OFFSETS[pid] + DOCLENS[pid]].tolist():
                if mask[code]:
                    best = torch.maximum(best, scores[code])
            ranked.append((float(best.sum()), pid))
        return [pid for _, pid in sorted(ranked, reverse=True)[:count]]

    expected = step(step(pids.tolist(), ndocs, kept), ndocs // 4, torch.ones(7, dtype=torch.bool))
    found = kernels.filter_pids(pids, scores, codes, DOCLENS, OFFSETS, kept, ndocs)
    assert found.dtype == torch.int32
    assert found.tolist() == expected
    assert len(expected) == passes


def test_equal_scores_give_the_larger_id_first() -> None:
    codes = torch.zeros(TOKENS, dtype=torch.int32)
    pids = torch.tensor([0, 1, 2, 3], dtype=torch.int32)
    found = kernels.filter_pids(pids, torch.ones(1, 2), codes, DOCLENS, OFFSETS, torch.tensor([True]), 8)
    assert found.tolist() == [3, 2]


@pytest.mark.parametrize("nbits", [1, 2, 4, 8])
def test_packing_and_decompressing(nbits: int) -> None:
    dim, keys = 64, 8 // nbits
    buckets = torch.randint(0, 2**nbits, (TOKENS, dim))
    # As ResidualCodec.binarize and its tables have it.
    bits = ((buckets[..., None] >> torch.arange(nbits)) & 1).to(torch.uint8)
    packed = kernels.packbits(bits.flatten()).reshape(TOKENS, dim * nbits // 8)
    assert numpy.array_equal(packed.flatten().numpy(), numpy.packbits(bits.flatten().numpy()))
    weights = torch.randn(2**nbits)
    table = torch.tensor(list(itertools.product(range(2**nbits), repeat=keys))).to(torch.uint8)
    reverse = torch.tensor([_reversed_groups(byte, nbits) for byte in range(256)]).to(torch.uint8)
    codes, centroids = torch.randint(0, 5, (TOKENS,), dtype=torch.int32), torch.randn(5, dim)
    expected = weights[buckets] + centroids[codes.long()]
    found = kernels.decompress_rows(packed, weights, reverse, table, codes, centroids, dim, nbits)
    torch.testing.assert_close(found, expected)
    pids = torch.tensor([5, 2], dtype=torch.int32)
    some = kernels.decompress_residuals(
        pids, DOCLENS, OFFSETS, weights, reverse, table, packed, codes, centroids, dim, nbits
    )
    torch.testing.assert_close(some, torch.cat([expected[15:16], expected[4:9]]))


def _reversed_groups(byte: int, nbits: int) -> int:
    groups = [(byte >> shift) & (2**nbits - 1) for shift in range(8 - nbits, -1, -nbits)]
    out = 0
    for group in groups:
        out = (out << nbits) | int(format(group, f"0{nbits}b")[::-1], 2)
    return out


# --- which ones are used -----------------------------------------------------------------------


def owner(original: Any) -> Any:
    class Owner:
        @classmethod
        def try_load_torch_extensions(cls, use_gpu: bool) -> None:
            original(cls)

    compile_._wrap_loader(Owner, {"packbits": kernels.packbits}, ("an_extension_cpp",))
    return Owner


def compiled(cls: Any) -> None:
    cls.packbits = "compiled"
    cls.loaded_extensions = True


def broken(cls: Any) -> None:
    raise RuntimeError("Error building extension\nwith a long log")


@pytest.fixture
def machine(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> pytest.MonkeyPatch:
    monkeypatch.setenv("EXCISE_COLBERT_KERNELS", "auto")
    monkeypatch.setenv("TORCH_EXTENSIONS_DIR", str(tmp_path))
    monkeypatch.setenv("CXX", "true")
    return monkeypatch


def loaded(original: Any) -> Any:
    subject = owner(original)
    subject.try_load_torch_extensions(False)
    return subject.packbits


def test_they_are_compiled_where_that_is_possible(machine: pytest.MonkeyPatch) -> None:
    assert loaded(compiled) == "compiled"
    subject = owner(compiled)
    subject.try_load_torch_extensions(True)
    assert not hasattr(subject, "packbits")


@pytest.mark.parametrize(
    ("name", "value", "reason"),
    [
        ("CXX", "/nonexistent/c++ -O2", "no C++ compiler (/nonexistent/c++ -O2); a package such as g++"),
        ("EXCISE_COLBERT_KERNELS", "python", "EXCISE_COLBERT_KERNELS=python"),
    ],
)
def test_plain_kernels_stand_in(
    machine: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, name: str, value: str, reason: str
) -> None:
    machine.setenv(name, value)
    with caplog.at_level(logging.INFO):
        assert loaded(compiled) is kernels.packbits
    assert len(caplog.messages) == 1
    assert reason in caplog.messages[0]


def test_no_ninja(machine: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, tmp_path: Path) -> None:
    machine.setenv("CXX", "/bin/true")
    machine.setenv("PATH", str(tmp_path))
    machine.setattr(compile_.importlib.util, "find_spec", lambda name: None)
    with caplog.at_level(logging.INFO):
        assert loaded(compiled) is kernels.packbits
    assert "pip install ninja" in caplog.text


def test_ninja_of_an_environment_that_is_not_active(machine: pytest.MonkeyPatch, tmp_path: Path) -> None:
    pytest.importorskip("ninja")
    machine.setenv("CXX", "/bin/true")
    machine.setenv("PATH", str(tmp_path))
    seen = []

    def look(cls: Any) -> None:
        seen.append(compile_.shutil.which("ninja"))
        compiled(cls)

    assert loaded(look) == "compiled"
    assert seen[0] is not None
    assert compile_.os.environ["PATH"] == str(tmp_path)


def test_a_broken_compiler(machine: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.INFO):
        assert loaded(broken) is kernels.packbits
    assert "compiling failed (Error building extension)" in caplog.messages[-1]
    machine.setenv("EXCISE_COLBERT_KERNELS", "compiled")
    with pytest.raises(RuntimeError):
        loaded(broken)


def test_a_stale_lock_does_not_hang(
    machine: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, tmp_path: Path
) -> None:
    lock = Path(compile_._build_folder("an_extension_cpp")) / "lock"
    lock.touch()
    with caplog.at_level(logging.INFO):
        assert loaded(compiled) is kernels.packbits
    assert str(lock) in caplog.text
    assert tmp_path in lock.parents


def test_an_unknown_choice(machine: pytest.MonkeyPatch) -> None:
    machine.setenv("EXCISE_COLBERT_KERNELS", "fortran")
    with pytest.raises(InvalidInputError, match="'fortran'"):
        loaded(compiled)
