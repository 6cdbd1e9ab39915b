"""Feeds: a feed lands records in a topic, and acknowledges them outside when they are durable there.

Inputs that cannot be read again as `[start, end)` need a feed: pushed records (webhooks, sockets), queues that remove
what was read, change slots, files that grow. The app reads the topic.

A feed runs while the app runs, or alone (`headrace connect run FILE`); one process at a time runs it. What it must do:

1. Ask `landing.position()` where to go on. It is what the last `append` was given, also after a crash.
2. Read outside from there. `landing.has_room()` says when to stop reading for a while.
3. `landing.append(rows, position=…)`. On return rows and position are durable, both or none: acknowledge now.
4. Return when `stop` is set. An `OSError` or `Unavailable` that leaves `run` is retried with back-off.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple, Protocol

if TYPE_CHECKING:
    import threading
    from collections.abc import Sequence

    import pyarrow as pa

    from headrace.log.rows import Rows


class DeadRecord(NamedTuple):
    """A record that could not be decoded: its text, and the reason."""

    record: str
    reason: str


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

    def has_room(self) -> bool:
        """Whether the app keeps up; if not, stop reading until it does."""
        ...

    def close(self) -> None:
        """Release the lock on the feed. Whoever opened the landing calls it, not the feed."""
        ...


class Feed(Protocol):
    """Fills a topic from outside: frozen and picklable; it is part of the plan."""

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
