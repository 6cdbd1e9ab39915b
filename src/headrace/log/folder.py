"""The folder of a log: where its topics are, and how this process uses it. Shared by a log and its open topics."""

from __future__ import annotations

import os
from dataclasses import dataclass
from typing import TYPE_CHECKING

from headrace.base.errors import LogClosed, UnknownTopic
from headrace.base.names import TOPIC
from headrace.base.time import SystemClock
from headrace.log import meta as metas

if TYPE_CHECKING:
    from pathlib import Path

    from headrace.base.time import Clock


@dataclass(slots=True, kw_only=True, eq=False)
class LogFolder:
    """A log's folder and options. A pickled one is open, with the clock of the machine."""

    path: Path
    clock: Clock
    fsync: bool
    segment_bytes: int
    closed: bool = False

    def __reduce__(self) -> tuple[object, ...]:
        return _reopened, (self.path, self.fsync, self.segment_bytes)

    @property
    def topics_path(self) -> Path:
        """The folder of all topics."""
        return self.path / "topics"

    def topic_path(self, name: str) -> Path:
        """Return the folder of a topic, whether or not it exists."""
        return self.topics_path / str(name)

    def topics(self) -> list[str]:
        """Return the names of all topics, sorted; without those that begin with `__`, which are Headrace's own."""
        return [name for name in self.names() if not name.startswith("__")]

    def names(self) -> list[str]:
        """Return the names of all topics, Headrace's own included, sorted."""
        self.check_open()
        try:
            names = os.listdir(self.topics_path)  # noqa: PTH208 - names are all that is wanted
        except FileNotFoundError:
            return []
        return sorted(name for name in names if not name.startswith("."))

    def has_topic(self, name: str) -> bool:
        """Tell whether there is a topic of this name."""
        self.check_open()
        return isinstance(name, str) and bool(TOPIC.fullmatch(name)) and metas.exists(self.topic_path(name))

    def check_topic(self, name: str) -> None:
        """Raise `UnknownTopic` where there is no topic of this name, `CorruptBatch` where its description is lost."""
        if not self.has_topic(name):
            self.check_described(name)
            raise self.unknown_topic(name)

    def check_described(self, name: str) -> None:
        """Raise `CorruptBatch` where a topic has a folder, and no description."""
        folder = self.topic_path(name)
        if TOPIC.fullmatch(str(name)) and folder.is_dir() and any(folder.iterdir()) and not metas.exists(folder):
            raise metas.missing(folder)

    def unknown_topic(self, name: str) -> UnknownTopic:
        """Return the error for a topic that does not exist."""
        return UnknownTopic(str(name), log=str(self.path), topics=self.topics())

    def check_open(self) -> None:
        """Raise `LogClosed` where the log was closed."""
        if self.closed:
            raise LogClosed(f'the log "{self.path}" is closed', hint="Open it again.")


def _reopened(path: Path, fsync: bool, segment_bytes: int) -> LogFolder:  # noqa: FBT001 - called by pickle only
    return LogFolder(path=path, clock=SystemClock(), fsync=fsync, segment_bytes=segment_bytes)
