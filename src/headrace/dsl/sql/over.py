"""`avg(x) over (partition by k order by at rows between 9 preceding and current row)`: rows with those before them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, get_args

from sqlglot import exp

from headrace.base.errors import UnsupportedQuery
from headrace.base.time import show_duration
from headrace.dsl.sql.output import column, free_name, with_computed
from headrace.dsl.sql.parsing import present_parts, sql_text
from headrace.dsl.sql.relation import Scope, as_resolved, column_name, reads_outer, rewritten
from headrace.dsl.sql.times import is_time, length, times
from headrace.expressions.positional import POSITIONAL
from headrace.plan.nodes import Ties

if TYPE_CHECKING:
    from headrace.dsl.sql.context import Context
    from headrace.dsl.sql.relation import Relation
    from headrace.dsl.stream_table import StreamOrTable

_WHOLE_FRAME = ("row_number", "lag", "lead", "first_value")
"""Functions for which rows of the same time beside the row make no difference."""


@dataclass(frozen=True, slots=True)
class _Window:
    """What rows are grouped by, and which of them count, as arguments of the verb."""

    keys: tuple[exp.Expression, ...]
    frame: tuple[tuple[str, Any], ...]


def has_window(select: exp.Select) -> bool:
    """Return whether a column of a select is a function over a window."""
    return any(item.find(exp.Window) for item in select.expressions)


def with_windows(context: Context, select: exp.Select, relation: Relation) -> tuple[Relation, exp.Select]:
    """Return the rows with a column for each function over a window, and the select over these columns.

    Raises:
        UnsupportedQuery: a window is not in the order of event time, or its frame is not known.

    """
    parts = present_parts(select) & {"group", "having", "distinct", "order", "limit"}
    if parts:
        raise UnsupportedQuery(
            sql_text(select),
            f"a window together with {' and '.join(sorted(parts))} is not supported",
            hint="Write the one around the other: select … from (select …, sum(x) over (…) as s from t) …",
        )
    scope = Scope(relation)
    calls: dict[_Window, dict[str, exp.Expression]] = {}
    taken = list(relation.handle.columns)

    def replaced(part: exp.Expression) -> exp.Expression | None:
        if isinstance(part, exp.Query):
            return part
        if not isinstance(part, exp.Window):
            return None
        call = _call(part, scope)
        of_window = calls.setdefault(_window(part, scope), {})
        name = next((name for name, known in of_window.items() if known == call), None)
        if name is None:
            name = free_name("_over", taken)
            taken.append(name)
            of_window[name] = call
        return as_resolved(column(name))

    over = select.copy()
    over.set("expressions", [rewritten(item, replaced) for item in select.expressions])
    handle = relation.handle
    for window, named in calls.items():
        handle = _step(context, handle, window, named)
    return relation.with_step(handle), over


def _step(context: Context, handle: StreamOrTable, window: _Window, named: dict[str, exp.Expression]) -> StreamOrTable:
    keys = []
    for tree in window.keys:
        name = column_name(tree)
        if name is None:
            handle, name = with_computed(handle, tree, "_by", handle)
        keys.append(name)
    frame = dict(window.frame)
    grouped = handle.group_by(*dict.fromkeys(keys)).over(**frame, emit=context.window_emit())
    return context.uniquely_named(grouped.agg(**{name: sql_text(tree) for name, tree in named.items()}))


def _call(window: exp.Window, scope: Scope) -> exp.Expression:
    """Return the function over the columns of the step; `ignore nulls` is an argument of it."""
    call, text = window.this, sql_text(window)
    skips_nulls = isinstance(call, exp.IgnoreNulls)
    if isinstance(call, exp.IgnoreNulls | exp.RespectNulls):
        call = call.this
    resolved = scope.resolved(call)
    if reads_outer(resolved):
        raise UnsupportedQuery(text, "a window cannot read the outer query")
    name = resolved.name.lower() if isinstance(resolved, exp.Anonymous) else ""
    if skips_nulls and name not in ("first_value", "last_value"):
        raise UnsupportedQuery(text, "ignore nulls is possible in first_value and last_value")
    if skips_nulls:
        resolved.set("expressions", [*resolved.expressions, exp.true()])
    if name in ("rank", "dense_rank", "percent_rank", "ntile", "cume_dist", "nth_value"):
        raise UnsupportedQuery(
            text,
            f"{name}() would change for all rows of a group with each new row",
            hint="Ask for the first ones: select … from (select …, rank() over (…) as rn from t) where rn <= 10.",
        )
    return resolved


def _window(window: exp.Window, scope: Scope) -> _Window:
    text, node = sql_text(window), scope.relation.handle.node
    terms = window.args["order"].expressions if window.args.get("order") is not None else []
    order = scope.resolved(terms[0].this) if len(terms) == 1 and not terms[0].args.get("desc") else None
    if order is None or not is_time(order, node):
        known = sorted(times(node))
        first = "ask for the first ones in a query around it: … row_number() over (…) as rn) where rn <= 10 and …"
        if len(known) == 1:
            hint = f"Say order by {known[0]}; or {first}."
        elif str(window.this.name).lower() in get_args(Ties):
            hint = f"{first[0].upper()}{first[1:]}; no other test of rn limits them."
        else:
            hint = 'Say which column it is: app.stream(…, event_time="at").'
        raise UnsupportedQuery(text, "rows of a window are in the order of their event time", hint=hint)
    keys = tuple(scope.resolved(tree) for tree in window.args.get("partition_by") or ())
    return _Window(keys, _frame(window))


def _frame(window: exp.Window) -> tuple[tuple[str, Any], ...]:
    """Return which rows count, as arguments of the verb."""
    spec, text = window.args.get("spec"), sql_text(window)
    call = window.this.this if isinstance(window.this, exp.IgnoreNulls | exp.RespectNulls) else window.this
    name = call.name.lower() if isinstance(call, exp.Anonymous) else ""
    if spec is None:
        if name in _WHOLE_FRAME:
            return ()
        raise UnsupportedQuery(
            text,
            "without a frame SQL counts all rows of the row's own time too, for ever",
            hint="Say rows between unbounded preceding and current row, or range between interval 1 hour preceding "
            "and current row.",
        )
    kind, start, end = (str(spec.args.get(part) or "") for part in ("kind", "start", "end"))
    sides = [str(spec.args.get(f"{part}_side") or "").lower() for part in ("start", "end")]
    if kind.upper() == "ROWS" and sides[0] == "preceding":
        if start.upper() == "UNBOUNDED" and end.upper() == "CURRENT ROW":
            return ()
        if start.isdigit() and end.upper() in ("CURRENT ROW", ""):
            return (("rows", int(start) + 1),)
        if start.isdigit() and end.isdigit() and sides[1] == "preceding":
            return (("rows", (int(start), int(end))),)
    if kind.upper() == "RANGE" and sides[0] == "preceding" and end.upper() in ("CURRENT ROW", ""):
        if isinstance(spec.args["start"], exp.Expression):
            return (("range", show_duration(length(spec.args["start"]))),)
        if name in POSITIONAL and name != "last_value":
            return ()
    raise UnsupportedQuery(
        text,
        "this frame is not kept",
        hint="Frames are rows between n (or unbounded) preceding and current row (or m preceding), and range between "
        "interval … preceding and current row.",
    )
