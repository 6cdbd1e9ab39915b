"""The other way in: a feed lands records in a topic, and acknowledges outside when they are durable there.

Everything that cannot be read again as `[start, end)` is a feed: what is pushed (webhooks, sockets), what is taken away
by reading (queues), what forgets (change slots), what has no offsets (files that grow). The app reads the topic.

A feed runs beside the epochs, or alone (`headrace connect run FILE`); one process at a time runs it. What it must do:

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
    """A record that could not be decoded: what it says, as text, and why."""

    record: str
    reason: str


class Landing(Protocol):
    """A topic, seen by the feed that fills it."""

    @property
    def schema(self) -> pa.Schema:
        """The columns that rows must have."""
        ...

    def position(self) -> bytes | None:
        """Return what the last append was given, None before the first."""
        ...

    def append(self, rows: Rows, *, position: bytes | None = None, dead: Sequence[DeadRecord] = ()) -> None:
        """Append rows and remember the position: durable on return, both or none, also over several partitions.

        Args:
            rows: dicts, a table or a batch, as `Topic.append` takes them; may be empty.
            position: where to go on; None leaves it as it is.
            dead: what could not be decoded: goes to `<topic>.dead`, once.

        Raises:
            InvalidRows: a row does not fit; nothing was appended.
            AppendFailed: the disk refused. Open the landing anew: it may or may not have been appended.

        """
        ...

    def has_room(self) -> bool:
        """Whether the app keeps up. False: stop reading until it is True again."""
        ...

    def close(self) -> None:
        """Let another process run the feed; who opened the landing calls it, not the feed."""
        ...


class Feed(Protocol):
    """What fills a topic from outside: frozen and picklable; it stands in the plan."""

    @property
    def identity(self) -> str:
        """What it reads, whatever address it has today. Kept; a change is refused."""
        ...

    def run(self, landing: Landing, stop: threading.Event) -> None:
        """Land records until `stop` is set, or until the outside has no more and never will.

        Raises:
            OSError: the outside does not answer; it is called again later.
            Unavailable: the same, said by a connector.
            HeadraceError: it cannot go on.

        """
        ...
