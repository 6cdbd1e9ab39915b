"""From staged files to topics and views: after the commit, as often as it takes, with the effect of once."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import pyarrow as pa

from headrace.connect.embedded import DEAD, append, keyed
from headrace.engine.private import opened
from headrace.kernels.files import read_tables
from headrace.plan.sinks import CallSink, TopicSink, ViewSink

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from pathlib import Path

    from headrace.engine.marks import Marker
    from headrace.engine.storage import Commit, Storage
    from headrace.log import Topic
    from headrace.plan.plan import Plan
    from headrace.views.sqlite import SqliteViews

DEAD_SINK = "dead:"


@dataclass(frozen=True)
class Publisher:
    """Knows where each sink's rows go. `topic` opens or creates the topic of a sink."""

    plan: Plan
    storage: Storage
    views: SqliteViews
    topic: Callable[[TopicSink], Topic]
    dead_topic: Callable[[str], Topic]
    marker: Marker
    fault: Callable[[str], None]

    def publish(self, commit: Commit) -> None:
        """Append a commit's rows to their topics and apply them to their views; again does nothing.

        A topic remembers the epoch of each producer, the views the epoch that they are at; a user's sink is told the
        epoch and must do so itself.
        """
        files = self._files(commit)
        if not commit.staged and not self._views():
            return
        self._publish_topics(commit.epoch, files)
        self.fault("before_views")
        self._publish_views(commit.epoch, files)
        for sink in self.plan.sinks:
            if isinstance(sink, CallSink) and sink.name in files:
                rows = self._rows(files[sink.name])
                sink.target.write(commit.epoch, opened(self.storage.path, sink.up.sealed, rows))

    def _files(self, commit: Commit) -> Mapping[str, list[Path]]:
        folder = self.storage.staging(commit.epoch)
        files: dict[str, list[Path]] = {}
        for staged in sorted(commit.staged, key=lambda each: _order(each.file)):
            files.setdefault(staged.sink, []).append(folder / staged.file)
        return files

    def _rows(self, paths: list[Path]) -> pa.Table:
        return pa.concat_tables([read_tables(path)[0]["rows"] for path in paths])

    def _publish_topics(self, epoch: int, files: Mapping[str, list[Path]]) -> None:
        given: dict[str, Mapping[int, range]] = {}
        for sink in self.plan.sinks:
            if isinstance(sink, TopicSink) and sink.name in files:
                if given:
                    self.fault("between_topics")
                given[sink.topic] = self._publish_topic(sink, self._rows(files[sink.name]), epoch)
        if given:
            self.fault("before_mark")
            self.marker.mark(epoch, given)
        for name in files:
            if name.startswith(DEAD_SINK):
                topic = self.dead_topic(name.removeprefix(DEAD_SINK))
                rows = self._rows(files[name]).select(DEAD.names)
                topic.append(rows, producer=self._producer(name), sequence=epoch)

    def _publish_topic(self, sink: TopicSink, rows: pa.Table, epoch: int) -> Mapping[int, range]:
        """Append rows to a sink's topic; rows without a key, which a compacted topic refuses, to its dead letters."""
        topic, producer = self.topic(sink), self._producer(sink.name)
        rows, dead = keyed(topic, rows)
        given = append(topic, rows, producer=producer, sequence=epoch)
        if dead is not None:
            self.dead_topic(topic.name).append(dead, producer=producer, sequence=epoch)
        return given

    def _producer(self, sink: str) -> str:
        return f"{self.marker.app}/{sink}"

    def _views(self) -> list[ViewSink]:
        return [sink for sink in self.plan.sinks if isinstance(sink, ViewSink)]

    def _publish_views(self, epoch: int, files: Mapping[str, list[Path]]) -> None:
        deltas = {
            sink.view: self._rows(files[sink.name]).drop_columns(["_time"])
            for sink in self._views()
            if sink.name in files
        }
        if deltas:
            self.views.apply(epoch, deltas)


def _order(file: str) -> tuple[int, int]:
    """Order files by level and task, so that rows keep the order in which they were read."""
    _, level, task, *_ = file.rsplit(".", 4)
    return int(level), int(task)
