"""The Spark carrier: the whole app as one Structured Streaming query with a straight plan.

    input ──► exchange ──► level 1 ──► exchange ──► … ──► manifest ──► commit

A small epoch is one task: it reads the input, runs all levels (`single_task`), and its only output is the manifest.

Spark owns offsets, triggers, scheduling, exchanges and retries. Its batch `b` is our epoch `base + b`. A checkpoint
that does not continue our last commit (the app ran on the other carrier meanwhile) is replaced by a new one.
"""

from __future__ import annotations

import json
import threading
import uuid
from typing import TYPE_CHECKING, Any

from py4j.protocol import Py4JError
from pyspark.errors import PySparkException

from headrace.base.errors import HeadraceError, InvalidPlan, NotRunning, OutputMixed
from headrace.base.outside import SparkLost
from headrace.base.time import SystemClock
from headrace.connect.embedded.topics import log_path
from headrace.connect.source import Bounds, from_json
from headrace.engine.epoch import PlannedEpoch
from headrace.engine.input import only_mapped, only_replayable
from headrace.engine.operation.failures import as_ours
from headrace.engine.spark import blobs, tasks
from headrace.engine.spark.executors import check_executors
from headrace.engine.spark.failures import SPARK_ERRORS, explained, quiet
from headrace.engine.spark.imports import importable
from headrace.engine.spark.manifests import manifest, manifest_of_batch
from headrace.engine.spark.planning import is_one_machine, small_rows
from headrace.engine.spark.quiet_files import quiet_location
from headrace.engine.spark.reading import encoded
from headrace.engine.spark.session import forget_lost, query_session, session, settings_of
from headrace.engine.spark.source import EpochControl, data_source, times_of

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming import StreamingQuery

    from headrace.engine.engine import Engine
    from headrace.engine.storage import Commit
    from headrace.engine.watermarks import EpochTimes
    from headrace.kernels.task import Report
    from headrace.plan.nodes import Source

CARRIER = "spark"
OFFSETS_FORMAT = 2
"""The version of our offsets in a checkpoint; a checkpoint of another version is replaced by a new one."""
MOST_ATTEMPTS = 3
"""An epoch whose tasks were computed again in its middle is computed so often as a whole."""
INDETERMINATE = "indeterminate output"
"""What Spark says where it cannot compute a lost output again, since others have read it already."""
_SYSTEM = SystemClock()


class SparkCarrier:
    """Runs an engine's epochs on Spark, from its creation to `stop`."""

    def __init__(
        self, engine: Engine, spark: SparkSession | None = None, *, control: EpochControl | None = None
    ) -> None:
        self.engine = engine
        opened = session(spark)
        self.settings = settings_of(opened)
        quiet(opened.sparkContext._accumulatorServer)  # noqa: SLF001 -- it prints where Spark's JVM is lost
        self.spark = query_session(opened)
        check_executors(self.spark, engine.settings.storage, log_path(engine.settings.storage, engine.settings.topics))
        self.ended = False
        self.error: HeadraceError | None = None
        self.lost = False
        """Whether the JVM is gone."""
        self.idle = threading.Event()
        self.idle.set()
        self._epoch_thread: int | None = None
        (control or EpochControl()).write(engine.storage)
        try:
            self.query = self._start()
        except SPARK_ERRORS as error:
            self._forget_lost(error)
            raise explained(error)  # noqa: B904 -- it says itself whether it has a cause

    # ---- the query ----

    def _start(self) -> StreamingQuery:
        checkpoint, base = self._checkpoint()
        with importable(self.spark.sparkContext):
            self.job = self._job(base)
            frame = self._input(self.job)
        writer = frame.writeStream.foreachBatch(self._epoch(base))
        return writer.option("checkpointLocation", checkpoint).start()

    def _levels(self, frame: DataFrame, times: EpochTimes) -> DataFrame:
        shards = self.engine.shards
        with importable(self.spark.sparkContext):
            for level in self.engine.program.levels[1:]:
                exchanged = frame.repartitionById(shards, frame["shard"])
                frame = exchanged.mapInArrow(tasks.level(self.job, level.number, times), blobs.DDL)
        return frame.where(frame["edge"] == blobs.MANIFEST)

    def _job(self, base: int) -> tasks.Job:
        engine = self.engine
        return tasks.Job(
            app_id=engine.storage.about()["id"],
            program=engine.program,
            storage=engine.settings.storage.absolute(),
            topics=engine.settings.topics,
            sync=engine.settings.sync,
            inputs=engine.outside.inputs,
            fault=engine.settings.fault,
            base=base,
            small=self._small(),
            processes=self._processes(),
            beside=engine.settings.beside,
            query=uuid.uuid4().hex,
            ahead=engine.ahead,
        )

    def _small(self) -> int:
        if self.engine.settings.small is not None:
            return self.engine.settings.small
        calls_users = any(level.calls_users for level in self.engine.program.levels)
        one_thread = calls_users or not only_mapped(self.engine.outside.inputs)
        return small_rows(str(self.spark.sparkContext.master), one_thread=one_thread)

    def _processes(self) -> int:
        """Return how many may run a small epoch: on a cluster one, since an executor's memory is counted."""
        context = self.spark.sparkContext
        return int(context.defaultParallelism) if is_one_machine(str(context.master)) else 1

    def _input(self, job: tasks.Job) -> DataFrame:
        epochs = f"headrace_{job.app_id}"
        self.spark.dataSource.register(data_source(job, epochs))
        frame = self.spark.readStream.format(epochs).load()
        for node in self.engine.plan.sources():
            if node.read_by_spark:
                self._check_clock(node)
                frame = frame.union(encoded(self.spark, job, self.engine.plan.name(node), node))
        return frame

    def _check_clock(self, node: Source) -> None:
        """Refuse the time of the epoch where rows of Spark's own sources enter: it is not known there.

        Raises:
            InvalidPlan: a step there reads it.

        """
        if self.engine.program.levels[0].reads_clock:
            raise InvalidPlan(
                f'the time of the epoch cannot be read beside "{self.engine.plan.name(node)}", a source of Spark\'s',
                hint="Compute current_timestamp() in Spark: app.read(frame.withColumn(…)).",
            )

    def _checkpoint(self) -> tuple[str, int]:
        """Return the checkpoint to continue with, and the epoch of its batch 0."""
        storage, last = self.engine.storage, self.engine.last
        stored = storage.read_json("spark/checkpoint.json")
        continues = (
            stored is not None
            and stored.get("format") == OFFSETS_FORMAT
            and (last.epoch < stored["base"] or last.carrier == f"{CARRIER} {stored['name']}")
        )
        if stored is None or not continues:
            if stored is not None and not only_replayable(self.engine.outside.inputs):
                raise InvalidPlan(
                    "the app ran without Spark since, but the offsets of app.read sources are in Spark's checkpoint",
                    hint="Reset the app, or continue with the carrier that it ran on last.",
                )
            name = f"checkpoint-{last.epoch + 1}" + ("" if stored is None else f"-{stored['name']}")[:40]
            stored = {"name": name, "base": last.epoch + 1, "format": OFFSETS_FORMAT}
            storage.write_json("spark/checkpoint.json", stored)
        self.carrier = f"{CARRIER} {stored['name']}"
        folder = (storage.path / "spark" / stored["name"]).absolute()
        folder.mkdir(parents=True, exist_ok=True)
        self.offsets = folder / "offsets"
        return quiet_location(self.spark, folder), int(stored["base"])

    # ---- an epoch ----

    def _epoch(self, base: int) -> Callable[[DataFrame, int], None]:
        def run(batch: DataFrame, batch_id: int) -> None:
            self.idle.clear()
            self._epoch_thread = threading.get_ident()
            try:
                self._run_epoch(batch, batch_id, base + batch_id)
            except (HeadraceError, OSError) as error:
                self.error = as_ours(error)
                raise
            finally:
                self._epoch_thread = None
                self.idle.set()

        return run

    def _run_epoch(self, batch: DataFrame, batch_id: int, epoch: int) -> None:
        last = self.engine.last
        if epoch <= last.epoch:
            return  # committed before a crash and published at the start
        offset = self.planned_offset(batch_id, epoch)
        times = times_of(offset, now=self.engine.epoch_time())
        reports = self._reports(batch, epoch, times, single_task=bool(offset.get("single_task")))
        planned = PlannedEpoch(
            epoch=epoch,
            ranges=tuple(from_json(offset.get("ranges", []))),
            bounds=_bounds(offset) if offset else self.engine.inputs.bounds(),
            before=self.engine.before,
            began=self._began(offset),
            now=times.now,
            reached=times.reached,
        )
        commit = self.engine.commit(planned, reports, carrier=self.carrier, ended=self.ended)
        self.engine.publish(commit)

    def _began(self, offset: Mapping[str, Any]) -> float:
        """Return when an epoch was planned, on the engine's clock: the planner's is the system's."""
        now = _SYSTEM.monotonic()
        return self.engine.settings.clock.monotonic() - (now - float(offset.get("began", now)))

    def _reports(self, batch: DataFrame, epoch: int, times: EpochTimes, *, single_task: bool) -> list[Report]:
        """Compute an epoch and return its reports, all about the same attempts of its tasks.

        Spark computes a task again when its output is lost, though other tasks have read that output already. Where a
        function of the user's gives another answer the second time, the epoch would mix both: it is computed again as a
        whole. Spark fails its job where the last level has begun; the marks of blobs find it in any other case.

        Raises:
            OutputMixed: it came to that `MOST_ATTEMPTS` times.

        """
        for _ in range(MOST_ATTEMPTS):
            try:
                reports = manifest_of_batch(batch) if single_task else manifest(self._levels(batch, times))
            except (Py4JError, PySparkException) as failed:
                if INDETERMINATE not in str(failed):
                    raise
                continue
            if not mixed(reports):
                return reports
        raise OutputMixed(epoch, attempts=MOST_ATTEMPTS)

    def planned_offset(self, batch_id: int, epoch: int) -> dict[str, Any]:
        """Return our part of a batch's offsets; empty where only Spark's own sources have rows."""
        for line in (self.offsets / str(batch_id)).read_text().splitlines()[2:]:
            offset = json.loads(line) if line.startswith("{") else {}
            if offset.get("app") == self.job.app_id and offset["epoch"] == epoch:
                return dict(offset)
        return {}

    # ---- from outside ----

    def check(self) -> None:
        """Raise the error that ended the query, if there is one.

        Raises:
            HeadraceError: why it ended; `HEADRACE_TRACE=1` adds Spark's trace as its cause.

        """
        if self.error is not None:
            raise self.error
        try:
            active = self.query.isActive
            failed = None if active else self.query.exception()
        except SPARK_ERRORS as error:
            self._forget_lost(error)
            raise explained(error)  # noqa: B904 -- it says itself whether it has a cause
        if failed is not None and self._session_has_ended():
            raise NotRunning(
                "the Spark session of the app was stopped while the app ran",
                detail="What was committed is complete, and the next start goes on from there.",
                hint="Stop the app first: running.stop(), then spark.stop().",
            )
        if failed is not None:
            raise explained(failed)
        if not active:
            raise NotRunning("the app is not running", hint="It was stopped; call app.start() again.")

    def _session_has_ended(self) -> bool:
        context = self.spark.sparkContext._jsc  # noqa: SLF001 -- None once Python has stopped it
        return context is None or bool(context.sc().isStopped())

    def _forget_lost(self, error: BaseException) -> None:
        """Let the next session have a JVM of its own, if this one's is gone."""
        if isinstance(explained(error), SparkLost):
            self.lost = True
            forget_lost(self.settings)

    def step(self, *, limit: int | None = None, ended: bool = False) -> Commit:
        """Run exactly one epoch, even without input."""
        self.ended = ended
        wanted = self.engine.last.epoch + 1
        EpochControl(until=wanted, force=True, limit=limit).write(self.engine.storage)
        clock = _SYSTEM
        while self.engine.last.epoch < wanted or not self.idle.is_set():
            self.check()
            clock.sleep(0.005)
        self.check()  # an epoch that is committed may have failed while it was published
        self.ended = False
        return self.engine.last

    @property
    def in_epoch(self) -> bool:
        """Whether the caller is called by an epoch, which would wait for itself if it stopped the app."""
        return self._epoch_thread == threading.get_ident()

    def stop(self) -> None:
        """Stop at the end of an epoch: a running epoch is finished, no other begins.

        Another thread asks Spark: the handler of a signal may have interrupted a call in this one, and its answer, on
        this thread's connection, comes first.
        """
        failed: list[BaseException] = []

        def stop() -> None:
            try:
                self._stop()
            except BaseException as error:  # noqa: BLE001 -- raised below
                failed.append(error)

        thread = threading.Thread(target=stop, name="headrace-stop", daemon=True)
        thread.start()
        try:
            thread.join()
        except BaseException:  # Ctrl-C: the storage may be given back only once no epoch runs
            thread.join()
            raise
        if failed:
            raise failed[0]

    def _stop(self) -> None:
        if self.engine.storage.lease.lost:  # the control is that of the process that runs the app now
            self.query.stop()
        elif not self.lost and self.query.isActive:
            EpochControl(until=-1).write(self.engine.storage)
            epoch = self.engine.last.epoch  # Spark's own sources ignore the control
            while self.query.isActive and self._is_busy() and self.engine.last.epoch == epoch:
                _SYSTEM.sleep(0.01)
            self.idle.wait()
            self.query.stop()
            self.idle.wait()

    def _is_busy(self) -> bool:
        """Whether Spark plans or runs an epoch, or starts its planner, which would print that Spark is gone."""
        status = self.query.status
        message = str(status["message"])
        if "Initializing" in message:
            return True
        return status["isTriggerActive"] and not ("Waiting for data" in message and self.idle.is_set())

    def close(self) -> None:
        """Stop."""
        self.stop()


def mixed(reports: Sequence[Report]) -> list[str]:
    """Return the tasks of which several attempts were read or reported."""
    seen: dict[str, set[str]] = {}
    for report in reports:
        for task, attempt in report.attempts.items():
            seen.setdefault(task, set()).add(attempt)
    return sorted(task for task, attempts in seen.items() if len(attempts) > 1)


def _bounds(offset: dict[str, Any]) -> dict[str, Bounds]:
    return {step: Bounds(*bounds) for step, bounds in offset["bounds"].items()}
