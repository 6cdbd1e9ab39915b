"""SQL: a query over an app's streams and tables becomes the steps that the verbs would make."""

from __future__ import annotations

from typing import TYPE_CHECKING, get_args

from headrace.base.errors import InvalidPlan, InvalidQuery
from headrace.base.names import check_identifier
from headrace.base.time import duration
from headrace.dsl.sql.context import Context
from headrace.dsl.sql.parsing import parse_query
from headrace.dsl.sql.query import QueryCompiler
from headrace.dsl.stream_table import Stream, StreamOrTable, Table
from headrace.expressions.guarded import guarded
from headrace.plan.nodes import Emit

if TYPE_CHECKING:
    from collections.abc import Mapping

    from headrace.dsl.registry import Registry

__all__ = ["query"]


def query(
    registry: Registry,
    text: str,
    relations: Mapping[str, StreamOrTable],
    *,
    grace: str | None,
    emit: Emit,
    name: str | None,
) -> Stream | Table:
    """Return the stream or table that a query is.

    Raises:
        InvalidQuery: the text cannot be read, or a name in it may mean several things.
        UnknownRelation: a name in `from` is neither given nor a declared source.
        UnsupportedQuery: a part of it cannot be kept up to date, or is not known.
        PlanError: as the verbs that it becomes.

    """
    for given, handle in relations.items():
        if not isinstance(handle, Stream | Table) or handle.registry is not registry:
            raise InvalidPlan(f"{given}={handle!r} is no stream or table of this app, so it cannot be queried")
    if emit not in get_args(Emit):
        verb = '; early results are for the verb: .window(…, emit="every 10 seconds")'
        raise InvalidPlan(f"emit={emit!r} is not possible here", hint=f'Say emit="changes" or emit="final"{verb}.')
    if grace is not None:
        duration(grace, what="grace")
    if name is not None:
        check_identifier(name, what="query")
    context = Context(registry, relations, grace, emit, name)
    with guarded("", text, InvalidQuery):
        rows = QueryCompiler(context).rows(parse_query(text), {})
    if grace is not None and not context.timed:
        raise InvalidQuery(
            f"grace={grace!r} has no effect here",
            detail="Nothing in the query has windows or waits for late rows.",
            hint="Leave grace out.",
        )
    if emit != "changes" and not context.emits:
        raise InvalidQuery(
            f"emit={emit!r} has no effect here",
            detail="Nothing in the query has windows, whose results could be final.",
            hint="Leave emit out.",
        )
    return rows
