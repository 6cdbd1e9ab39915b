"""Streams, tables and groups: verbs on each give the others, so the three are in one file."""

from __future__ import annotations

from typing import TYPE_CHECKING, TypeAlias

from headrace.base.errors import InvalidPlan
from headrace.dsl.columns import explode_node, map_batches_node
from headrace.dsl.grouping import Grouping, aggregate_node, grouping, top_node, windowed
from headrace.dsl.handle import Handle
from headrace.dsl.joins import JoinOptions, join_node
from headrace.dsl.outputs import changelog_sink, table_key, topic_sink
from headrace.dsl.rows import (
    branch_nodes,
    changes_node,
    dedupe_node,
    late_of_stream,
    late_of_table,
    latest_node,
    union_node,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    import pyarrow as pa

    from headrace.dsl.registry import Registry
    from headrace.plan.nodes import Emit, How
    from headrace.plan.windows import Window


class Stream(Handle):
    """An unbounded append-only sequence of records: facts."""

    def explode(self, column: str, as_: str | Sequence[str]) -> Stream:
        """Make one row for each element of an array (`as_` names it), or entry of a map (`as_` names key and value).

        The other columns are repeated. A row whose array or map is null or empty disappears.

        Raises:
            UnknownColumn: the column is not there.
            PlanError: it is neither array nor map, or `as_` does not fit it.

        """
        return Stream(self.registry, explode_node(self._verb("explode"), column, as_))

    def map_batches(self, fn: Callable[[pa.Table], pa.Table], schema: str | pa.Schema) -> Stream:
        """Put every batch of rows through a function, Arrow table in, Arrow table out with the columns of `schema`.

        The table has an extra last column `_time`, each row's event time. Where the function gives back as many
        rows as it got, they keep their times by position; otherwise it must give a `_time` column itself.
        Batches are cut anywhere: the function must not depend on how.
        """
        return Stream(self.registry, map_batches_node(self._verb("map_batches"), fn, schema))

    def union(self, *others: Stream) -> Stream:
        """Put streams of the same columns together; columns are matched by name.

        Raises:
            PlanError: the columns or their types differ.

        """
        for other in others:
            if not isinstance(other, Stream) or other.registry is not self.registry:
                raise InvalidPlan(f'step "{self.name}_union": {other!r} is no stream of this app')
        return Stream(self.registry, union_node(self._verb("union"), [other.node for other in others]))

    def dedupe(self, *keys: str, within: str) -> Stream:
        """Let the first row of each key pass and drop the others, while the key is kept.

        First is: the row that was read in an earlier epoch, and of one epoch the row of the least event time (of
        equal times the least row, column by column). A key is kept until the watermark has passed its first row by
        more than `within`, so of rows in order that are no more than `within` apart one passes. Null is a key like
        any other. Trap: rows of a key that lie further apart are dropped too while the watermark has not got there,
        as in one large epoch: choose keys that come once, such as the id of an event.

        A row more than `within` behind the watermark is late: its key may be forgotten. It goes to `.late`.

        Raises:
            UnknownColumn: a key is not there.
            PlanError: no key, or rows that may be withdrawn.
            InvalidTime: `within` is no duration.

        """
        return Stream(self.registry, dedupe_node(self._verb("dedupe"), keys, within))

    def join(  # noqa: PLR0913 -- the contract of DESIGN.md names these options
        self,
        other: Handle,
        *,
        on: str | Sequence[str] | Mapping[str, str],
        how: How = "inner",
        within: str | tuple[str, str] | None = None,
        as_of: str | None = None,
        grace: str | None = None,
        where: str | None = None,
        suffix: str = "_right",
    ) -> Stream:
        """Join with another stream, or look a table up.

        With a stream, rows meet whose times are near: `within="1 hour"` either way, or
        `within=("-10 seconds", "1 hour")` for right time - left time, bounds included; `how` is inner, left, right or
        full. A row that meets none comes out once, when none can come any more: when the watermark of both sides has
        passed its last possible partner by more than `grace`. A row more than `grace` behind the watermark is late.

        With a table, each row meets the table as it is when the row arrives; changes of the table trigger nothing.
        `as_of="at"` instead asks for the table's row that was valid at that time of the stream's row; the answer comes
        when the watermark of both sides has passed it by more than `grace`, and is final. `how` is inner or left.

        `on`, `where` and `suffix` are those of `Table.join`.

        Raises:
            UnknownColumn: a column is not there.
            PlanError: the arguments do not fit the sides, or each other.

        """
        _check_same_app(self, other, "join")
        options = JoinOptions(on=on, how=how, within=within, as_of=as_of, grace=grace, where=where, suffix=suffix)
        return Stream(self.registry, join_node(self.node, other.node, options, self.registry.functions))

    @property
    def late(self) -> Stream:
        """The rows that came too late for this step, untouched.

        For `dedupe`, to know whether they are the first of their key. For a join by time, to meet others: such a row
        has the join's columns, null on the other side.

        Raises:
            PlanError: this step does not judge rows by their time.

        """
        return Stream(self.registry, late_of_stream(self.node))

    def branch(self, /, **conditions: str) -> Mapping[str | None, Stream]:
        """Split the rows: each goes to the first condition that it meets, and under `None` where it meets none."""
        branches = branch_nodes(self._verb("branch"), conditions)
        return {name: Stream(self.registry, node) for name, node in branches.items()}

    def latest(self, *key: str) -> Table:
        """Read the stream as a table: of each key the row of the greatest event time, of equal ones the later arrival.

        Null is a key like any other, as in `group_by`. What arrived later: the later epoch, partition, offset.

        Raises:
            UnknownColumn: a key is not there.
            PlanError: there is no key, or the stream's rows are withdrawn (late rows of a table's aggregate).

        """
        return Table(self.registry, latest_node(self._verb("latest"), key))

    def group_by(self, /, *keys: str, **named: str) -> Grouped:
        """Group by columns, and by expressions that get a name: `group_by("user", day="date_trunc('day', at)")`.

        Without any key there is one group, and no row for it while it is empty. Null is a group like any other.

        Raises:
            UnknownColumn: a key is not there.

        """
        return Grouped(self.registry, grouping(self._verb("group_by"), keys, named))

    def to_topic(self, topic: str, key: str | Sequence[str] | None = None) -> None:
        """Append the rows to a topic, exactly once; it is created if it is missing.

        `key` names the columns whose values choose the partition: rows of equal key keep their order.

        Raises:
            InvalidName: the name is not allowed.
            UnknownColumn: a key is not there.

        """
        self.registry.add_sink(topic_sink(self.node, topic, key))


class Table(Handle):
    """Current rows, kept up to date; verbs on it are kept up to date too."""

    @property
    def key(self) -> tuple[str, ...] | None:
        """The columns that identify a row; None when a verb dropped one of them."""
        return self.node.key

    @property
    def late(self) -> Stream:
        """The rows that came after all their windows had closed, untouched.

        Over a table they have `_change_type`: insert, or delete where a row went too late.

        Raises:
            PlanError: this step has no windows, so nothing can be late for it.

        """
        return Stream(self.registry, late_of_table(self._verb("late")))

    def changes(self) -> Stream:
        """Read the table as a stream of what happened to its rows.

        Adds `_change_type`: insert, update_preimage, update_postimage or delete; the two halves of an update
        follow each other.

        Raises:
            PlanError: the table has lost its key.

        """
        table_key(self.node, "changes")
        return Stream(self.registry, changes_node(self._verb("changes")))

    def group_by(self, /, *keys: str, **named: str) -> Grouped:
        """Group by columns, and by expressions that get a name: `group_by("user", day="date_trunc('day', at)")`.

        Without any key there is one group, and no row for it while it is empty. Null is a group like any other.

        Raises:
            UnknownColumn: a key is not there.

        """
        return Grouped(self.registry, grouping(self._verb("group_by"), keys, named))

    def join(
        self,
        other: Table,
        *,
        on: str | Sequence[str] | Mapping[str, str],
        how: How = "inner",
        where: str | None = None,
        suffix: str = "_right",
    ) -> Table:
        """Join with another table, kept up to date under every change of either side.

        `on="k"` or `on=("a", "b")` for columns of equal names, which become one; `on={"buyer": "id"}` for others, where
        both stay. `how`: inner, left, right, full, semi (rows that meet one, as they are) or anti (rows that meet
        none). `where` is a condition over the columns of both, under their names in the result; other columns that
        both have get `suffix` on the right side. Null meets nothing. Any columns will do, keys or not; the result's
        key is the shared key where both sides are joined on their whole keys, the left one where the right side is
        joined on its whole key and every row has a left side, and both otherwise.

        Raises:
            UnknownColumn: a column is not there.
            PlanError: the arguments do not fit the sides, or each other.

        """
        _check_same_app(self, other, "join")
        options = JoinOptions(on=on, how=how, where=where, suffix=suffix)
        return Table(self.registry, join_node(self.node, other.node, options, self.registry.functions))

    def union(self, *others: Handle) -> Table:
        """Put the rows of tables and streams of the same columns together; columns are matched by name.

        What leaves one of them leaves the whole. Rows are not told apart by their table, so there is no key: a row that
        is in two of them is there twice.

        Raises:
            PlanError: the columns or their types differ.

        """
        for other in others:
            _check_same_app(self, other, "unite with")
        return Table(self.registry, union_node(self._verb("union"), [other.node for other in others]))

    def to_topic(self, topic: str) -> None:
        """Write the table's changelog to a compacted topic, exactly once: upserts, and tombstones for rows that went.

        The topic is keyed by the table's key and is created if it is missing.

        Raises:
            InvalidName: the name is not allowed.
            PlanError: the table has lost its key.

        """
        self.registry.add_sink(changelog_sink(self.node, topic))


class Grouped:
    """A stream or a table, grouped: say `.agg(…)` or `.top(…)`, or `.window(…)` first."""

    def __init__(self, registry: Registry, group: Grouping) -> None:
        self._registry = registry
        self._group = group

    def window(self, window: Window, emit: Emit = "changes") -> Grouped:
        """Cut each group into windows of event time.

        `emit="changes"` gives a result as soon as there is one and corrects it (the old row withdrawn, the new
        one inserted) until the window closes at `end + grace`; `emit="final"` gives one result, when it closes.

        Raises:
            PlanError: no window, or an emit that is neither of the two.

        """
        return Grouped(self._registry, windowed(self._group, window, emit))

    def agg(self, /, **named: str) -> Table:
        """Keep one row for each group (and window): its keys, `window_start` and `window_end`, and the aggregates.

        Each is SQL text over aggregate functions: `agg(n="count(*)", mean="sum(price) / count(*)")`.

        Raises:
            PlanError: an expression cannot be read, or a name is taken.

        """
        return Table(self._registry, aggregate_node(self._group, named))

    def top(self, n: int, by: str, rank: str | None = None) -> Table:
        """Keep the first `n` rows of each group in the order `by`: `top(10, "price desc, name", rank="place")`.

        `by` is SQL order text; a term without a direction counts down. Nulls are last where a term goes down, first
        where it goes up, unless the text says otherwise. Rows that it leaves equal are ordered by the whole row,
        ascending, so that the answer is one. `rank` adds the position, from 1, and makes it part of the key: a row
        that moves is withdrawn and comes again. Without it only rows that enter and leave are given out. Over a table
        all rows of each group are kept, so that the next one can take the place of one that goes.

        After `.window(…)` the first rows of each window of each group, with `window_start` and `window_end` behind the
        columns and before the rank; they are dropped from the state when the window closes.

        Raises:
            PlanError: `n` is no positive integer, `by` no order, `rank` a column that is there, or the window no
                tumbling, hopping or cumulating one.

        """
        return Table(self._registry, top_node(self._group, n, by, rank))


StreamOrTable: TypeAlias = Stream | Table


def _check_same_app(handle: Handle, other: object, verb: str) -> None:
    if not isinstance(other, Handle) or other.registry is not handle.registry:
        raise InvalidPlan(
            f'step "{handle.name}": {other!r} is no stream or table of this app, so it cannot {verb} it',
            hint="Declare both with one app: app.stream(…), app.table(…).",
        )
