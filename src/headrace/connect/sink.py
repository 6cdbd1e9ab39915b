"""The seam on the way out: a sink takes the rows of whole epochs, after the commit.

What happens, in order (`Publisher` in the engine calls it; nothing else in the engine knows what a sink is):

1. At the app's start, in the driver: `prepare()` creates or checks what will be written to, then `open()`.
2. `last_epoch()`: epochs up to there are skipped, because the outside has them.
3. After each commit: `publish(epoch, rows)`. It is called again for the same epoch after a crash, and after a failure
   that may pass (see below). No epoch begins before the one before it is published everywhere.

A writer that raises an `OSError` (a connection, a time-out) or `Unavailable` is called again, with back-off; after
`GIVE_UP_SECONDS` the app stops with the epoch's rows still staged, and the next start publishes them. Any other error
stops the app at once.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal, Protocol

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    import pyarrow as pa

    from headrace.base.time import Clock

Form = Literal["rows", "changelog", "delta"]
"""`rows`: a stream's rows with `_time`. `changelog`: one row a key, with `_time` and `_deleted`. `delta`: rows with
`_weight` (+1 inserted, -1 withdrawn) and `_time`. `_time` is the event time as int64 microseconds."""
Guarantee = Literal["exactly_once", "at_least_once"]


class SinkWriter(Protocol):
    """An open sink, in the driver."""

    guarantee: Guarantee
    """What a reader outside sees after crashes; shown by `explain` and `status`."""

    def last_epoch(self) -> int | None:
        """Return the last epoch that the outside holds, -1 for none; None where it cannot tell."""
        ...

    def publish(self, epoch: int, rows: Iterator[pa.RecordBatch]) -> None:
        """Make an epoch's rows visible outside; done when it returns.

        To be exactly once, either this is atomic with the epoch's number, which `last_epoch` gives, or a repetition
        with the same number changes nothing.
        """
        ...

    def close(self) -> None:
        """Let go of what is open."""
        ...


class Sink(Protocol):
    """A place that rows go to: frozen and picklable; it stands in the plan.

    Subclass it to inherit what is optional: `prepare` and `takes_tokens`.
    """

    takes_tokens: bool = False
    """Whether private columns arrive as sealed tokens; otherwise as their values, null where they were forgotten."""

    @property
    def form(self) -> Form:
        """What it takes of a step's rows."""
        ...

    def prepare(self, *, clock: Clock) -> None:
        """Create or check what will be written to, once at the app's start.

        Raises:
            HeadraceError: what is there does not take these rows.

        """
        del clock

    def open(self, *, writer: str, clock: Clock) -> SinkWriter:
        """Return a writer.

        Args:
            writer: `<app>/<storage id>/<sink>`: who writes. A newer one with the same name fences this one.
            clock: what tells the time.

        """
        ...


class SharedWriter(Protocol):
    """The writer of several sinks of one place, which see an epoch together."""

    guarantee: Guarantee

    def last_epoch(self) -> int | None:
        """Return the last epoch that the place holds, -1 for none; None where it cannot tell."""
        ...

    def publish(self, epoch: int, rows: Mapping[str, Iterator[pa.RecordBatch]]) -> None:
        """Make an epoch's rows visible, by the names of the sinks; those without rows are not in it."""
        ...

    def close(self) -> None:
        """Let go of what is open."""
        ...


class SharedSink(Sink, Protocol):
    """A sink that sees an epoch together with the others of its place: the views of one file, the topics of one log."""

    @property
    def writer_group(self) -> str:
        """What the sinks that belong together have in common."""
        ...

    def open_together(self, sinks: Mapping[str, Sink], *, writer: str, clock: Clock) -> SharedWriter:
        """Return the writer of all sinks of this place, by their names; `writer` is `<app>/<storage id>`."""
        ...
