"""An app on Spark that is fed: its topics are filled, it catches up, then rows come and Spark says how long it took."""

from __future__ import annotations

import shutil
import time
from typing import TYPE_CHECKING, Any, Protocol, Self

import headrace as hr
from bench import ours
from bench.progress import epochs_ms, processing

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Mapping
    from types import TracebackType

    import pyarrow as pa

    from bench.setting import Setting
    from headrace.dsl import Table

_CHUNK = 500_000


class Sink(Protocol):
    """A sink of ours that knows which epochs it was given."""

    epochs: list[int]

    def write(self, epoch: int, rows: pa.Table) -> None:
        """Take an epoch's rows."""
        ...


class Fed:
    """An app on a storage of its own and the log of its topics; both go when the block ends."""

    def __init__(self, setting: Setting, name: str) -> None:
        self.setting = setting
        self.storage = setting.fresh(name)
        self.app = hr.App(name, storage=self.storage, shards=2)
        self.log = hr.Log(self.storage / "log")
        self.filled = 0

    def table(self, topic: str, schema: str, **said: Any) -> Table:
        """Return a table of the app, over a topic that is there from now on to be filled."""
        self.log.create_topic(topic, schema, cleanup="compact", **said)
        return self.app.table(topic, schema, **said)

    def fill(self, topic: str, count: int, rows: Callable[[int, int], pa.Table]) -> None:
        """Append the rows of a topic as they are at first; `rows` makes those from one number up to another."""
        for first in range(0, count, _CHUNK):
            self.log.topic(topic).append(rows(first, min(first + _CHUNK, count)))
        self.filled += count

    def start(self) -> None:
        """Start the app and let it take in what there is."""
        self.running = self.app.start(self.setting.spark)
        self.running.await_caught_up(timeout=3_600)
        if self.filled:
            self.took([self.running.status()["epoch"]])
            seconds, epochs = processing(ours.progress(self.running))
            self.setting.say(f"ours: {self.filled:,} rows processed in {seconds:.1f} s, {epochs} epochs")

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()
        shutil.rmtree(self.storage, ignore_errors=True)

    def stop(self) -> None:
        """Stop the app and close the log."""
        self.running.stop()
        self.log.close()

    def feed(self, sink: Sink, rows: Mapping[str, pa.Table]) -> set[int]:
        """Append rows to topics, wait until they are processed, and return the epochs that the sink was given.

        Topics, and partitions of one, are appended to one after the other; no epoch begins meanwhile, so that it takes
        all. (One that was just beginning may still take a part, and another one the rest.)
        """
        from headrace.engine.spark.source import Gate

        known, engine = set(sink.epochs), self.running._engine  # noqa: SLF001 -- the app has no public way to hold it
        Gate(until=engine.last.epoch).write(engine.storage)
        for topic, came in rows.items():
            self.log.topic(topic).append(came)
        Gate().write(engine.storage)
        self.running.await_caught_up(timeout=600)
        return set(sink.epochs) - known

    def took(self, epochs: Collection[int]) -> float:
        """Return the milliseconds that these epochs took in all by Spark's own account, once it has them."""
        until = time.monotonic() + 60
        while True:
            took = epochs_ms([batch for batch in ours.progress(self.running) if batch["batchId"] in epochs])
            if len(took) >= len(epochs):
                return sum(took)
            if time.monotonic() > until:
                raise TimeoutError("the epochs do not end")
            time.sleep(0.01)
