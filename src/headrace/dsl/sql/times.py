"""Which columns hold the event time of a step's rows, and lengths of time in a query."""

from __future__ import annotations

from typing import TYPE_CHECKING

from sqlglot import exp

from headrace.base.errors import InvalidTime, UnsupportedQuery
from headrace.base.names import quote
from headrace.base.time import duration
from headrace.dsl.sql.parsing import sql_text
from headrace.dsl.sql.relation import column_name
from headrace.plan.nodes import Explode, Keyed, Match, Select, Source, StreamJoin, Union, Where, Windowed

if TYPE_CHECKING:
    from headrace.plan.nodes import Node


def times(node: Node) -> frozenset[str]:
    """Return the columns of which the greatest is a row's event time; none where no columns hold it."""
    if isinstance(node, Source):
        return frozenset([node.event_time] if node.event_time is not None else [])
    if isinstance(node, Match):
        return frozenset(["match_end"])
    if isinstance(node, Where) or (isinstance(node, Keyed) and not isinstance(node, Windowed)):
        return times(node.up)  # its rows are some of those above
    if isinstance(node, Explode):
        kept = times(node.up)
        return frozenset() if kept & set(node.into) else kept  # an element took its name
    if isinstance(node, Select):
        names = {column.sql: name for name, column in reversed(node.columns)}
        above = [names.get(quote(name)) for name in times(node.up)]
        return frozenset() if None in above else frozenset(name for name in above if name is not None)
    if isinstance(node, Union):
        each = {times(up) for up in node.ups}
        return each.pop() if len(each) == 1 else frozenset()
    if isinstance(node, StreamJoin):
        return _joined(node)
    return frozenset()


def _joined(node: StreamJoin) -> frozenset[str]:
    if node.how in ("semi", "anti"):
        return frozenset(node.named(left=name) for name in times(node.left))
    left, right = times(node.left), times(node.right)
    if not left or not right:
        return frozenset()
    return frozenset([*(node.named(left=name) for name in left), *(node.named(right=name) for name in right)])


def is_time(tree: exp.Expression, node: Node) -> bool:
    """Return whether a resolved expression is the event time of a step's rows: a column, or the greatest of several."""
    known = times(node)
    if isinstance(tree, exp.Anonymous) and tree.name.lower() == "greatest":
        return bool(known) and {column_name(each) for each in tree.expressions} == known
    return len(known) == 1 and column_name(tree) in known


def length(tree: exp.Expression) -> int:
    """Return a constant length of time in microseconds: `interval 1 hour`, `'30 minutes'`, or a sum of them.

    Raises:
        UnsupportedQuery: it is no constant, or has months or years.

    """
    if isinstance(tree, exp.Paren):
        return length(tree.this)
    if isinstance(tree, exp.Neg):
        return -length(tree.this)
    if isinstance(tree, exp.Add):
        return length(tree.this) + length(tree.expression)
    if isinstance(tree, exp.Sub):
        return length(tree.this) - length(tree.expression)
    text = ""
    if isinstance(tree, exp.Interval) and isinstance(tree.this, exp.Literal):
        unit = tree.args.get("unit")
        text = f"{tree.this.this} {unit.name.lower()}" if isinstance(unit, exp.Var) else str(tree.this.this)
    elif isinstance(tree, exp.Literal) and tree.is_string:
        text = str(tree.this)
    try:
        return duration(text.removeprefix("interval "), what="length of time")
    except InvalidTime as error:
        raise UnsupportedQuery(
            sql_text(tree), "this is no constant length of time", hint="For example interval 1 hour, or '30 minutes'."
        ) from error
