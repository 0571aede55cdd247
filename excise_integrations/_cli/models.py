"""Language models by name."""

from __future__ import annotations

import os
import sys
from importlib import import_module
from typing import Any

from ..errors import InvalidInputError, MissingExtraError

__all__ = ["load_model"]


def load_model(name: str, option: str) -> Any:
    """Return the model that an option names.

    Args:
        name: ``module:attribute`` of an object that there is, the working directory included; anything else is a
            chat model as LangChain names it.
        option: for the error.

    Raises:
        InvalidInputError: there is no such model.
        MissingExtraError: LangChain is needed and not installed.
    """
    module, _, attribute = name.partition(":")
    if attribute.isidentifier() and (found := _attribute(module, attribute)) is not None:
        return found
    try:
        from langchain.chat_models import init_chat_model
    except ImportError as error:
        raise MissingExtraError("langchain", "langchain") from error
    try:
        return init_chat_model(name)
    except (ImportError, ValueError) as error:
        raise InvalidInputError(f"{option} {name!r} cannot be used: {error}") from error


def _attribute(module: str, attribute: str) -> Any | None:
    sys.path.insert(0, os.getcwd())
    try:
        return getattr(import_module(module), attribute, None)
    except ModuleNotFoundError as error:
        # A module that there is may lack one that it imports; that is no other kind of name.
        if error.name is not None and not f"{module}.".startswith(f"{error.name}."):
            raise InvalidInputError(f"{module!r} cannot be imported: {error}") from error
        return None
    except (ValueError, TypeError):
        return None
    finally:
        sys.path.remove(os.getcwd())
