"""Steps with state: what is done before the exchange, and what after."""

from __future__ import annotations

from typing import TYPE_CHECKING

from headrace.base.names import quote
from headrace.base.schema import duckdb_type
from headrace.engine.lowering.grouping import called_by, grouping_of, panes_of, read_by
from headrace.engine.lowering.walk import DELTA, columns_of, lowered
from headrace.expressions import calls_of, drawn_apart
from headrace.kernels import spec
from headrace.kernels.groups.window_top import PANE
from headrace.kernels.spec import (
    Arrival,
    AssignPane,
    Keeping,
    Merge,
    Partial,
    PartialTop,
    Query,
    Ranking,
    SplitLate,
    Upsert,
)
from headrace.plan.nodes import CHANGE_TYPE, ROW_TIME, Aggregate, Dedupe, Join, Late, Latest, Top

if TYPE_CHECKING:
    from headrace.engine.lowering.walk import Lowering
    from headrace.expressions import Scalar
    from headrace.kernels.spec import Panes


@lowered.register(Aggregate)
def _aggregate(node: Aggregate, to: Lowering) -> None:
    grouping, step, here = grouping_of(node), to.plan.name(node), to.level(node.up)
    keyed = 1 + len(grouping.values)
    made = tuple(to.number() for _ in range(keyed + (grouping.session is not None)))
    late = to.number() if any(isinstance(each, Late) and each.of is node for each in to.plan.nodes) else None
    to.lates[id(node)] = late or 0
    before, after = (None, late) if grouping.session else (late, None)
    source = to.called(step, here, _in_time(node, to), read_by(node), node.up.schema.names)
    to.add(here, Partial(step=step, input=source, outputs=made, late=before, grouping=grouping))
    there = to.level(node)
    if to.plan.exchanged(node):
        keys = tuple(f"k{i}" for i in range(len(node.keys)))
        by = [keys] * keyed + [node.keys]  # rows that may be late go as they are
        made = tuple(to.carried(number, step, here, there, of) for number, of in zip(made, by, strict=False))
    output = to.deltas[id(node)] = to.number()
    to.add(there, Merge(step=step, inputs=made, output=output, grouping=grouping, late=after))
    if called_by(node):
        _finish(node, output, to)


def _finish(node: Aggregate, merged: int, to: Lowering) -> None:
    """Make the results of the calls' values and keys, where the user's functions stand around aggregates."""
    step, level = to.plan.name(node), to.level(node)
    scalars = drawn_apart([made for _, made in node.aggregates.results])
    keys = [name for name in node.schema.names if name not in dict(node.aggregates.results)]
    given = [*keys, *(f"_a{i}" for i in range(len(node.aggregates.calls)))]
    source = to.called(step, level, merged, scalars, given)
    named = zip(scalars, node.aggregates.results, strict=True)
    columns = [*map(quote, keys), *(f"{made.sql} AS {quote(name)}" for made, (name, _) in named), DELTA]
    output = to.deltas[id(node)] = to.number()
    before = f"SELECT {', '.join(columns)} FROM"
    shared = to.uses.get(id(node), 0) > 1
    to.add(level, Query(step=step, inputs=(source,), output=output, before=before, after="", shared=shared))


@lowered.register(Dedupe)
def _dedupe(node: Dedupe, to: Lowering) -> None:
    step, here, there = to.plan.name(node), to.level(node.up), to.level(node)
    late = to.lates[id(node)] = to.number()
    rows = to.number()
    to.add(here, SplitLate(step=step, input=to.at(node.up, here), output=rows, late=late, reach=node.within))
    if to.plan.exchanged(node):
        rows = to.carried(rows, step, here, there, node.keys)
    output = to.deltas[id(node)] = to.number()
    keys = tuple((key, duckdb_type(node.schema.field(key).type)) for key in node.keys)
    columns = tuple(node.schema.names)
    made = spec.Dedupe(step=step, input=rows, output=output, keys=keys, columns=columns, within=node.within)
    to.add(there, made)


@lowered.register(Top)
def _top(node: Top, to: Lowering) -> None:
    step, here, there = to.plan.name(node), to.level(node.up), to.level(node)
    ranking, terms = _ranking(node)
    source, names = to.at(node.up, here), list(node.up.schema.names)
    if ranking.panes is not None:
        source, names = _place(node, ranking.panes, to), [*names, PANE]
    source = to.called(step, here, source, terms, names)
    columns = [f"{quote(name)} AS c{i}" for i, name in enumerate(names)]
    columns += [f"{term.sql} AS o{i}" for i, term in enumerate(terms)]
    before = f"SELECT {', '.join(columns)}, _weight::BIGINT AS _n, _time FROM"
    rows, exchanged = to.number(), to.plan.exchanged(node)
    to.add(here, Query(step=step, inputs=(source,), output=rows, before=before, after="", shared=False))
    early = exchanged and ranking.insert_only
    if early:
        rows, every = to.number(), rows
        to.add(here, PartialTop(step=step, input=every, output=rows, ranking=ranking))
    if exchanged:
        rows = to.carried(rows, step, here, there, tuple(f"c{names.index(key)}" for key in node.keys))
    output = to.deltas[id(node)] = to.number()
    to.add(there, spec.Top(step=step, input=rows, output=output, ranking=ranking, counts=not (early or ranking.panes)))


def _place(node: Top, panes: Panes, to: Lowering) -> int:
    """Give rows their panes, and set aside the late ones."""
    late = to.number() if any(isinstance(each, Late) and each.of is node for each in to.plan.nodes) else None
    to.lates[id(node)] = late or 0
    here, output = to.level(node.up), to.number()
    to.add(here, AssignPane(step=to.plan.name(node), input=_in_time(node, to), output=output, late=late, panes=panes))
    return output


def _in_time(node: Aggregate | Top, to: Lowering) -> int:
    """Return the rows above; for windows each with its own time, also where a change withdraws it."""
    here = to.level(node.up)
    rows, time = to.at(node.up, here), ROW_TIME if node.window is None else node.up.time_column
    if time == ROW_TIME:
        return rows
    output = to.number()
    before = f"SELECT {columns_of(node.up)}, _weight, epoch_us({quote(str(time))}) AS _time FROM"
    to.add(here, Query(step=to.plan.name(node), inputs=(rows,), output=output, before=before, after="", shared=False))
    return output


@lowered.register(Latest)
def _latest(node: Latest, to: Lowering) -> None:
    step, here, there = to.plan.name(node), to.level(node.up), to.level(node)
    keeping, arrived = _keeping(node), to.number()
    to.add(here, Arrival(step=step, input=to.at(node.up, here), output=arrived, keeping=keeping))
    if to.plan.exchanged(node):
        arrived = to.carried(arrived, step, here, there, tuple(name for name, _, _ in keeping.inside_keys))
    output = to.deltas[id(node)] = to.number()
    to.add(there, Upsert(step=step, input=arrived, output=output, keeping=keeping))


@lowered.register(Late)
def _late(node: Late, to: Lowering) -> None:
    up, rows = node.of.ups[0], to.lates[id(node.of)]
    if not up.append_only and not isinstance(node.of, Join):
        kind = f"CASE WHEN _weight < 0 THEN 'delete' ELSE 'insert' END AS {CHANGE_TYPE}"
        to.query(node, f"SELECT {columns_of(up)}, {kind}, abs(_weight)::INTEGER AS _weight, _time FROM", inputs=(rows,))
    elif not isinstance(node.of, Aggregate) or not calls_of(read_by(node.of)):
        to.deltas[id(node)] = rows
    else:  # the rows as they came: without the columns of calls
        to.query(node, f"SELECT {columns_of(node)}, {DELTA} FROM", inputs=(rows,))


def _ranking(node: Top) -> tuple[Ranking, list[Scalar]]:
    """Return a ranking, and the terms of its order that are no columns as they stand."""
    names = node.up.schema.names
    bare = {quote(name): f"c{i}" for i, name in enumerate(names)}
    made = drawn_apart([term.value for term in node.order if term.value.sql not in bare])
    terms, order = iter(range(len(made))), []
    for term in node.order:
        column = bare[term.value.sql] if term.value.sql in bare else f"o{next(terms)}"
        order.append(f"{column} {term.direction}")
    columns = [(field.name, duckdb_type(field.type)) for field in node.up.schema]
    group = [names.index(key) for key in node.keys]
    if node.window is not None:
        columns, group = [*columns, ("", "BIGINT")], [*group, len(columns)]
    ranking = Ranking(
        columns=tuple(columns),
        group=tuple(group),
        made=tuple(duckdb_type(term.type) for term in made),
        order=tuple(order),
        n=node.n,
        rank=node.rank,
        insert_only=node.up.append_only,
        panes=None if node.window is None else panes_of(node.window),
        final=node.emit == "final",
    )
    return ranking, made


def _keeping(node: Latest) -> Keeping:
    columns = [(field.name, duckdb_type(field.type)) for field in node.schema]
    kinds = dict(columns)
    return Keeping(
        keys=tuple((name, kinds[name]) for name in node.keys),
        values=tuple((name, kind) for name, kind in columns if name not in node.keys),
        by_time=node.by_time,
    )
