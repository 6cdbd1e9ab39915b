"""What `headrace run` shows while an app runs: how fast it reads, and the rows that are in no result."""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING, Any

from headrace.base.text import counted

if TYPE_CHECKING:
    from collections.abc import Mapping

    from headrace.base.time import Clock

WINDOW_SECONDS = 5.0
SAY_AGAIN_SECONDS = 60.0
_LOOK_SECONDS = 0.25


class Rate:
    """The rows a second of the epochs of the last seconds; also while an epoch of some seconds runs."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._epochs: deque[tuple[float, float, int]] = deque()
        self._epoch: int | None = None
        self._rows: int | None = None

    def of(self, now: Mapping[str, Any]) -> float:
        """Return the rate at a status; call it with every status that is seen."""
        moment, rows = self._clock.monotonic(), sum(source["rows"] for source in now["sources"].values())
        if self._rows is not None and now["epoch"] != self._epoch:
            before = self._epochs[-1][1] if self._epochs else moment - max(now["epoch_seconds"], _LOOK_SECONDS)
            began = max(before, moment - max(now["epoch_seconds"], _LOOK_SECONDS))
            self._epochs.append((began, moment, rows - self._rows))
        self._epoch, self._rows = now["epoch"], rows
        if not self._epochs:
            return 0.0
        until = self._epochs[-1][1] if now["lag"] else moment
        while self._epochs and self._epochs[0][1] < until - WINDOW_SECONDS:
            self._epochs.popleft()
        took = until - self._epochs[0][0] if self._epochs else 0.0
        return sum(epoch[2] for epoch in self._epochs) / took if took > 0 else 0.0


class LeftOut:
    """Lines about records and rows that are in no result, since the start of the run: dead letters and late rows.

    Args:
        topics: the topic of each source, by its step.
        file: the program, for the commands in the lines.
        clock: when a line is due again.

    """

    def __init__(self, topics: Mapping[str, str], *, file: str, clock: Clock) -> None:
        self._topics = topics
        self._file = file
        self._clock = clock
        self._base: dict[str, int] | None = None
        self._said: dict[str, tuple[int, float]] = {}

    def lines(self, now: Mapping[str, Any]) -> dict[str, str]:
        """Return a line for each source and step with such rows, by its name."""
        return {name: text for name, (_, text) in self._counts(now).items()}

    def news(self, now: Mapping[str, Any], *, ended: bool) -> list[str]:
        """Return the lines to print: new ones, those whose count has doubled or is a minute old, at the end all."""
        moment, due = self._clock.monotonic(), []
        for name, (count, text) in self._counts(now).items():
            said, at = self._said.get(name, (0, moment))
            if count >= 2 * said or (count > said and (ended or moment - at >= SAY_AGAIN_SECONDS)):
                self._said[name] = count, moment
                due.append(text)
        return due

    def _counts(self, now: Mapping[str, Any]) -> dict[str, tuple[int, str]]:
        counts = {f"source {name}": source["dead"] for name, source in now["sources"].items()}
        counts |= {f"step {name}": step["late"] for name, step in now["steps"].items()}
        computed = {name: dead for name, dead in now["dead"].items() if name not in now["sources"]}
        counts |= {f"dead {name}": dead["rows"] for name, dead in computed.items()}
        if self._base is None:
            self._base = counts
        # a feed counts from its start, which is that of the run
        counts = counts | {f"feed {name}": feed.get("dead", 0) for name, feed in now.get("feeds", {}).items()}
        since = {name: count - self._base.get(name, 0) for name, count in counts.items()}
        return {name: (count, self._line(name, count)) for name, count in since.items() if count > 0}

    def _line(self, name: str, count: int) -> str:
        kind, _, step = name.partition(" ")
        if kind in ("source", "feed"):
            topic = f"{self._topics.get(step, step)}.dead"
            return (
                f"{counted(count, 'record')} of {step}: dead letters, with the reason: "
                f"headrace topics consume {topic} --app {self._file}"
            )
        if kind == "dead":
            return f"{counted(count, 'row')} of {step}: dead letters; headrace status {self._file} says why"
        return (
            f"{counted(count, 'row')} late for step {step}: in no result of it; its .late has them, "
            "a longer grace= takes such rows"
        )
