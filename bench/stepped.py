"""An app on Spark whose epochs begin only when all their input is appended."""

from __future__ import annotations

from typing import TYPE_CHECKING

from bench.fed_app import FedApp
from headrace.engine.spark.source import EpochControl

if TYPE_CHECKING:
    from collections.abc import Sequence

    import pyarrow as pa


class SteppedApp(FedApp):
    """An app whose epochs wait until all their rows are appended."""

    def step(self, parts: Sequence[tuple[str, pa.Table, int | None]]) -> float:
        """Append rows (topic, rows, partition), wait until the app has caught up, and return its milliseconds.

        No epoch begins before all rows are appended. All epochs that follow count, also those without rows, in which
        steps only receive their watermarks.
        """
        before = self._last()
        self._control(EpochControl(until=before))
        for topic, rows, partition in parts:
            self.log.topic(topic).append(rows, partition=partition)
        self._control(EpochControl())
        self.running.await_caught_up(timeout=600)
        return self.took(range(before + 1, self._last() + 1))

    def _control(self, control: EpochControl) -> None:
        control.write(self.running._engine.storage)  # noqa: SLF001 -- there is no public way to hold an app back

    def _last(self) -> int:
        epoch = self.running.status()["epoch"]
        return -1 if epoch is None else int(epoch)
