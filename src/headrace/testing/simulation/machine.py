"""The machine that a simulated app runs on: it crashes, starts again, and runs tasks twice."""

from __future__ import annotations

import errno
import shutil
import uuid
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from functools import cache
from random import Random
from typing import TYPE_CHECKING, Any, Literal

from headrace.base.errors import HeadraceError, NotRunning
from headrace.base.time import ManualClock
from headrace.engine import lease
from headrace.engine.epoch import Settings, task
from headrace.engine.inprocess import CARRIER, InProcess
from headrace.engine.level_zero import run_ranges
from headrace.engine.levels import each_shard, run_levels
from headrace.engine.pace import SMALL_ROWS
from headrace.engine.recovery.opening import open_engine
from headrace.kernels.duck import IN_MEMORY, Duck
from headrace.kernels.level import LevelRun
from headrace.plan.plan import make_plan
from headrace.testing.faults import Crash, Faults
from headrace.testing.files import FaultKind, Files
from headrace.testing.power import PowerCuts

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from headrace.dsl.app import App
    from headrace.engine.engine import Engine
    from headrace.engine.epoch import PlannedEpoch
    from headrace.engine.levels import Received
    from headrace.kernels.program import Level
    from headrace.kernels.task import Outcome, Report
    from headrace.log import Log

ALL = 1 << 62
MOST_EPOCHS = 1000
Carrier = Literal["in process", "threads", "spark"]
"""What runs epochs. "threads": in this process, as a worker of Spark does it, see `Threads`."""


@cache
def _host() -> Duck:
    return Duck()


def open_duck() -> Duck:
    """Open a cache of its own in the database of this process: a database for each cache takes longer than an epoch."""
    return Duck(IN_MEMORY, host=_host())


class Threads(InProcess):
    """Runs the shards of a level in threads, and any of three caches meets a shard next: so it is on Spark.

    What happens at the same time is not the same in the next run of a seed.
    """

    def __init__(self, engine: Engine, dice: Random) -> None:
        self._pool, self._dice = ThreadPoolExecutor(2), dice
        super().__init__(engine, map_shards=self._pool.map, threads=2, open_duck=open_duck)

    def _duck(self, level: int, shard: int) -> Duck:
        return super()._duck(level, shard * 3 + self._dice.randrange(3))

    def close(self) -> None:
        """Close the readers and the caches, and end the threads."""
        self._pool.shutdown()
        super().close()


class Machine:
    """Runs an app in a folder, its log in its storage.

    Args:
        folder: a folder of its own.
        carrier: what runs the epochs.
        shards: how many.
        durable: whether files are synced, and the power may be cut.
        seed: of the ids that are drawn while it is watched, so that equal runs write equal files.

    """

    def __init__(
        self,
        folder: Path,
        *,
        carrier: Carrier,
        shards: int,
        durable: bool = False,
        seed: int | None = None,
    ) -> None:
        self.folder, self.carrier_name, self.shards, self.durable = folder, carrier, shards, durable
        folder.mkdir(parents=True, exist_ok=True)
        self.storage = folder / "storage"
        self.clock = ManualClock()
        self.faults = Faults()
        self.files = Files(folder)
        self.seed = seed or 0
        self.dice = Random(seed)  # noqa: S311 -- replayed from its seed
        self.power = PowerCuts(self.files) if durable else None
        self.engine: Engine | None = None
        self.carrier: Any = None

    @property
    def running(self) -> Engine:
        """The engine of the app that runs."""
        if self.engine is None:
            raise NotRunning("the simulated app does not run")
        return self.engine

    @property
    def log(self) -> Log:
        """The log that the topics are in."""
        return self.running.outside.log

    @property
    def read(self) -> dict[str, dict[str, int]]:
        """The offsets up to which the committed epochs have read, by source and partition."""
        return {name: dict(progress.offsets) for name, progress in self.running.last.sources.items()}

    @contextmanager
    def watched(self) -> Iterator[None]:
        """Watch its files, and let it wait in no time for owners that may live. One at a time."""
        clock: Any = lease.CLOCK
        drawn = uuid.uuid4
        lease.CLOCK = ManualClock()  # type: ignore[assignment]  # a clock like any other
        uuid.uuid4 = self._id
        try:
            with self.files.watched():
                yield
        finally:
            lease.CLOCK, uuid.uuid4 = clock, drawn

    def _id(self) -> uuid.UUID:
        return uuid.UUID(int=self.dice.getrandbits(128), version=4)

    def start(self, app: App) -> None:
        """Start an app, as a new process would."""
        self.stop()
        settings = Settings(
            storage=self.storage,
            topics=None,
            shards=self.shards,
            clock=self.clock,
            sync=self.durable,
            partitions=1,
            fault=self.faults,  # tasks on Spark get a copy of it, which is never armed
            small=SMALL_ROWS if self.seed % 3 else 0,  # of Spark: in every third case all epochs are spread
        )
        self.engine = open_engine(make_plan(app.name, app.plan().sinks, views=app.views), settings)
        try:
            self.carrier = self._carrier(self.engine)
        except BaseException:
            self.stop()
            raise

    def _carrier(self, engine: Engine) -> Any:
        if self.carrier_name == "in process":
            return InProcess(engine, open_duck=open_duck)
        if self.carrier_name == "threads":
            return Threads(engine, Random(self.seed))  # noqa: S311 -- no secret
        from headrace.engine.spark.carrier import SparkCarrier
        from headrace.engine.spark.source import EpochControl

        for name in ("commit", "publish"):  # Spark calls them in a thread of its own
            setattr(engine, name, self._ending_the_query(getattr(engine, name)))
        return SparkCarrier(engine, control=EpochControl(until=engine.last.epoch))

    def _ending_the_query(self, call: Callable[..., Any]) -> Callable[..., Any]:
        """Return a call after whose crash the process is dead, and Spark's query ends."""

        def run(*arguments: Any, **named: Any) -> Any:
            if self.files.dead:  # it died in another thread
                raise RuntimeError("the process is dead")
            try:
                return call(*arguments, **named)
            except Crash as crash:
                self.files.dead = True
                raise RuntimeError(f"the process died: {crash}") from crash

        return run

    def stop(self) -> None:
        """Stop, in whatever state it is: nothing is left but files."""
        self.files.disarm()
        for part in (self.carrier, self.engine):
            if part is not None:
                with suppress(Exception, Crash):
                    part.close()
        self.engine = self.carrier = None
        self.files.revive()

    def step(self, *, ended: bool = False) -> None:
        """Run one epoch with all that was sent."""
        self.carrier.step(limit=ALL, ended=ended)

    def twice(self) -> None:
        """Run one epoch whose tasks are all run twice, as after a lost executor; the second attempts are committed."""
        if self.carrier_name == "spark":
            self.step()
            return
        planned = self.running.begin(limit=ALL)
        cold: dict[tuple[int, int], Duck] = {}
        try:
            self._attempt(planned, "first", cold)
            for kept in ({}, cold):  # in another worker, and in the same one, whose caches the first attempts changed
                reports = self._attempt(planned, f"again{len(kept)}", kept)
                if kept is not cold:
                    for duck in kept.values():
                        duck.close()
        finally:
            for duck in cold.values():
                duck.close()
        self.running.publish(self.running.commit(planned, reports, carrier=CARRIER))

    def _attempt(self, planned: PlannedEpoch, attempt: str, ducks: dict[tuple[int, int], Duck]) -> list[Report]:
        engine = self.running

        def duck(level: int, shard: int) -> Duck:
            return ducks.setdefault((level, shard), open_duck()) if (level, shard) not in ducks else ducks[level, shard]

        def part(shard: int) -> Any:
            return task(engine.settings, planned, shard=shard, shards=engine.shards, attempt=attempt)

        def run(level: Level, shard: int, inputs: Received) -> Outcome:
            return LevelRun(duck(level.number, shard), level, part(shard)).run(inputs)

        read = run_ranges(duck(0, 0), engine.program, part(0), engine.inputs, planned.ranges)
        return run_levels(engine.program, [read], each_shard(engine.program.shards, run))

    def run(self) -> None:
        """Run epochs until another would change nothing."""
        for _ in range(MOST_EPOCHS):
            if self.running.needs_no_epoch:
                return
            self.step()
        raise AssertionError(f"the app did not come to rest within {MOST_EPOCHS} epochs")

    def crash(self, point: str, do: Callable[[], None] | None = None) -> bool:
        """Do something, or run an epoch, that dies at a point; return whether it came by it. Then start it again."""
        self.faults.arm(point)
        try:
            return self._dies(do or self.step)
        finally:
            self.faults.disarm()

    def fault(self, call: int, kind: FaultKind, do: Callable[[], None]) -> bool:
        """Do something while one call of the file system fails; return whether that ended the process.

        EIO is one failed call; a disk that is full or read-only stays so. An error must be one of ours, or say what the
        file system said.
        """
        lasts = 1 if kind == "EIO" else ALL
        self.files.fail(call, kind, times=lasts)
        try:
            return self._dies(do, kind)
        finally:
            self.files.disarm()
            self.files.hit = None  # what fails later fails for another reason

    def cut(self, call: int, seed: int) -> bool:
        """Run an epoch in which the power is cut before a call; return whether it was. Only what was synced is sure."""
        if self.power is None:
            raise NotRunning("this machine does not follow what is synced")
        left = self.folder.with_name("left")
        self.power.cut(call, Random(seed), left)  # noqa: S311 -- replayed from its seed
        died = self._dies(self.step)
        self.power.disarm()
        if died:
            shutil.rmtree(self.folder)
            left.rename(self.folder)
            self.power.all_is_durable()
        return died

    def _dies(self, do: Callable[[], None], kind: str | None = None) -> bool:
        try:
            do()
        except Crash:
            self.stop()
            return True
        except Exception as error:
            expected = isinstance(error, HeadraceError) or (
                isinstance(error, OSError) and kind is not None and error.errno == getattr(errno, kind, None)
            )
            if not self.files.dead and (self.files.hit is None or not expected):
                raise
            self.stop()
            return True
        if self.files.dead:
            self.stop()
            return True
        return False
