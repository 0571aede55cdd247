"""What the LangChain retriever and compressor have in common."""

from __future__ import annotations

from typing import Any, Literal, cast

from langchain_core.callbacks import AsyncCallbackManager, CallbackManager
from pydantic import BaseModel, ConfigDict, Field, ValidationError

from ._telemetry import event_data
from .errors import InvalidInputError
from .pipeline import Excise
from .types import ExciseResult

__all__ = ["CONFIG", "EVENT", "Settings", "adispatch", "dispatch"]

EVENT = "excise_detection"
# Repeated in the subclasses: LangChain's base classes, named after this one, would allow extra fields again.
CONFIG = ConfigDict(arbitrary_types_allowed=True, extra="forbid", validate_assignment=True)
_OF_THE_PIPELINE = ("mode", "removed", "unit", "on_error")


class Settings(BaseModel):
    """Fields of both classes; what is None is taken from ``excise.config``."""

    model_config = CONFIG

    # The default is only there so that type checkers let it be left out.
    excise: Excise = Field(default=cast("Any", None), repr=False)
    """The pipeline. Left out, it is loaded: for the first stage's own checkpoint, else the embedded default."""
    exclude: list[str] | None = None
    """Excluded topics of every call that names none itself; ``[]`` switches Excise off."""
    mode: Literal["active", "shadow"] | None = None
    """``"shadow"`` returns the frozen ranking, with the verdicts in the metadata."""
    removed: Literal["drop", "last"] | None = None
    """Whether removed documents are left out or stay at the end, flagged."""
    unit: Literal["passage", "document"] | None = None
    """``"document"``: passages with the same ``metadata["document_id"]`` share their fate."""
    on_error: Literal["raise", "frozen"] | None = None
    """``"frozen"``: when a part of Excise fails, the frozen ranking is returned and says so."""
    annotate: bool = True
    """Whether the verdict is put into ``metadata["excise"]``. Off, equal documents stay equal across queries, which
    is what MultiQueryRetriever goes by to drop repeats."""

    def __init__(self, **data: Any) -> None:
        if data.get("excise") is None:
            # An index knows the checkpoint that its vectors come from; only that one compares with them.
            data["excise"] = Excise.from_pretrained(getattr(data.get("first_stage"), "checkpoint", None) or "minilm")
        try:
            super().__init__(**data)
        except ValidationError as error:
            raise _readable(error) from error

    def __setattr__(self, name: str, value: Any) -> None:
        try:
            super().__setattr__(name, value)
        except ValidationError as error:
            raise _readable(error) from error

    def _pipeline(self, **settings: Any) -> Excise:
        """Return the pipeline with this object's settings; the heavy parts are shared."""
        own = {name: getattr(self, name) for name in _OF_THE_PIPELINE}
        chosen = {name: value for name, value in {**own, **settings}.items() if value is not None}
        return self.excise.with_config(**chosen) if chosen else self.excise


def _readable(error: ValidationError) -> InvalidInputError:
    lines = []
    for problem in error.errors():
        name = ".".join(str(part) for part in problem["loc"])
        message = problem["msg"].removeprefix("Value error, ")
        if name == "first_stage":
            message += " (any object with a fingerprint and search(query, k, *, filter=None))"
        lines.append(f"{name}={problem['input']!r}: {message}" if name else message)
    return InvalidInputError(f"{error.title} cannot be used like this. " + "; ".join(lines))


def dispatch(manager: CallbackManager, result: ExciseResult) -> None:
    """Send what was detected, done and how long it took to the handlers, as an event of the surrounding run."""
    manager.on_custom_event(EVENT, event_data(result), run_id=manager.parent_run_id)


async def adispatch(manager: AsyncCallbackManager, result: ExciseResult) -> None:
    """Do what :func:`dispatch` does without blocking the event loop."""
    await manager.on_custom_event(EVENT, event_data(result), run_id=manager.parent_run_id)
