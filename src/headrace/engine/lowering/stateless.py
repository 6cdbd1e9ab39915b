"""Sources, stateless steps, and tables read as streams of changes."""

from __future__ import annotations

from typing import TYPE_CHECKING

from headrace.base.names import quote
from headrace.engine.lowering.walk import columns_of, lowered
from headrace.expressions import drawn_apart
from headrace.kernels.apply import Apply
from headrace.kernels.program import Intake
from headrace.kernels.query import Query
from headrace.plan.nodes import ARRIVED, AsTable, Changes, Ending, Explode, MapBatches, Select, Source, Union, Where

if TYPE_CHECKING:
    from headrace.engine.lowering.walk import Lowering

ELEMENT = "_headrace_element"


@lowered.register(Source)
def _source(node: Source, to: Lowering) -> None:
    raw, to.deltas[id(node)] = to.number(), to.number()
    if not node.upserts and id(node) not in to.plan.arrivals:
        to.raw[id(node)] = raw
    step = to.plan.name(node)
    read = tuple(node.schema.names) if node.upserts else to.columns_read(node)
    to.intakes.append(Intake(source=step, output=raw, columns=read))
    delta = to.delta_of(node) if node.upserts else f"1::INTEGER AS {to.delta_of(node)}"
    before = f"SELECT {', '.join([*map(quote, read), delta])} FROM"
    output = to.deltas[id(node)]
    passes = tuple((name, name) for name in (*read, *to.delta_names(node)) if node.upserts or name != "_weight")
    query = Query(
        step=step,
        inputs=(raw,),
        output=output,
        before=before,
        after="",
        shared=False,
        passes=passes,
        inserts=not node.upserts,
    )
    to.add(0, query)


@lowered.register(Select)
def _select(node: Select, to: Lowering) -> None:
    computed = node.computed(to.columns_read(node))
    names, scalars = [name for name, _ in computed], drawn_apart([scalar for _, scalar in computed])
    read = {column for scalar in scalars for column in scalar.columns}
    inputs = to.with_calls(node, scalars, [name for name in node.up.schema.names if name in read])
    columns = [f"{scalar.sql} AS {quote(name)}" for name, scalar in zip(names, scalars, strict=True)]
    before = f"SELECT {', '.join([*columns, to.delta_of(node)])} FROM"
    above = {quote(name): name for name in node.up.schema.names}
    passes = {name: above[scalar.sql] for name, scalar in zip(names, scalars, strict=True) if scalar.sql in above}
    to.query(node, before, inputs=inputs, scalars=scalars, passes=passes, computes=len(passes) < len(names))


@lowered.register(Where)
def _where(node: Where, to: Lowering) -> None:
    inputs = to.with_calls(node, [node.condition], node.schema.names)
    columns = f"{columns_of(node)}, {to.delta_of(node)}" if node.condition.calls else "*"
    to.query(node, f"SELECT {columns} FROM", f"WHERE {node.condition.sql}", inputs=inputs, scalars=[node.condition])


@lowered.register(Ending)
def _ending(node: Ending, to: Lowering) -> None:
    inputs = to.with_calls(node, [node.condition], node.schema.names)
    weight = f"CASE WHEN {node.condition.sql} THEN _weight ELSE -1 END::INTEGER AS {to.delta_of(node)}"
    to.query(node, f"SELECT {columns_of(node)}, {weight} FROM", inputs=inputs, scalars=[node.condition])


@lowered.register(Explode)
def _explode(node: Explode, to: Lowering) -> None:
    of_map = len(node.into) > 1
    elements = f"unnest(map_entries({node.column.sql}))" if of_map else f"unnest({node.column.sql})"
    inner = f"SELECT *, {elements} AS {ELEMENT} FROM"
    parts = [f"{ELEMENT}.key", f"{ELEMENT}.value"] if of_map else [ELEMENT]
    named = dict(zip(node.into, parts, strict=True))
    columns = [f"{named[n]} AS {quote(n)}" if n in named else quote(n) for n in node.schema.names]
    inputs = to.with_calls(node, [node.column], node.up.schema.names)
    before = f"SELECT {', '.join(columns)}, {to.delta_of(node)} FROM ({inner}"
    to.query(node, before, ")", inputs=inputs, scalars=[node.column])


@lowered.register(MapBatches)
def _map_batches(node: MapBatches, to: Lowering) -> None:
    level = to.level(node)
    output = to.deltas[id(node)] = to.number()
    apply = Apply(
        step=to.plan.name(node),
        inputs=(to.at(node.up, level),),
        output=output,
        takes=node.up.schema,
        returns=node.schema,
        function=node.function,
        arrived=ARRIVED if id(node) in to.plan.arrivals else None,
        hidden=tuple(sorted(node.up.sealed)),
        dead=to.dead(node),
    )
    to.add(level, apply)


@lowered.register(AsTable)
def _as_table(node: AsTable, to: Lowering) -> None:
    to.query(node, "SELECT * FROM", passes={name: name for name in node.schema.names})
    if id(node.up) in to.raw:
        to.raw[id(node)] = to.raw[id(node.up)]


@lowered.register(Union)
def _union(node: Union, to: Lowering) -> None:
    to.query(node, f"SELECT {columns_of(node)}, {to.delta_of(node)} FROM")


@lowered.register(Changes)
def _changes(node: Changes, to: Lowering) -> None:
    here, there = to.level(node.up), to.level(node)
    rows = to.at(node.up, here)
    if to.plan.exchanged(node):
        rows = to.carried(rows, to.plan.name(node), here, there, node.up.key)
    columns, key = columns_of(node.up), [quote(name) for name in node.up.key or ()]
    by = f"PARTITION BY {', '.join(key)}" if key else ""
    net = f"SELECT {columns}, sum(_weight) AS _weight, max(_time) AS _time FROM"
    netted = f"GROUP BY {columns} HAVING sum(_weight) <> 0"
    withdrawn, inserted = (f"count(*) FILTER (WHERE _weight {sign} 0) OVER ({by})" for sign in "<>")
    kind = (
        f"CASE WHEN _weight < 0 THEN CASE WHEN {inserted} > 0 THEN 'update_preimage' ELSE 'delete' END "
        f"ELSE CASE WHEN {withdrawn} > 0 THEN 'update_postimage' ELSE 'insert' END END AS _change_type"
    )
    order = ", ".join([*key, "net._weight"])
    to.query(
        node,
        f"SELECT {columns}, {kind}, 1::INTEGER AS _weight, _time FROM (SELECT * FROM ({net}",
        f"{netted}) ) net ORDER BY {order}",
        inputs=(rows,),
    )
