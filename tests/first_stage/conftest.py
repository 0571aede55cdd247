from __future__ import annotations

from ragatouille_fixtures import ragatouille_index, stage

__all__ = ["ragatouille_index", "stage"]
