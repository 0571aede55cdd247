"""``Excise``: detect, re-embed, demote; the one object that the frameworks' skins share."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch

from . import _scoring
from ._assembly import Backend, at_threshold, override, place, resolve_detector, resolve_exclusion
from ._ranking import active_result, failed_result, silent_result
from ._telemetry import traced
from .config import ExciseConfig
from .detect.base import Detector
from .detect.spans import caller_detection
from .encode.backbone import Backbone, DType
from .encode.cache import CacheStats, VectorCache
from .encode.disk import DiskCache
from .encode.storage import Storage
from .errors import DetectorError, ExciseError, FirstStageError, InvalidInputError
from .first_stage.base import AsyncFirstStage, FirstStage
from .types import Candidate, Detection, ExciseResult

if TYPE_CHECKING:
    from .audit.log import AuditLog
    from .audit.report import Report

__all__ = ["Excise"]

logger = logging.getLogger("excise_integrations")
DEFAULT_CACHE_BYTES = 256 * 1024 * 1024


class Excise:
    """Exclusion-aware re-ranking over any first stage.

    One instance serves many threads and tasks. Use :meth:`from_pretrained`; the constructor takes
    parts that are already built.

    Args:
        backbone: the frozen late-interaction encoder.
        detector: says which topics a query excludes.
        exclusion: the backbone with its exclusion adapter merged in; None demotes on frozen vectors.
        config: the settings.
        cache_bytes: budget of the cache of re-embedded documents in memory, in bytes; 0 keeps none.
        cache_dir: folder of a second layer on disk that outlives the process and that ``excise warm``
            fills ahead; None keeps none.
        cache_storage: the form that the cache keeps vectors in: ``"encoded"`` (as they are),
            ``"float16"``, ``"bfloat16"`` or ``"int8"``.
        log: receives one line per re-ranked query; None logs nothing.
    """

    def __init__(
        self,
        backbone: Backbone,
        *,
        detector: Detector,
        exclusion: Backbone | None = None,
        config: ExciseConfig | None = None,
        cache_bytes: int = DEFAULT_CACHE_BYTES,
        cache_dir: str | Path | None = None,
        cache_storage: Storage = "encoded",
        log: AuditLog | None = None,
    ) -> None:
        if not isinstance(detector, Detector):
            raise InvalidInputError(f"detector={detector!r} has no method detect(queries).")
        self.backbone = backbone
        self.exclusion = exclusion
        self.config = config or ExciseConfig()
        self.detector = detector if self.config.threshold is None else at_threshold(detector, self.config.threshold)
        disk = None if cache_dir is None else DiskCache(cache_dir)
        self.cache = VectorCache(cache_bytes, storage=cache_storage, disk=disk)
        self.log = log
        self._recipe: dict[str, Any] | None = None

    @classmethod
    def from_pretrained(
        cls,
        name_or_path: str | Path = "minilm",
        *,
        detector: Detector | str | Path = "auto",
        adapter: str | Path = "auto",
        config: ExciseConfig | None = None,
        device: str | None = None,
        dtype: DType = "auto",
        backend: Backend = "torch",
        threads: int | None = None,
        path: str | Path | None = None,
        revision: str | None = None,
        offline: bool | None = None,
        cache_bytes: int = DEFAULT_CACHE_BYTES,
        cache_dir: str | Path | None = None,
        cache_storage: Storage = "encoded",
        log: AuditLog | None = None,
        **settings: Any,
    ) -> Excise:
        """Load a backbone with its detector and, where there is one, its exclusion adapter.

        Args:
            name_or_path: ``"minilm"`` (no network, no GPU), a checkpoint folder, or a hub id.
            detector: ``"auto"`` (the bundled trained one, else the rules), ``"lora"``, ``"rules"``, the
                folder of a trained one, or any object with ``detect(queries)``.
            adapter: ``"auto"`` (the bundled one when it fits), ``"none"``, or an adapter folder.
            config: settings; keyword arguments in ``settings`` override its fields.
            device: torch device; None prefers a GPU.
            dtype: ``"auto"``, ``"float32"`` or ``"bfloat16"``; of the detector too.
            backend: what the models run on: ``"torch"``, or ``"openvino"`` on CPUs, which needs the extra of that name.
            threads: torch's intra-op threads, for the whole process; None leaves them alone.
            path: a folder with the weights of ``"minilm"``.
            revision: hub revision.
            offline: forbid the hub; None forbids it for ``"minilm"`` and existing folders only.
            cache_bytes, cache_dir, cache_storage, log: see :class:`Excise`.
            **settings: fields of :class:`ExciseConfig`.

        Returns:
            A ready pipeline.

        Raises:
            BackboneError, AdapterError: something is missing, damaged or does not fit.
            InvalidInputError: a setting is out of range.
        """
        if threads is not None:
            if threads < 1:
                raise InvalidInputError(f"threads={threads} must be at least 1.")
            torch.set_num_threads(threads)
        resolved = override(config or ExciseConfig(), settings)
        backbone = Backbone.from_pretrained(
            name_or_path, path=path, revision=revision, device=device, dtype=dtype, offline=offline
        )
        excise = cls(
            backbone,
            detector=resolve_detector(
                detector, device=device, dtype=dtype, path=path, offline=offline, config=resolved
            ),
            exclusion=resolve_exclusion(backbone, adapter),
            config=resolved,
            cache_bytes=cache_bytes,
            cache_dir=cache_dir,
            cache_storage=cache_storage,
            log=log,
        )
        place(excise, backend, detector=isinstance(detector, (str, Path)))
        excise._recipe = {
            "name_or_path": str(name_or_path), "detector": detector, "adapter": adapter, "device": device,
            "dtype": dtype, "backend": backend, "path": path, "revision": revision, "offline": offline,
        }  # fmt: skip
        return excise

    # --- copies -----------------------------------------------------------------------------

    def with_config(self, **settings: Any) -> Excise:
        """Return an ``Excise`` with other settings that shares every heavy part, cache included."""
        twin = Excise.__new__(Excise)
        twin.__dict__.update(self.__dict__)
        twin.config = override(self.config, settings)
        if twin.config.threshold != self.config.threshold:
            twin.detector = at_threshold(self.detector, twin.config.threshold)
        return twin

    def __copy__(self) -> Excise:
        return self.with_config()

    def __deepcopy__(self, memo: dict[int, Any]) -> Excise:
        # Frameworks deep-copy their components; weights, locks and the cache must stay shared.
        return self.with_config()

    def __reduce__(self) -> tuple[Any, ...]:
        disk = self.cache.disk
        shared = {
            "config": self.config, "cache_bytes": self.cache.max_bytes, "cache_storage": self.cache.storage,
            "cache_dir": None if disk is None else str(disk.folder), "log": self.log,
        }  # fmt: skip
        if self._recipe is not None:
            return (_rebuild, ({**self._recipe, **shared},))
        parts = {"backbone": self.backbone, "detector": self.detector, "exclusion": self.exclusion}
        return (_assemble, ({**parts, **shared},))

    # --- facts ------------------------------------------------------------------------------

    @property
    def encoder(self) -> Backbone:
        """The encoder that re-embeds: with the exclusion adapter when there is one."""
        return self.exclusion or self.backbone

    @property
    def adapters(self) -> tuple[str, ...]:
        """Labels of the adapters that take part, for audit trails."""
        labels = (getattr(self.detector, "label", None), self.exclusion.adapter if self.exclusion else None)
        return tuple(label for label in labels if label)

    def cache_stats(self) -> CacheStats:
        """Return the counters of the cache of re-embedded documents."""
        return self.cache.stats()

    def warmup(self) -> None:
        """Run every model once, so that the first query pays no start-up cost."""
        self.detector.detect(["warm up, but not this"])
        self.encoder.encode_queries(["warm up"])
        self.encoder.encode_documents(["warm up"])

    # --- detection --------------------------------------------------------------------------

    def detect(self, query: str) -> Detection:
        """Say which topics a query excludes.

        Raises:
            InvalidInputError: the query is blank or not a string.
            DetectorError: the detector failed.
        """
        return self.detect_batch([query])[0]

    def detect_batch(self, queries: Sequence[str]) -> list[Detection]:
        """Detect for many queries at once; see :meth:`detect`."""
        _scoring.check_queries(queries)
        if not queries:
            return []
        name = type(self.detector).__name__
        try:
            found = self.detector.detect(list(queries))
        except ExciseError:
            raise
        except Exception as error:
            raise DetectorError(f"The detector {name} failed: {type(error).__name__}: {error}") from error
        return _scoring.check_detected(found, queries, name)

    # --- re-ranking -------------------------------------------------------------------------

    @traced("excise.rerank")
    def rerank(
        self,
        query: str,
        candidates: Sequence[Candidate],
        *,
        k: int | None = None,
        exclude: Sequence[str] | None = None,
        detection: Detection | None = None,
        first_stage: FirstStage | None = None,
    ) -> ExciseResult:
        """Re-rank a shortlist so that documents about an excluded topic go down or out.

        Args:
            query: the query.
            candidates: the shortlist in the first stage's order, ids unique, texts not blank.
            k: how many to return; None returns all.
            exclude: topics named by the caller, who always wins; ``[]`` switches Excise off for
                this call, None asks the detector.
            detection: a detection made before, instead of asking the detector.
            first_stage: where the candidates come from; lends its fingerprint to the cache and its
                frozen vectors when they are in this backbone's space.

        Returns:
            The result. When nothing is excluded it holds the candidates as they came.

        Raises:
            InvalidInputError: the query, a candidate, ``k`` or a topic cannot be used.
            DetectorError, ExciseError: a part failed and ``on_error="raise"``.
        """
        _scoring.check_query(query)
        candidates = _scoring.check_candidates(candidates)
        _scoring.check_k(k)
        clock = time.perf_counter()
        # What the caller gave is checked out here: on_error="frozen" is for parts that fail, not for wrong input.
        found: Detection | None = detection
        if exclude is not None:
            found = caller_detection(query, exclude)
        elif detection is not None:
            _scoring.check_detection(detection)
        result = self._rerank(query, candidates, found, first_stage, k, clock)
        result = replace(result, origin=self)
        if self.log is not None:
            # Outside on_error: a log that cannot be written has a policy of its own.
            self.log.write(result)
        return result

    def _rerank(
        self,
        query: str,
        candidates: Sequence[Candidate],
        found: Detection | None,
        first_stage: FirstStage | None,
        k: int | None,
        clock: float,
    ) -> ExciseResult:
        timings: dict[str, float] = {}
        try:
            if found is None:
                found = self.detect(query)
            timings["detect"] = time.perf_counter() - clock
            if not found.fired or not candidates:
                empty = ["The shortlist is empty; there was nothing to rank."] if found.fired else []
                return silent_result(self, query, candidates, found, k, timings, warnings=empty)
            evidence = _scoring.score(self, query, candidates, found, first_stage, timings)
            return active_result(self, query, candidates, found, evidence, k, timings)
        except Exception as error:
            if self.config.on_error == "frozen":
                logger.warning("Excise failed (%s); the frozen ranking is returned.", type(error).__name__)
                return failed_result(self, query, candidates, error, found or Detection(fired=False), k, timings)
            if isinstance(error, ExciseError):
                raise
            raise ExciseError(
                f"Re-ranking failed: {type(error).__name__}: {error}. "
                "With on_error='frozen' the frozen ranking is returned instead."
            ) from error

    @traced("excise.rerank_batch")
    def rerank_batch(
        self,
        queries: Sequence[str],
        candidates: Sequence[Sequence[Candidate]],
        *,
        k: int | None = None,
        exclude: Sequence[Sequence[str] | None] | None = None,
        first_stage: FirstStage | None = None,
    ) -> list[ExciseResult]:
        """Re-rank many shortlists; detection runs in one batch, documents shared by queries are encoded once.

        Args:
            queries: queries.
            candidates: one shortlist per query.
            k, first_stage: as in :meth:`rerank`.
            exclude: per query, as in :meth:`rerank`; None asks the detector for all.

        Returns:
            One result per query.
        """
        _scoring.check_queries(queries)
        topics = list(exclude) if exclude is not None else [None] * len(queries)
        if not len(queries) == len(candidates) == len(topics):
            raise InvalidInputError(
                f"{len(queries)} queries, {len(candidates)} shortlists and {len(topics)} exclusions were given; "
                "one of each per query is needed."
            )
        asked = [i for i, topic in enumerate(topics) if topic is None]
        found: dict[int, Detection] = {}
        if asked:
            try:
                found = dict(zip(asked, self.detect_batch([queries[i] for i in asked]), strict=True))
            except ExciseError:
                # Each query then fails, or falls back, by itself.
                if self.config.on_error == "raise":
                    raise
        return [
            self.rerank(query, candidates[i], k=k, exclude=topics[i], detection=found.get(i), first_stage=first_stage)
            for i, query in enumerate(queries)
        ]

    def explain(self, result: ExciseResult) -> Report:
        """Return the audit report of a result, with the words that matched each excluded topic marked.

        Args:
            result: what :meth:`rerank` or :meth:`search` returned.

        Raises:
            InvalidInputError: another ``Excise``, with other settings, made the result.
        """
        from .audit.report import Report

        return Report(result, self.encoder, config=self.config)

    async def arerank(
        self,
        query: str,
        candidates: Sequence[Candidate],
        *,
        k: int | None = None,
        exclude: Sequence[str] | None = None,
        detection: Detection | None = None,
        first_stage: FirstStage | None = None,
    ) -> ExciseResult:
        """Do what :meth:`rerank` does in a worker thread, leaving the event loop free."""
        return await asyncio.to_thread(
            self.rerank, query, candidates, k=k, exclude=exclude, detection=detection, first_stage=first_stage
        )

    # --- searching --------------------------------------------------------------------------

    @traced("excise.search")
    def search(
        self,
        query: str,
        first_stage: FirstStage,
        *,
        k: int | None = None,
        filter: Mapping[str, Any] | None = None,
        exclude: Sequence[str] | None = None,
    ) -> ExciseResult:
        """Take a shortlist from a first stage and re-rank it.

        Args:
            query: the query.
            first_stage: any first stage.
            k: how many to return; None returns the whole shortlist.
            filter: passed to the first stage.
            exclude: as in :meth:`rerank`.

        Raises:
            FirstStageError: the first stage failed or returned something that is no shortlist.
        """
        _scoring.check_query(query)
        _scoring.check_k(k)
        try:
            shortlist = first_stage.search(query, self.shortlist_size(k), filter=filter)
        except ExciseError:
            raise
        except Exception as error:
            raise FirstStageError(f"{type(first_stage).__name__}.search failed: {error}") from error
        shortlist = _scoring.check_shortlist(shortlist, type(first_stage).__name__)
        return self.rerank(query, shortlist, k=k, exclude=exclude, first_stage=first_stage)

    async def asearch(
        self,
        query: str,
        first_stage: FirstStage,
        *,
        k: int | None = None,
        filter: Mapping[str, Any] | None = None,
        exclude: Sequence[str] | None = None,
    ) -> ExciseResult:
        """Do what :meth:`search` does without blocking the event loop."""
        if not isinstance(first_stage, AsyncFirstStage):
            return await asyncio.to_thread(self.search, query, first_stage, k=k, filter=filter, exclude=exclude)
        return await self._asearch(query, first_stage, k, filter, exclude)

    @traced("excise.search")
    async def _asearch(
        self,
        query: str,
        first_stage: AsyncFirstStage,
        k: int | None,
        filter: Mapping[str, Any] | None,
        exclude: Sequence[str] | None,
    ) -> ExciseResult:
        _scoring.check_query(query)
        _scoring.check_k(k)
        try:
            shortlist = await first_stage.asearch(query, self.shortlist_size(k), filter=filter)
        except ExciseError:
            raise
        except Exception as error:
            raise FirstStageError(f"{type(first_stage).__name__}.asearch failed: {error}") from error
        shortlist = _scoring.check_shortlist(shortlist, type(first_stage).__name__)
        return await self.arerank(query, shortlist, k=k, exclude=exclude, first_stage=first_stage)

    def shortlist_size(self, k: int | None) -> int:
        """Return how many candidates a first stage is asked for, so that k are left after removals."""
        if k is None:
            return self.config.k
        spare = self.config.cap if self.config.demotion == "paper" else self.config.total_cap
        return max(self.config.k, k + (spare if self.config.removed == "drop" else 0))


def _rebuild(recipe: dict[str, Any]) -> Excise:
    return Excise.from_pretrained(**recipe)


def _assemble(parts: dict[str, Any]) -> Excise:
    return Excise(**parts)
