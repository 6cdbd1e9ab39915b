"""Topics of the embedded log that one feed fills: an append to all of them is durable and read as one.

It works as the landing of one topic does (`landing`): the append is first written to one file, then appended to each
topic under its number. Then its boundaries are written, as an app writes those of an epoch: readers of several of the
topics end their epochs between appends, and do not see one that a crash has left unfinished before it is finished.
"""

from __future__ import annotations

import json
import re
from hashlib import sha256
from typing import TYPE_CHECKING, Any, NamedTuple, Unpack

import pyarrow as pa

from headrace.base.outside import FeedChanged, FeedTopicReplaced
from headrace.connect.embedded import landing_file
from headrace.connect.embedded.boundaries import BoundaryWriter, producer
from headrace.connect.embedded.landing import as_table, letters_of
from headrace.connect.embedded.landing_file import FOLDER, damaged
from headrace.connect.embedded.requests import answered, requests_of
from headrace.connect.embedded.sink import split_keyless
from headrace.connect.feed import Progress, Request, SharedLanding
from headrace.log import rows_to_table
from headrace.log.dead_topic import dead_topic

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence
    from pathlib import Path

    from headrace.connect.feed import DeadRecord
    from headrace.log import Log, Topic
    from headrace.log.rows import Rows

_ABOUT = b"headrace.landing"


class _Part(NamedTuple):
    """What an append has for a topic."""

    rows: pa.Table
    dead: pa.Table


class EmbeddedSharedLanding(SharedLanding):
    """Topics that one feed fills. One process at a time can open them; close it when done.

    Args:
        log: the log of the topics.
        group: the name of the feeds' group.
        topics: the topics, by name.
        feeds: by topic the identity of its feed.
        limit: there is no room while the app has so many unread records of a topic.
        read: returns how many records of a topic the app has read.
        fault: called at each point where a test may crash.

    Raises:
        FeedRunsElsewhere: another process has them.
        FeedChanged: another feed has filled a topic so far.
        FeedTopicReplaced: a topic was deleted, perhaps created again.
        DamagedFile: the file with the last append is not as it was written.

    """

    def __init__(
        self,
        log: Log,
        group: str,
        topics: Mapping[str, Topic],
        *,
        feeds: Mapping[str, str],
        limit: int,
        read: Callable[[str], int],
        fault: Callable[[str], None],
    ) -> None:
        self.log = log
        self.group = group
        self.topics = topics
        self.feeds = feeds
        self.limit = limit
        self.read = read
        self.fault = fault
        self.path = path_of(log, group)
        self._writer = f"feed/{self.path.name}"
        self._lock = landing_file.locked(self.path, group)
        self._number = -1
        self._position: bytes | None = None
        self._known: dict[str, dict[str, str]] = {}
        self._boundaries = BoundaryWriter(log, self._writer)
        try:
            self._recover()
            self._boundaries.register(topics.values())
        except BaseException:
            self.close()
            raise

    def schema(self, topic: str) -> pa.Schema:
        """Return the columns of a topic."""
        return self.topics[topic].schema

    def position(self) -> bytes | None:
        """Return the position of the last append, None before the first."""
        return self._position

    def has_room(self) -> bool:
        """Whether the app has fewer than `limit` unread records of each topic."""
        return all(
            sum(topic.end_offsets().values()) - self.read(name) < self.limit for name, topic in self.topics.items()
        )

    def append(
        self,
        rows: Mapping[str, Rows],
        *,
        position: bytes | None = None,
        dead: Mapping[str, Sequence[DeadRecord]] | None = None,
    ) -> None:
        """Append rows exactly once, and store the position with them."""
        parts = {}
        for name in sorted({*rows, *(dead or {})}):
            given = rows.get(name, [])
            table = as_table(
                given if isinstance(given, pa.Table | pa.RecordBatch) else rows_to_table(given, self.schema(name))
            )
            self.topics[name].check(split_keyless(self.topics[name], table)[0])
            parts[name] = _Part(table, letters_of(name, (dead or {}).get(name, ())))
        number = self._number + 1
        position = self._position if position is None else position
        self.fault("before_landing")
        self._write(number, position, parts)
        self._number, self._position = number, position
        self.fault("during_landing")
        self._apply(number, parts)
        self.fault("after_landing")

    def evolve(self, topic: str, schema: pa.Schema) -> None:
        """Give a topic more columns, or wider ones."""
        if self.schema(topic) != schema:
            self.topics[topic].evolve(schema)

    def opened(self, topic: str) -> Topic:
        """Return a topic."""
        return self.topics[topic]

    def requests(self) -> Sequence[Request]:
        """Return what is to be read anew."""
        return [each for each in requests_of(self.log) if each.topic in self.topics]

    def answered(self, request: Request) -> None:
        """Forget a request."""
        answered(self.log, request)

    def report(self, **progress: Unpack[Progress]) -> None:
        """Do nothing: who runs the feeds shows their state."""

    def close(self) -> None:
        """Release the lock, so that another process can run the feeds."""
        self._lock.close()

    def _apply(self, number: int, parts: Mapping[str, _Part]) -> None:
        """Append each part, whose rows were checked, to its topic; then write the boundaries."""
        offsets: dict[str, Mapping[int, range]] = {}
        for name, part in parts.items():
            topic, by = self.topics[name], producer(self._writer, name)
            if offsets:
                self.fault("between_topics")
            rows, keyless = split_keyless(topic, part.rows)
            offsets[name] = topic.append(rows, producer=by, sequence=number)
            for letters in (part.dead, keyless):
                if letters is not None and letters.num_rows:
                    dead_by = _dead_producers(by)[letters is keyless]
                    dead_topic(self.log, name).append(letters, producer=dead_by, sequence=number)
        if offsets:
            self.fault("before_mark")
            self._boundaries.write(number, offsets)

    def _recover(self) -> None:
        """Repeat the last append: a crash may have interrupted it."""
        try:
            about, stored = landing_file.recovered(self.path)
        except FileNotFoundError:
            about, stored = {}, {}
        try:
            said: dict[str, Any] = {"number": -1, "topics": {}}
            if about:
                said = json.loads(about[_ABOUT])
            self._number, self._known = int(said["number"]), said["topics"]
            self._position = _bytes(said.get("position"))
        except (ValueError, LookupError, TypeError) as error:
            raise damaged(self.path, str(error)) from error
        for name, topic in self.topics.items():
            self._check(name, topic)
        parts = {
            name: _Part(stored[f"rows/{name}"], stored[f"dead/{name}"])
            for name in self.topics
            if f"rows/{name}" in stored
        }
        self._apply(self._number, parts)
        self._number = max(self._number, self._last_number())

    def _check(self, name: str, topic: Topic) -> None:
        known = self._known.get(name)
        if known is None:
            if topic.last_sequence(f"feed/{name}") is not None:
                raise FeedChanged(name, was="a feed of this topic alone", now=self.feeds[name], state=str(self.path))
            return
        if known["feed"] != self.feeds[name]:
            raise FeedChanged(name, was=known["feed"], now=self.feeds[name], state=str(self.path))
        if known["id"] != topic.id:
            raise FeedTopicReplaced(name, state=str(self.path))

    def _last_number(self) -> int:
        """Return the number of the last append that a topic has which the file does not know, -1 if there is none.

        Such a topic joins again, or somebody removed the file; an append of an older number than that would be dropped.
        """
        lasts: list[int | None] = [-1]
        for name in self.topics.keys() - self._known.keys():
            by = producer(self._writer, name)
            lasts.append(self.topics[name].last_sequence(by))
            if self.log.has_topic(f"{name}.dead"):
                dead = dead_topic(self.log, name)
                lasts += [dead.last_sequence(each) for each in _dead_producers(by)]
        return max(last for last in lasts if last is not None)

    def _write(self, number: int, position: bytes | None, parts: Mapping[str, _Part]) -> None:
        known = {name: {"feed": self.feeds[name], "id": topic.id} for name, topic in self.topics.items()}
        self._known = self._known | known
        after = None if position is None else position.hex()
        about = {"group": self.group, "number": number, "position": after, "topics": self._known}
        stored = {f"rows/{name}": part.rows for name, part in parts.items()}
        stored |= {f"dead/{name}": part.dead for name, part in parts.items()}
        landing_file.write(self.path, {_ABOUT: json.dumps(about).encode()}, stored, sync=self.log.fsync)


def path_of(log: Log, group: str) -> Path:
    """Return where the last append of a group of feeds is."""
    readable = re.sub(r"[^A-Za-z0-9]+", "-", group).strip("-")[:40]
    return log.path / FOLDER / f"group.{readable}.{sha256(group.encode()).hexdigest()[:12]}"


def position_of_group(log: Log, group: str) -> bytes | None:
    """Return the position of the last append of a group of feeds, None where there is none.

    Raises:
        DamagedFile: the file is not as it was written.

    """
    path = path_of(log, group)
    try:
        return _bytes(json.loads(landing_file.read(path)[0][_ABOUT]).get("position"))
    except FileNotFoundError:
        return None
    except (ValueError, LookupError) as error:
        raise damaged(path, str(error)) from error


def _dead_producers(by: str) -> tuple[str, str]:
    """Return who appends the dead letters of a topic: those of the feed, and those of rows without a key."""
    return f"{by}/False", f"{by}/True"


def _bytes(text: str | None) -> bytes | None:
    return None if text is None else bytes.fromhex(text)
