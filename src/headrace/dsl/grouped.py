"""The verbs after `group_by`: windows, aggregates and ranks."""

from __future__ import annotations

from typing import TYPE_CHECKING, Generic, TypeVar

from headrace.dsl.grouping import Grouping, aggregate_node, top_node, windowed

if TYPE_CHECKING:
    from collections.abc import Callable

    from headrace.plan.nodes import Emit, Node, Ties
    from headrace.plan.windows import Window

TableT = TypeVar("TableT")
"""Always `Table`: it imports this file for `group_by`, so it cannot be imported here."""


class Grouped(Generic[TableT]):
    """A stream or a table, grouped: call `.agg(…)` or `.top(…)`, or `.window(…)` first."""

    def __init__(self, group: Grouping, table: Callable[[Node], TableT]) -> None:
        self._group = group
        self._table = table

    def window(self, window: Window, emit: Emit = "changes") -> Grouped[TableT]:
        """Cut each group into windows of event time.

        Args:
            window: `hr.tumbling`, `hr.hopping`, `hr.cumulating`, `hr.sliding` or `hr.session`.
            emit: "changes" emits a result as soon as there is one and corrects it (the old row withdrawn, the new one
                inserted) until the window closes at `end + grace`; "final" emits one result, when the window closes.

        Raises:
            PlanError: no window, or an emit that is neither of the two.

        Examples:
            >>> window = hr.tumbling("1 minute", grace="30 seconds")
            >>> orders.group_by("user").window(window, emit="final").agg(n="count(*)").columns
            ['user', 'window_start', 'window_end', 'n']

        """
        return Grouped(windowed(self._group, window, emit), self._table)

    def agg(self, /, **named: str) -> TableT:
        """Return one row for each group (and window): its keys, `window_start` and `window_end`, and the aggregates.

        Args:
            named: SQL text over aggregate functions by the name of the column.

        Raises:
            UnknownColumn: an expression names a column that is not there.
            PlanError: an expression cannot be read, or a name is taken.

        Examples:
            >>> orders.group_by("user").agg(n="count(*)", mean="sum(price) / count(*)").columns
            ['user', 'n', 'mean']

        """
        return self._table(aggregate_node(self._group, named))

    def top(self, n: int | str, by: str, rank: str | None = None, ties: Ties = "row_number") -> TableT:
        """Keep the first rows of each group in an order.

        Rows that `by` leaves equal are ordered by the whole row, ascending, so that there is one answer. Without `rank`
        only rows that enter and leave are emitted. Over a table all rows of each group are kept in the state, so that
        the next one can replace one that leaves.

        After `.window(…)` these are the first rows of each window of each group, with `window_start` and `window_end`
        after the columns and before the rank; they are dropped from the state when the window closes.

        Args:
            n: how many rows, above zero; or an integer key, for a number of each group's own (null or below 1: none).
            by: SQL order text. Trap: a term without a direction counts down, other than in SQL; `explain` shows the
                direction, and `"price asc"` or `"price desc"` says it. Nulls are last in a descending term and first
                in an ascending one, unless the text says otherwise.
            rank: the name of a column for the position, from 1. It becomes part of the key: a row that moves is
                withdrawn and inserted again.
            ties: "row_number": `n` rows, of equal ones the first by the whole row. "rank" and "dense_rank" as in SQL:
                rows that `by` leaves equal share a position, and all of them are there up to position `n`; after three
                firsts comes 4 (rank) or 2 (dense_rank). Positions are no key then: that of the step above stays. Trap:
                a group may have any number of equal rows, and all are kept.

        Raises:
            PlanError: `n` is neither a positive integer nor an integer key, `by` no order, `rank` an existing column,
                `ties` not known, or the window no tumbling, hopping or cumulating one.

        Examples:
            >>> orders.group_by("user").top(3, "price desc, id", rank="place").key
            ('user', 'place')

        """
        return self._table(top_node(self._group, n, by, rank, ties))
