"""Make RAGatouille and colbert-ai work beside current versions of their neighbours.

Each fix asks first whether it is needed, is logged in one line, and touches nothing but modules of
``ragatouille`` and ``colbert``:

- RAGatouille 0.0.9 imports a base class from ``langchain.retrievers``, which langchain 1 no longer
  has. Stand-in modules lie in ``sys.modules`` for the length of the import only.
- colbert-ai's model class never calls ``post_init()``, without which transformers 5 cannot load it.
- Importing colbert-ai makes ``spawn`` the start method of the whole process and building an index sets
  ``CUDA_VISIBLE_DEVICES`` and the random seeds. All of these are put back.
- Missing compiler, ninja or git: see :mod:`._ragatouille_compile`, and ``GIT_PYTHON_REFRESH``.
"""

from __future__ import annotations

import contextlib
import functools
import importlib
import importlib.util
import inspect
import logging
import sys
import warnings
from collections.abc import Callable, Iterator
from importlib.metadata import PackageNotFoundError, version
from types import ModuleType
from typing import Any

from ..errors import FirstStageError, MissingExtraError
from ._ragatouille_compile import install_kernels
from ._ragatouille_isolation import PROCESS_LOCK, environment_kept, prints_logged, process_state_kept, random_state_kept

__all__ = ["check_installed", "import_colbert", "import_ragatouille"]

logger = logging.getLogger("excise_integrations")

_STAND_INS = (
    "langchain",
    "langchain.retrievers",
    "langchain.retrievers.document_compressors",
    "langchain.retrievers.document_compressors.base",
)
_FACTORY_USERS = (
    "colbert.modeling.hf_colbert",
    "colbert.modeling.base_colbert",
    "colbert.modeling.tokenization.query_tokenization",
    "colbert.modeling.tokenization.doc_tokenization",
)
_SPAWN_USERS = ("colbert.infra.launcher", "colbert.indexer", "colbert.indexing.collection_indexer")


def import_ragatouille() -> ModuleType:
    """Import RAGatouille on every supported version of its neighbours.

    Returns:
        The module ``ragatouille``.

    Raises:
        MissingExtraError: RAGatouille, colbert-ai or something that they need is not installed.
        FirstStageError: the installed RAGatouille runs on another engine.
    """
    with PROCESS_LOCK:
        import_colbert()
        check_installed("ragatouille")
        found = _release(_version("ragatouille"))
        if found >= (0, 0, 10):
            raise FirstStageError(
                f"RAGatouille {_version('ragatouille')} is installed, which reads other indexes than 0.0.9 wrote. "
                'Install the supported version with: pip install "ragatouille>=0.0.9,<0.0.10"'
            )
        with _importing(), warnings.catch_warnings():
            # It announces the next version's engine at every import; the pin above is the answer.
            warnings.filterwarnings("ignore", message=r"\s*\*+\s*RAGatouille WARNING", category=UserWarning)
            try:
                return importlib.import_module("ragatouille")
            except ModuleNotFoundError as error:
                if error.name is None or error.name.partition(".")[0] != "langchain":
                    raise
            with _stand_ins():
                module = importlib.import_module("ragatouille")
        logger.info(
            "RAGatouille %s imports langchain.retrievers, which langchain %s does not have: "
            "a stand-in was there during the import and is gone.",
            _version("ragatouille"),
            _version("langchain"),
        )
        return module


def import_colbert() -> ModuleType:
    """Import colbert-ai, ready for this transformers, for machines without compiler, ninja or git.

    Returns:
        The module ``colbert``.

    Raises:
        MissingExtraError: colbert-ai, or something that it needs, is not installed.
    """
    with PROCESS_LOCK:
        check_installed("colbert")
        with _importing():
            colbert = importlib.import_module("colbert")
        if not getattr(colbert, "_excise_ready", False):
            _fix_model_class()
            _keep_spawn_to_colbert()
            _restore_after_build()
            install_kernels()
            colbert._excise_ready = True  # type: ignore[attr-defined]
        return colbert


def check_installed(name: str = "colbert") -> None:
    """Raise :class:`MissingExtraError` if a module is not installed, without importing it."""
    if name not in sys.modules and importlib.util.find_spec(name) is None:
        raise MissingExtraError("ragatouille", "ragatouille")


@contextlib.contextmanager
def _importing() -> Iterator[None]:
    with process_state_kept(), prints_logged("stdout"):
        try:
            yield
        except ModuleNotFoundError as error:
            # Installed without its dependencies.
            name = error.name or str(error)
            raise MissingExtraError({"git": "GitPython"}.get(name, name), "ragatouille") from error


def _version(distribution: str) -> str:
    try:
        return version(distribution)
    except PackageNotFoundError:
        return "(absent)"


def _release(text: str) -> tuple[int, ...]:
    digits: list[int] = []
    for part in text.split("."):
        if not part.isdigit():
            break
        digits.append(int(part))
    return tuple(digits)


# --- import of ragatouille -------------------------------------------------------------------


@contextlib.contextmanager
def _stand_ins() -> Iterator[None]:
    from langchain_core.documents.compressor import BaseDocumentCompressor

    placed: list[str] = []
    try:
        for name in _STAND_INS:
            if name == "langchain" and _has_langchain():
                continue
            module = ModuleType(name)
            module.BaseDocumentCompressor = BaseDocumentCompressor  # type: ignore[attr-defined]
            module.__path__ = []
            sys.modules[name] = module
            placed.append(name)
        yield
    finally:
        for name in placed:
            sys.modules.pop(name, None)


def _has_langchain() -> bool:
    return "langchain" in sys.modules or importlib.util.find_spec("langchain") is not None


# --- fixes inside colbert --------------------------------------------------------------------


def _fix_model_class() -> None:
    factory = importlib.import_module("colbert.modeling.hf_colbert").class_factory
    if _release(_version("transformers")) < (5,) or "post_init" in inspect.getsource(factory):
        return

    @functools.wraps(factory)
    def class_factory(name_or_path: Any) -> Any:
        base = factory(name_or_path)

        class HF_ColBERT(base):  # type: ignore[misc,valid-type]
            def __init__(self, *args: Any, **kwargs: Any) -> None:
                self.__dict__["_excise_built"] = False
                super().__init__(*args, **kwargs)
                self.__dict__["_excise_built"] = True
                self.post_init()

            def init_weights(self) -> None:
                # The base class calls this before post_init() has prepared what it needs.
                if self.__dict__["_excise_built"]:
                    super().init_weights()

        return HF_ColBERT

    for name in _FACTORY_USERS:
        importlib.import_module(name).class_factory = class_factory  # type: ignore[attr-defined]
    logger.info(
        "colbert-ai %s does not call post_init(), which transformers %s needs: its model class was wrapped.",
        _version("colbert-ai"),
        _version("transformers"),
    )


def _keep_spawn_to_colbert() -> None:
    import torch.multiprocessing

    # Builds on several GPUs need `spawn`; the rest of the process keeps what it had.
    context = torch.multiprocessing.get_context("spawn")
    for name in _SPAWN_USERS:
        importlib.import_module(name).mp = context  # type: ignore[attr-defined]


def _restore_after_build() -> None:
    launcher = importlib.import_module("colbert.infra.launcher")
    run: Callable[..., Any] = launcher.run_process_without_mp

    @functools.wraps(run)
    def run_process_without_mp(*args: Any, **kwargs: Any) -> Any:
        with environment_kept("CUDA_VISIBLE_DEVICES"), random_state_kept():
            return run(*args, **kwargs)

    launcher.run_process_without_mp = run_process_without_mp  # type: ignore[attr-defined]
