"""Steps with state: what is done before the exchange, and what after."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from headrace.base.names import quote
from headrace.base.schema import duckdb_type
from headrace.engine.lowering.grouping import called_by, grouping_of, panes_of, read_by
from headrace.engine.lowering.walk import DELTA, columns_of, lowered
from headrace.expressions import calls_of, drawn_apart
from headrace.kernels.groups.partial import Partial
from headrace.kernels.groups.window_top import PANE, AssignPane
from headrace.kernels.op import Check
from headrace.kernels.operations import operator
from headrace.kernels.query import Query
from headrace.kernels.ranking import Ranking
from headrace.kernels.top import PartialTop
from headrace.plan.nodes import ARRIVED, CHANGE_TYPE, ROW_TIME, Aggregate, Join, Keyed, Late, Latest, Top

if TYPE_CHECKING:
    from headrace.engine.lowering.walk import Lowering
    from headrace.expressions import Scalar
    from headrace.kernels.groups.windows import Panes


@lowered.register(Keyed)
def _keyed(node: Keyed, to: Lowering) -> None:
    """Add a step over one other: what its operator does before the exchange, the exchange, and the operator."""
    step, here, there = to.plan.name(node), to.level(node.up), to.level(node)
    late = to.number() if node.detects_late else None
    to.lates[id(node)] = late or 0
    early, late = (late, None) if node.late_before_exchange else (None, late)
    output = to.deltas[id(node)] = to.number()
    columns = tuple((field.name, duckdb_type(field.type)) for field in node.schema)
    more = {"arrived": ARRIVED} if id(node) in to.plan.arrivals else {}
    op = operator(node.kernel)(
        step=step, inputs=(), output=output, late=late, columns=columns, keys=node.keys, **node.parameters(), **more
    )
    rows = to.before_exchange(op, 0, to.keyed(node, _with_key(node, to), node.keys), here, early)
    if to.plan.exchanged(node):
        rows = to.carried(rows, step, here, there, op.exchange_keys(node.keys))
    to.add(there, replace(op, inputs=(rows,)))


def _with_key(node: Keyed, to: Lowering) -> int:
    """Return the rows above; for `latest` those with a key: others fail, as in a table of a topic."""
    here = to.level(node.up)
    rows, nullable = to.at(node.up, here), [key for key in node.keys if key not in node.up.not_null]
    if not isinstance(node, Latest) or not node.by_time or not nullable:
        return rows
    missing = " OR ".join(f"{quote(key)} IS NULL" for key in nullable)
    says = f"no key: rows of the table are identified by {', '.join(node.keys)}".replace("'", "''")
    sql = f"CASE WHEN {missing} THEN error('[NULL_KEY] {says}')::BOOLEAN ELSE true END"
    check = Check(text=f"latest({', '.join(node.keys)})", sql=sql, columns=tuple(nullable), refuses=True)
    dead = to.dead(node, refused=here > 0)  # at level 0 whole records are taken out, by what their source says
    step, output = to.plan.name(node), to.number()
    before, after = "SELECT * FROM", f"WHERE {sql}"
    query = Query(step=step, inputs=(rows,), output=output, before=before, after=after, shared=dead is not None)
    to.add(here, replace(query, checks=(check,), dead=dead))
    return output


@lowered.register(Aggregate)
def _aggregate(node: Aggregate, to: Lowering) -> None:
    grouping, step, here = grouping_of(node), to.plan.name(node), to.level(node.up)
    parts = tuple(to.number() for _ in range(1 + len(grouping.multisets) + grouping.late_after_exchange))
    late = _late_number(node, to)
    early, late = (late, None) if node.late_before_exchange else (None, late)
    above = to.keyed(node, _in_time(node, to), node.keys)
    rows = to.called(node, here, above, read_by(node), node.up.schema.names)
    partial = Partial(step=step, inputs=(rows,), output=parts[0], more=parts[1:], late=early, grouping=grouping)
    to.add(here, replace(partial, checks=to.checks(read_by(node)), dead=to.dead(node)))
    there = to.level(node)
    if to.plan.exchanged(node):
        keys = tuple(f"k{i}" for i in range(len(node.keys)))
        by = [keys] * (1 + len(grouping.multisets)) + [node.keys]  # rows that may be late go as they are
        parts = tuple(to.carried(number, step, here, there, of) for number, of in zip(parts, by, strict=False))
    output = to.deltas[id(node)] = to.number()
    to.add(there, operator(node.kernel)(step=step, inputs=parts, output=output, late=late, grouping=grouping))
    if called_by(node):
        _finish(node, output, to)


def _late_number(node: Aggregate | Top, to: Lowering) -> int | None:
    """Return a number for a step's late rows, where somebody reads them."""
    late = to.number() if any(isinstance(other, Late) and other.of is node for other in to.plan.nodes) else None
    to.lates[id(node)] = late or 0
    return late


def _finish(node: Aggregate, merged: int, to: Lowering) -> None:
    """Compute the results from the calls' values and the keys, where they call functions of the user's."""
    step, level = to.plan.name(node), to.level(node)
    scalars = drawn_apart([result for _, result in node.aggregates.results])
    keys = [name for name in node.schema.names if name not in dict(node.aggregates.results)]
    columns = [*keys, *(f"_a{i}" for i in range(len(node.aggregates.calls)))]
    source = to.called(node, level, merged, scalars, columns)
    results = zip(scalars, node.aggregates.results, strict=True)
    columns = [*map(quote, keys), *(f"{scalar.sql} AS {quote(name)}" for scalar, (name, _) in results), DELTA]
    output = to.deltas[id(node)] = to.number()
    before = f"SELECT {', '.join(columns)} FROM"
    checks, dead = to.checks(scalars), to.dead(node)
    shared = to.uses.get(id(node), 0) > 1 or bool(checks and dead)
    query = Query(step=step, inputs=(source,), output=output, before=before, after="", shared=shared)
    to.add(level, replace(query, checks=checks, dead=dead))


@lowered.register(Top)
def _top(node: Top, to: Lowering) -> None:
    step, here, there = to.plan.name(node), to.level(node.up), to.level(node)
    ranking, terms = _ranking(node)
    source, names = to.at(node.up, here), list(node.up.schema.names)
    if ranking.panes is not None:
        source, names = _with_panes(node, ranking.panes, to), [*names, PANE]
    source = to.called(node, here, to.keyed(node, source, node.up.schema.names), terms, names)
    columns = [f"{quote(name)} AS c{i}" for i, name in enumerate(names)]
    columns += [f"{term.sql} AS o{i}" for i, term in enumerate(terms)]
    before = f"SELECT {', '.join(columns)}, _weight::BIGINT AS _n, _time FROM"
    rows, exchanged = to.number(), to.plan.exchanged(node)
    checks, dead = to.checks(terms), to.dead(node)
    query = Query(step=step, inputs=(source,), output=rows, before=before, after="", shared=bool(checks and dead))
    to.add(here, replace(query, checks=checks, dead=dead))
    early = exchanged and ranking.insert_only
    if early:
        every, rows = rows, to.number()
        to.add(here, PartialTop(step=step, inputs=(every,), output=rows, ranking=ranking))
    if exchanged:
        rows = to.carried(rows, step, here, there, tuple(f"c{names.index(key)}" for key in node.keys))
    output = to.deltas[id(node)] = to.number()
    counts = not early and ranking.panes is None
    to.add(there, operator(node.kernel)(step=step, inputs=(rows,), output=output, ranking=ranking, counts=counts))


def _with_panes(node: Top, panes: Panes, to: Lowering) -> int:
    """Return the rows with their panes; the late ones are split off."""
    late, here, output = _late_number(node, to), to.level(node.up), to.number()
    assign = AssignPane(step=to.plan.name(node), inputs=(_in_time(node, to),), output=output, late=late, panes=panes)
    to.add(here, assign)
    return output


def _in_time(node: Aggregate | Top, to: Lowering) -> int:
    """Return the rows above; for windows each with its own time, also where a change withdraws it."""
    here = to.level(node.up)
    rows, time = to.at(node.up, here), ROW_TIME if node.window is None else node.up.time_column
    if time == ROW_TIME:
        return rows
    output = to.number()
    columns = ", ".join(map(quote, to.columns_read(node.up)))
    before = f"SELECT {columns}, _weight, epoch_us({quote(str(time))}) AS _time FROM"
    to.add(here, Query(step=to.plan.name(node), inputs=(rows,), output=output, before=before, after="", shared=False))
    return output


@lowered.register(Late)
def _late(node: Late, to: Lowering) -> None:
    up, rows = node.of.ups[0], to.lates[id(node.of)]
    if not up.append_only and not isinstance(node.of, Join):
        kind = f"CASE WHEN _weight < 0 THEN 'delete' ELSE 'insert' END AS {CHANGE_TYPE}"
        to.query(node, f"SELECT {columns_of(up)}, {kind}, abs(_weight)::INTEGER AS _weight, _time FROM", inputs=(rows,))
    elif not isinstance(node.of, Aggregate) or not calls_of(read_by(node.of)):
        to.deltas[id(node)] = rows
    else:  # the rows as they arrived: without the columns of calls
        to.query(node, f"SELECT {columns_of(node)}, {DELTA} FROM", inputs=(rows,))


def _ranking(node: Top) -> tuple[Ranking, list[Scalar]]:
    """Return a ranking, and the terms of its order that are not bare columns."""
    names = node.up.schema.names
    bare = {quote(name): f"c{i}" for i, name in enumerate(names)}
    terms = drawn_apart([term.value for term in node.order if term.value.sql not in bare])
    numbers, order = iter(range(len(terms))), []
    for term in node.order:
        column = bare[term.value.sql] if term.value.sql in bare else f"o{next(numbers)}"
        order.append(f"{column} {term.direction}")
    columns = [(field.name, duckdb_type(field.type)) for field in node.up.schema]
    group = [names.index(key) for key in node.keys]
    if node.window is not None:
        columns, group = [*columns, ("", "BIGINT")], [*group, len(columns)]
    ranking = Ranking(
        columns=tuple(columns),
        group=tuple(group),
        terms=tuple(duckdb_type(term.type) for term in terms),
        order=tuple(order),
        n=str(node.n) if isinstance(node.n, int) else f"c{names.index(node.n)}",
        rank=node.rank,
        ties=node.ties,
        insert_only=node.up.append_only,
        panes=None if node.window is None else panes_of(node.window),
        final=node.emit == "final",
    )
    return ranking, terms
