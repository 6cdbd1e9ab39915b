"""A topic of the embedded log as the landing of a feed: rows and the feed's position are durable together.

An append to several partitions is not atomic, and a restarted feed may batch its records differently. So each append
is first written to one file, `landings/<topic>` in the log's folder, whole or not at all (`landing_file`): the feed, a
sequence number, the position, the rows, and a checksum. Then it is appended to the topic under that number. Opening the
landing repeats the last append, which changes nothing if it was complete. The position is that of the file; no record
is lost or duplicated.

An append that leaves the position as it is has nothing to be durable together with: it goes to the topic at once, for
the price of one sync. A crash in its middle may leave a part of it in some partitions; its feed has not been told that
it is durable, and what is outside is as before.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import pyarrow as pa

from headrace.base.dead_letters import DEAD
from headrace.base.errors import InvalidRows
from headrace.base.outside import FeedChanged, FeedTopicReplaced
from headrace.connect.embedded import landing_file
from headrace.connect.embedded.landing_file import FOLDER, damaged
from headrace.connect.embedded.sink import split_keyless
from headrace.connect.feed import DeadRecord, Landing
from headrace.log import rows_to_table
from headrace.log.dead_topic import dead_topic

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from pathlib import Path

    from headrace.log import Log, Topic
    from headrace.log.rows import Rows

_FEED, _NUMBER, _BEFORE, _POSITION = b"headrace.feed", b"headrace.number", b"headrace.before", b"headrace.position"
_TOPIC = b"headrace.topic"  # its id


class EmbeddedLanding(Landing):
    """A topic that a feed fills. One process at a time can open it; close it when done.

    Args:
        log: the log of the topic.
        topic: the topic.
        feed: the identity of the feed: a position is that of one feed.
        limit: there is no room while the app has so many unread records of the topic.
        read: returns how many records of the topic the app has read.
        fault: called at each point where a test may crash.

    """

    def __init__(
        self,
        log: Log,
        topic: Topic,
        *,
        feed: str,
        limit: int,
        read: Callable[[], int],
        fault: Callable[[str], None],
    ) -> None:
        self.topic = topic
        self.log = log
        self.fault = fault
        self.feed = feed
        self.limit = limit
        self.read = read
        self.path = landing_path(log, topic.name)
        self._lock = landing_file.locked(self.path, topic.name)
        self._number = -1
        self._position: bytes | None = None
        self._whole = True  # no append has failed in its middle
        self._described = False  # the file says which feed it is
        try:
            self._recover()
        except BaseException:
            self.close()
            raise

    @property
    def schema(self) -> pa.Schema:
        """The topic's columns."""
        return self.topic.schema

    def position(self) -> bytes | None:
        """Return the position of the last append, None before the first."""
        return self._position

    def has_room(self) -> bool:
        """Whether the app has fewer than `limit` unread records."""
        return sum(self.topic.end_offsets().values()) - self.read() < self.limit

    def append(self, rows: Rows, *, position: bytes | None = None, dead: Sequence[DeadRecord] = ()) -> None:
        """Append rows exactly once, and store the position with them."""
        table = as_table(rows if isinstance(rows, pa.Table | pa.RecordBatch) else rows_to_table(rows, self.schema))
        letters = letters_of(self.topic.name, dead)
        number, before = self._number + 1, self._position
        position = before if position is None else position
        self.fault("before_landing")
        if position == before and self._whole and self._described and not letters.num_rows:
            self._number = number
            self._apply(number, table, letters)
            self.fault("after_landing")
            return
        self._write(number, (before, position), table, letters)
        self._number, self._position = number, position
        self.fault("during_landing")
        try:
            self._apply(number, table, letters)
        except InvalidRows:
            self._position = before
            self._write(number, (before, before), table.slice(0, 0), letters.slice(0, 0))
            raise
        self.fault("after_landing")

    def close(self) -> None:
        """Release the lock, so that another process can run the feed."""
        self._lock.close()

    def _apply(self, number: int, rows: pa.Table, letters: pa.Table) -> None:
        self._whole = False
        producer = _producer(self.topic.name)
        rows, keyless = split_keyless(self.topic, rows)
        letters = letters if keyless is None else pa.concat_tables([letters, keyless])
        self.topic.append(rows, producer=producer, sequence=number)
        if letters.num_rows:
            dead_topic(self.log, self.topic.name).append(letters, producer=producer, sequence=number)
        self._whole = True

    def _recover(self) -> None:
        """Repeat the last append: a crash may have interrupted it."""
        try:
            about, rows, letters = _read(self.path, landing_file.recovered)
        except FileNotFoundError:  # a new feed, or somebody removed the file to begin again: numbers go on
            self._number = self._last_number()
            return
        was, number = about[_FEED].decode(), int(about[_NUMBER])
        if was != self.feed:
            raise FeedChanged(self.topic.name, was=was, now=self.feed, state=str(self.path))
        if about.get(_TOPIC, self.topic.id.encode()) != self.topic.id.encode():
            raise FeedTopicReplaced(self.topic.name, state=str(self.path))
        self._number, self._position, self._described = number, about.get(_POSITION), True
        try:
            self._apply(self._number, rows, letters)
        except InvalidRows:  # nothing of it was appended, and the process died before the feed heard
            self._position = about.get(_BEFORE)
        self._number = max(self._number, self._last_number())  # of appends that left the position as it was

    def _last_number(self) -> int:
        """Return the number of the last append that the topic has of any feed, -1 if there is none."""
        dead = [dead_topic(self.log, self.topic.name)] if self.log.has_topic(f"{self.topic.name}.dead") else []
        lasts = [topic.last_sequence(_producer(self.topic.name)) for topic in (self.topic, *dead)]
        return max((last for last in lasts if last is not None), default=-1)

    def _write(
        self, number: int, positions: tuple[bytes | None, bytes | None], rows: pa.Table, letters: pa.Table
    ) -> None:
        """Write an append down; `positions`: that before it, and that after it."""
        about = {_FEED: self.feed.encode(), _NUMBER: str(number).encode(), _TOPIC: self.topic.id.encode()}
        about |= {name: at for name, at in zip((_BEFORE, _POSITION), positions, strict=True) if at is not None}
        landing_file.write(self.path, about, {"rows": rows, "dead": letters}, sync=self.log.fsync)
        self._described = True


def landing_path(log: Log, topic: str) -> Path:
    """Return where the last append of the feed of a topic is."""
    return log.path / FOLDER / topic


def position_of(log: Log, topic: str) -> bytes | None:
    """Return the position of the last append of the feed of a topic, None where there is none.

    Raises:
        DamagedFile: the file is not as it was written.

    """
    try:
        return _read(landing_path(log, topic))[0].get(_POSITION)
    except FileNotFoundError:
        return None


def check_landing(log: Log, topic: str) -> None:
    """Check the file with the position of the feed of a topic, where one has filled it; changes nothing.

    Raises:
        DamagedFile: it is gone, or not as it was written.

    """
    path = landing_path(log, topic)
    try:
        _read(path)
    except FileNotFoundError as error:
        if log.topic(topic).last_sequence(_producer(topic)) is not None:
            raise damaged(path, "it is gone") from error


def _producer(topic: str) -> str:
    return f"feed/{topic}"


def _read(
    path: Path, read: Callable[[Path], landing_file.Contents] = landing_file.read
) -> tuple[dict[bytes, bytes], pa.Table, pa.Table]:
    """Return what the file says, the rows, and the dead letters.

    Raises:
        FileNotFoundError: it does not exist.
        DamagedFile: it is not as it was written.

    """
    about, parts = read(path)
    try:
        about[_FEED].decode(), int(about[_NUMBER])
        return about, parts["rows"], parts["dead"]
    except (ValueError, LookupError) as error:
        raise damaged(path, str(error)) from error


def as_table(rows: pa.Table | pa.RecordBatch) -> pa.Table:
    """Return rows as a table."""
    return pa.Table.from_batches([rows]) if isinstance(rows, pa.RecordBatch) else rows


def letters_of(topic: str, dead: Sequence[DeadRecord]) -> pa.Table:
    """Return dead letters as rows."""
    rows = [{"topic": topic, "reason": letter.reason, "record": letter.record} for letter in dead]
    return pa.Table.from_pylist(rows, schema=DEAD)
