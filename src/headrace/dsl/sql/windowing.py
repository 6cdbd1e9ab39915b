"""`window(at, '1 minute')` and `session_window(at, '5 minutes')` in `group by`."""

from __future__ import annotations

from typing import TYPE_CHECKING

from sqlglot import exp

from headrace.base.errors import UnsupportedQuery
from headrace.base.time import show_duration
from headrace.dsl.sql.output import column
from headrace.dsl.sql.parsing import sql_text
from headrace.dsl.sql.relation import as_resolved
from headrace.dsl.sql.times import is_time, length, times
from headrace.plan.windows import hopping, session, tumbling

if TYPE_CHECKING:
    from collections.abc import Sequence

    from headrace.dsl.sql.context import Context
    from headrace.dsl.sql.relation import Scope
    from headrace.plan.windows import Window

_WINDOWS = ("window", "session_window")
_BOUNDS = {"start": "window_start", "end": "window_end"}


def is_window(tree: exp.Expression) -> bool:
    """Return whether an expression cuts time into windows."""
    return isinstance(tree, exp.Anonymous) and tree.name.lower() in _WINDOWS


def bound_of(tree: exp.Expression) -> exp.Expression | None:
    """Return the column for `window.start` and `window.end`, if that is what an expression is.

    Raises:
        UnsupportedQuery: it is the window as a whole.

    """
    name = ""
    if isinstance(tree, exp.Dot) and is_window(tree.this):
        name = tree.expression.name
    elif isinstance(tree, exp.Column) and len(tree.parts) == 2 and tree.table.lower() in _WINDOWS:  # noqa: PLR2004 -- window.start
        name = tree.name
    elif is_window(tree) or (isinstance(tree, exp.Column) and not tree.table and tree.name.lower() in _WINDOWS):
        raise UnsupportedQuery(
            sql_text(tree),
            "a window is no column",
            hint="Ask for its bounds: window.start as start, window.end as end.",
        )
    bound = _BOUNDS.get(name.lower())
    if bound is None:
        return None
    return as_resolved(column(bound))


def window_of(context: Context, scope: Scope, trees: Sequence[exp.Expression]) -> Window | None:
    """Return the window that rows are grouped by, if there is one.

    Raises:
        PlanError: there are two, one is not over the event time, or its lengths are not possible.

    """
    if not trees:
        return None
    tree = trees[0]
    assert isinstance(tree, exp.Anonymous)  # noqa: S101 -- is_window looked
    text = sql_text(tree)
    if len(trees) > 1:
        raise UnsupportedQuery(sql_text(trees[1]), "a group has one window")
    sessions = tree.name.lower() == "session_window"
    if not (2 <= len(tree.expressions) <= (2 if sessions else 4)):  # noqa: PLR2004 -- time and lengths
        raise UnsupportedQuery(
            text,
            "a window has a time, a size and perhaps a hop and an offset; a session a time and a gap",
        )
    _over_time(scope, tree)
    lengths = [show_duration(length(part)) for part in tree.expressions[1:]]
    grace = context.require_grace(text)
    if sessions:
        return session(lengths[0], grace=grace)
    size, every, offset = (*lengths, *(lengths[0], "0 seconds")[len(lengths) - 1 :])
    return (
        tumbling(size, grace=grace, offset=offset)
        if size == every
        else hopping(size, every, grace=grace, offset=offset)
    )


def _over_time(scope: Scope, tree: exp.Anonymous) -> None:
    handle = scope.relation.handle
    if is_time(tree.expressions[0], handle.node):
        return
    if handle.node.is_table:
        raise UnsupportedQuery(
            sql_text(tree),
            "windows over a table are over the event time of its records, as app.table(…, event_time=…) says",
            hint=f"Group by a part of the time: date_trunc('hour', {sql_text(tree.expressions[0])}) as hour.",
        )
    known = sorted(times(handle.node))
    one = known[0] if len(known) == 1 else f"greatest({', '.join(known)})"
    raise UnsupportedQuery(
        sql_text(tree),
        f"windows are over the event time of the rows, which {sql_text(tree.expressions[0])} is not",
        hint=f"The event time is {one}." if known else 'Say which column it is: app.stream(…, event_time="at").',
    )
