"""An app on Spark that a bench feeds: fill its topics, let it catch up, append rows, ask Spark how long it took."""

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
    """A sink that remembers the epochs it was given."""

    epochs: list[int]

    def write(self, epoch: int, rows: pa.Table) -> None:
        """Receive the rows of an epoch."""
        ...


class FedApp:
    """An app with its own storage and log; both are removed when the block ends."""

    def __init__(self, setting: Setting, name: str) -> None:
        self.setting = setting
        self.storage = setting.fresh(name)
        self.app = hr.App(name, storage=self.storage, shards=2)
        self.log = hr.Log(self.storage / "log")
        self.filled = 0

    def table(self, topic: str, schema: str, **options: Any) -> Table:
        """Create a topic and return the app's table over it."""
        self.log.create_topic(topic, schema, cleanup="compact", **options)
        return self.app.table(topic, schema, **options)

    def fill(self, topic: str, count: int, rows: Callable[[int, int], pa.Table]) -> None:
        """Append the first `count` rows of a topic; `rows(first, last)` returns those with these numbers."""
        for first in range(0, count, _CHUNK):
            self.log.topic(topic).append(rows(first, min(first + _CHUNK, count)))
        self.filled += count

    def start(self) -> None:
        """Start the app and wait until it has processed what is in its topics."""
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

        No epoch begins between the appends, so that one epoch reads all rows. (An epoch that was just beginning may
        still read a part of them, and the next one the rest.)
        """
        from headrace.engine.spark.source import EpochControl

        earlier = set(sink.epochs)
        engine = self.running._engine  # noqa: SLF001 -- there is no public way to hold an app back
        EpochControl(until=engine.last.epoch).write(engine.storage)
        for topic, arrived in rows.items():
            self.log.topic(topic).append(arrived)
        EpochControl().write(engine.storage)
        self.running.await_caught_up(timeout=600)
        return set(sink.epochs) - earlier

    def took(self, epochs: Collection[int]) -> float:
        """Return the milliseconds that these epochs took in total, as Spark reports; wait until it reports them."""
        until = time.monotonic() + 60
        while True:
            took = epochs_ms([batch for batch in ours.progress(self.running) if batch["batchId"] in epochs])
            if len(took) >= len(epochs):
                return sum(took)
            if time.monotonic() > until:
                raise TimeoutError("the epochs do not end")
            time.sleep(0.01)
