"""Which columns have no nulls, as far as a plan says so."""

from __future__ import annotations

from typing import TYPE_CHECKING

from sqlglot import exp

from headrace.base.names import quote
from headrace.dsl.sql.relation import name_of, parts
from headrace.plan.joins import Join
from headrace.plan.nodes import Aggregate, Dedupe, Latest, Select, Top, TopicSource, Union, Where

if TYPE_CHECKING:
    from headrace.dsl.sql.relation import Scope
    from headrace.plan.nodes import Node


def never_null(node: Node) -> frozenset[str]:
    """Return the columns of a step in which there is never a null; others may have some or none."""
    if isinstance(node, TopicSource):
        return frozenset(node.record_key if node.upserts else ())
    if isinstance(node, Where | Dedupe | Top | Latest):
        return never_null(node.up)
    if isinstance(node, Select):
        above = {quote(name) for name in never_null(node.up)}
        return frozenset(name for name, made in node.columns if made.sql in above)
    if isinstance(node, Aggregate):
        return never_null(node.up) & frozenset(node.keys)
    if isinstance(node, Union):
        return frozenset.intersection(*(never_null(up) for up in node.ups))
    return _joined(node) if isinstance(node, Join) else frozenset()


def _joined(node: Join) -> frozenset[str]:
    left = never_null(node.left) if node.how in ("inner", "left", "semi", "anti") else frozenset()
    right = never_null(node.right) if node.how in ("inner", "right") else frozenset()
    if node.how in ("inner", "semi"):  # null agrees with nothing
        left |= frozenset(name for name, _ in node.on)
    if node.how == "inner":
        right |= frozenset(name for _, name in node.on)
    sure = [column.name for column in node.columns if column.left in left or column.right in right]
    return frozenset(sure) & frozenset(node.schema.names)


def said_not_null(select: exp.Select, scope: Scope) -> frozenset[str]:
    """Return the columns that `where` says are not null."""
    where = select.args.get("where")
    tests = parts(None if where is None else where.this)
    said = [
        name_of(scope.resolved(test.this.this))
        for test in tests
        if isinstance(test, exp.Not) and isinstance(test.this, exp.Is) and isinstance(test.this.expression, exp.Null)
    ]
    return frozenset(name for name in said if name is not None)
