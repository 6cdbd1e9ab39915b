"""From what was asked to what is run: each node of the plan becomes operations of its level."""

from __future__ import annotations

from functools import singledispatchmethod
from typing import TYPE_CHECKING

from headrace.base.names import quote
from headrace.base.schema import duckdb_type
from headrace.kernels import accumulators, spec
from headrace.kernels.accumulators import Accumulators
from headrace.kernels.spec import (
    Apply,
    Arrival,
    Best,
    Call,
    FunctionCall,
    Grouping,
    Intake,
    Judge,
    Keeping,
    Level,
    Merge,
    Op,
    Panes,
    Partial,
    Program,
    Query,
    Ranking,
    Send,
    Session,
    Stage,
    Upsert,
    UserAggregate,
)
from headrace.plan.expressions import calls_of, drawn_apart
from headrace.plan.nodes import (
    Aggregate,
    CallSink,
    Changes,
    Dedupe,
    Explode,
    Late,
    Latest,
    MapBatches,
    Node,
    ReadSource,
    Select,
    Sink,
    Top,
    TopicSink,
    TopicSource,
    Union,
    Where,
)
from headrace.plan.windows import AlignedWindow, SessionWindow

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from headrace.plan.expressions import AggregateCall, Scalar
    from headrace.plan.plan import Plan

_DELTA = "_weight, _time"


def lower(plan: Plan, shards: int) -> Program:
    """Return the program that computes a plan on so many shards."""
    return _Lowering(plan, shards).program()


class _Lowering:
    def __init__(self, plan: Plan, shards: int) -> None:
        self.plan = plan
        self.shards = shards
        self.ops: list[list[Op]] = [[] for _ in range(plan.depth + 1)]
        self.receives: list[list[tuple[int, int]]] = [[] for _ in range(plan.depth + 1)]
        self.intakes: list[Intake] = []
        self.deltas: dict[int, int] = {}
        self.lates: dict[int, int] = {}
        self.uses = _uses(plan)
        self.numbers = 0
        self.edges = 0

    def program(self) -> Program:
        for node in self.plan.nodes:
            self._node(node)
        for sink in self.plan.sinks:
            self._add(self._level(sink.up), _stage(sink, self.deltas[id(sink.up)]))
        levels = tuple(
            Level(number=number, ops=tuple(ops), receives=tuple(self.receives[number]))
            for number, ops in enumerate(self.ops)
        )
        return Program(app=self.plan.app, shards=self.shards, intakes=tuple(self.intakes), levels=levels)

    # ---- small words ----

    def _level(self, node: Node) -> int:
        return self.plan.level(node)

    def _add(self, level: int, op: Op) -> None:
        self.ops[level].append(op)

    def _number(self) -> int:
        self.numbers += 1
        return self.numbers

    def _at(self, node: Node, level: int) -> int:
        """Return the delta of a node's rows at a level: its own, or a copy carried to a later one."""
        number = self.deltas[id(node)]
        if self._level(node) == level:
            return number
        return self._carried(number, self.plan.name(node), self._level(node), level, None)

    def _carried(self, number: int, step: str, here: int, there: int, keys: tuple[str, ...] | None) -> int:
        """Send a delta through an exchange and return its number on the other side."""
        self.edges += 1
        self._add(here, Send(step=step, input=number, edge=self.edges, level=there, keys=keys))
        arrived = self._number()
        self.receives[there].append((self.edges, arrived))
        return arrived

    def _query(self, node: Node, before: str, after: str = "", *, inputs: tuple[int, ...] | None = None) -> None:
        level = self._level(node)
        if inputs is None:
            inputs = self._inputs(node)
        output = self.deltas[id(node)] = self._number()
        shared = self.uses.get(id(node), 0) > 1
        step = self.plan.name(node)
        self._add(level, Query(step=step, inputs=inputs, output=output, before=before, after=after, shared=shared))

    def _inputs(self, node: Node) -> tuple[int, ...]:
        return tuple(self._at(up, self._level(node)) for up in node.ups)

    def _called(self, step: str, level: int, input_: int, scalars: Sequence[Scalar], columns: Iterable[str]) -> int:
        """Return a delta with those columns and one for each call of the user's functions in the expressions."""
        calls = calls_of(scalars)
        if not calls:
            return input_
        kept, output = self._number(), self._number()
        pruned = f"SELECT {', '.join([*map(quote, columns), _DELTA])} FROM"
        self._add(level, Query(step=step, inputs=(input_,), output=kept, before=pruned, after="", shared=False))
        made = tuple(
            FunctionCall(
                column=call.column,
                name=call.function.name,
                function=call.function.function,
                arguments=tuple((argument.sql, argument.type) for argument in call.arguments),
                returns=call.function.returns,
            )
            for call in calls
        )
        self._add(level, Call(step=step, input=kept, output=output, calls=made))
        return output

    def _with_calls(self, node: Node, scalars: Sequence[Scalar], columns: Iterable[str]) -> tuple[int, ...]:
        """Return the inputs of a stateless step over one delta, its calls made."""
        (above,) = self._inputs(node)
        return (self._called(self.plan.name(node), self._level(node), above, scalars, columns),)

    # ---- nodes ----

    @singledispatchmethod
    def _node(self, node: Node) -> None:
        raise TypeError(node)

    @_node.register(TopicSource)
    @_node.register(ReadSource)
    def _source(self, node: TopicSource | ReadSource) -> None:
        raw, self.deltas[id(node)] = self._number(), self._number()
        step = self.plan.name(node)
        self.intakes.append(Intake(source=step, output=raw, schema=node.schema))
        weight = "_weight" if isinstance(node, TopicSource) and node.upserts else "1::INTEGER AS _weight"
        before = f"SELECT {_columns(node)}, {weight}, _time FROM"
        output = self.deltas[id(node)]
        self._add(0, Query(step=step, inputs=(raw,), output=output, before=before, after="", shared=False))

    @_node.register
    def _select(self, node: Select) -> None:
        scalars = drawn_apart([made for _, made in node.columns])
        needed = {column: None for made in scalars for column in made.columns}
        kept = [name for name in node.up.schema.names if name in needed]
        inputs = self._with_calls(node, scalars, kept)
        columns = [f"{made.sql} AS {quote(name)}" for made, (name, _) in zip(scalars, node.columns, strict=True)]
        self._query(node, f"SELECT {', '.join(columns)}, {_DELTA} FROM", inputs=inputs)

    @_node.register
    def _where(self, node: Where) -> None:
        inputs = self._with_calls(node, [node.condition], node.schema.names)
        columns = f"{_columns(node)}, {_DELTA}" if node.condition.calls else "*"
        self._query(node, f"SELECT {columns} FROM", f"WHERE {node.condition.sql}", inputs=inputs)

    @_node.register
    def _explode(self, node: Explode) -> None:
        kept = [quote(name) for name in node.up.schema.names if name not in node.into]
        of_map = len(node.into) > 1
        elements = f"unnest(map_entries({node.column.sql}))" if of_map else f"unnest({node.column.sql})"
        inner = f"SELECT *, {elements} AS _element FROM"
        made = ["_element.key", "_element.value"] if of_map else ["_element"]
        named = dict(zip(node.into, made, strict=True))
        columns = [f"{named[n]} AS {quote(n)}" if n in named else quote(n) for n in node.schema.names]
        assert len(columns) == len(kept) + len(node.into)  # noqa: S101 -- what the verb made
        inputs = self._with_calls(node, [node.column], node.up.schema.names)
        self._query(node, f"SELECT {', '.join(columns)}, {_DELTA} FROM ({inner}", ")", inputs=inputs)

    @_node.register
    def _map_batches(self, node: MapBatches) -> None:
        level = self._level(node)
        output = self.deltas[id(node)] = self._number()
        apply = Apply(
            step=self.plan.name(node),
            input=self._at(node.up, level),
            output=output,
            takes=node.up.schema,
            gives=node.schema,
            function=node.function,
        )
        self._add(level, apply)

    @_node.register
    def _union(self, node: Union) -> None:
        self._query(node, f"SELECT {_columns(node)}, {_DELTA} FROM")

    @_node.register
    def _changes(self, node: Changes) -> None:
        columns, key = _columns(node.up), [quote(name) for name in node.up.key or ()]
        by = f"PARTITION BY {', '.join(key)}" if key else ""
        net = f"SELECT {columns}, sum(_weight) AS _weight, max(_time) AS _time FROM"
        netted = f"GROUP BY {columns} HAVING sum(_weight) <> 0"
        lost, came = (f"count(*) FILTER (WHERE _weight {sign} 0) OVER ({by})" for sign in "<>")
        kind = (
            f"CASE WHEN _weight < 0 THEN CASE WHEN {came} > 0 THEN 'update_preimage' ELSE 'delete' END "
            f"ELSE CASE WHEN {lost} > 0 THEN 'update_postimage' ELSE 'insert' END END AS _change_type"
        )
        order = ", ".join([*key, "_weight"])
        self._query(
            node,
            f"SELECT {columns}, {kind}, 1::INTEGER AS _weight, _time FROM (SELECT * FROM ({net}",
            f"{netted}) ) net ORDER BY {order.replace('_weight', 'net._weight')}",
        )

    @_node.register
    def _aggregate(self, node: Aggregate) -> None:
        grouping, step, here = _grouping(node), self.plan.name(node), self._level(node.up)
        keyed = 1 + len(grouping.values)
        made = tuple(self._number() for _ in range(keyed + (grouping.session is not None)))
        late = self._number() if any(isinstance(each, Late) and each.of is node for each in self.plan.nodes) else None
        self.lates[id(node)] = late or 0
        before, after = (None, late) if grouping.session else (late, None)
        source = self._called(step, here, self._at(node.up, here), _read_by(node), node.up.schema.names)
        self._add(here, Partial(step=step, input=source, outputs=made, late=before, grouping=grouping))
        there = self._level(node)
        if self.plan.exchanged(node):
            keys = tuple(f"k{i}" for i in range(len(node.keys)))
            by = [keys] * keyed + [node.keys]  # rows that may be late go as they are
            made = tuple(self._carried(number, step, here, there, of) for number, of in zip(made, by, strict=False))
        output = self.deltas[id(node)] = self._number()
        self._add(there, Merge(step=step, inputs=made, output=output, grouping=grouping, late=after))
        if _called_by(node):
            self._finish(node, output)

    def _finish(self, node: Aggregate, merged: int) -> None:
        """Make the results of the calls' values and keys, where the user's functions stand around aggregates."""
        step, level = self.plan.name(node), self._level(node)
        scalars = drawn_apart([made for _, made in node.aggregates.results])
        keys = [name for name in node.schema.names if name not in dict(node.aggregates.results)]
        given = [*keys, *(f"_a{i}" for i in range(len(node.aggregates.calls)))]
        source = self._called(step, level, merged, scalars, given)
        named = zip(scalars, node.aggregates.results, strict=True)
        columns = [*map(quote, keys), *(f"{made.sql} AS {quote(name)}" for made, (name, _) in named), _DELTA]
        output = self.deltas[id(node)] = self._number()
        before = f"SELECT {', '.join(columns)} FROM"
        shared = self.uses.get(id(node), 0) > 1
        self._add(level, Query(step=step, inputs=(source,), output=output, before=before, after="", shared=shared))

    @_node.register
    def _dedupe(self, node: Dedupe) -> None:
        step, here, there = self.plan.name(node), self._level(node.up), self._level(node)
        late = self.lates[id(node)] = self._number()
        rows = self._number()
        self._add(here, Judge(step=step, input=self._at(node.up, here), output=rows, late=late, reach=node.within))
        if self.plan.exchanged(node):
            rows = self._carried(rows, step, here, there, node.keys)
        output = self.deltas[id(node)] = self._number()
        keys = tuple((key, duckdb_type(node.schema.field(key).type)) for key in node.keys)
        columns = tuple(node.schema.names)
        made = spec.Dedupe(step=step, input=rows, output=output, keys=keys, columns=columns, within=node.within)
        self._add(there, made)

    @_node.register
    def _top(self, node: Top) -> None:
        step, here, there = self.plan.name(node), self._level(node.up), self._level(node)
        ranking, terms = _ranking(node)
        source = self._called(step, here, self._at(node.up, here), terms, node.up.schema.names)
        columns = [f"{quote(name)} AS c{i}" for i, (name, _) in enumerate(ranking.columns)]
        columns += [f"{term.sql} AS o{i}" for i, term in enumerate(terms)]
        before = f"SELECT {', '.join(columns)}, _weight::BIGINT AS _n, _time FROM"
        rows, exchanged = self._number(), self.plan.exchanged(node)
        self._add(here, Query(step=step, inputs=(source,), output=rows, before=before, after="", shared=False))
        early = exchanged and ranking.insert_only
        if early:
            rows, every = self._number(), rows
            self._add(here, Best(step=step, input=every, output=rows, ranking=ranking))
        if exchanged:
            rows = self._carried(rows, step, here, there, tuple(f"c{i}" for i in ranking.group))
        output = self.deltas[id(node)] = self._number()
        self._add(there, spec.Top(step=step, input=rows, output=output, ranking=ranking, counts=not early))

    @_node.register
    def _latest(self, node: Latest) -> None:
        step, here, there = self.plan.name(node), self._level(node.up), self._level(node)
        keeping, arrived = _keeping(node), self._number()
        self._add(here, Arrival(step=step, input=self._at(node.up, here), output=arrived, keeping=keeping))
        if self.plan.exchanged(node):
            arrived = self._carried(arrived, step, here, there, tuple(name for name, _, _ in keeping.inside_keys))
        output = self.deltas[id(node)] = self._number()
        self._add(there, Upsert(step=step, input=arrived, output=output, keeping=keeping))

    @_node.register
    def _late(self, node: Late) -> None:
        if not isinstance(node.of, Aggregate) or not calls_of(_read_by(node.of)):
            self.deltas[id(node)] = self.lates[id(node.of)]
        else:  # the rows as they came: without the columns of calls
            self._query(node, f"SELECT {_columns(node)}, {_DELTA} FROM", inputs=(self.lates[id(node.of)],))


def _columns(node: Node) -> str:
    return ", ".join(quote(name) for name in node.schema.names)


def _uses(plan: Plan) -> dict[int, int]:
    """Return how often each node's rows are read; a step that reads them twice counts twice."""
    uses: dict[int, int] = {}
    for node in plan.nodes:
        for up in node.ups:
            grouping = _grouping(node) if isinstance(node, Aggregate) else None
            twice = grouping is not None and bool(grouping.values or grouping.session)
            uses[id(up)] = uses.get(id(up), 0) + (2 if twice else 1)
    for sink in plan.sinks:
        uses[id(sink.up)] = uses.get(id(sink.up), 0) + 1
    return uses


def _read_by(node: Aggregate) -> list[Scalar]:
    """Return the expressions that an aggregate reads of its input's rows."""
    calls = node.aggregates.calls
    return drawn_apart([*(a for call in calls for a in call.arguments), *(c.where for c in calls if c.where)])


def _called_by(node: Aggregate) -> bool:
    """Whether the results call functions of the user's, so that they cannot be SQL alone."""
    return bool(calls_of(made for _, made in node.aggregates.results))


def _results(node: Aggregate) -> tuple[tuple[str, str, str], ...]:
    if _called_by(node):
        return tuple((f"_a{i}", f"_a{i}", duckdb_type(call.type)) for i, call in enumerate(node.aggregates.calls))
    return tuple((name, made.sql, duckdb_type(made.type)) for name, made in node.aggregates.results)


def _grouping(node: Aggregate) -> Grouping:
    kept = Accumulators(insert_only=node.up.appends)
    read = iter(_read_by(node))
    arguments = [[next(read) for _ in call.arguments] for call in node.aggregates.calls]
    for call, given in zip(node.aggregates.calls, arguments, strict=True):
        where = next(read).sql if call.where else None
        kept.add(
            accumulators.Call(
                function=call.function,
                arguments=tuple(made.sql for made in given),
                argument_types=tuple(duckdb_type(made.type) for made in given),
                distinct=call.distinct,
                type=duckdb_type(call.type),
                user=None if call.user is None else _user(call),
                where=where,
            )
        )
    w = node.window
    fields = [node.up.schema.field(key) for key in node.keys]
    return Grouping(
        keys=tuple((field.name, quote(field.name), duckdb_type(field.type)) for field in fields),
        panes=_panes(w) if isinstance(w, AlignedWindow) else None,
        session=Session(gap=w.gap, grace=w.grace) if isinstance(w, SessionWindow) else None,
        final=node.emit == "final",
        insert_only=node.up.appends,
        pieces=tuple(kept.pieces),
        values=tuple(kept.values),
        calls=tuple(kept.calls),
        from_values=tuple(kept.from_values),
        results=_results(node),
        users=tuple(kept.users),
    )


def _panes(w: AlignedWindow) -> Panes:
    cumulating = w.kind == "cumulating"
    return Panes(size=w.size, every=w.every, pane=w.pane, grace=w.grace, offset=w.offset, cumulating=cumulating)


def _ranking(node: Top) -> tuple[Ranking, list[Scalar]]:
    """Return a ranking, and the terms of its order that are no columns as they stand."""
    names = node.up.schema.names
    bare = {quote(name): f"c{i}" for i, name in enumerate(names)}
    made = drawn_apart([term.value for term in node.order if term.value.sql not in bare])
    terms, order = iter(range(len(made))), []
    for term in node.order:
        column = bare[term.value.sql] if term.value.sql in bare else f"o{next(terms)}"
        order.append(f"{column} {term.direction}")
    ranking = Ranking(
        columns=tuple((field.name, duckdb_type(field.type)) for field in node.up.schema),
        group=tuple(names.index(key) for key in node.keys),
        made=tuple(duckdb_type(term.type) for term in made),
        order=tuple(order),
        n=node.n,
        rank=node.rank,
        insert_only=node.up.appends,
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


def _user(call: AggregateCall) -> UserAggregate:
    assert call.user is not None  # noqa: S101 -- asked before
    assert call.user.state is not None  # noqa: S101 -- an aggregate has one
    return UserAggregate(
        name=call.function,
        function=call.user.function,
        takes=tuple(argument.type for argument in call.arguments),
        state=call.user.state,
        returns=call.user.returns,
    )


def _stage(sink: Sink, number: int) -> Stage:
    node = sink.up
    changelog = isinstance(sink, TopicSink) and node.is_table
    form = "changelog" if changelog else "rows" if isinstance(sink, TopicSink) else "delta"
    whole = isinstance(node, Top) or (isinstance(node, Aggregate) and not _called_by(node))
    plain = whole or not node.is_table  # nothing in it can cancel out
    if isinstance(sink, CallSink):
        plain = True
    return Stage(
        step=sink.name,
        input=number,
        sink=sink.name,
        schema=node.schema,
        form=form,  # type: ignore[arg-type] # a literal, chosen above
        key=node.key,
        net=not plain,
    )
