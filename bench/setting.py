"""The setting of a run: scale, folder, Spark session, and progress messages."""

from __future__ import annotations

import sys
import time
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, TypeVar

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from pathlib import Path

CORES = 2
_Took = TypeVar("_Took")


@dataclass
class Setting:
    """Shared by all benches of a run. `scale` is the fraction of the full number of rows."""

    scale: float
    folder: Path
    spark_allowed: bool = True
    cores: int = CORES
    _spark: Any = None
    _folders: int = 0
    _began: float = field(default_factory=time.perf_counter)

    def rows(self, full: int) -> int:
        """Return how many rows to use instead of `full`."""
        return max(1, round(full * self.scale))

    def runs(self, full: int, quick: int) -> int:
        """Return how often to measure."""
        return full if self.scale >= 1 else quick

    def in_turns(
        self, times: int, mine: Callable[[], _Took], theirs: Callable[[], _Took], *, what: str = ""
    ) -> tuple[list[_Took], list[_Took]]:
        """Run both sides in turn, and return what each run of either took: seconds, or what shows itself."""
        took: tuple[list[_Took], list[_Took]] = [], []
        for number in range(times):
            took[0].append(mine())
            took[1].append(theirs())
            shown = [f"{each[-1]:.2f} s" if isinstance(each[-1], float) else str(each[-1]) for each in took]
            self.say(f"{what}run {number + 1}: ours {shown[0]}; theirs {shown[1]}")
        return took

    def fresh(self, name: str) -> Path:
        """Return the path of a folder that does not exist yet."""
        self._folders += 1
        return self.folder / f"{self._folders:04d}-{name}"

    def say(self, text: str) -> None:
        """Print a progress message to standard error."""
        print(f"[{time.perf_counter() - self._began:6.1f} s] {text}", file=sys.stderr, flush=True)

    @property
    def spark(self) -> Any:
        """The one session of the run, started at the first use: both sides share its JVM and its cores."""
        if self._spark is None:
            from headrace.engine.spark.session import session

            self.say(f"starting Spark on {self.cores} cores")
            self._spark = session(
                master=f"local[{self.cores}]",
                memory="4g",
                settings={"spark.sql.streaming.numRecentProgressUpdates": "10000"},
            )
        return self._spark

    def rival(self, settings: Mapping[str, str]) -> Any:
        """Return a separate session for the rival, with its settings, in the same JVM."""
        session = self.spark.newSession()
        for name, value in ({"spark.sql.shuffle.partitions": str(CORES)} | dict(settings)).items():
            session.conf.set(name, value)
        return session

    def close(self) -> None:
        """Stop Spark."""
        if self._spark is not None:
            self._spark.stop()
