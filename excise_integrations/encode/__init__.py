"""Vectors: late-interaction backbones, windows and MaxSim."""

from .backbone import Backbone
from .maxsim import TokenVectors, maxsim
from .windows import WindowPolicy, split_windows

__all__ = ["Backbone", "TokenVectors", "WindowPolicy", "maxsim", "split_windows"]
