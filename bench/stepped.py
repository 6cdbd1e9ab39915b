"""An app on Spark that is given its input part by part, and how long it took for each by Spark's own account."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

from bench import ours
from bench.progress import epochs_ms, processing
from headrace.engine.spark.source import Gate

if TYPE_CHECKING:
    from collections.abc import Sequence

    import pyarrow as pa

    import headrace as hr
    from bench.setting import Setting


class Stepped:
    """A running app and the log of its topics."""

    def __init__(self, setting: Setting, app: hr.App, log: hr.Log) -> None:
        self.log = log
        self.running = app.start(setting.spark)
        self.running.await_caught_up(timeout=3_600)
        if self._last() >= 0:
            seconds, epochs = processing(ours.progress(self.running))
            setting.say(f"ours: caught up with what was there in {seconds:.1f} s, {epochs} epochs")

    def epoch(self, parts: Sequence[tuple[str, pa.Table, int | None]]) -> float:
        """Append rows (topic, rows, partition), wait until the app has caught up, and return its milliseconds.

        No epoch begins before all is there. All that follow count: also those without rows, in which steps meet their
        watermarks.
        """
        before = self._last()
        self._gate(Gate(until=before))
        for topic, rows, partition in parts:
            self.log.topic(topic).append(rows, partition=partition)
        self._gate(Gate())
        self.running.await_caught_up(timeout=600)
        last, until = self._last(), time.monotonic() + 60
        while True:
            took = [batch for batch in ours.progress(self.running) if before < batch["batchId"] <= last]
            if len(took) >= last - before:
                return sum(epochs_ms(took))
            if time.monotonic() > until:
                raise TimeoutError("the epochs do not end")
            time.sleep(0.01)

    def stop(self) -> None:
        """Stop the app and close its log."""
        self.running.stop()
        self.log.close()

    def _gate(self, gate: Gate) -> None:
        gate.write(self.running._engine.storage)  # noqa: SLF001 -- the app has no public way to hold it back

    def _last(self) -> int:
        epoch = self.running.status()["epoch"]
        return -1 if epoch is None else int(epoch)
