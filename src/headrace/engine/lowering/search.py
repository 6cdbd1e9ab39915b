"""Searches: documents as terms, sent to all shards; queries read where they are, those that cannot be read refused."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from headrace.base.names import quote
from headrace.engine.lowering.joins import delta_columns, join_spec, ordered
from headrace.engine.lowering.keys import replaced
from headrace.engine.lowering.walk import lowered
from headrace.kernels.op import Check
from headrace.kernels.operations import operator
from headrace.kernels.query import Query
from headrace.kernels.search.analysis import terms_sql
from headrace.kernels.search.search import ERROR, STORED, ParseQueries
from headrace.plan.nodes import ARRIVED, TEXT, Search
from headrace.plan.steps import step_name

if TYPE_CHECKING:
    from headrace.engine.lowering.walk import Lowering


@lowered.register(Search)
def _search(node: Search, to: Lowering) -> None:
    to.lates[id(node)] = 0
    output = to.deltas[id(node)] = to.number()
    join, more = join_spec(node, ordered=ordered(node, to)), {}
    if id(node) in to.plan.arrivals:
        more["arrived"] = ARRIVED
    op = operator(node.kernel)(
        step=to.plan.name(node), inputs=(), output=output, late=None, join=join, **node.parameters(), **more
    )
    to.add(to.level(node), replace(op, inputs=(_documents(node, to), _queries(node, to))))


def _documents(node: Search, to: Lowering) -> int:
    """Return the delta of the documents in every shard, their text as its terms."""
    step, here, rows = to.plan.name(node), to.level(node.left), to.number()
    columns = [
        f"{terms_sql(quote(name)) if name == TEXT else quote(name)} AS {short}"
        for name, short in node.inside_names(0).items()
    ]
    before = f"SELECT {', '.join(columns)}, {delta_columns(node, 0, to)} FROM"
    source = to.at(node.left, here)
    to.add(here, Query(step=step, inputs=(source,), output=rows, before=before, after="", shared=False))
    return to.carried(rows, step, here, to.level(node), (), to_all=True)


def _queries(node: Search, to: Lowering) -> int:
    """Return the delta of the queries in their shards, as they are stored."""
    step, here = to.plan.name(node), to.level(node.right)
    dead = None if node.refusing is None else node.refusing.topic or step_name(node.refusing)
    read, rows = to.number(), to.number()
    to.add(here, ParseQueries(step=step, inputs=(to.at(node.right, here),), output=read, query=node.query))
    forms = replaced(node.right.key or (), node.right.schema)
    inside = node.inside_names(1)
    columns = [f"{forms.get(name, quote(name))} AS {short}" for name, short in inside.items()]
    columns += [name for name, _ in STORED]
    sql = f"CASE WHEN {ERROR} IS NOT NULL THEN error('[INVALID_SEARCH] ' || {ERROR})::BOOLEAN ELSE true END"
    check = Check(text=node.query, sql=sql, columns=(node.query,), refuses=True)
    before, after = f"SELECT {', '.join(columns)}, {delta_columns(node, 1, to)} FROM", f"WHERE {sql}"
    query = Query(step=step, inputs=(read,), output=rows, before=before, after=after, shared=dead is not None)
    to.add(here, replace(query, checks=(check,), dead=dead))
    if here == to.level(node):
        return rows
    by = to.plan.moves[id(node)][1]
    return to.carried(rows, step, here, to.level(node), None if by is None else tuple(inside[name] for name in by))
