"""The test driver: the same engine as in production, without a JVM, on a clock that only the test moves."""

from __future__ import annotations

import os
import tempfile
from contextlib import suppress
from hashlib import sha256
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, Self

from headrace.base import arguments
from headrace.base.errors import DamagedFile, InvalidArgument, NotRunning, PlanError
from headrace.base.time import ManualClock, as_datetime
from headrace.connect.stores import apart, is_elsewhere
from headrace.dsl.app import TOPICS_VARIABLE, App
from headrace.engine.epoch import Settings, no_fault
from headrace.engine.inprocess import InProcess
from headrace.engine.operation.status import describe
from headrace.engine.private import open_view
from headrace.engine.recovery.opening import open_engine
from headrace.engine.storage import Storage
from headrace.plan.nodes import Late
from headrace.plan.plan import make_plan
from headrace.plan.sinks import Sink
from headrace.testing.faults import Crash, Faults

if TYPE_CHECKING:
    from collections.abc import Mapping
    from datetime import datetime
    from types import TracebackType

    import pyarrow as pa

    from headrace.engine.engine import Engine
    from headrace.engine.program.changes import ProgramChanges
    from headrace.log import Log
    from headrace.plan.nodes import Stateful
    from headrace.plan.plan import Plan

MOST_STEPS = 10_000
COUNTS = ("rows_in", "rows_out", "late", "partly_late", "too_old", "dead", "lost", "state_rows")


class Driver:
    """Runs an app step by step: send rows, step epochs, look at what came out, crash, restart.

        with Driver(app) as driver:
            driver.send("clicks", {"user": "ann", "at": "2026-01-31 10:00"})
            driver.run()
            assert driver.view("clicks_by_user") == [{"user": "ann", "n": 1}]

    The storage is a temporary folder unless `storage` names one. Topics are in the embedded log there, or where
    `App(topics=…)` says: so two apps can be tested together, each with a driver, on one `clock`. Where the variable
    `HEADRACE_TOPICS` names a Kafka cluster, each storage has topics of its own there.
    `carrier="spark"` runs the same scenario through Spark.

    Args:
        app: the app; its own `storage` is not touched.
        storage: a folder that stays; the next driver on it goes on.
        carrier: "in process", or "spark".
        shards: how many, unless the app or the storage says it.
        clock: that of another driver, to move both at once. A new one begins anew:
            pass the one before to go on with a storage, where lookups follow the order of arrival.

    Raises:
        PlanError: the app's plan is not possible, or not the one of the storage.

    """

    def __init__(
        self,
        app: App,
        *,
        storage: str | Path | None = None,
        carrier: Literal["in process", "spark"] = "in process",
        shards: int | None = None,
        clock: ManualClock | None = None,
    ) -> None:
        if not isinstance(app, App):
            raise InvalidArgument(f"app={app!r} is no app", hint="Give the hr.App that is to be tested.")
        arguments.one_of(carrier, "carrier", ("in process", "spark"))
        if storage is not None:
            storage = arguments.a_path(storage, "storage")
        if shards is not None:
            arguments.a_whole_number(shards, "shards", least=1)
        self._folder = None if storage is not None else tempfile.TemporaryDirectory(prefix="headrace-")
        self.storage = Path(storage if storage is not None else self._folder.name)  # type: ignore[union-attr]
        self.clock = clock or ManualClock()
        self._topics = app.topics
        if app.topics is not None and is_elsewhere(app.topics) and app.topics == os.environ.get(TOPICS_VARIABLE):
            self._topics = apart(app.topics, f"{sha256(str(self.storage).encode()).hexdigest()[:12]}.")
        self._lates = _Lates()
        plan = app.plan()
        self._plan = make_plan(app.name, [*plan.sinks, *self._lates.sinks(plan)], views=app.views)
        self._shards = shards or app.shards or _stored_shards(Storage(self.storage, app.name)) or 1
        self._carrier_name = carrier
        self._read: dict[str, dict[int, int]] = {}
        self._faults = Faults()
        try:
            self._open()
        except BaseException:
            if self._folder is not None:
                self._folder.cleanup()
            raise

    def _open(self) -> None:
        settings = Settings(
            storage=self.storage,
            topics=self._topics,
            shards=self._shards,
            clock=self.clock,
            sync=False,
            partitions=1,
            fault=self._faults if self._carrier_name != "spark" else no_fault,
        )
        self._engine: Engine | None = open_engine(self._plan, settings)
        try:
            self._carrier = self._make_carrier(self._engine)
        except BaseException:
            self._engine.close()
            raise

    def _make_carrier(self, engine: Engine) -> Any:
        if self._carrier_name == "in process":
            return InProcess(engine)
        from headrace.engine.spark.carrier import SparkCarrier
        from headrace.engine.spark.source import EpochControl

        return SparkCarrier(engine, control=EpochControl(until=engine.last.epoch))

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """Stop, and remove the temporary storage."""
        self._stop()
        if self._folder is not None:
            self._folder.cleanup()

    def _stop(self) -> None:
        if self._engine is not None:
            self._carrier.close()
            self._engine.close()
            self._engine = None

    @property
    def _running(self) -> Engine:
        if self._engine is None:
            raise NotRunning("the driver has crashed or is closed", hint="Call driver.restart().")
        return self._engine

    # ---- input ----

    def send(self, topic: str, *rows: Mapping[str, Any], partition: int | None = None) -> None:
        """Append rows to a topic; they are read by the next step.

        Raises:
            InvalidRows: a row does not fit the topic's schema; nothing is appended.

        """
        self._running.outside.opened(topic).append(list(rows), partition=partition)

    def delete(self, topic: str, **key: Any) -> None:
        """Append a tombstone: the key's columns, and the event-time column if it is given."""
        self._running.outside.opened(topic).append([{**key, "_deleted": True}])

    def advance(self, seconds: float) -> None:
        """Move the clock."""
        self.clock.advance(arguments.a_number(seconds, "seconds"))

    @property
    def log(self) -> Log:
        """The embedded log that the app's topics are in, on the driver's clock: to append tables, clean, or forget."""
        return self._running.outside.log

    # ---- running ----

    def step(self, *, limit: int | None = None, ended: bool = False) -> None:
        """Run exactly one epoch with all that was sent, an empty one included.

        Args:
            limit: read at most about so many rows instead, as an epoch of a large backlog does.
            ended: nothing will be sent any more, so watermarks move to the end of time; `finish` does the rest too.

        """
        self._running  # noqa: B018 -- raises after a crash
        self._carrier.step(limit=_ALL if limit is None else limit, ended=ended)

    def run(self) -> None:
        """Run epochs until another would change nothing; at least one if anything was sent."""
        for _ in range(MOST_STEPS):
            if self._running.needs_no_epoch:
                return
            self.step()
        raise PlanError(f"the app did not come to rest within {MOST_STEPS} epochs")

    @property
    def caught_up(self) -> bool:
        """Whether another epoch would emit nothing, though steps may still have to forget what time has closed."""
        return self._running.caught_up

    def finish(self) -> None:
        """End the input: every watermark moves to the end of time, so that everything closes; then run."""
        self.step(ended=True)
        self.run()

    # ---- output ----

    def read(self, topic: str) -> list[dict[str, Any]]:
        """Return the rows published to a topic since the last read of it, in offset order: each comes once.

        A second call without an epoch between returns nothing; for all rows of a topic at any time read
        `driver.log.topic(topic)`, and for a table's current rows a view. A tombstone is its key with every other
        column None and `_deleted=True`.
        """
        source = self._running.outside.opened(topic)
        at = self._read.setdefault(topic, {})
        rows: list[dict[str, Any]] = []
        for partition, end in source.end_offsets().items():
            first = at.get(partition, 0)
            for batch in source.batches(partition, first, end, columns=[*source.schema.names, "_deleted"]):
                rows += [_shown(row) for row in _rows(batch)]
            at[partition] = end
        return rows

    def views(self) -> list[str]:
        """Return the names of the views."""
        return self._running.views.names()

    def view(self, name: str) -> list[dict[str, Any]]:
        """Return a view's rows, sorted by its key."""
        return _rows(open_view(self.storage, name, self._running.views.read(name)))

    def late(self, step: str) -> list[dict[str, Any]]:
        """Return all rows that were too late for a step, in the order in which they arrived."""
        node = self._running.node(step)
        if not node.detects_late:
            raise PlanError(f'step "{step}" judges no row by its time, so nothing is late for it')
        return self._lates.rows(step)

    def watermark(self, step: str) -> datetime | None:
        """Return the event time before which a step expects nothing more, or None while it cannot say.

        For a step with state: the watermark that it works with in the next epoch. For a source: its own.
        """
        node, last = self._running.node(step), self._running.last
        watermarks = last.watermarks if node.stateful else last.outputs
        value = watermarks.get(step)
        return None if value is None else as_datetime(value)

    # ---- what it has done ----

    def counts(self, step: str) -> dict[str, int]:
        """Return what a step with state or a source has counted since the first start of the app.

        Returns:
            `rows_in`, `rows_out`, `late` (all their windows had closed: they are in `.late`), `partly_late` (some
            had, the others took them), `too_old` (they wanted a version that a join `as_of` no longer keeps), `dead`
            (records that could not be read), `lost` (records that retention took unread), and `state_rows` (kept now).
            What was never counted is 0.

        Raises:
            PlanError: the app has no such step.

        """
        self._running.node(step)
        return dict.fromkeys(COUNTS, 0) | self._running.last.totals.get(step, {})

    def state(self, step: str) -> dict[str, int]:
        """Return how much a step keeps between epochs: `rows`, and `bytes` of its state files.

        Raises:
            PlanError: the app has no such step.

        """
        self._running.node(step)
        heads = self._running.last.heads.get(step, {}).values()
        return {
            "rows": sum(head.rows for head in heads),
            "bytes": sum(head.full_bytes + head.chain_bytes for head in heads),
        }

    @property
    def changes(self) -> ProgramChanges:
        """What the last start found changed in the program since its storage was written."""
        return self._running.changes

    def status(self) -> dict[str, Any]:
        """Return what the app has done, as `Running.status` does; `epoch` is None before the first epoch."""
        engine = self._running
        return {**describe(engine.plan, engine.last, engine.inputs), "running": True}

    # ---- crashes ----

    def crash(self, at: str) -> None:
        """Run one epoch and die in the middle of it, at one of `headrace.testing.POINTS`; then call `restart`.

        Raises:
            PlanError: there is no such point, or the epoch did not reach it.

        """
        self._faults.arm(at)
        try:
            self.step()
        except Crash:
            self._stop()
            return
        finally:
            self._faults.disarm()
        raise PlanError(f'the epoch did not come by the point "{at}"', hint="Send rows that make it do so.")

    def restart(self) -> None:
        """Start again on the same storage, as a new process would."""
        self._stop()
        self._open()


_ALL = 1 << 62


def _stored_shards(storage: Storage) -> int | None:
    with suppress(DamagedFile):  # the start makes it anew
        return storage.about().get("shards")
    return None


class _Lates:
    """Collects the late rows of every step, once for each epoch however often it is handed over."""

    def __init__(self) -> None:
        self.by_step: dict[str, dict[int, pa.Table]] = {}

    def sinks(self, plan: Plan) -> list[Sink]:
        return [
            Sink(
                up=_late_of(node, plan.nodes),
                name=f"call:late of {plan.name(node)}",
                target=_Collect(self.by_step.setdefault(plan.name(node), {})),
                is_probe=True,
            )
            for node in plan.stateful()
            if node.detects_late
        ]

    def rows(self, step: str) -> list[dict[str, Any]]:
        epochs = self.by_step.get(step, {})
        return [row for epoch in sorted(epochs) for row in _rows(epochs[epoch].drop_columns(["_weight", "_time"]))]


def _late_of(node: Stateful, nodes: tuple[Any, ...]) -> Late:
    declared = [other for other in nodes if isinstance(other, Late) and other.of is node]
    return declared[0] if declared else Late(of=node, schema=node.late_schema)


class _Collect:
    def __init__(self, epochs: dict[int, pa.Table]) -> None:
        self.epochs = epochs

    def write(self, epoch: int, rows: pa.Table) -> None:
        self.epochs[epoch] = rows


def _rows(rows: pa.Table | pa.RecordBatch) -> list[dict[str, Any]]:
    dicts: list[dict[str, Any]] = rows.to_pylist(maps_as_pydicts="strict")
    return dicts


def _shown(row: dict[str, Any]) -> dict[str, Any]:
    deleted = row.pop("_deleted")
    return {**row, "_deleted": True} if deleted else row
