"""First stages: whatever returns the shortlist."""

from .base import AsyncFirstStage, BatchFirstStage, FirstStage, VectorFirstStage

__all__ = ["AsyncFirstStage", "BatchFirstStage", "FirstStage", "VectorFirstStage"]
