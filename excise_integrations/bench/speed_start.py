"""What a process pays before its first answer: imports, weights, the first queries."""

from __future__ import annotations

import json
import statistics
import subprocess
import sys

from ..errors import ExciseError

__all__ = ["start_times"]

_QUERIES = ("bowed string instruments", "bowed string instruments, but not the violin")
# One document of a hundred words: what is measured is the start and not the encoding.
_SCRIPT = """
import json, sys, time
clock = time.perf_counter
marks = [clock()]
import excise_integrations
marks.append(clock())
from excise_integrations import Candidate, Excise
excise = Excise.from_pretrained(sys.argv[1], device="cpu")
marks.append(clock())
shortlist = [Candidate(str(i), "The cello is a bowed string instrument. " * 14) for i in range(4)]
for query in sys.argv[2:] * 2:
    excise.rerank(query, shortlist)
    marks.append(clock())
print(json.dumps([b - a for a, b in zip(marks, marks[1:])]))
"""
_STEPS = (
    "import excise_integrations",
    "Excise.from_pretrained",
    "first silent query",
    "first query that fires",
    "second silent query",
    "second query that fires",
)


def start_times(backbone: str = "minilm", *, repeats: int = 3) -> dict[str, float]:
    """Measure the start in fresh processes.

    Args:
        backbone: what :meth:`Excise.from_pretrained` takes.
        repeats: processes; the median of each step is returned.

    Returns:
        Step → milliseconds.

    Raises:
        ExciseError: a process failed.
    """
    runs: list[list[float]] = []
    for _ in range(repeats):
        command = [sys.executable, "-c", _SCRIPT, backbone, *_QUERIES]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        if done.returncode:
            raise ExciseError(f"A fresh process could not answer a query: {done.stderr.strip()[-500:]}")
        runs.append(json.loads(done.stdout.splitlines()[-1]))
    return {
        step: 1000 * statistics.median(values) for step, values in zip(_STEPS, zip(*runs, strict=True), strict=True)
    }
