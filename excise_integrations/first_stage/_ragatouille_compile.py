"""Which kernels colbert-ai runs: its own, compiled at first use, or plain PyTorch.

It compiles C++ (or CUDA), which needs a compiler, ninja and a minute or two. ``EXCISE_COLBERT_KERNELS``
chooses: ``auto`` (the default) compiles where that is possible and falls back to PyTorch where it is not,
``python`` never compiles, ``compiled`` insists.
"""

from __future__ import annotations

import contextlib
import importlib
import importlib.util
import logging
import os
import shlex
import shutil
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from torch import Tensor

from ..errors import InvalidInputError
from . import _ragatouille_kernels as plain

__all__ = ["install_kernels"]

logger = logging.getLogger("excise_integrations")

_SWITCH = "EXCISE_COLBERT_KERNELS"
_CHOICES = ("auto", "python", "compiled")
# module, class, its kernels, the extensions that colbert-ai compiles for them
_Kernels = dict[str, Callable[..., Tensor]]
_OWNERS: list[tuple[str, str, _Kernels, tuple[str, ...]]] = [
    (
        "colbert.search.strided_tensor",
        "StridedTensor",
        {"segmented_lookup": plain.segmented_lookup},
        ("segmented_lookup_cpp",),
    ),
    (
        "colbert.search.index_storage",
        "IndexScorer",
        {"filter_pids": plain.filter_pids, "decompress_residuals": plain.decompress_residuals},
        ("filter_pids_cpp", "decompress_residuals_cpp"),
    ),
    (
        "colbert.modeling.colbert",
        "ColBERT",
        {"segmented_maxsim": plain.segmented_maxsim},
        ("segmented_maxsim_cpp",),
    ),
    (
        "colbert.indexing.codecs.residual",
        "ResidualCodec",
        {"decompress_residuals": plain.decompress_rows, "packbits": plain.packbits},
        ("decompress_residuals_cpp", "packbits_cpp"),
    ),
]


def install_kernels() -> None:
    """Make colbert-ai's classes choose, at first need, between compiling and PyTorch."""
    for module, name, kernels, extensions in _OWNERS:
        _wrap_loader(getattr(importlib.import_module(module), name), kernels, extensions)


def _wrap_loader(owner: Any, kernels: _Kernels, extensions: tuple[str, ...]) -> None:
    original = owner.try_load_torch_extensions
    # ResidualCodec's are the CUDA kernels: its loader does nothing unless there is a GPU, the others' the reverse.
    on_gpu = owner.__name__ == "ResidualCodec"

    def try_load_torch_extensions(cls: Any, use_gpu: Any) -> None:
        if hasattr(owner, "loaded_extensions") or bool(use_gpu) != on_gpu:
            return
        reason = _why_not_compile(extensions)
        if reason is None:
            logger.info("colbert-ai compiles %s; the first time takes a minute or two.", ", ".join(extensions))
            try:
                with _ninja_on_path():
                    original(use_gpu)
                return
            except Exception as error:
                if _choice() == "compiled":
                    raise
                reason = f"compiling failed ({str(error).splitlines()[0] if str(error) else type(error).__name__})"
        for name, kernel in kernels.items():
            setattr(owner, name, staticmethod(kernel))
        owner.loaded_extensions = True
        logger.info("Plain PyTorch stands in for colbert-ai's %s: %s.", ", ".join(extensions), reason)

    owner.try_load_torch_extensions = classmethod(try_load_torch_extensions)


def _choice() -> str:
    choice = os.environ.get(_SWITCH, "auto")
    if choice not in _CHOICES:
        raise InvalidInputError(f"{_SWITCH}={choice!r} is not one of {', '.join(map(repr, _CHOICES))}.")
    return choice


def _why_not_compile(extensions: tuple[str, ...]) -> str | None:
    choice = _choice()
    if choice == "python":
        return f"{_SWITCH}=python"
    if choice == "compiled":
        return None
    compiler = shlex.split(os.environ.get("CXX", "cl" if sys.platform == "win32" else "c++"))
    if not compiler or shutil.which(compiler[0]) is None:
        return f"there is no C++ compiler ({' '.join(compiler) or 'CXX is empty'}); a package such as g++ brings one"
    if shutil.which("ninja") is None and importlib.util.find_spec("ninja") is None:
        return "there is no ninja; pip install ninja brings it"
    for name in extensions:
        lock = _build_folder(name) / "lock"
        if lock.exists():
            return f"{lock} says that a compilation is running; delete it if none is"
    return None


def _build_folder(extension: str) -> Path:
    from torch.utils import cpp_extension

    return Path(cpp_extension._get_build_directory(extension, False))


@contextlib.contextmanager
def _ninja_on_path() -> Iterator[None]:
    if shutil.which("ninja") is not None:
        yield
        return
    # Installed by pip into an environment that was not activated.
    import ninja

    before = os.environ.get("PATH", "")
    os.environ["PATH"] = os.pathsep.join([ninja.BIN_DIR, before])
    try:
        yield
    finally:
        os.environ["PATH"] = before
