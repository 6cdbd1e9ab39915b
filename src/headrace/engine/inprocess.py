"""The in-process carrier: runs the same levels in a loop, without a JVM, in milliseconds."""

from __future__ import annotations

import uuid
from contextlib import nullcontext
from threading import Lock
from typing import TYPE_CHECKING

from headrace.base.memory import cores
from headrace.engine.epoch import task
from headrace.engine.inputs import Inputs
from headrace.engine.level_zero import run_dealt
from headrace.engine.levels import each_shard, run_levels
from headrace.engine.outside import no_spark
from headrace.engine.program.fill import filled
from headrace.kernels.duck import IN_MEMORY, Duck, give_back, open_host
from headrace.kernels.level import LevelRun
from headrace.kernels.redo import RedoLog

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from headrace.engine.engine import Engine
    from headrace.engine.epoch import PlannedEpoch
    from headrace.engine.levels import Received
    from headrace.engine.storage import Commit
    from headrace.kernels.program import Level, Program
    from headrace.kernels.task import Outcome, Report, Task

CARRIER = "in process"


class InProcess:
    """Runs an engine's epochs in this process, with its caches in memory.

    Args:
        engine: whose epochs to run.
        map_shards: `map`, or one that runs the shards of a level in parallel and keeps their order.
        threads: how many of them it runs at the same time.
        open_duck: opens a cache; by default all are in one database, since one takes longer to open than an epoch.

    """

    def __init__(
        self,
        engine: Engine,
        *,
        map_shards: Callable[..., Iterable[Outcome]] = map,
        threads: int = 1,
        open_duck: Callable[[], Duck] | None = None,
    ) -> None:
        self.engine = engine
        self.map_shards = map_shards
        self.threads = threads
        self.open_duck = open_duck or self._beside
        self.attempt = uuid.uuid4().hex[:8]
        self.ducks: dict[tuple[int, int], Duck] = {}
        self._host: Duck | None = None
        self._opening = Lock()
        no_spark(engine.outside.inputs)
        self.inputs = Inputs(engine.outside.inputs, clock=engine.settings.clock)  # status asks the engine's meanwhile

    def step(self, *, limit: int | None = None, ended: bool = False) -> Commit:
        """Run one epoch: compute, commit, publish."""
        planned = self.engine.begin(limit=limit)
        reports = self._levels(planned, self.engine.program)
        commit = self.engine.commit(planned, reports, carrier=CARRIER, ended=ended)
        self.engine.publish(commit)
        return commit

    def fill(self) -> Commit:
        """Run the epoch that fills what is new in the app."""
        planned, program = self.engine.begin_fill(), self.engine.fill_program()
        commit = self.engine.commit_fill(planned, self._levels(planned, program), carrier=CARRIER)
        self.engine.publish(commit)
        return commit

    def compute_fill(self) -> Commit:
        """Compute that epoch and do not commit it: its rows are staged, and its commit says where."""
        planned, program, fill = self.engine.begin_fill(), self.engine.fill_program(), self.engine.fill
        assert fill is not None  # noqa: S101 -- begin_fill was called
        return filled(self.engine.plan, fill, planned.before, self._levels(planned, program))

    def repeat_lost(self) -> Commit:
        """Run the first lost epoch again, over the same input and with the same decisions."""
        planned = self.engine.begin_lost()
        commit = self.engine.commit(planned, self._levels(planned, self.engine.program), carrier=CARRIER)
        self.engine.publish(commit)
        return commit

    def close(self) -> None:
        """Close the readers and the caches."""
        self.inputs.close()
        for duck in self.ducks.values():
            duck.close()
        self.ducks.clear()
        if self._host is not None:
            give_back(self._host)
            self._host = None

    def _levels(self, planned: PlannedEpoch, program: Program) -> list[Report]:
        settings, shards = self.engine.settings, self.engine.shards
        redo = RedoLog(settings.storage, planned.epoch, self.attempt) if settings.sync else None

        def part(shard: int) -> Task:
            return task(settings, planned, shard=shard, shards=shards, attempt=self.attempt, redo=redo)

        def run(level: Level, shard: int, inputs: Received) -> Outcome:
            return LevelRun(self._duck(level.number, shard), level, part(shard)).run(inputs)

        first = run_dealt(
            program,
            self.inputs,
            planned.ranges,
            threads=self.threads,
            task_of=part,
            duck_of=lambda number: nullcontext(self._duck(0, number)),
            map_parts=self.map_shards,
        )
        reports = run_levels(program, first, each_shard(program.shards, run, self.map_shards))
        if redo is not None:
            redo.write()
        return reports

    def _duck(self, level: int, shard: int) -> Duck:
        if (level, shard) not in self.ducks:
            self.ducks[level, shard] = self.open_duck()
        return self.ducks[level, shard]

    def _beside(self) -> Duck:
        with self._opening:
            if self._host is None:
                self._host = open_host(cores())
            return Duck(IN_MEMORY, host=self._host)
