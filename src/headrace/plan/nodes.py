"""What was asked, as frozen values: each node is one step, holds the steps above it, and has a schema.

A node knows nothing of how it is computed. Two nodes are the same step only if they are the same object.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar, Literal

import pyarrow as pa

from headrace.plan.windows import SessionWindow

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from headrace.expressions import Aggregates, Scalar, Term
    from headrace.plan.windows import AlignedWindow, Window

Emit = Literal["changes", "final"]
CHANGE_TYPE = "_change_type"
"""The column that says what happened to a row of a table."""


@dataclass(frozen=True, eq=False, kw_only=True)
class Node:
    """A step. `name` is what `.named` gave, or None."""

    verb: ClassVar[str]
    stateful: ClassVar[bool] = False

    schema: pa.Schema
    name: str | None = None

    @property
    def ups(self) -> tuple[Node, ...]:
        """The steps that feed this one, left to right."""
        return ()

    @property
    def key(self) -> tuple[str, ...] | None:
        """The columns that identify a row of a table; None for streams, and for tables that lost their key."""
        return None

    @property
    def is_table(self) -> bool:
        """Whether rows may be withdrawn or replaced: a table, or an append-only stream."""
        return False

    @property
    def append_only(self) -> bool:
        """Whether every row that comes out stays: nothing is ever withdrawn."""
        return all(up.append_only for up in self.ups)

    @property
    def detects_late(self) -> bool:
        """Whether a row can come too late for it, so that it has late rows."""
        return False

    @property
    def emits_on_watermark(self) -> bool:
        """Whether time alone makes it give something out: without a row, once its watermark has moved."""
        return False

    @property
    def sealed(self) -> frozenset[str]:
        """The columns with private values, which are sealed as long as the app has them."""
        above = frozenset[str]().union(*(up.sealed for up in self.ups))
        return above & frozenset(self.schema.names)

    def walk(self) -> Iterator[Node]:
        """Yield the steps that lead here and this one, each once, sources first."""
        seen: set[int] = set()

        def visit(node: Node) -> Iterator[Node]:
            if id(node) not in seen:
                seen.add(id(node))
                for up in node.ups:
                    yield from visit(up)
                yield node

        return visit(self)


@dataclass(frozen=True, eq=False, kw_only=True)
class TopicSource(Node):
    """The records of a topic, from its start. Times are microseconds.

    `upserts`: what it gives are no facts but changes of rows by `record_key`, for the `Latest` below it: `_weight` is
    1 for an upsert and -1 for a delete.
    """

    verb = "source"

    topic: str
    location: str | None
    record_key: tuple[str, ...]
    event_time: str | None
    out_of_order: int
    idle_after: int | None
    format: str | None
    on_error: Literal["dead_letter", "fail"]
    partitions: int | None
    upserts: bool = False
    sent_time: str | None = None  # when the device sent it, by its own clock: what `event_time` is corrected by
    private: tuple[tuple[str, str | None], ...] = ()  # each with the column of its subject, where that was said

    @property
    def sealed(self) -> frozenset[str]:
        """The private columns of the topic."""
        return frozenset(name for name, _ in self.private)


@dataclass(frozen=True, eq=False, kw_only=True)
class ReadSource(Node):
    """The rows of any streaming source that Spark can read: a format with options, or a streaming DataFrame."""

    verb = "read"

    label: str
    format: str | None
    options: tuple[tuple[str, str], ...]
    frame: Any
    event_time: str | None
    out_of_order: int
    idle_after: int | None


@dataclass(frozen=True, eq=False, kw_only=True)
class _OneUp(Node):
    up: Node

    @property
    def ups(self) -> tuple[Node, ...]:
        """The one step above."""
        return (self.up,)

    @property
    def key(self) -> tuple[str, ...] | None:
        """The key of the step above."""
        return self.up.key

    @property
    def is_table(self) -> bool:
        """As the step above."""
        return self.up.is_table


@dataclass(frozen=True, eq=False, kw_only=True)
class Stateful(Node):
    """A step that keeps state, spread over the shards by columns of what it is given."""

    stateful = True

    @property
    def partition_keys(self) -> tuple[tuple[str, ...], ...]:
        """For each step above, the columns by which its rows must be spread: rows that meet agree in them."""
        raise NotImplementedError

    def partition_keys_after(self, at: tuple[int, ...]) -> tuple[str, ...] | None:
        """Return the columns that its own rows are spread by, when those above are by the columns at these places."""
        return tuple(self.partition_keys[0][i] for i in at)

    @property
    def hold(self) -> int:
        """How far behind its watermark a result may still carry its event time, in microseconds."""
        return 0

    @property
    def late_schema(self) -> pa.Schema:
        """The columns of its late rows: as they came, and of a table's rows also what happened to them."""
        up = self.ups[0]
        return up.schema if up.append_only else up.schema.append(pa.field(CHANGE_TYPE, pa.string()))

    @property
    def late_sealed(self) -> frozenset[str]:
        """The columns of its late rows with private values."""
        above = frozenset[str]().union(*(up.sealed for up in self.ups))
        return above & frozenset(self.late_schema.names)

    def late_partition_keys(self, own: tuple[str, ...] | None) -> tuple[str, ...] | None:
        """Return the columns that its late rows are spread by, where its own rows, or those above, are by `own`."""
        return own

    @property
    def late_before_exchange(self) -> bool:
        """Whether rows are found late before they are spread: where they still are what the step was given."""
        return True


@dataclass(frozen=True, eq=False, kw_only=True)
class _Keyed(Stateful, _OneUp):
    """A step over one other, spread by its keys."""

    keys: tuple[str, ...]

    @property
    def partition_keys(self) -> tuple[tuple[str, ...], ...]:
        """By its keys."""
        return (self.keys,)


def _quoted(name: str) -> str:
    return '"' + name.replace('"', '""') + '"'


@dataclass(frozen=True, eq=False, kw_only=True)
class Select(_OneUp):
    """New columns made of the old ones; `shown` is the verb that the user wrote."""

    verb = "select"

    columns: tuple[tuple[str, Scalar], ...]
    shown: str

    @property
    def key(self) -> tuple[str, ...] | None:
        """The key of the step above under its new names, or None when a part of it is gone."""
        if self.up.key is None:
            return None
        kept = {made.sql: name for name, made in reversed(self.columns)}
        renamed = [kept.get(_quoted(part)) for part in self.up.key]
        return None if None in renamed else tuple(name for name in renamed if name is not None)

    @property
    def sealed(self) -> frozenset[str]:
        """Those of the step above, under their new names."""
        above = {_quoted(name) for name in self.up.sealed}
        return frozenset(name for name, made in self.columns if made.sql in above)


@dataclass(frozen=True, eq=False, kw_only=True)
class Where(_OneUp):
    """The rows for which the condition is true; neither false nor null is."""

    verb = "where"

    condition: Scalar


@dataclass(frozen=True, eq=False, kw_only=True)
class Ending(_OneUp):
    """A `where` over the records of a table: what does not meet the condition is a delete, for its key is not there."""

    verb = "where"

    condition: Scalar


@dataclass(frozen=True, eq=False, kw_only=True)
class Explode(_OneUp):
    """One row for each element of an array, or each entry of a map; rows with nothing in it disappear."""

    verb = "explode"

    column: Scalar
    into: tuple[str, ...]

    @property
    def key(self) -> tuple[str, ...] | None:
        """No key is left: one row became several."""
        return None

    @property
    def sealed(self) -> frozenset[str]:
        """Those of the step above, and the elements of a sealed list."""
        kept = self.up.sealed & frozenset(self.schema.names)
        return kept | frozenset(self.into) if self.column.columns & self.up.sealed else kept - frozenset(self.into)


@dataclass(frozen=True, eq=False, kw_only=True)
class MapBatches(_OneUp):
    """A function of the user's over Arrow tables."""

    verb = "map_batches"

    function: Callable[[pa.Table], pa.Table]

    @property
    def key(self) -> tuple[str, ...] | None:
        """Nobody knows what the function did to the key."""
        return None

    @property
    def sealed(self) -> frozenset[str]:
        """None: no function is given sealed columns."""
        return frozenset()


@dataclass(frozen=True, eq=False, kw_only=True)
class Union(Node):
    """All rows of several steps of one schema."""

    verb = "union"

    streams: tuple[Node, ...]

    @property
    def ups(self) -> tuple[Node, ...]:
        """The steps."""
        return self.streams

    @property
    def is_table(self) -> bool:
        """Where one of them is: its rows leave the whole too."""
        return any(up.is_table for up in self.streams)


@dataclass(frozen=True, eq=False, kw_only=True)
class Windowed(_Keyed):
    """A table of what there is in each group, or in each window of each group: kept up to date, or given when final."""

    window: Window | None
    emit: Emit

    @property
    def bounds(self) -> tuple[str, ...]:
        """The columns that tell its windows apart."""
        return () if self.window is None else ("window_start", "window_end")

    @property
    def is_table(self) -> bool:
        """What it gives is corrected."""
        return True

    @property
    def append_only(self) -> bool:
        """Only what is given once, at the end, is never withdrawn."""
        return self.emit == "final"

    @property
    def detects_late(self) -> bool:
        """With windows: they close."""
        return self.window is not None

    @property
    def emits_on_watermark(self) -> bool:
        """What is given once, when a window closes."""
        return self.detects_late and self.emit == "final"

    @property
    def late_before_exchange(self) -> bool:
        """All but sessions: which session a row would be in is known beside the state alone."""
        return not isinstance(self.window, SessionWindow)

    @property
    def hold(self) -> int:
        """As long as its windows are corrected."""
        return 0 if self.window is None else self.window.hold


@dataclass(frozen=True, eq=False, kw_only=True)
class Aggregate(Windowed):
    """One row for each group, or each group and window."""

    verb = "agg"

    aggregates: Aggregates

    @property
    def key(self) -> tuple[str, ...] | None:
        """Group and window."""
        return (*self.keys, *self.bounds)

    @property
    def sealed(self) -> frozenset[str]:
        """Results that pass a private value on; a key is never sealed."""
        return self.aggregates.sealed


@dataclass(frozen=True, eq=False, kw_only=True)
class Dedupe(_Keyed):
    """The first row of each key; later ones are dropped while the key is kept: `within` microseconds, and longer."""

    verb = "dedupe"

    within: int

    @property
    def detects_late(self) -> bool:
        """A row is too late when a key first seen at its time would be forgotten by now."""
        return True


@dataclass(frozen=True, eq=False, kw_only=True)
class Top(Windowed):
    """The `n` first rows of each group, or of each window of each group; `rank` names the column of their positions.

    A `part` gives the first rows of each shard, of which a step below makes those of the whole.
    """

    verb = "top"

    n: int
    order: tuple[Term, ...]
    rank: str | None
    part: bool = False
    window: AlignedWindow | None = None
    emit: Emit = "changes"

    @property
    def key(self) -> tuple[str, ...] | None:
        """Group, window and position; without positions the key of the step above, which a stream does not have."""
        above = self.keys if self.rank is not None else self.up.key
        if above is None:
            return None
        return (*above, *self.bounds, *(() if self.rank is None else (self.rank,)))


@dataclass(frozen=True, eq=False, kw_only=True)
class Latest(_Keyed):
    """The last row of each key: a stream, or the upserts and deletes of a topic, read as a table.

    `by_time`: the last is the one of the greatest event time, of equal ones the later arrival; else the later arrival.
    `history`: how long joins with `as_of` keep its old versions beyond what their grace needs, in microseconds.
    """

    verb = "latest"

    by_time: bool
    history: int = 0

    @property
    def key(self) -> tuple[str, ...] | None:
        """What there is one row of."""
        return self.keys

    @property
    def is_table(self) -> bool:
        """Rows replace each other."""
        return True

    @property
    def append_only(self) -> bool:
        """A row that is replaced is withdrawn."""
        return False


@dataclass(frozen=True, eq=False, kw_only=True)
class Late(Node):
    """The rows that a step could no longer take, untouched."""

    verb = "late"

    of: Stateful

    @property
    def ups(self) -> tuple[Node, ...]:
        """The step that found them late."""
        return (self.of,)

    @property
    def append_only(self) -> bool:
        """They are facts: that a row came, or went, too late."""
        return True

    @property
    def sealed(self) -> frozenset[str]:
        """As that step says."""
        return self.of.late_sealed & frozenset(self.schema.names)


@dataclass(frozen=True, eq=False, kw_only=True)
class Changes(_OneUp):
    """A table read as a stream of what happened to its rows."""

    verb = "changes"

    @property
    def key(self) -> tuple[str, ...] | None:
        """A stream has no key."""
        return None

    @property
    def is_table(self) -> bool:
        """What happened cannot be undone: a stream."""
        return False

    @property
    def append_only(self) -> bool:
        """What happened stays."""
        return True
