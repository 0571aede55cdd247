"""One tree of exceptions, which says what to do."""

from __future__ import annotations

import copy
import pickle

import pytest

import excise_integrations
from excise_integrations import errors


def test_every_error_is_in_one_tree_and_public() -> None:
    for name in errors.__all__:
        kind = getattr(errors, name)
        assert issubclass(kind, errors.ExciseError)
        assert getattr(excise_integrations, name) is kind
        assert kind.__doc__


def test_errors_are_also_what_python_would_raise() -> None:
    assert issubclass(errors.InvalidInputError, ValueError)
    assert issubclass(errors.MissingExtraError, ImportError)
    assert issubclass(errors.IndexDamagedError, errors.FirstStageError)


def test_a_missing_extra_names_what_to_install() -> None:
    error = errors.MissingExtraError("qdrant-client", "qdrant")
    assert (error.package, error.extra) == ("qdrant-client", "qdrant")
    assert 'pip install "excise-integrations[qdrant]"' in str(error)


@pytest.mark.parametrize("again", [copy.copy, copy.deepcopy, lambda x: pickle.loads(pickle.dumps(x))])
def test_errors_cross_processes(again: object) -> None:
    assert callable(again)
    for name in errors.__all__:
        kind = getattr(errors, name)
        error = kind("qdrant-client", "qdrant") if kind is errors.MissingExtraError else kind("what went wrong")
        twin = again(error)
        assert type(twin) is kind
        assert str(twin) == str(error)
        assert vars(twin) == vars(error)
