"""X-Bench on a corpus of one's own: mined pairs, written queries, nine gates (paper, construction of X-Bench)."""

from .audit import audit_sample, cohen_kappa, read_labels
from .estimate import Estimate
from .pipeline import build_bench
from .records import BenchRecord, BuildReport, BuildSettings, Shape

__all__ = [
    "BenchRecord",
    "BuildReport",
    "BuildSettings",
    "Estimate",
    "Shape",
    "audit_sample",
    "build_bench",
    "cohen_kappa",
    "read_labels",
]
