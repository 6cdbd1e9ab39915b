"""What a task is told to do: frozen values of plain text and Arrow types, made by the engine, run by the kernels.

Rows flow between operations as *deltas*: the step's columns, `_weight` (+1 came, -1 went away) and `_time` (event
time, microseconds since 1970). A delta is known by its number.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar, Literal

if TYPE_CHECKING:
    from collections.abc import Callable

    import pyarrow as pa

    from headrace.base.calendar import Calendar
    from headrace.kernels.joins.join_spec import JoinSpec

Column = tuple[str, str]
"""A column's name and its type in DuckDB."""
Layers = tuple[tuple[tuple[str, str], ...], ...]
"""Columns as names and SQL; those of a layer are made of those that the layers before it left."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Op:
    """One operation; `step` is the plan's step that it works for."""

    step: str


@dataclass(frozen=True, slots=True, kw_only=True)
class StatefulOp(Op):
    """An operation that keeps state; `timed`: a new watermark gives it work though no row comes."""

    timed: ClassVar[bool] = True


@dataclass(frozen=True, slots=True, kw_only=True)
class Query(Op):
    """SQL over the rows of one delta or, all treated alike, of several: `before`, the rows, `after`.

    `shared` results are computed once.
    """

    inputs: tuple[int, ...]
    output: int
    before: str
    after: str
    shared: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class Apply(Op):
    """A user's function over Arrow tables."""

    input: int
    output: int
    takes: pa.Schema
    gives: pa.Schema
    function: Callable[[pa.Table], pa.Table]


@dataclass(frozen=True, slots=True, kw_only=True)
class FunctionCall:
    """A call of a user's scalar function: the column that it makes of its arguments, each SQL and its type."""

    column: str
    name: str
    function: Callable[..., pa.Array]
    arguments: tuple[tuple[str, pa.DataType], ...]
    returns: pa.DataType


@dataclass(frozen=True, slots=True, kw_only=True)
class Call(Op):
    """Columns that a user's functions make, beside those that are there; later calls may read earlier columns."""

    input: int
    output: int
    calls: tuple[FunctionCall, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Piece:
    """One accumulator of a group, as SQL.

    `partial` makes it from rows (columns by their names); several partial values are put together by the aggregate
    function `fold` and then `finish` (`{f}` is what the function gave); `merge` adds a partial value to a kept one
    (`{o}` kept, may be null; `{d}` partial).
    """

    type: str
    partial: str
    fold: str
    finish: str
    merge: str


@dataclass(frozen=True, slots=True, kw_only=True)
class UserAggregate:
    """A user's aggregate: an object with init, add, merge, result and perhaps remove; `state` is what it keeps."""

    name: str
    function: Any
    takes: tuple[pa.DataType, ...]
    state: pa.Schema
    returns: pa.DataType


@dataclass(frozen=True, slots=True, kw_only=True)
class Values:
    """A multiset kept for each group: the arguments' values with their counts. `where` leaves rows out."""

    columns: tuple[Column, ...]
    partial: tuple[str, ...]
    where: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Panes:
    """Windows `[start, start + size)` every `every`, made of panes; all in microseconds.

    Where they are `cumulating`, a window ends at every `every` and begins where the last `size` began. With a
    `calendar` all but `grace` are counted in its periods.
    """

    size: int
    every: int
    pane: int
    grace: int
    offset: int
    cumulating: bool = False
    calendar: Calendar | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Session:
    """Windows of rows that follow each other within `gap`, bounds included; in microseconds."""

    gap: int
    grace: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Sliding:
    """Windows of rows that lie within `size`, bounds included; in microseconds."""

    size: int
    grace: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Grouping:
    """A grouped aggregate: what is kept, and how results are made of it.

    Inside, keys are `k0…`, pieces `p0…`. `calls[i]` is SQL for `_a{i}`: over the pieces' names, or, where
    `from_values[i]` is a number, an aggregate over that multiset's columns `v0…` and count `_n`.
    `results` are SQL over `_a{i}` and the keys' own names. `users` are the user's aggregates that the SQL calls.
    `layers` are columns that pieces read beside those of the rows; `exact`: the SQL calls the functions of exact sums.
    The values of the multisets `placed` have places: `_upto`, how many are not above, and `_all`, how many there are.
    """

    keys: tuple[tuple[str, str, str], ...]  # name, SQL over the input's columns, type
    panes: Panes | None
    final: bool
    insert_only: bool
    pieces: tuple[Piece, ...]
    values: tuple[Values, ...]
    calls: tuple[str, ...]
    from_values: tuple[int | None, ...]
    results: tuple[tuple[str, str, str], ...]  # name, SQL, type
    users: tuple[UserAggregate, ...] = ()
    session: Session | None = None
    sliding: Sliding | None = None
    layers: Layers = ()
    exact: bool = False
    placed: frozenset[int] = frozenset()

    @property
    def windowed(self) -> bool:
        """Whether results are of windows."""
        return self.panes is not None or self.session is not None or self.sliding is not None

    @property
    def reads_twice(self) -> bool:
        """Whether its rows are gone through more than once."""
        return bool(self.values or self.session or (self.panes and self.panes.calendar))

    @property
    def simple(self) -> bool:
        """Whether a result can be computed from one kept row alone."""
        return not self.values and (self.panes is None or self.panes.pane == self.panes.size == self.panes.every)


@dataclass(frozen=True, slots=True, kw_only=True)
class Partial(Op):
    """Rows to partial groups, before the exchange. `outputs`: the groups, then one for each multiset.

    Of sessions also the rows of which only the state can tell whether they are late, as they are.
    """

    input: int
    outputs: tuple[int, ...]
    late: int | None
    grouping: Grouping


@dataclass(frozen=True, slots=True, kw_only=True)
class Merge(StatefulOp):
    """Partial groups into the state; gives the table's delta, and of sessions the late rows."""

    inputs: tuple[int, ...]
    output: int
    grouping: Grouping
    late: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class SplitLate(Op):
    """Rows more than `reach` microseconds behind the watermark are late; the others go on."""

    input: int
    output: int
    late: int | None
    reach: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Dedupe(StatefulOp):
    """The first row of each key, as long as the key is kept: until the watermark passes it by `within` microseconds."""

    input: int
    output: int
    keys: tuple[Column, ...]
    columns: tuple[str, ...]
    within: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Ranking:
    """The `n` first rows of each group. Inside, columns are `c0…`, and what order terms computed is `o0…`.

    `group` are numbers of columns, `made` the types of `o0…`, `order` SQL terms over both. With `panes` the last column
    (it is the last of the group too) says in which window a row is.
    """

    columns: tuple[Column, ...]
    group: tuple[int, ...]
    made: tuple[str, ...]
    order: tuple[str, ...]
    n: int
    rank: str | None
    insert_only: bool
    panes: Panes | None = None
    final: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class AssignPane(Op):
    """Rows with the pane that each is in; those whose windows are all closed are late."""

    input: int
    output: int
    late: int | None
    panes: Panes


@dataclass(frozen=True, slots=True, kw_only=True)
class PartialTop(Op):
    """Before the exchange, of rows that only come: the first of each group in this part."""

    input: int
    output: int
    ranking: Ranking


@dataclass(frozen=True, slots=True, kw_only=True)
class Top(StatefulOp):
    """Rows into the ranking that is kept; gives the delta of the first of each group.

    `counts`: `PartialTop` did not.
    """

    input: int
    output: int
    ranking: Ranking
    counts: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class Keeping:
    """The current rows of a table: its key's columns and the others, by their names.

    Inside, keys are `k0…` and values `v0…`. `by_time`: of two rows of a key the one of the greater event time stays.
    """

    keys: tuple[Column, ...]
    values: tuple[Column, ...]
    by_time: bool

    @property
    def inside_keys(self) -> tuple[tuple[str, str, str], ...]:
        """For each key its name inside, its own name, and its type."""
        return tuple((f"k{i}", name, kind) for i, (name, kind) in enumerate(self.keys))

    @property
    def inside_values(self) -> tuple[tuple[str, str, str], ...]:
        """For each other column its name inside, its own name, and its type."""
        return tuple((f"v{i}", name, kind) for i, (name, kind) in enumerate(self.values))


@dataclass(frozen=True, slots=True, kw_only=True)
class Arrival(Op):
    """Rows under the names inside, each with `_order`: how they arrived, whatever an exchange does to them."""

    input: int
    output: int
    keeping: Keeping


@dataclass(frozen=True, slots=True, kw_only=True)
class Upsert(StatefulOp):
    """Upserts (`_weight` 1) and deletes (-1) by key into the state; gives the table's delta, each change its own."""

    timed: ClassVar[bool] = False

    input: int
    output: int
    keeping: Keeping


@dataclass(frozen=True, slots=True, kw_only=True)
class StreamJoin(StatefulOp):
    """Rows of two streams whose times are near: right - left is in `[low, high]`; gives pairs, and who is left alone.

    `late`: the rows more than `grace` behind the watermark, as rows of the join. All in microseconds.
    """

    inputs: tuple[int, int]
    output: int
    late: int
    join: JoinSpec
    low: int
    high: int
    grace: int


@dataclass(frozen=True, slots=True, kw_only=True)
class LookupJoin(StatefulOp):
    """Rows of a stream beside the rows of a table that they meet when they arrive.

    `ordered`: the table has a key, and the changes of a key come in the order in which they were made.
    """

    timed: ClassVar[bool] = False

    left: int
    right: int
    output: int
    join: JoinSpec
    ordered: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class TableJoin(StatefulOp):
    """Deltas of two tables into their rows, which are kept; gives the delta of the rows that meet."""

    timed: ClassVar[bool] = False

    inputs: tuple[int, int]
    output: int
    join: JoinSpec


@dataclass(frozen=True, slots=True, kw_only=True)
class EffectiveTimes(Op):
    """Changes of a table, in their order, with the times from which they are in force: none before an earlier one's.

    `key` tells whose change it is.
    """

    input: int
    output: int
    key: tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class NumberArrivals(Op):
    """Rows with `_order`: how they arrived, whatever an exchange does to them."""

    input: int
    output: int


@dataclass(frozen=True, slots=True, kw_only=True)
class AsOfJoin(StatefulOp):
    """Rows of a stream beside the version of a table's row that was valid at `at`, known `grace` later.

    On the right side come the table's records: upserts (`_weight` 1) and deletes (-1) with `_order`; `identity` are the
    columns of the table's key. Versions are kept `grace` and `history` behind the watermark. `late`: the rows more than
    `grace` behind the watermark, as rows of the join. All in microseconds.
    """

    left: int
    right: int
    output: int
    late: int
    join: JoinSpec
    at: str
    identity: tuple[str, ...]
    grace: int
    history: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Send(Op):
    """Rows into an exchange: to level `level`, to the shard that the columns `keys` hash to.

    `keys` None: any shard will do.
    """

    input: int
    edge: int
    level: int
    keys: tuple[str, ...] | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Stage(Op):
    """Rows to a sink, as files that nobody sees before the commit.

    `key` of a changelog: one upsert or tombstone for each key; `form` says what the sink takes.
    """

    input: int
    sink: str
    schema: pa.Schema
    form: Literal["rows", "changelog", "delta"]
    key: tuple[str, ...] | None
    net: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class Level:
    """All operations of one level, in order. `receives`: edge number to delta number."""

    number: int
    ops: tuple[Op, ...]
    receives: tuple[tuple[int, int], ...]

    @property
    def stateful(self) -> tuple[StatefulOp, ...]:
        """The operations that keep state."""
        return tuple(op for op in self.ops if isinstance(op, StatefulOp))

    @property
    def calls_users(self) -> bool:
        """Whether functions of a user's run in it."""
        return any(
            isinstance(op, Apply | Call) or (isinstance(op, Partial | Merge) and bool(op.grouping.users))
            for op in self.ops
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Intake:
    """Where a source's rows enter level 0: the delta that they become."""

    source: str
    output: int
    schema: pa.Schema


@dataclass(frozen=True, slots=True, kw_only=True)
class Program:
    """All levels of an app."""

    app: str
    shards: int
    intakes: tuple[Intake, ...]
    levels: tuple[Level, ...]
