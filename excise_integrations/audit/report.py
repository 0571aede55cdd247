"""The audit report of one query."""

from __future__ import annotations

import copy
import json
from functools import cached_property
from typing import TYPE_CHECKING, Any

from ..errors import InvalidInputError
from ..types import ExciseResult
from .html import html_fragment, html_page
from .markdown import markdown
from .record import result_record, timestamp

if TYPE_CHECKING:
    from ..config import ExciseConfig
    from ..encode.backbone import Backbone

__all__ = ["Report"]


class Report:
    """Show what was done to one query, and why.

    Args:
        result: the result to report on; it is only read.
        backbone: the encoder that ranked it (:attr:`excise_integrations.Excise.encoder`). With it the words
            of each document that matched the excluded topic are marked, which encodes the candidates again,
            once, when the report is first rendered.
        config: the settings it was made with, to be listed.

    Raises:
        InvalidInputError: ``result`` is not a result, or ``config`` is not the one it was made with.
    """

    def __init__(
        self, result: ExciseResult, backbone: Backbone | None = None, *, config: ExciseConfig | None = None
    ) -> None:
        if not isinstance(result, ExciseResult):
            raise InvalidInputError(f"Report needs an ExciseResult; it was given a {type(result).__name__}.")
        if config is not None and result.config and config.digest() != result.config:
            raise InvalidInputError(
                f"The config has the digest {config.digest()!r}, the result was made with {result.config!r}; "
                "give the config of the Excise that made the result, or none."
            )
        self.result = result
        self.backbone = backbone
        self.config = config
        self._created = timestamp()

    @cached_property
    def _record(self) -> dict[str, Any]:
        highlights = None
        if self.backbone is not None:
            from .highlight import find_highlights

            highlights = find_highlights(self.result, self.backbone)
        return result_record(
            self.result,
            created=self._created,
            config=self.config,
            backbone=self.backbone.label if self.backbone is not None else None,
            highlights=highlights,
        )

    @property
    def summary(self) -> tuple[str, ...]:
        """What happened to the query, in a few plain sentences."""
        return tuple(self._record["summary"])

    def to_dict(self) -> dict[str, Any]:
        """Return the report as plain JSON types (schema ``excise-report/1``), a new dict each time."""
        return copy.deepcopy(self._record)

    def to_json(self, *, indent: int | None = 2) -> str:
        """Return the report as JSON text: strict (no NaN) and ASCII only."""
        return json.dumps(self._record, indent=indent, allow_nan=False)

    def to_markdown(self) -> str:
        """Return the report as Markdown (GitHub's dialect); texts of documents are escaped."""
        return markdown(self._record)

    def to_html(self) -> str:
        """Return the report as one self-contained HTML page, to be written as UTF-8.

        It loads nothing, and its content policy forbids every script but its own.
        """
        return html_page(self._record)

    def _repr_html_(self) -> str:
        """Return a fragment without scripts for notebooks."""
        return html_fragment(self._record)

    def __repr__(self) -> str:
        return f"<Report of {self.result.query[:60]!r}: {' '.join(self.summary)}>"
