"""Feeds: a feed lands records in a topic, and acknowledges them outside when they are durable there.

Inputs that cannot be read again as `[start, end)` need a feed: pushed records (webhooks, sockets), queues that remove
what was read, change slots, files that grow. The app reads the topic.

A feed runs while the app runs, or alone (`headrace connect run FILE`); one process at a time runs it. What it must do:

1. Ask `landing.position()` where to go on. It is what the last `append` was given, also after a crash.
2. Read outside from there. `landing.has_room()` says when to stop reading for a while.
3. `landing.append(rows, position=…)`. On return rows and position are durable, both or none: acknowledge now.
4. Return when `stop` is set. An `OSError` or `Unavailable` that leaves `run` is retried with back-off.

Feeds of one `reader_group`, such as the tables of one database, share a reader (`SharedFeed`): one of them runs for
all. What it appends to several topics at once is one append, which apps that read these topics never see half.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple, NotRequired, Protocol, TypedDict, Unpack

if TYPE_CHECKING:
    import threading
    from collections.abc import Mapping, Sequence

    import pyarrow as pa

    from headrace.connect.open_topic import OpenTopic
    from headrace.log.rows import Rows


class DeadRecord(NamedTuple):
    """A record that could not be decoded: its text, and the reason."""

    record: str
    reason: str


class Declared(NamedTuple):
    """The columns of what a feed reads, and those that identify a row (none: nothing does)."""

    schema: pa.Schema
    key: tuple[str, ...]


class Progress(TypedDict):
    """What a feed reports of itself; `status` shows it.

    `phase`: "snapshot" or "streaming". `table`, `done`, `of`: the table of which a snapshot is taken, how many of its
    rows are landed, and about how many it has. `lag_bytes`, `lag_seconds`: how far behind the database it is.
    `warning`: what will become a problem. `repeated`: how many messages were dropped, since they were landed before.
    `dropped`, `spilled`, `waited`: what a full buffer did; also dropped is what was received and could not be landed,
    the last append with it, which may be finished later.
    `lost`: what was dropped outside before it was received, as far as that shows. `gaps`: numbers that are missing in a
    sequence.
    """

    phase: NotRequired[str]
    table: NotRequired[str]
    done: NotRequired[int]
    of: NotRequired[int]
    lag_bytes: NotRequired[int]
    lag_seconds: NotRequired[float]
    warning: NotRequired[str | None]
    repeated: NotRequired[int]
    dropped: NotRequired[int]
    spilled: NotRequired[int]
    waited: NotRequired[int]
    lost: NotRequired[int]
    gaps: NotRequired[int]


COUNTED = ("repeated", "dropped", "spilled", "waited", "lost", "gaps")
"""What of it a feed counts since it began; `status` adds what it counted before it was begun again."""


class Request(NamedTuple):
    """Somebody wants the rows of a topic to be read anew (`headrace connect snapshot`); `id` is of this request."""

    id: str
    topic: str


class Landing(Protocol):
    """A topic as the feed that fills it sees it."""

    @property
    def schema(self) -> pa.Schema:
        """The columns that rows must have."""
        ...

    def position(self) -> bytes | None:
        """Return the position of the last append, None before the first."""
        ...

    def append(self, rows: Rows, *, position: bytes | None = None, dead: Sequence[DeadRecord] = ()) -> None:
        """Append rows and remember the position: durable on return, both or none, also over several partitions.

        Args:
            rows: dicts, a table or a batch, as `Topic.append` takes them; may be empty.
            position: where to continue; None leaves it as it is.
            dead: records that could not be decoded; they are appended to `<topic>.dead`, once.

        Raises:
            InvalidRows: a row does not fit; nothing was appended.
            AppendFailed: the disk refused. Open the landing anew: it may or may not have been appended.

        """
        ...

    def report(self, **progress: Unpack[Progress]) -> None:
        """Say how far the feed is; it replaces what was said before."""
        del progress

    def has_room(self) -> bool:
        """Whether the app keeps up; if not, stop reading until it does."""
        ...

    def close(self) -> None:
        """Release the lock on the feed. Whoever opened the landing calls it, not the feed."""
        ...


class SharedLanding(Protocol):
    """Topics that one feed fills, with one position."""

    def schema(self, topic: str) -> pa.Schema:
        """Return the columns that rows of a topic must have."""
        ...

    def position(self) -> bytes | None:
        """Return the position of the last append, None before the first. Topics that join later leave it as it is."""
        ...

    def append(
        self,
        rows: Mapping[str, Rows],
        *,
        position: bytes | None = None,
        dead: Mapping[str, Sequence[DeadRecord]] | None = None,
    ) -> None:
        """Append rows to topics and remember the position: durable on return, all or nothing.

        In the embedded log an app that reads several of these topics sees all of it in one epoch, or nothing of it; so
        a transaction of the outside belongs in one append, whole. In Kafka the same holds for apps of ours.

        Args:
            rows: by topic, as `Topic.append` takes them.
            position: where to continue; None leaves it as it is.
            dead: by topic, records that could not be decoded; they are appended to `<topic>.dead`, once.

        Raises:
            InvalidRows: a row does not fit; nothing was appended.
            AppendFailed: the disk refused. Open the landing anew: it may or may not have been appended.

        """
        ...

    def evolve(self, topic: str, schema: pa.Schema) -> None:
        """Give a topic more columns, or wider ones; a repetition changes nothing.

        Raises:
            SchemaRefused: records that are there could not be read under it.

        """
        ...

    def opened(self, topic: str) -> OpenTopic:
        """Return a topic as rows: what has been landed in it so far."""
        ...

    def requests(self) -> Sequence[Request]:
        """Return what somebody wants to be read anew, oldest first, until it is answered."""
        ...

    def answered(self, request: Request) -> None:
        """Forget a request whose answer is landed; a repetition changes nothing."""
        ...

    def report(self, **progress: Unpack[Progress]) -> None:
        """Say how far the feed is; it replaces what was said before."""
        ...

    def has_room(self) -> bool:
        """Whether the app keeps up with every topic; if not, stop reading until it does."""
        ...

    def close(self) -> None:
        """Release the lock on the feeds. Whoever opened the landing calls it, not the feed."""
        ...


class Feed(Protocol):
    """Fills a topic from outside: frozen and picklable; it is part of the plan.

    Subclass it to inherit what is optional: `reader_group`, `declares`, `check`, `run_together`, `install`, `remove`.
    """

    reader_group: str | None = None
    """Feeds with the same text share a reader (`SharedFeed`)."""

    @property
    def identity(self) -> str:
        """What it reads, independent of its current address. It is stored; a change is refused."""
        ...

    def run(self, landing: Landing, stop: threading.Event) -> None:
        """Land records until `stop` is set, or until the input has ended for good.

        Raises:
            OSError: the outside does not answer; `run` is called again later.
            Unavailable: the same.
            HeadraceError: the feed cannot continue.

        """
        ...

    def declares(self) -> Declared | None:
        """Return the columns that are there outside, None where nobody knows: asked if the app declares none.

        Raises:
            HeadraceError: the outside does not answer, or has no such thing.

        """
        return None

    def check(self) -> None:
        """Ask outside whether it could run: it answers, takes the credentials, has what is read; change nothing.

        `headrace connect check` calls it. Unless it is overridden, what `declares` asks is asked.

        Raises:
            HeadraceError: it could not.
            OSError: the outside does not answer.

        """
        self.declares()

    def run_together(self, feeds: Mapping[str, Feed], landing: SharedLanding, stop: threading.Event) -> None:
        """Land records for all feeds of a `reader_group`, by topic, until `stop` is set; raises as `run` does."""
        del feeds, landing, stop
        raise NotImplementedError

    def install(self) -> str | None:
        """Make what it needs outside, such as triggers; return what was made, None if nothing is needed or missing.

        `headrace connect install` calls it. Raises as `declares` does.
        """
        return None

    def remove(self) -> str | None:
        """Remove what it made outside, for good; return what was removed, None if there was nothing.

        `headrace connect remove` calls it. Raises as `declares` does.
        """
        return None


class SharedFeed(Feed, Protocol):
    """A feed that shares its reader with others; `run_together` of one of them is called for all."""

    def run(self, landing: Landing, stop: threading.Event) -> None:
        """Land records of this feed alone."""
        self.run_together({ALONE: self}, _Alone(landing), stop)


ALONE = "alone"
"""The name of the topic for a shared feed that is run on a landing of its own."""


class _Alone(SharedLanding):
    """A landing of one topic, for a shared feed."""

    def __init__(self, landing: Landing) -> None:
        self._landing = landing

    def schema(self, topic: str) -> pa.Schema:
        del topic
        return self._landing.schema

    def position(self) -> bytes | None:
        return self._landing.position()

    def append(
        self,
        rows: Mapping[str, Rows],
        *,
        position: bytes | None = None,
        dead: Mapping[str, Sequence[DeadRecord]] | None = None,
    ) -> None:
        self._landing.append(rows.get(ALONE, []), position=position, dead=(dead or {}).get(ALONE, ()))

    def evolve(self, topic: str, schema: pa.Schema) -> None:
        del topic, schema

    def opened(self, topic: str) -> OpenTopic:
        del topic
        raise NotImplementedError  # nobody can make a request of a landing of one topic

    def requests(self) -> Sequence[Request]:
        return ()

    def answered(self, request: Request) -> None:
        del request

    def report(self, **progress: Unpack[Progress]) -> None:
        del progress

    def has_room(self) -> bool:
        return self._landing.has_room()

    def close(self) -> None:
        self._landing.close()
