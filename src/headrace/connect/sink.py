"""Sinks: a sink writes the rows of whole epochs, after the commit.

What is called, in order (by `Publisher` in the engine; the rest of the engine does not know what a sink is):

1. At the app's start, in the driver: `prepare()` creates or checks what will be written to, then `open()`.
2. `last_epoch()`: epochs up to it are skipped, because the outside has them.
3. After each commit: `publish(epoch, rows)`. It is called again for the same epoch after a crash, and after a failure
   that may pass (see below). No epoch begins before the one before it is published everywhere.

A writer that raises an `OSError` (a connection, a time-out) or `Unavailable` is called again, with back-off; after
`GIVE_UP_SECONDS` the app stops with the epoch's rows still staged, and the next start publishes them. Any other error
stops the app at once.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Literal, Protocol

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator, Mapping

    import pyarrow as pa

    from headrace.base.time import Clock

Form = Literal["rows", "changelog", "delta"]
"""`rows`: a stream's rows with `_time`. `changelog`: one row a key, with `_time` and `_deleted`. `delta`: rows with
`_weight` (+1 inserted, -1 withdrawn) and `_time`. `_time` is the event time as int64 microseconds. A changelog's sink
with an attribute `takes_before` that is true also gets `_before`: the key's row until then as a struct, or null."""
Guarantee = Literal["exactly_once", "at_least_once"]


@dataclass(frozen=True, kw_only=True)
class Difference:
    """How a store differs from its table: rows that it lacks, rows with other values, rows that it should not have.

    `keys`: a few of their keys, as text.
    """

    missing: int = 0
    other: int = 0
    extra: int = 0
    keys: list[str] = field(default_factory=list)

    @property
    def count(self) -> int:
        """The number of rows that differ."""
        return self.missing + self.other + self.extra

    def parts(self) -> list[tuple[int, str]]:
        """Return the three numbers with what they count."""
        return [(self.missing, "missing"), (self.other, "with other values"), (self.extra, "too many")]


class SinkWriter(Protocol):
    """An open sink, in the driver."""

    def last_epoch(self) -> int | None:
        """Return the last epoch that the outside has, -1 for none, None if it cannot tell."""
        ...

    def publish(self, epoch: int, rows: Iterator[pa.RecordBatch]) -> None:
        """Write an epoch's rows; they are visible outside when it returns.

        For exactly once, either the rows and the epoch's number (which `last_epoch` returns) are written atomically, or
        a repetition with the same number changes nothing.
        """
        ...

    def close(self) -> None:
        """Close connections and files."""
        ...


class Sink(Protocol):
    """Where rows are written to: frozen and picklable; it is part of the plan.

    Subclass it to inherit what is optional: `for_step`, `prepare`, `compare`, `guarantee` and `takes_tokens`.
    """

    guarantee: Guarantee = "at_least_once"
    """What a reader outside sees after crashes; `explain` and `status` show it."""
    takes_tokens: bool = False
    """Whether private columns are written as sealed tokens; else as values, null where they were forgotten."""

    @property
    def form(self) -> Form:
        """The form in which it receives a step's rows."""
        ...

    def for_step(
        self, *, schema: pa.Schema, key: tuple[str, ...] | None, is_table: bool, sealed: frozenset[str]
    ) -> Sink:
        """Return the sink for the rows of a step: override it where its columns or its form matter.

        Called by `.to`, before anything else.

        Args:
            schema: the columns of the rows.
            key: those that identify a row; None where nothing but the whole row does.
            is_table: whether rows change, so that a changelog can be written.
            sealed: the private columns.

        Raises:
            InvalidPlan: it cannot take such rows.

        """
        del schema, key, is_table, sealed
        return self

    def prepare(self, *, clock: Clock) -> None:
        """Create or check what will be written to, once at the app's start.

        Raises:
            HeadraceError: what exists cannot store these rows.

        """
        del clock

    def compare(self, rows: Iterator[pa.RecordBatch], *, repair: bool) -> Difference | None:
        """Return how the store differs from its table, None where the sink cannot tell.

        Called by `headrace sync check`, after `prepare`, while no app writes to the store.

        Args:
            rows: all rows that it should have, as `publish` gets them: one a key.
            repair: whether it is brought level. A crash meanwhile may leave a part; the next repair does the rest.

        """
        del rows, repair
        return None

    def open(self, *, writer: str, clock: Clock) -> SinkWriter:
        """Return a writer.

        Args:
            writer: the writer's name, `<app>/<storage id>/<sink>`. A newer writer of the same name fences this one.
            clock: the clock of the app.

        """
        ...


class SharedWriter(Protocol):
    """The writer of a group of sinks, which receive an epoch together.

    Subclass it to inherit what is optional: `check_published`.
    """

    def last_epoch(self) -> int | None:
        """Return the last epoch that all its sinks have, -1 for none, None if it cannot tell."""
        ...

    def publish(self, epoch: int, rows: Mapping[str, Iterator[pa.RecordBatch]]) -> None:
        """Write an epoch's rows, by the names of the sinks; sinks without rows are not in it."""
        ...

    def check_published(self, epochs: Mapping[str, int]) -> None:
        """Check that what was published is still there, if the outside can tell; called once, after `open`.

        Args:
            epochs: by sink, the last epoch with rows for it that was published.

        Raises:
            OutputLost: it is not.

        """
        del epochs

    def close(self) -> None:
        """Close connections and files."""
        ...


class ReplacingWriter(SharedWriter, Protocol):
    """A shared writer that can also begin anew: of views, whose rows a fill replaces."""

    def replace(self, epoch: int, rows: Mapping[str, Iterator[pa.RecordBatch]], *, replaced: Collection[str]) -> None:
        """Write an epoch's rows as `publish` does, and delete at the same moment what `replaced` sinks had before."""
        ...


class SharedSink(Sink, Protocol):
    """A sink that shares its writer with others: the views of one file, the topics of one log.

    Subclass it to inherit `open`, which opens a group of one.
    """

    @property
    def writer_group(self) -> str:
        """The name of its group: sinks with the same name share a writer."""
        ...

    def open_together(self, sinks: Mapping[str, Sink], *, writer: str, clock: Clock) -> SharedWriter:
        """Return the writer of all sinks of the group, by their names; `writer` is `<app>/<storage id>`."""
        ...

    def open(self, *, writer: str, clock: Clock) -> SinkWriter:
        """Return a writer of this sink alone."""
        app, _, name = writer.rpartition("/")
        return _OfOne(name, self.open_together({name: self}, writer=app, clock=clock))


class _OfOne(SinkWriter):
    """The writer of a group of one sink."""

    def __init__(self, name: str, writer: SharedWriter) -> None:
        self.name, self.writer = name, writer

    def last_epoch(self) -> int | None:
        return self.writer.last_epoch()

    def publish(self, epoch: int, rows: Iterator[pa.RecordBatch]) -> None:
        self.writer.publish(epoch, {self.name: rows})

    def close(self) -> None:
        self.writer.close()
