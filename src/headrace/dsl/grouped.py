"""The verbs after `group_by`: windows, aggregates and ranks."""

from __future__ import annotations

from typing import TYPE_CHECKING, Generic, Literal, TypeVar, overload

from headrace.base.arguments import a_mapping
from headrace.dsl.grouping import Grouping, aggregate_node, less_often, top_node, windowed
from headrace.dsl.matches import match_node, matching
from headrace.dsl.overs import counted_rows, over_node

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from headrace.dsl.matches import Matching
    from headrace.plan.nodes import After, Emit, Node, Rows, Ties
    from headrace.plan.windows import Window

TableT = TypeVar("TableT")
"""Always `Table`: it imports this file for `group_by`, so it cannot be imported here."""
StreamT = TypeVar("StreamT")
"""`Stream`, as for `Table`; of a table that may be grouped `Table` too."""
HandleT = TypeVar("HandleT")


class Grouped(Generic[TableT, StreamT]):
    """A stream or a table, grouped: call `.agg(…)` or `.top(…)`, or `.window(…)` or `.over(…)` first."""

    def __init__(self, group: Grouping, table: Callable[[Node], TableT], stream: Callable[[Node], StreamT]) -> None:
        self._group = group
        self._table = table
        self._stream = stream

    def window(self, window: Window, emit: Emit | str = "changes") -> Grouped[TableT, StreamT]:
        """Cut each group into windows of event time.

        Args:
            window: `hr.tumbling`, `hr.hopping`, `hr.cumulating`, `hr.sliding` or `hr.session`.
            emit: "changes" emits a result as soon as there is one and corrects it (the old row withdrawn, the new one
                inserted) until the window closes at `end + grace`; "final" emits one result, when the window closes;
                "every 10 seconds" corrects no more often than that in event time, as `Table.suppress` does.

        Raises:
            PlanError: no window, or an emit that is none of these.

        Examples:
            >>> window = hr.tumbling("1 minute", grace="30 seconds")
            >>> orders.group_by("user").window(window, emit="final").agg(n="count(*)").columns
            ['user', 'window_start', 'window_end', 'n']

        """
        return Grouped(windowed(self._group, window, emit), self._table, self._stream)

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
        return self._table(less_often(self._group, aggregate_node(self._group, named)))

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
        return self._table(less_often(self._group, top_node(self._group, n, by, rank, ties)))

    @overload
    def over(
        self, *, rows: int | tuple[int, int] | None = None, range: str | None = None, emit: Literal["final"] = "final"
    ) -> Over[StreamT]: ...

    @overload
    def over(
        self, *, rows: int | tuple[int, int] | None = None, range: str | None = None, emit: Literal["changes"]
    ) -> Over[TableT]: ...

    def over(
        self,
        *,
        rows: int | tuple[int, int] | None = None,
        range: str | None = None,  # noqa: A002 -- the word of SQL
        emit: Emit = "final",
    ) -> Over[StreamT] | Over[TableT]:
        """Give each row aggregates over the rows of its group before it, in the order of event time: `.agg(…)`.

        Rows of one time are in the order of the whole row, ascending, nulls first. Without `rows` and `range` all rows
        up to the row count, itself included.

        Over a stream a row is late, and goes to `.late`, if it arrives behind the watermark: rows after it may be final
        already. Trap: so choose `out_of_order` as large as rows may be late; there is no grace.

        Args:
            rows: how many of the last rows count, the row included: `10`; or from how many before it to how many:
                `(10, 1)` are the ten rows before it, without it.
            range: how far back in event time rows count: `"1 hour"`, that bound included, and all rows of its own time.
            emit: "final": rows come out once, when the watermark has passed them: a stream. "changes": they come out at
                once, and are corrected while rows may still come before them: a table. Over a table, whose rows may
                change for ever, results are always corrected, and all rows are kept.

        Raises:
            PlanError: `rows` or `range` is no frame, or both are given; or results over a table cannot be final.
            InvalidTime: `range` is no duration.

        Examples:
            >>> orders.group_by("user").over(rows=10).agg(mean="avg(price)", before="lag(price)").columns[-2:]
            ['mean', 'before']

        """
        frame = counted_rows(self._group, rows, range, emit)
        if emit == "final":
            return Over(self._group, frame, emit, self._stream)
        return Over(self._group, frame, emit, self._table)

    def match(
        self, pattern: str, *, within: str, define: Mapping[str, str] | None = None, after: After = "past last row"
    ) -> Matched[StreamT]:
        """Search each group for rows that match a pattern, one after the other in event time: `.agg(…)`.

        A match is in rows that follow each other in the group, without a gap; rows of one time are in the order of the
        whole row, ascending, nulls first. Of several matches that begin at a row, the preferred one comes out: `a+` as
        many as possible, `a+?` as few, `a|b` the first if it can. It comes out once, as soon as the watermark has
        passed its last row and no preferred match can come any more; that is when `within` is over at the latest.

        A row is late, and goes to `.late`, if it arrives behind the watermark. Trap: choose `out_of_order` as large as
        rows may be late; there is no grace.

        Args:
            pattern: symbols, one after the other, with `( )`, `|`, `?`, `*`, `+`, `{n}`, `{n,}`, `{n,m}`; a `?` after
                these makes them reluctant. Trap: matches are within neighbouring rows; to skip rows between, say
                `a x*? b` with a symbol `x` that every row meets.
            within: how long after its first row the last row of a match may be, in event time: `"10 minutes"`, that
                bound included.
            define: SQL conditions by symbol, over the columns of the row and `prev(x[, n[, default]])`, those of the
                row before it in the group (or `n` rows before). A symbol without one meets every row.
            after: where the search goes on: "past last row", or "next row", so that matches may overlap.

        Raises:
            PlanError: the pattern or a condition cannot be read, or the rows may be withdrawn.
            InvalidTime: `within` is no duration.

        Examples:
            >>> drops = orders.group_by("user").match(
            ...     "first fall{2,}", within="1 hour", define={"fall": "price < prev(price)"}
            ... )
            >>> drops.agg(falls="count(fall)", lowest="last(fall.price)").columns
            ['user', 'match_start', 'match_end', 'falls', 'lowest']

        """
        conditions = a_mapping({} if define is None else define, "define")
        return Matched(self._group, matching(self._group, pattern, within, conditions, after), self._stream)


class Over(Generic[HandleT]):
    """Rows of groups in the order of time: call `.agg(…)`."""

    def __init__(self, group: Grouping, rows: Rows, emit: Emit, handle: Callable[[Node], HandleT]) -> None:
        self._group, self._rows, self._emit, self._handle = group, rows, emit, handle

    def agg(self, /, **named: str) -> HandleT:
        """Return each row with more columns.

        They are expressions over aggregates of the rows that count, over the columns of the row itself, and over
        `row_number()`, `lag(x[, offset[, default]])`, `lead(…)`, `first_value(x[, true])` and `last_value(x[, true])`
        (`true` skips nulls). `row_number`, `lag` and `lead` go by all rows of the group, whatever rows count. The
        aggregates are count, count_if, sum, avg, min, max, min_by, max_by, bool_and, bool_or, and those of variance.
        `lead` needs emit="changes": the last row of a group would never be final.

        Args:
            named: SQL text by the name of the column.

        Raises:
            UnknownColumn: an expression names a column that is not there.
            PlanError: an expression cannot be read, calls another aggregate, or a name is taken.

        Examples:
            >>> over = orders.group_by("user").over(range="1 hour", emit="changes")
            >>> over.agg(share="price / sum(price)", nr="row_number()").columns[-2:]
            ['share', 'nr']

        """
        return self._handle(over_node(self._group, self._rows, self._emit, named))


class Matched(Generic[HandleT]):
    """Matches of a pattern in the rows of groups: call `.agg(…)`."""

    def __init__(self, group: Grouping, found: Matching, handle: Callable[[Node], HandleT]) -> None:
        self._group, self._found, self._handle = group, found, handle

    def agg(self, /, **named: str) -> HandleT:
        """Return one row for each match: its keys, `match_start`, `match_end`, and the measures.

        `match_start` and `match_end` are the event times of its first and its last row.

        Args:
            named: SQL text over aggregate functions by the name of the column. `sum(price)` is over all rows of the
                match, `sum(fall.price)` over those of a symbol, `count(fall)` how many these are; `first(fall.price)`
                and `last(…)` are of the first and the last such row, null where there is none. `fall.price` alone is
                the last one's.

        Raises:
            UnknownColumn: an expression names a column that is not there.
            PlanError: an expression cannot be read, or a name is taken.

        """
        return self._handle(match_node(self._group, self._found, named))
