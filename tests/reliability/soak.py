"""A stream of Zipf queries over an index that is extended, pruned and rebuilt meanwhile.

From the root of a checkout, thirty minutes over 10,000 documents:

    python tests/reliability/soak.py --seconds 1800

Every result is compared with what the texts of its own candidates say. It ends with exit code 1 when anything was
wrong: an error, evidence that is not that of a candidate's text, memory that grew, a cache beyond its budget.
"""

from __future__ import annotations

import argparse
import json
import random
import shutil
import sys
import tempfile
import threading
import time
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

if __name__ == "__main__":
    _HERE = Path(__file__).resolve().parent
    sys.path[:0] = [str(_HERE.parents[1]), str(_HERE.parent)]

from word_backbone import WordBackbone, word_excise

from excise_integrations import ExciseResult
from excise_integrations.encode.maxsim import TokenVectors
from excise_integrations.first_stage.memory import MemoryFirstStage

_SUBJECTS, _TOPICS = 400, 60


@dataclass
class Report:
    """What a soak saw; sizes in bytes, memory as the process holds it."""

    seconds: float = 0.0
    queries: int = 0
    fired: int = 0
    changes: int = 0
    rebuilds: int = 0
    checked: int = 0
    errors: list[str] = field(default_factory=list)
    memory_after_warm_up: int = 0
    memory_at_the_end: int = 0
    cache_bytes: int = 0
    cache_budget: int = 0
    disk_bytes: int = 0
    disk_budget: int = 0
    hit_rate: float = 0.0

    @property
    def growth(self) -> float:
        """Share by which memory grew after warm-up."""
        return self.memory_at_the_end / max(1, self.memory_after_warm_up) - 1

    @property
    def ok(self) -> bool:
        """Whether nothing was wrong."""
        return (
            not self.errors
            and self.growth <= 0.05
            and self.cache_bytes <= self.cache_budget
            and self.disk_bytes <= self.disk_budget
        )


def resident_bytes() -> int:
    """Memory that this process holds."""
    pages = Path("/proc/self/statm").read_text().split()[1]
    return int(pages) * 4096


class Soak:
    """Threads that ask, and one that changes the index."""

    def __init__(
        self,
        *,
        documents: int = 10_000,
        threads: int = 4,
        cache_bytes: int = 4_000_000,
        disk_bytes: int = 8_000_000,
        cache_dir: Path | None = None,
        seed: int = 0,
    ) -> None:
        self.documents = documents
        self.threads = threads
        self.report = Report(cache_budget=cache_bytes, disk_budget=disk_bytes)
        self._rng = random.Random(seed)
        self._backbone: Any = WordBackbone()
        self._reader: Any = WordBackbone("adapter")
        self.excise = word_excise(encoder=self._reader, cache_bytes=cache_bytes, cache_dir=cache_dir)
        if self.excise.cache.disk is not None:
            self.excise.cache.disk.max_bytes = disk_bytes
        self._next = 0
        self.stage = self._build(documents)
        self._stop = threading.Event()
        self._lock = threading.Lock()

    # --- texts and queries ------------------------------------------------------------------

    def _text(self, rng: random.Random) -> str:
        subject, topic = rng.randrange(_SUBJECTS), rng.randrange(_TOPICS)
        filler = " ".join(f"word{rng.randrange(3000)}" for _ in range(rng.randint(5, 25)))
        return f"subject{subject} and topic{topic} {filler}"

    def _build(self, count: int) -> MemoryFirstStage:
        texts = [self._text(self._rng) for _ in range(count)]
        ids = [str(self._next + i) for i in range(count)]
        self._next += count
        return MemoryFirstStage.from_texts(texts, ids=ids, backbone=self._backbone)

    @staticmethod
    def _zipf(rng: random.Random, size: int) -> int:
        return min(size - 1, int(rng.paretovariate(1.0)) - 1)

    def _query(self, rng: random.Random) -> str:
        subject, topic = self._zipf(rng, _SUBJECTS), self._zipf(rng, _TOPICS)
        exclusion = f", but not topic{topic}" if rng.random() < 0.6 else ""
        return f"documents on subject{subject} with word{self._zipf(rng, 3000)}{exclusion}"

    # --- work -------------------------------------------------------------------------------

    def _ask(self, seed: int) -> None:
        rng = random.Random(seed)
        while not self._stop.is_set():
            query = self._query(rng)
            try:
                result = self.excise.search(query, self.stage, k=10)
                wrong = self._wrong(result, rng)
            except Exception as error:
                wrong = f"{type(error).__name__}: {error}"
            with self._lock:
                self.report.queries += 1
                self.report.fired += result.detection.fired
                self.report.checked += result.detection.fired
                if wrong:
                    self.report.errors.append(f"{query!r}: {wrong}")
                    self._stop.set()

    def _wrong(self, result: ExciseResult, rng: random.Random) -> str | None:
        """Compare the evidence of one candidate with that of its text, read anew."""
        if not result.detection.fired:
            return None if "not" not in result.query else "an exclusion was not detected"
        candidate = rng.choice([*result.candidates, *result.removed])
        (topic,) = self._reader.encode_queries([result.detection.spans[0].text])
        (document,) = self._reader.encode_documents([candidate.text])
        expected = _evidence(topic, document)
        (found,) = result.verdicts[candidate.id].topic_evidence
        if abs(found - expected) > 1e-3:
            return f"document {candidate.id!r} was judged by {found:.3f}; its text says {expected:.3f}"
        return None

    def _change(self) -> None:
        rng = self._rng
        while not self._stop.wait(0.05):
            kind = rng.random()
            try:
                if kind < 0.02:
                    self.stage = self._build(self.documents)
                    self.report.rebuilds += 1
                    continue
                ids = rng.sample(self.stage.ids, 20)
                self.stage.delete(ids)
                # Half come back under their ids with another text, half leave for new ones.
                new = [i if at % 2 else str(self._next + at) for at, i in enumerate(ids)]
                self._next += len(ids)
                self.stage.add([self._text(rng) for _ in new], ids=new)
                self.report.changes += 1
            except Exception as error:
                self.report.errors.append(f"change: {type(error).__name__}: {error}")
                self._stop.set()

    def run(self, seconds: float) -> Report:
        """Go on for so many seconds, the first third of which is warm-up."""
        work = [threading.Thread(target=self._ask, args=(n,)) for n in range(self.threads)]
        work.append(threading.Thread(target=self._change))
        began = time.monotonic()
        samples: list[tuple[float, int]] = []
        for thread in work:
            thread.start()
        while not self._stop.is_set() and (passed := time.monotonic() - began) < seconds:
            samples.append((passed, resident_bytes()))
            self._stop.wait(min(0.25, seconds / 40))
            stats = self.excise.cache.stats()
            self.report.cache_bytes = max(self.report.cache_bytes, stats.bytes)
            if self.excise.cache.disk is not None:
                self.report.disk_bytes = max(self.report.disk_bytes, self.excise.cache.disk.stats().bytes)
        self._stop.set()
        for thread in work:
            thread.join(60)
            if thread.is_alive():
                self.report.errors.append(f"{thread.name} did not end")
        self.report.seconds = time.monotonic() - began
        self.report.hit_rate = self.excise.cache.stats().hit_rate
        # An index that is being replaced is there twice: the quiet moments are compared, the least of each part.
        self.report.memory_after_warm_up = _least(samples, seconds / 3, seconds * 2 / 3)
        self.report.memory_at_the_end = _least(samples, seconds * 2 / 3, seconds)
        return self.report


def _least(samples: list[tuple[float, int]], start: float, end: float) -> int:
    return min((held for at, held in samples if start <= at <= end), default=0)


def _evidence(topic: TokenVectors, document: TokenVectors) -> float:
    words = topic.vectors[1:]
    return float((words @ document.vectors.T).amax(dim=1).mean().clamp(-1, 1))


def main() -> int:
    """Run from the command line."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--seconds", type=float, default=1800.0)
    parser.add_argument("--documents", type=int, default=10_000)
    parser.add_argument("--threads", type=int, default=4)
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args()
    folder = Path(tempfile.mkdtemp(prefix="soak-"))
    try:
        soak = Soak(documents=options.documents, threads=options.threads, seed=options.seed, cache_dir=folder)
        report = soak.run(options.seconds)
    finally:
        shutil.rmtree(folder, ignore_errors=True)
    print(json.dumps({**asdict(report), "growth": round(report.growth, 4), "ok": report.ok}, indent=2))
    return 0 if report.ok else 1


if __name__ == "__main__":
    sys.exit(main())
