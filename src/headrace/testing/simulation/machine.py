"""The machine that a simulated app runs on: it crashes, starts again, and runs tasks twice."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Literal

from headrace.base.errors import NotRunning
from headrace.base.time import ManualClock
from headrace.engine.engine import Engine, Settings, no_fault, task
from headrace.engine.inprocess import CARRIER, InProcess
from headrace.engine.level_zero import run_ranges
from headrace.engine.levels import run_levels
from headrace.engine.opening import open_engine
from headrace.kernels.duck import Duck
from headrace.kernels.level import LevelRun
from headrace.plan.plan import make_plan
from headrace.testing.faults import Crash, Faults

if TYPE_CHECKING:
    from pathlib import Path

    from headrace.dsl.app import App
    from headrace.engine.engine import PlannedEpoch
    from headrace.engine.levels import Received
    from headrace.kernels.program import Level
    from headrace.kernels.task import Outcome, Report
    from headrace.log import Log

ALL = 1 << 62
MOST_EPOCHS = 1000


class Machine:
    """Runs an app on a folder: `storage` and, inside it, `log`."""

    def __init__(self, folder: Path, *, carrier: Literal["in process", "spark"], shards: int) -> None:
        self.folder, self.carrier_name, self.shards = folder, carrier, shards
        self.clock = ManualClock()
        self.faults = Faults()
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
        return self.running.topics.log

    @property
    def epoch(self) -> int:
        """The last committed epoch, -1 before the first."""
        return self.running.last.epoch

    def start(self, app: App) -> None:
        """Start an app, as a new process would."""
        self.stop()
        settings = Settings(
            storage=self.folder,
            topics=None,
            shards=self.shards,
            clock=self.clock,
            sync=False,
            partitions=1,
            fault=self.faults if self.carrier_name != "spark" else no_fault,
        )
        self.engine = open_engine(make_plan(app.name, app.plan().sinks), settings)
        try:
            self.carrier = self._carrier(self.engine)
        except BaseException:
            self.stop()
            raise

    def _carrier(self, engine: Engine) -> Any:
        if self.carrier_name == "in process":
            return InProcess(engine)
        from headrace.engine.spark.carrier import SparkCarrier
        from headrace.engine.spark.source import EpochControl

        return SparkCarrier(engine, control=EpochControl(until=engine.last.epoch))

    def stop(self) -> None:
        """Stop: nothing is left but files."""
        if self.carrier is not None:
            self.carrier.close()
        if self.engine is not None:
            self.engine.close()
        self.engine = self.carrier = None

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
            return ducks.setdefault((level, shard), Duck()) if (level, shard) not in ducks else ducks[level, shard]

        def part(shard: int) -> Any:
            return task(engine.settings, planned, shard=shard, shards=engine.shards, attempt=attempt)

        def run(level: Level, shard: int, inputs: Received) -> Outcome:
            return LevelRun(duck(level.number, shard), level, part(shard)).run(inputs)

        read = run_ranges(duck(0, 0), engine.program, part(0), engine.inputs, planned.ranges)
        return run_levels(engine.program, read, run)

    def run(self) -> None:
        """Run epochs until another would change nothing."""
        for _ in range(MOST_EPOCHS):
            if self.running.needs_no_epoch:
                return
            self.step()
        raise AssertionError(f"the app did not come to rest within {MOST_EPOCHS} epochs")

    def crash(self, point: str) -> bool:
        """Run an epoch that dies at a point; return whether it came by it. Then it must be started again."""
        self.faults.arm(point)
        try:
            self.step()
        except Crash:
            self.stop()
            return True
        finally:
            self.faults.disarm()
        return False
