"""What a log knows of an app that publishes to it: its storages' ids, and the last epoch of each in each topic.

The topics' frames name the producer of each epoch, and the boundaries (`boundaries.py`) name the app. So the log can
say what was published even where the app's storage was lost or restored from an older copy.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import pyarrow.compute as pc

from headrace.connect.embedded.boundaries import TOPIC, producer

if TYPE_CHECKING:
    from collections.abc import Mapping

    import pyarrow as pa

    from headrace.log import Log

NEVER = -1


@dataclass(frozen=True, slots=True, kw_only=True)
class AppMarks:
    """What one storage of an app has published to a log.

    `id`: the storage's id. `epoch`: the last epoch with boundaries, that is: published to all topics; -1 if there is
    none. `topics`: by output topic the last epoch whose rows it has; a topic without any, or that is gone, is not in
    it.
    """

    id: str
    epoch: int
    topics: Mapping[str, int] = field(default_factory=dict)

    @property
    def last(self) -> int:
        """The last epoch of which the log has any rows or boundaries, -1 if there is none."""
        return max(self.epoch, *self.topics.values(), NEVER)


def marks_of(log: Log, app: str) -> tuple[AppMarks, ...]:
    """Return what an app has published to a log, by storage; the one that was started last comes last.

    It reads the log and changes nothing. Trap: boundaries are kept for `boundaries.RETENTION` after the app has last
    started or published; after that the log does not know the app's ids any more.

    Args:
        log: the log.
        app: the app's name.

    Raises:
        CorruptBatch: the log is damaged there.

    """
    if not log.has_topic(TOPIC):
        return ()
    topic = log.topic(TOPIC)
    start, end = topic.start_offsets()[0], topic.end_offsets()[0]
    rows = topic.read(0, start, max(end - start, 1))
    rows = rows.filter(pc.starts_with(rows.column("app"), f"{app}/"))
    found = rows.group_by("app").aggregate([("epoch", "max"), ("_offset", "min"), ("topic", "distinct")])
    by_start = sorted(found.to_pylist(), key=lambda row: row["_offset_min"])
    return tuple(_marks(log, row["app"], row["epoch_max"], row["topic_distinct"]) for row in by_start)


def _marks(log: Log, writer: str, epoch: int, topics: pa.Array) -> AppMarks:
    lasts = {
        name: log.topic(name).last_sequence(producer(writer, name)) for name in sorted(topics) if log.has_topic(name)
    }
    known = {name: last for name, last in lasts.items() if last is not None}
    return AppMarks(id=writer.partition("/")[2], epoch=epoch, topics=known)
