"""Streams and tables: verbs of each return the other, so they are in one file."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any, TypeAlias

from headrace.base.errors import InvalidPlan
from headrace.dsl.columns import map_batches_node, with_columns_node
from headrace.dsl.formats import Formats
from headrace.dsl.grouped import Grouped
from headrace.dsl.grouping import grouping
from headrace.dsl.handle import Handle, check_same_app
from headrace.dsl.joins import JoinOptions, join_node
from headrace.dsl.outputs import table_key, topic_sink
from headrace.dsl.rows import (
    as_table_node,
    branch_nodes,
    changes_node,
    dedupe_node,
    late_of_stream,
    late_of_table,
    latest_node,
    union_node,
)
from headrace.dsl.searches import search_node
from headrace.dsl.table_verbs import TableVerbs
from headrace.dsl.verb import Verb

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    import pyarrow as pa

    from headrace.plan.nodes import How


class Stream(Handle):
    """An unbounded append-only sequence of records: facts."""

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
        equal times the least row, column by column, nulls first). A key is remembered until the watermark has passed
        its first row by more than `within`, so of rows in order that are no more than `within` apart one passes. Null
        is a key like any other. Trap: rows of a key that are further apart are dropped too while the watermark has not
        passed, as in one large epoch: choose keys that occur once, such as the id of an event.

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
            how: "inner" or "left"; between streams also "right", "full", "semi" (left rows once they have a match, each
                once, as they are) and "anti" (left rows when they can have no match any more).
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
        check_same_app(self, other, "join")
        options = JoinOptions(on=on, how=how, within=within, as_of=as_of, grace=grace, where=where, suffix=suffix)
        return Stream(self.registry, join_node(self.node, other.node, options, self.registry.functions))

    def search(self, queries: Table, *, text: str, query: str = "query", suffix: str = "_right") -> Stream:
        """Find the stored queries that each row meets: one row comes out for each, with the columns of both.

        A row meets a query that is in the table when the row arrives, as in a join with a table as of arrival: a query
        that is added, changed or deleted counts for the rows appended after it, and triggers nothing itself.

        A query is words that must all be there, `OR`, `-word` or `NOT word`, `"a phrase"`, `( )`, and `begin*`:
        docs/search.md. A null meets nothing. A query that cannot be read meets nothing either: its row goes to the dead
        letters of the table's source, with the place in the query (`on_error="fail"` there stops the app).

        Args:
            queries: a table of the same app with a key.
            text: what is searched, of type string: a column, or an expression in Spark SQL such as
                `"title || ' ' || body"`. Trap: it is null where one of its parts is; `concat_ws` leaves nulls out.
            query: the table's column with the queries.
            suffix: what is added to columns of the table that the stream has too.

        Raises:
            UnknownColumn: a column is not there.
            PlanError: the table has no key, the text or the query is no string, or a column is private.

        Examples:
            >>> alerts = users.select("name", query="city")
            >>> orders.search(alerts, text="array_join(tags, ' ')").columns[-2:]
            ['name', 'query']

        """
        check_same_app(self, queries, "search")
        found = search_node(self._verb("search"), queries.node, text=text, query=query, suffix=suffix)
        return Stream(self.registry, found)

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

    def as_table(self, keep: str | None = None) -> Table:
        """Read the stream as a table that grows: every row is in it, as often as it arrived.

        So streams can be joined and aggregated without a bound in time, as in SQL. Trap: without `keep` the table never
        forgets, and neither do the steps that keep its rows; `explain` calls their state unbounded.

        With `keep` a row leaves when the watermark has passed its event time by more than `keep`. It is withdrawn: a
        join withdraws its pairs, an aggregate or a top is corrected as if the row had never been there. So at every
        watermark `w` the table is the rows with times from `w - keep` on. A row that arrives after that is late: it
        never enters, and goes to `.late`. At the end of the input no time passes: what is there then stays.

        Args:
            keep: how long rows stay, in event time: `"7 days"`; None: for ever.

        Raises:
            InvalidTime: `keep` is no duration.
            PlanError: it is negative, or rows of the stream are withdrawn.

        Examples:
            >>> orders.as_table().join(clicks.as_table(keep="7 days"), on="user").columns
            ['id', 'user', 'price', 'quantity', 'tags', 'at', 'url', 'at_right']

        """
        return Table(self.registry, as_table_node(self._verb("as_table"), keep))

    def latest(self, /, *key: str, **named: str) -> Table:
        """Read the stream as a table: of each key the row of the greatest event time, of equal times the later arrival.

        A row with a null in the key fails, as in `app.table`: it goes to the dead letters, or stops the app with
        `on_error="fail"`. The later arrival is the one of the later epoch, partition, offset.

        Args:
            key: the columns that identify a row of the table.
            named: expressions in Spark SQL by the name of the key: columns of the table too.

        Raises:
            UnknownColumn: a key is not there.
            PlanError: there is no key, or the stream's rows are withdrawn (late rows of a table's aggregate).

        Examples:
            >>> orders.latest("user").key
            ('user',)
            >>> orders.latest("user", day="date_trunc('day', at)").key
            ('user', 'day')

        """
        verb = self._verb("latest")
        if named:
            verb = Verb(with_columns_node(self._verb("with_columns"), named), "latest", verb.functions)
        return Table(self.registry, latest_node(verb, (*key, *named)))

    def group_by(self, /, *keys: str, **named: str) -> Grouped[Table, Stream]:
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
        group = grouping(self._verb("group_by"), keys, named)
        return Grouped(group, partial(Table, self.registry), partial(Stream, self.registry))

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


class Table(TableVerbs):
    """Current rows, kept up to date; verbs on it are kept up to date too."""

    @property
    def late(self) -> Stream:
        """The rows that arrived after all their windows had closed, unchanged.

        Over a table they have `_change_type`: insert, or delete where a row was withdrawn too late; they are the net of
        each epoch. A row that some of its windows still take is *partly late*: it counts there, and is not in here.

        Raises:
            PlanError: nothing can be late for this step: it has no windows, and no `keep`.

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


StreamOrTable: TypeAlias = Stream | Table
