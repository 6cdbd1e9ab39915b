"""The verb `search`: a stream of documents and a table of stored queries."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pyarrow as pa

from headrace.base import arguments
from headrace.base.errors import InvalidPlan, WrongColumnType
from headrace.base.schema import type_name
from headrace.plan import check
from headrace.plan.nodes import TEXT, JoinColumn, Search, Select
from headrace.plan.steps import step_name

if TYPE_CHECKING:
    from headrace.dsl.verb import Verb
    from headrace.plan.nodes import Node


def search_node(verb: Verb, table: Node, *, text: str, query: str, suffix: str) -> Search:
    """Return the step of `search`, checked.

    Raises:
        UnknownColumn: a column is not there.
        WrongColumnType: the text, or the query, is none.
        PlanError: rows of the stream are withdrawn, the queries are in no table with a key, or a column is private.

    """
    if not verb.node.append_only:
        raise InvalidPlan(
            f'the rows of "{step_name(verb.node)}" are withdrawn, so they cannot be searched',
            detail="They are the late rows of an aggregate over a table.",
            hint="Search the stream that they come from.",
        )
    if not table.is_table or not table.key:
        raise InvalidPlan(
            f'step "{verb.step}": the queries in "{step_name(table)}" have no key',
            detail="A query that changes takes the place of the one with its key.",
            hint='Search with a table: app.table("alerts", …, key="id"), or stream.latest("id").',
        )
    arguments.a_text(text, "text")
    searched = verb.scalar(text)
    _text(text, searched.type, verb.step, "the text that is searched")
    _text(query, table.schema.field(check.has_column(query, table.schema, step=verb.step)).type, verb.step, "a query")
    check.not_sealed(searched.columns, verb.node.sealed, step=verb.step, role="a text that is searched")
    check.not_sealed([query], table.sealed, step=verb.step, role="a query")
    columns = [*verb.columns(), (TEXT, searched)]
    above = pa.schema([(name, column.type) for name, column in columns])
    left = Select(up=verb.node, schema=above, columns=tuple(columns), shown="text")
    both = _columns(verb.node, table, suffix, verb.step)
    return Search(
        left=left,
        right=table,
        on=(),
        how="inner",
        columns=both,
        where=None,
        schema=pa.schema([(column.name, column.type) for column in both]),
        query=query,
    )


def _text(name: str, kind: pa.DataType, step: str, role: str) -> None:
    if not pa.types.is_string(kind):
        raise WrongColumnType(name, step=step, is_type=type_name(kind), needs="string", role=role)


def _columns(left: Node, right: Node, suffix: str, step: str) -> tuple[JoinColumn, ...]:
    """Return the columns of both sides, of equal names the right one with the suffix."""
    arguments.a_text(suffix, "suffix")
    taken = left.schema.names
    columns = [JoinColumn(name=field.name, type=field.type, left=field.name) for field in left.schema]
    columns += [
        JoinColumn(
            name=f"{field.name}{suffix}" if field.name in taken else field.name, type=field.type, right=field.name
        )
        for field in right.schema
    ]
    check.no_repeats([column.name for column in columns], step=step)
    return tuple(columns)
