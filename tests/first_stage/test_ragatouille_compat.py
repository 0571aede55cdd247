"""The compatibility module: only where needed, and without a trace."""

from __future__ import annotations

import importlib
import importlib.util
import os
import random
import sys
import threading
from types import ModuleType
from typing import Any

import pytest

from excise_integrations.errors import FirstStageError, MissingExtraError
from excise_integrations.first_stage import _ragatouille_compat as compat
from excise_integrations.first_stage import _ragatouille_isolation as isolation


def calls_post_init(name_or_path: Any) -> Any:
    class HF_ColBERT:
        def __init__(self) -> None:
            self.post_init()

    return HF_ColBERT


def forgets_it(name_or_path: Any) -> Any:
    class HF_ColBERT:
        built = False

        def __init__(self) -> None:
            self.init_weights()
            self.built = True

        def init_weights(self) -> None:
            assert self.built

        def __getattr__(self, name: str) -> Any:
            if name == "post" + "_init":
                return self.init_weights
            raise AttributeError(name)

    return HF_ColBERT


@pytest.fixture
def factory_users(monkeypatch: pytest.MonkeyPatch) -> dict[str, ModuleType]:
    modules = {name: ModuleType(name) for name in compat._FACTORY_USERS}
    for name, module in modules.items():
        monkeypatch.setitem(sys.modules, name, module)
    return modules


@pytest.mark.parametrize(("factory", "transformers"), [(calls_post_init, "5.24.0"), (forgets_it, "4.57.6")])
def test_a_model_class_that_works_is_left_alone(
    factory_users: dict[str, ModuleType], monkeypatch: pytest.MonkeyPatch, factory: Any, transformers: str
) -> None:
    monkeypatch.setattr(compat, "_version", lambda name: transformers)
    for module in factory_users.values():
        module.class_factory = factory  # type: ignore[attr-defined]
    compat._fix_model_class()
    assert all(module.class_factory is factory for module in factory_users.values())


def test_a_model_class_that_does_not_is_wrapped(
    factory_users: dict[str, ModuleType], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(compat, "_version", lambda name: "5.24.0")
    for module in factory_users.values():
        module.class_factory = forgets_it  # type: ignore[attr-defined]
    compat._fix_model_class()
    for module in factory_users.values():
        model_class = module.class_factory("any")
        # A checkpoint that is saved names its class.
        assert model_class.__name__ == "HF_ColBERT"
        assert model_class().built


def _import_like_ragatouille() -> None:
    from langchain.retrievers.document_compressors.base import BaseDocumentCompressor
    from langchain_core.documents import compressor

    assert BaseDocumentCompressor is compressor.BaseDocumentCompressor
    importlib.import_module("langchain.retrievers.elsewhere")


def test_stand_ins_are_there_during_the_import_only(monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("langchain_core")
    present = importlib.util.find_spec("langchain") is not None
    with pytest.raises(ModuleNotFoundError, match="elsewhere"), compat._stand_ins():
        _import_like_ragatouille()
    assert not [name for name in sys.modules if name.startswith("langchain.retrievers")]
    assert (importlib.util.find_spec("langchain") is not None) is present


def test_stand_ins_without_langchain(monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("langchain_core")
    for name in [name for name in sys.modules if name.partition(".")[0] == "langchain"]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setattr(compat, "_has_langchain", lambda: False)
    with compat._stand_ins():
        assert sys.modules["langchain"].__spec__ is None
    assert "langchain" not in sys.modules


def test_another_engine_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("colbert")
    monkeypatch.setattr(compat, "import_colbert", lambda: None)
    monkeypatch.setattr(compat, "_version", lambda name: "0.0.10")
    with pytest.raises(FirstStageError, match=r'0\.0\.10 is installed.*pip install "ragatouille>=0\.0\.9,<0\.0\.10"'):
        compat.import_ragatouille()


def test_a_missing_dependency_names_its_package() -> None:
    with pytest.raises(MissingExtraError, match=r"'GitPython' is not installed"), compat._importing():
        raise ModuleNotFoundError("No module named 'git'", name="git")


def test_prints_of_other_threads_are_theirs(
    capsys: pytest.CaptureFixture[str], caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level("DEBUG"), isolation.isolated():
        print("noise\nof ours")
        thread = threading.Thread(target=print, args=("somebody else's",))
        thread.start()
        thread.join()
        print("progress", file=sys.stderr)
    print("afterwards")
    out, err = capsys.readouterr()
    assert out == "somebody else's\nafterwards\n"
    assert err == ""
    assert caplog.messages == ["noise", "of ours", "progress"]


def _change_everything() -> None:
    import torch

    # Without it GitPython cannot be imported where there is no git.
    assert os.environ["GIT_PYTHON_REFRESH"] == "quiet"
    os.environ.update(CUDA_VISIBLE_DEVICES="", TOKENIZERS_PARALLELISM="true")
    random.seed(12345)
    torch.manual_seed(12345)
    raise KeyError


def test_what_fails_leaves_the_process_as_it_was(monkeypatch: pytest.MonkeyPatch) -> None:
    import torch

    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "0,1")
    monkeypatch.delenv("TOKENIZERS_PARALLELISM", raising=False)
    monkeypatch.setenv("PATH", "")
    streams = sys.stdout, sys.stderr
    expected = random.Random(5).random(), torch.rand(1, generator=torch.Generator().manual_seed(5))
    random.seed(5)
    torch.manual_seed(5)
    with pytest.raises(KeyError), isolation.isolated():
        _change_everything()
    assert os.environ["CUDA_VISIBLE_DEVICES"] == "0,1"
    assert "TOKENIZERS_PARALLELISM" not in os.environ
    assert (random.random(), torch.rand(1)) == expected
    assert (sys.stdout, sys.stderr) == streams
