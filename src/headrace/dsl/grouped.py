"""The words after `group_by`: windows, aggregates and ranks."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, get_args

import pyarrow as pa

from headrace.base.errors import InvalidPlan
from headrace.base.names import check_identifier
from headrace.base.schema import TIMESTAMP
from headrace.dsl.table import Table
from headrace.expressions import aggregates, order
from headrace.plan import check
from headrace.plan.nodes import Aggregate, Emit, Top
from headrace.plan.steps import step_name
from headrace.plan.windows import Window

if TYPE_CHECKING:
    from headrace.dsl.app import App
    from headrace.plan.nodes import Node

_WINDOW = [pa.field("window_start", TIMESTAMP), pa.field("window_end", TIMESTAMP)]


class Grouped:
    """A stream or a table, grouped: say `.agg(…)` or `.top(…)`, or `.window(…)` first."""

    def __init__(self, app: App, node: Node, keys: tuple[str, ...]) -> None:
        self._app = app
        self._node = node
        self._keys = keys
        self._window: Window | None = None
        self._emit: Emit = "changes"

    def window(self, window: Window, emit: Emit = "changes") -> Grouped:
        """Cut each group into windows of event time.

        `emit="changes"` gives a result as soon as there is one and corrects it (the old row withdrawn, the new
        one inserted) until the window closes at `end + grace`; `emit="final"` gives one result, when it closes.

        Raises:
            PlanError: no window, or an emit that is neither of the two.

        """
        if not isinstance(window, Window):
            raise InvalidPlan(
                f"{window!r} is no window", hint='For example hr.tumbling("1 minute", grace="30 seconds").'
            )
        if emit not in get_args(Emit):
            raise InvalidPlan(f"emit={emit!r} is not known", hint='Say emit="changes" or emit="final".')
        made = Grouped(self._app, self._node, self._keys)
        made._window, made._emit = window, emit
        return made

    def agg(self, /, **named: str) -> Table:
        """Keep one row for each group (and window): its keys, `window_start` and `window_end`, and the aggregates.

        Each is SQL text over aggregate functions: `agg(n="count(*)", mean="sum(price) / count(*)")`.

        Raises:
            PlanError: an expression cannot be read, or a name is taken.

        """
        node = Aggregate(
            up=self._node,
            schema=pa.schema([]),
            keys=self._keys,
            window=self._window,
            emit=self._emit,
            aggregates=None,  # type: ignore[arg-type] # filled below, once the step has a name for errors
        )
        step = step_name(node)
        keys = [self._node.schema.field(key) for key in self._keys] + (_WINDOW if self._window else [])
        check.no_repeats([*(field.name for field in keys), *named], step=step)
        check.keys_beside(self._keys, step=step)
        if not keys and not named:
            raise InvalidPlan(f'step "{step}" has neither keys nor aggregates')
        plain = pa.schema([(field.name, field.type) for field in keys])
        above = self._node
        made = aggregates(named, above.schema, plain, step=step, functions=self._app._functions, sealed=above.sealed)
        check.aggregation(made, step=step, withdrawn=not self._node.append_only, corrected=not node.append_only)
        check.sessions(self._window, step=step, withdrawn=not self._node.append_only)
        check.row_times(self._window, self._node, step=step)
        check.bounds(made, self._keys, step=step)
        results = [(name, result.type) for name, result in made.results]
        schema = pa.schema([*((field.name, field.type) for field in keys), *results])
        return Table(self._app, replace(node, schema=schema, aggregates=made))

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
        node = Top(up=self._node, schema=self._node.schema, keys=self._keys, n=n, order=(), rank=rank)
        step = step_name(node)
        window = check.ranked_window(self._window, step=step)
        check.row_times(window, self._node, step=step)
        if not isinstance(n, int) or isinstance(n, bool) or n < 1:
            raise InvalidPlan(f'step "{step}": top({n!r}, …) needs a positive number of rows')
        fields = [*self._node.schema, *(_WINDOW if window else [])]
        if rank is not None:
            fields.append(pa.field(check_identifier(rank, what="column"), pa.int32()))
        check.no_repeats([field.name for field in fields], step=step)
        terms = order(by, self._node.schema, step=step, functions=self._app._functions)
        for term in terms:
            check.clear(term.value.columns, self._node.sealed, step=step, role="what rows are ordered by")
            check.require_deterministic(term.value, step=step, withdrawn=not self._node.append_only)
        up = self._node
        if (
            not self._keys and not up.append_only and window is None
        ):  # each shard ranks its rows, so that few of them meet in one place
            up = replace(node, order=terms, rank=None, part=True)
        made = replace(node, up=up, schema=pa.schema(fields), order=terms, window=window, emit=self._emit)
        return Table(self._app, made)
