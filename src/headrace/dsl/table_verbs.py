"""The verbs of a table that give a table."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Self

from headrace.dsl.formats import Formats
from headrace.dsl.grouped import Grouped
from headrace.dsl.grouping import grouping
from headrace.dsl.handle import Handle, check_same_app
from headrace.dsl.joins import JoinOptions, join_node
from headrace.dsl.outputs import changelog_sink
from headrace.dsl.rows import latest_of_table_node, suppress_node, union_node

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from headrace.plan.nodes import How, Ties


class TableVerbs(Handle):
    """What a `Table` can do, as far as the result is a table."""

    @property
    def key(self) -> tuple[str, ...] | None:
        """The columns that identify a row; None when a verb dropped one of them."""
        return self.node.key

    def group_by(self, /, *keys: str, **named: str) -> Grouped[Self, Self]:
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
        return Grouped(grouping(self._verb("group_by"), keys, named), self._with, self._with)

    def agg(self, /, **named: str) -> Self:
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

    def top(self, n: int, by: str, rank: str | None = None, ties: Ties = "row_number") -> Self:
        """Keep the first rows of all in an order: `group_by().top(…)`.

        Trap: a term of `by` without a direction counts down, other than in SQL; say `"price asc"` or `"price desc"`.

        Args:
            n: how many rows, above zero.
            by: SQL order text. Rows that it leaves equal are ordered by the whole row, ascending.
            rank: the name of a column for the position, from 1, which becomes the key.
            ties: as in `Grouped.top`.

        Raises:
            PlanError: `n` is no positive integer, `by` no order, or `rank` an existing column.

        Examples:
            >>> users.top(3, "name asc", rank="place").key
            ('place',)

        """
        return self.group_by().top(n, by, rank, ties)

    def latest(self, *key: str) -> Self:
        """Keep of each key the row of the greatest event time: of windows that are final, the latest closed one.

        Rows must only be added, as final results are. Null is no key: a group of null goes to the dead letters, or
        stops the app, so leave it out before with `.where(…)`.

        Args:
            key: the columns that identify a row; by default the table's key without `window_start` and `window_end`.

        Raises:
            UnknownColumn: a key is not there.
            PlanError: rows of the table are withdrawn, or there is no key.

        Examples:
            >>> minute = hr.tumbling("1 minute", grace="5 seconds")
            >>> orders.group_by("user").window(minute, emit="final").agg(n="count(*)").latest().key
            ('user',)

        """
        return self._with(latest_of_table_node(self._verb("latest"), key))

    def suppress(self, every: str | None = None, *, size: int | None = None) -> Self:
        """Let changes come out less often: of each key only the last one of a period.

        Changes wait until the watermark enters the next period; periods are of event time, aligned to 1970. Then the
        row of the period before is withdrawn and the last one inserted; a row that is as it was does not come out. At
        the end of the input all comes out. Traps: the table is that of some moments before, so joins and sums of it do
        not agree with those of the table itself; and where event time stands still, nothing comes out.

        Args:
            every: the period: `"10 seconds"`.
            size: how many keys may wait in a shard: beyond that those that have waited longest come out early. Without
                `every` they wait for nothing else.

        Raises:
            InvalidTime: `every` is no duration.
            PlanError: neither is given, one is not possible, or the table has no key.

        Examples:
            >>> orders.group_by("user").agg(n="count(*)").suppress("10 seconds", size=10_000).key
            ('user',)

        """
        return self._with(suppress_node(self._verb("suppress"), every, size))

    def join(
        self,
        other: Self,
        *,
        on: str | Sequence[str] | Mapping[str, str],
        how: How = "inner",
        where: str | None = None,
        suffix: str = "_right",
    ) -> Self:
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
        check_same_app(self, other, "join")
        options = JoinOptions(on=on, how=how, where=where, suffix=suffix)
        return self._with(join_node(self.node, other.node, options, self.registry.functions))

    def union(self, *others: Handle) -> Self:
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
            check_same_app(self, other, "unite with")
        return self._with(union_node(self._verb("union"), [other.node for other in others]))

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
