"""Aggregations: texts such as `sum(price) / count(*)` become aggregate calls and expressions over their results."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import pyarrow as pa
from sqlglot import exp

from headrace.base.errors import (
    InvalidExpression,
    PlanError,
    UngroupedColumn,
    UnknownColumn,
    UnsupportedFunction,
    WrongType,
)
from headrace.base.names import literal, quote
from headrace.expressions import kinds as k
from headrace.expressions.aggregate_arguments import TEXTS, AggregateArguments, arguments_of, call_of
from headrace.expressions.calls import scalar_of
from headrace.expressions.compiler import Compiler, check
from headrace.expressions.grammar import parse, shown
from headrace.expressions.guarded import guarded
from headrace.expressions.listed_texts import delimiter_of, ordered_texts
from headrace.expressions.mismatch import Mismatch
from headrace.expressions.positional import POSITIONAL, constants_of, typed
from headrace.expressions.resolve import arguments
from headrace.expressions.scalars import AggregateCall, Aggregates, Scalar
from headrace.expressions.sealed import gives_sealed, refuse_computing
from headrace.expressions.sketches import SKETCHES, sketch_of
from headrace.expressions.sort_keys import sort_key
from headrace.expressions.table import AGGREGATES
from headrace.expressions.user import aggregate_names
from headrace.expressions.values import Value

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator, Mapping

    from headrace.expressions.user import UserFunction

_NONE: Mapping[str, UserFunction] = {}
_EXTREMES = {"min": "min_by", "max": "max_by", "min_by": "min_by", "max_by": "max_by"}


@dataclass(frozen=True, slots=True)
class Rewritten:
    """A text, and the tree that stands for it."""

    text: str
    tree: exp.Expression


def is_aggregate(name: str, functions: Mapping[str, UserFunction] = _NONE) -> bool:
    """Return whether a name, in any case, is that of an aggregate function."""
    return name.lower() in AGGREGATES or name.lower() in aggregate_names(functions)


def aggregates(
    named: Mapping[str, str] | Mapping[str, Rewritten],
    schema: pa.Schema,
    keys: pa.Schema,
    *,
    step: str,
    functions: Mapping[str, UserFunction] = _NONE,
    sealed: Collection[str] = (),
    ordered: bool = False,
) -> Aggregates:
    """Return what an aggregation computes: its distinct calls, and each result over them and the keys.

    The arguments of aggregates read `schema`; outside of them only `keys` can be read. Equal calls are computed once,
    so `sum(x) / count(*)` next to `count(*)` counts once. A result's columns are `_a{i}` and names of keys. Where rows
    are `ordered`, functions of a row's place are known too.

    Raises:
        PlanError: a text cannot be read, typed or computed; the error names the step and the part.

    """
    collector = _Collector(schema, keys, step, functions, ordered=ordered)
    given = {
        name: text if isinstance(text, Rewritten) else Rewritten(text, parse(text, step=step))
        for name, text in named.items()
    }
    trees = {name: text.tree for name, text in given.items()}
    with guarded(f'step "{step}": ', ", ".join(text.text for text in given.values())):
        for tree in trees.values():
            refuse_computing(tree, schema.names, sealed, step=step)
        passed = frozenset(name for name, tree in trees.items() if gives_sealed(tree, schema.names, sealed))
        results = tuple((name, collector.result(tree, given[name].text)) for name, tree in trees.items())
    return Aggregates(tuple(collector.calls), results, passed)


class _Collector:
    """Collects the calls of all results of one step."""

    def __init__(
        self, schema: pa.Schema, keys: pa.Schema, step: str, functions: Mapping[str, UserFunction], *, ordered: bool
    ) -> None:
        self.positional = POSITIONAL if ordered else ()
        self.keys = keys
        self.step = step
        self.functions = functions
        self.known = {*AGGREGATES, *aggregate_names(functions), *self.positional}
        self.schema = schema
        self.inside = Compiler(schema, step=step, functions=functions, missing=self._unknown)
        self.calls: list[AggregateCall] = []

    def result(self, tree: exp.Expression, text: str) -> Scalar:
        values: dict[int, Value] = {}
        for node in list(_outermost(tree, self.known)):
            values[id(node)] = self._call(node)
        outside = Compiler(self.keys, step=self.step, functions=self.functions, calls=values, missing=self._no_key)
        return scalar_of(check(outside.compile(tree), step=self.step), outside.user_calls, text)

    def _call(self, node: exp.Expression) -> Value:
        text = shown(node)
        try:
            call = self._positional(node) or self._typed(node)
        except Mismatch as no:
            raise no.condition(f'step "{self.step}": in "{text}": {no.what}', detail=no.detail, hint=no.hint) from None
        same = [i for i, call_before in enumerate(self.calls) if _identity(call_before) == _identity(call)]
        if not same:
            self.calls.append(call)
        name = f"_a{same[0] if same else len(self.calls) - 1}"
        return Value(text, quote(name), call.type, frozenset({name}))

    def _typed(self, node: exp.Expression) -> AggregateCall:
        condition: Value | None = None
        if isinstance(node, exp.Filter):
            condition = self._condition(node.expression.this)
            node = node.this
        name, taken = call_of(node).name.lower(), arguments_of(node)
        trees = taken.values
        if name not in AGGREGATES or name in SKETCHES or name in TEXTS:
            return self._special(name, taken, condition)
        aggregate = AGGREGATES[name]
        distinct = len(trees) == 1 and isinstance(trees[0], exp.Distinct)
        if distinct:
            trees = list(trees[0].expressions)
        if distinct and not aggregate.distinct:
            raise Mismatch(f"{name} does not take distinct", condition=UnsupportedFunction)
        for tree in trees:
            self._refuse_nested(tree, name)
        if len(trees) == 1 and isinstance(trees[0], exp.Star):
            return self._count_all(name, condition, distinct=distinct)
        values = arguments(name, aggregate.takes, self.inside.all(trees))
        kind = pa.list_(aggregate.returns(values)) if taken.many else aggregate.returns(values)
        values = _reduced(name, values, distinct=distinct)
        function = f"{aggregate.name}_desc" if taken.descending else aggregate.name
        if function in _EXTREMES and k.is_nested(values[-1].type):  # the key orders nulls inside as Spark does
            function, values = _EXTREMES[function], [values[0], sort_key(values[-1])]
        if condition is not None:
            values = [_chosen(condition, value) for value in values]
        scalars = tuple(self._argument(value) for value in values)
        matters = aggregate.name not in ("min", "max", "collect_set")
        return AggregateCall(function, scalars, distinct and matters, kind, at=taken.at)

    def _positional(self, node: exp.Expression) -> AggregateCall | None:
        """Type a function of a row's place, if it is one; its constant is where the fractions of a percentile are."""
        call = call_of(node.this if isinstance(node, exp.Filter) else node)
        name = call.name.lower()
        if name not in self.positional:
            return None
        if call is not node:
            raise Mismatch(f"{name} takes neither a filter nor within group", condition=UnsupportedFunction)
        taken, constants = constants_of(name, call.expressions)
        for tree in taken:
            self._refuse_nested(tree, name)
        values, kind = typed(name, self.inside.all(taken))
        scalars = tuple(self._argument(value) for value in values)
        return AggregateCall(name, scalars, distinct=False, type=kind, at=tuple(map(float, constants)))

    def _special(self, name: str, taken: AggregateArguments, condition: Value | None) -> AggregateCall:
        """Type a call of an aggregate of the user's, of a sketch, or of one that puts texts together."""
        if name in SKETCHES:
            return self._sketch(name, taken.values, condition)
        if name in TEXTS:
            return self._texts(name, taken, condition)
        return self._users(self.functions[name], taken.values, condition)

    def _texts(self, name: str, taken: AggregateArguments, condition: Value | None) -> AggregateCall:
        """Type a call that puts texts together in an order."""
        trees, distinct = taken.values, isinstance(next(iter(taken.values), None), exp.Distinct)
        if distinct:
            trees = [*trees[0].expressions, *trees[1:]]
        for tree in (*trees, *taken.order):
            self._refuse_nested(tree, name)
        delimiter = delimiter_of(name, trees)
        (given,) = self.inside.all(trees[:1])
        terms = [(self.inside.compile(term.this), term) for term in taken.order]
        values, options = ordered_texts(name, given, terms, distinct=distinct)
        if condition is not None:
            values[0] = _chosen(condition, values[0])
        scalars = tuple(self._argument(value) for value in values)
        return AggregateCall("listagg", scalars, distinct, k.STRING, options=(literal(delimiter), *options))

    def _sketch(self, name: str, trees: list[exp.Expression], condition: Value | None) -> AggregateCall:
        """Type a call that a sketch answers: an aggregate like the user's own, with these constants."""
        value, constants = trees[:1], trees[1:]
        for tree in value:
            self._refuse_nested(tree, name)
        if any(isinstance(tree, exp.Distinct | exp.Star) for tree in value):
            raise Mismatch(f"{name} takes a value, neither distinct nor *", condition=UnsupportedFunction)
        return self._users(sketch_of(name, self.inside.all(value), constants), value, condition)

    def _users(self, function: UserFunction, trees: list[exp.Expression], condition: Value | None) -> AggregateCall:
        """Type a call of the user's own aggregate."""
        if any(isinstance(tree, exp.Distinct) for tree in trees):
            raise Mismatch(f"{function.name} does not take distinct", condition=UnsupportedFunction)
        for tree in trees:
            self._refuse_nested(tree, function.name)
        scalars = tuple(self._argument(value) for value in function.arguments(self.inside.all(trees)))
        where = None if condition is None else self._argument(condition)
        return AggregateCall(function.name, scalars, distinct=False, type=function.returns, user=function, where=where)

    def _argument(self, value: Value) -> Scalar:
        return scalar_of(check(value, step=self.step), self.inside.user_calls)

    def _count_all(self, name: str, condition: Value | None, *, distinct: bool) -> AggregateCall:
        if name != "count" or distinct:
            raise Mismatch(f"* is possible in count(*) only, not in {name}", condition=InvalidExpression)
        if condition is None:
            return AggregateCall("count", (), distinct=False, type=k.BIGINT)
        counted = self._argument(_chosen(condition, Value("1", "1", k.INT)))
        return AggregateCall("count", (counted,), distinct=False, type=k.BIGINT)

    def _condition(self, tree: exp.Expression) -> Value:
        self._refuse_nested(tree, "filter")
        value = self.inside.compile(tree)
        if value.type not in (k.BOOLEAN, k.NULL):
            raise Mismatch(f"the filter is {k.shown(value.type)}, not boolean", condition=WrongType)
        return value

    def _refuse_nested(self, tree: exp.Expression, name: str) -> None:
        inner = next(_outermost(tree, self.known), None)
        if inner is not None:
            raise Mismatch(
                f"an aggregate cannot be inside {name}",
                hint="Aggregate in two steps: .agg(…) first, then group and aggregate its result.",
                condition=InvalidExpression,
            )

    def _no_key(self, name: str) -> PlanError:
        if name.lower() not in (known.lower() for known in self.schema.names):
            return self._unknown(name)
        keys = ", ".join(self.keys.names) or "none"
        return UngroupedColumn(
            f'step "{self.step}": "{name}" is outside of an aggregate and is no key of the group',
            detail=f"The keys are: {keys}. A group has many values of {name}.",
            hint=f"Say which one: max({name}), min({name}), or max_by({name}, time); or add it to group_by.",
        )

    def _unknown(self, name: str) -> PlanError:
        return UnknownColumn(name, step=self.step, columns=list(dict.fromkeys([*self.keys.names, *self.schema.names])))


def _outermost(tree: exp.Expression, known: Collection[str]) -> Iterator[exp.Expression]:
    """Yield the outermost calls of known aggregates, each with its filter."""
    if isinstance(tree, exp.Window):
        return
    if isinstance(tree, exp.Filter | exp.WithinGroup | exp.Anonymous):
        inner = call_of(tree.this if isinstance(tree, exp.Filter) else tree)
        if isinstance(inner, exp.Anonymous) and inner.name.lower() in known:
            yield tree
            return
    for child in tree.iter_expressions():
        yield from _outermost(child, known)


def _reduced(name: str, values: list[Value], *, distinct: bool) -> list[Value]:
    """Return the arguments of what an aggregate is computed by: count_if(c) counts ones, count(a, b) whole rows."""
    count_one = Value("1", "1", k.INT)
    if name == "count_if":
        return [_chosen(values[0], count_one)]
    if name in ("count", "regr_count") and len(values) > 1 and not distinct:
        no_nulls = " AND ".join(f"{value.sql} IS NOT NULL" for value in values)
        reads = frozenset[str]().union(*(value.columns for value in values))
        return [_chosen(Value(", ".join(value.text for value in values), no_nulls, k.BOOLEAN, reads), count_one)]
    return values


def _chosen(condition: Value, value: Value) -> Value:
    """Return the value where the condition holds, else null."""
    columns, raises = condition.columns | value.columns, condition.raises or value.raises
    sql = f"(CASE WHEN {condition.sql} THEN {value.sql} END)"
    return Value(f"{value.text} where {condition.text}", sql, value.type, columns, raises)


def _identity(call: AggregateCall) -> tuple[object, ...]:
    where = call.where.sql if call.where else None
    return (
        call.function,
        tuple(scalar.sql for scalar in call.arguments),
        call.distinct,
        call.type,
        where,
        call.at,
        call.options,
    )
