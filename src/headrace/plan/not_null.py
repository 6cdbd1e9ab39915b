"""Which columns of a step are never null, as far as the plan knows: what tells rows apart may depend on it."""

from __future__ import annotations

from functools import singledispatch

from headrace.base.names import quote
from headrace.expressions.asserted import not_null_columns
from headrace.plan.nodes import Aggregate, Changes, Dedupe, Latest, Node, Select, Top, TopicSource, Where


@singledispatch
def not_null(node: Node) -> frozenset[str]:  # noqa: ARG001 -- what is registered for a node takes it
    """Return the columns that have a value in every row; others may have one, too."""
    return frozenset()


@not_null.register
def _source(node: TopicSource) -> frozenset[str]:
    """Return the key of a topic that is read as a table: records without it are dead letters."""
    return frozenset(node.record_key if node.upserts else ())


@not_null.register
def _select(node: Select) -> frozenset[str]:
    above = {quote(name) for name in not_null(node.up)}
    return frozenset(name for name, made in node.columns if made.sql in above)


@not_null.register
def _where(node: Where) -> frozenset[str]:
    return not_null(node.up) | (not_null_columns(node.condition.text) & frozenset(node.schema.names))


@not_null.register
def _aggregate(node: Aggregate) -> frozenset[str]:
    return (not_null(node.up) & frozenset(node.keys)) | frozenset(node.bounds)


@not_null.register
def _top(node: Top) -> frozenset[str]:
    return (not_null(node.up) | frozenset(() if node.rank is None else (node.rank,))) & frozenset(node.schema.names)


@not_null.register(Dedupe)
@not_null.register(Latest)
@not_null.register(Changes)
def _as_above(node: Dedupe | Latest | Changes) -> frozenset[str]:
    return not_null(node.up)
