"""The one exception tree of the package.

Every error names the offending value and says what to do about it. Catch
:class:`ExciseError` to catch them all.
"""

from __future__ import annotations

__all__ = [
    "AdapterError",
    "BackboneError",
    "DetectorError",
    "ExciseError",
    "FirstStageError",
    "IndexDamagedError",
    "InvalidInputError",
    "MissingExtraError",
    "SuiteError",
]


class ExciseError(Exception):
    """Base class of every error this package raises on purpose."""


class InvalidInputError(ExciseError, ValueError):
    """A query, a candidate, a topic, a ``k`` or a setting cannot be used as given."""


class MissingExtraError(ExciseError, ImportError):
    """An optional dependency is not installed.

    Args:
        package: the distribution or module that is missing, e.g. ``"ragatouille"``.
        extra: the extra of this package that brings it, e.g. ``"ragatouille"``.
    """

    def __init__(self, package: str, extra: str) -> None:
        self.package = package
        self.extra = extra
        super().__init__(f'{package!r} is not installed. Install it with: pip install "excise-integrations[{extra}]"')

    def __reduce__(self) -> tuple[type[MissingExtraError], tuple[str, str]]:
        return (type(self), (self.package, self.extra))


class BackboneError(ExciseError):
    """A late-interaction backbone cannot be found, verified or loaded."""


class AdapterError(ExciseError):
    """An adapter folder is missing, damaged, or made for another backbone."""


class DetectorError(ExciseError):
    """A detector failed or answered with something that is not a detection."""


class FirstStageError(ExciseError):
    """A first stage failed or returned candidates that cannot be used."""


class IndexDamagedError(FirstStageError):
    """An index on disk is missing, incomplete, or would return wrong texts."""


class SuiteError(ExciseError):
    """A benchmark suite has a missing file, a bad line, or an unknown id."""
