"""Streams and tables: verbs of each return the other, so they are in one file."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any, TypeAlias

from headrace.base.errors import InvalidPlan
from headrace.dsl.columns import explode_node, map_batches_node
from headrace.dsl.formats import Formats
from headrace.dsl.grouped import Grouped
from headrace.dsl.grouping import grouping
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

    from headrace.plan.nodes import How


class Stream(Handle):
    """An unbounded append-only sequence of records: facts."""

    def explode(self, column: str, as_: str | Sequence[str]) -> Stream:
        """Make one row for each element of an array, or each entry of a map; the other columns are repeated.

        A row whose array or map is null or empty disappears.

        Args:
            column: the array or map: a column or an expression.
            as_: the new column's name; of a map the names for key and value.

        Raises:
            UnknownColumn: the column is not there.
            PlanError: it is neither array nor map, or `as_` does not fit it.

        Examples:
            >>> orders.explode("tags", "tag").select("id", "tag").columns
            ['id', 'tag']

        """
        return Stream(self.registry, explode_node(self._verb("explode"), column, as_))

    def map_batches(self, fn: Callable[[pa.Table], pa.Table], schema: str | pa.Schema) -> Stream:
        """Pass every batch of rows through a function.

        Trap: batches are cut anywhere, so the result must not depend on where.

        Args:
            fn: a function from a `pyarrow.Table` to one with the columns of `schema`. Its argument has an extra last
                column `_time`, each row's event time. A result of as many rows keeps their times by position; any other
                result must have a column `_time` itself.
            schema: the columns of the result, as DDL text or `pyarrow.Schema`.

        Raises:
            PlanError: `fn` cannot be called, would see private columns, or `schema` cannot be read.

        Examples:
            >>> orders.map_batches(lambda table: table.select(["id"]), "id string").columns
            ['id']

        """
        return Stream(self.registry, map_batches_node(self._verb("map_batches"), fn, schema))

    def union(self, *others: Stream) -> Stream:
        """Put streams of the same columns together; columns are matched by name.

        Raises:
            PlanError: the columns or their types differ, or one is a table or of another app.

        Examples:
            >>> orders.where("price < 10").union(orders.where("price > 100")).columns == orders.columns
            True

        """
        for other in others:
            if not isinstance(other, Stream) or other.registry is not self.registry:
                raise InvalidPlan(f'step "{self.name}_union": {other!r} is no stream of this app')
        return Stream(self.registry, union_node(self._verb("union"), [other.node for other in others]))

    def dedupe(self, *keys: str, within: str) -> Stream:
        """Let the first row of each key pass and drop the others, while the key is remembered.

        The first row is the one that was read in an earlier epoch; within an epoch the one of the least event time (of
        equal times the least row, column by column). A key is remembered until the watermark has passed its first row
        by more than `within`, so of rows in order that are no more than `within` apart one passes. Null is a key like
        any other. Trap: rows of a key that are further apart are dropped too while the watermark has not passed, as in
        one large epoch: choose keys that occur once, such as the id of an event.

        A row more than `within` behind the watermark is late: its key may be forgotten. It goes to `.late`.

        Args:
            keys: the columns that identify an event.
            within: how long a key is remembered, in event time: `"1 hour"`.

        Raises:
            UnknownColumn: a key is not there.
            PlanError: no key, or rows that may be withdrawn.
            InvalidTime: `within` is no duration.

        Examples:
            >>> orders.dedupe("id", within="1 hour").name
            'orders_dedupe_by_id'

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

        Two streams: rows are joined whose keys are equal and whose times are near. A row without a match comes out
        once, when no match can arrive any more: when the watermark of both sides has passed its last possible partner
        by more than `grace`. A row more than `grace` behind the watermark is late.

        A stream and a table: each row is joined with the table as it is when the row arrives; changes of the table
        trigger nothing. Both arrive when they are appended, whatever their event times, and are read in that order: so
        the answer is the same for every cut of the input into epochs. What an aggregate or another join computes
        changes once an epoch: a row sees what its own epoch leaves.

        With `as_of` it is joined with the table's row that was valid at that time; the answer comes when the watermark
        of both sides has passed that time by more than `grace`, and is final. A row that comes later than that is
        answered at once if the table's `history` reaches back to its time; else it is late, and `left` gives it with
        nulls too.

        Args:
            other: a stream or table of the same app.
            on: the equal columns: `"k"`, `("a", "b")`, or `{"left": "right"}` where names differ.
            how: "inner" or "left"; between streams also "right" and "full".
            within: two streams only, required: how far apart the times may be, `"1 hour"` either way, or
                `("-10 seconds", "1 hour")` for right time - left time, bounds included.
            as_of: a table only: the stream's column with the time to look up.
            grace: how long to wait for late rows, in event time; between streams "0 seconds" unless given, required
                with `as_of`.
            where: a condition over the columns of both sides, under their names in the result.
            suffix: what is added to other columns of the right side that the left side has too.

        Raises:
            UnknownColumn: a column is not there.
            PlanError: the arguments do not fit the sides, or each other.

        Examples:
            >>> orders.join(clicks, on="user", within="1 hour", how="left").columns
            ['id', 'user', 'price', 'quantity', 'tags', 'at', 'url', 'at_right']
            >>> orders.join(users, on={"user": "name"}).name
            'orders_users_join_by_user'
            >>> orders.join(users, on={"user": "name"}, as_of="at", grace="1 minute").columns[-2:]
            ['name', 'city']

        """
        _check_same_app(self, other, "join")
        options = JoinOptions(on=on, how=how, within=within, as_of=as_of, grace=grace, where=where, suffix=suffix)
        return Stream(self.registry, join_node(self.node, other.node, options, self.registry.functions))

    @property
    def late(self) -> Stream:
        """The rows that were too late for this step, unchanged.

        For `dedupe`: too late to know whether they are the first of their key. For a join by time: too late to be
        joined; such a row has the join's columns, null on the other side.

        Raises:
            PlanError: this step has no late rows.

        Examples:
            >>> orders.dedupe("id", within="1 hour").late.to_topic("late_orders")

        """
        return Stream(self.registry, late_of_stream(self.node))

    def branch(self, /, **conditions: str) -> Mapping[str | None, Stream]:
        """Split the rows: each goes to the first condition that is true for it.

        Args:
            conditions: boolean expressions in Spark SQL by the name of the branch.

        Returns:
            The branches by name, and under `None` the rows for which no condition is true.

        Raises:
            UnknownColumn: a condition names a column that is not there.
            PlanError: a text is no condition, or calls a function that is not deterministic.

        Examples:
            >>> list(orders.branch(cheap="price < 10", dear="price > 100"))
            ['cheap', 'dear', None]

        """
        branches = branch_nodes(self._verb("branch"), conditions)
        return {name: Stream(self.registry, node) for name, node in branches.items()}

    def latest(self, *key: str) -> Table:
        """Read the stream as a table: of each key the row of the greatest event time, of equal times the later arrival.

        A row with a null in the key fails, as in `app.table`: it goes to the dead letters, or stops the app with
        `on_error="fail"`. The later arrival is the one of the later epoch, partition, offset.

        Args:
            key: the columns that identify a row of the table.

        Raises:
            UnknownColumn: a key is not there.
            PlanError: there is no key, or the stream's rows are withdrawn (late rows of a table's aggregate).

        Examples:
            >>> orders.latest("user").key
            ('user',)

        """
        return Table(self.registry, latest_node(self._verb("latest"), key))

    def group_by(self, /, *keys: str, **named: str) -> Grouped[Table]:
        """Group by columns and by expressions.

        Without any key there is one group, and no row for it while it is empty. Null is a group like any other.

        Args:
            keys: names of columns.
            named: expressions in Spark SQL by the name of the key.

        Raises:
            UnknownColumn: a key is not there.
            PlanError: an expression cannot be read, or a key is private or a map.

        Examples:
            >>> orders.group_by("user", day="date_trunc('day', at)").agg(n="count(*)").columns
            ['user', 'day', 'n']

        """
        return Grouped(grouping(self._verb("group_by"), keys, named), partial(Table, self.registry))

    def agg(self, /, **named: str) -> Table:
        """Aggregate all rows: `group_by().agg(…)`. The table has one row, and none while there is nothing.

        Args:
            named: SQL text over aggregate functions by the name of the column.

        Raises:
            UnknownColumn: an expression names a column that is not there.
            PlanError: an expression cannot be read, or a name is taken.

        Examples:
            >>> orders.agg(n="count(*)").columns
            ['n']

        """
        return self.group_by().agg(**named)

    def to_topic(
        self,
        topic: str,
        key: str | Sequence[str] | None = None,
        *,
        format: Any = None,  # noqa: A002 -- as of sources
        key_format: Any = None,
    ) -> None:
        """Append the rows to a topic, exactly once; the topic is created if it is missing.

        Args:
            topic: the topic's name.
            key: the columns that choose the partition: rows of equal keys stay in order.
            format: how records are written, as in `App.stream`.
            key_format: how their keys are written, where topics are in Kafka.

        Raises:
            InvalidName: the name is not allowed.
            UnknownColumn: a key is not there.
            PlanError: another step writes to the topic, or a key is private.

        Examples:
            >>> orders.where("price > 100").to_topic("large_orders", key="user")

        """
        self.registry.add_sink(topic_sink(self.node, topic, key, Formats(format, key_format)))


class Table(Handle):
    """Current rows, kept up to date; verbs on it are kept up to date too."""

    @property
    def key(self) -> tuple[str, ...] | None:
        """The columns that identify a row; None when a verb dropped one of them."""
        return self.node.key

    @property
    def late(self) -> Stream:
        """The rows that arrived after all their windows had closed, unchanged.

        Over a table they have `_change_type`: insert, or delete where a row was withdrawn too late; they are the net of
        each epoch. A row that some of its windows still take is *partly late*: it counts there, and is not in here.

        Raises:
            PlanError: this step has no windows, so nothing can be late for it.

        Examples:
            >>> window = hr.tumbling("1 minute", grace="30 seconds")
            >>> orders.group_by("user").window(window).agg(n="count(*)").late.name
            'orders_agg_by_user_late'

        """
        return Stream(self.registry, late_of_table(self._verb("late")))

    def changes(self) -> Stream:
        """Read the table as a stream of the changes of its rows.

        Adds `_change_type`: insert, update_preimage, update_postimage or delete; the two halves of an update follow
        each other.

        Raises:
            PlanError: the table has lost its key.

        Examples:
            >>> users.changes().columns
            ['name', 'city', '_change_type']

        """
        table_key(self.node, "changes")
        return Stream(self.registry, changes_node(self._verb("changes")))

    def group_by(self, /, *keys: str, **named: str) -> Grouped[Table]:
        """Group by columns and by expressions.

        Results are corrected when rows of the table change. Null is a group like any other.

        Args:
            keys: names of columns.
            named: expressions in Spark SQL by the name of the key.

        Raises:
            UnknownColumn: a key is not there.
            PlanError: an expression cannot be read, or a key is private or a map.

        Examples:
            >>> users.group_by("city").agg(n="count(*)").key
            ('city',)

        """
        return Grouped(grouping(self._verb("group_by"), keys, named), partial(Table, self.registry))

    def agg(self, /, **named: str) -> Table:
        """Aggregate all rows: `group_by().agg(…)`. The table has one row, and none while there is nothing.

        Args:
            named: SQL text over aggregate functions by the name of the column.

        Raises:
            UnknownColumn: an expression names a column that is not there.
            PlanError: an expression cannot be read, or a name is taken.

        Examples:
            >>> users.agg(n="count(*)").columns
            ['n']

        """
        return self.group_by().agg(**named)

    def top(self, n: int, by: str, rank: str | None = None) -> Table:
        """Keep the first rows of all in an order: `group_by().top(…)`.

        Trap: a term of `by` without a direction counts down, other than in SQL; say `"price asc"` or `"price desc"`.

        Args:
            n: how many rows, above zero.
            by: SQL order text. Rows that it leaves equal are ordered by the whole row, ascending.
            rank: the name of a column for the position, from 1, which becomes the key.

        Raises:
            PlanError: `n` is no positive integer, `by` no order, or `rank` an existing column.

        Examples:
            >>> users.top(3, "name asc", rank="place").key
            ('place',)

        """
        return self.group_by().top(n, by, rank)

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

        Null matches nothing. Any columns may be joined on, keys or not. The result's key is the shared key if both
        sides are joined on their whole keys; the left key if the right side is joined on its whole key and every row
        has a left side; and both keys otherwise.

        Args:
            other: a table of the same app.
            on: the equal columns: `"k"` or `("a", "b")`, which become one column each; `{"buyer": "id"}` where names
                differ: both columns stay.
            how: "inner", "left", "right", "full", "semi" (left rows with a match, as they are) or "anti" (left rows
                without).
            where: a condition over the columns of both sides, under their names in the result.
            suffix: what is added to other columns of the right side that the left side has too.

        Raises:
            UnknownColumn: a column is not there.
            PlanError: the arguments do not fit the sides, or each other.

        Examples:
            >>> spent = orders.group_by("user").agg(total="sum(price)")
            >>> spent.join(users, on={"user": "name"}, how="left").columns
            ['user', 'total', 'name', 'city']

        """
        _check_same_app(self, other, "join")
        options = JoinOptions(on=on, how=how, where=where, suffix=suffix)
        return Table(self.registry, join_node(self.node, other.node, options, self.registry.functions))

    def union(self, *others: Handle) -> Table:
        """Put the rows of tables and streams of the same columns together; columns are matched by name.

        A row that is withdrawn from one of them is withdrawn from the union. The union has no key: a row that is in two
        of them is in it twice.

        Raises:
            PlanError: the columns or their types differ.

        Examples:
            >>> users.where("city = 'Paris'").union(users.where("city = 'Rome'")).key is None
            True

        """
        for other in others:
            _check_same_app(self, other, "unite with")
        return Table(self.registry, union_node(self._verb("union"), [other.node for other in others]))

    def to_topic(self, topic: str, *, format: Any = None, key_format: Any = None) -> None:  # noqa: A002 -- as of sources
        """Write the table's changelog to a compacted topic, exactly once: upserts, and tombstones for deleted rows.

        The topic is keyed by the table's key and is created if it is missing.

        Args:
            topic: the topic's name.
            format: how records are written, as in `App.stream`.
            key_format: how their keys are written, where topics are in Kafka.

        Raises:
            InvalidName: the name is not allowed.
            PlanError: the table has lost its key, or another step writes to the topic.

        Examples:
            >>> users.where("city = 'Paris'").to_topic("parisians")

        """
        self.registry.add_sink(changelog_sink(self.node, topic, Formats(format, key_format)))


StreamOrTable: TypeAlias = Stream | Table


def _check_same_app(handle: Handle, other: object, verb: str) -> None:
    if not isinstance(other, Handle) or other.registry is not handle.registry:
        raise InvalidPlan(
            f'step "{handle.name}": {other!r} is no stream or table of this app, so it cannot {verb} it',
            hint="Declare both with one app: app.stream(…), app.table(…).",
        )
