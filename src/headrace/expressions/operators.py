"""Operators: each means a call of an entry of the table under the operator's own sign."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from sqlglot import exp

from headrace.expressions import kinds as k
from headrace.expressions import literals
from headrace.expressions.casts import raising
from headrace.expressions.coercion import comparable, unify
from headrace.expressions.functions import Function
from headrace.expressions.grammar import shown
from headrace.expressions.mismatch import Mismatch
from headrace.expressions.resolve import call
from headrace.expressions.values import Value

if TYPE_CHECKING:
    from collections.abc import Callable

    from headrace.expressions.compiling import Compiling

_SIGNS: dict[type[exp.Expression], str] = {
    exp.Add: "+",
    exp.Sub: "-",
    exp.Mul: "*",
    exp.Div: "/",
    exp.Mod: "%",
    exp.IntDiv: "div",
    exp.EQ: "=",
    exp.NEQ: "!=",
    exp.LT: "<",
    exp.LTE: "<=",
    exp.GT: ">",
    exp.GTE: ">=",
    exp.NullSafeEQ: "<=>",
    exp.And: "and",
    exp.Or: "or",
    exp.DPipe: "||",
    exp.BitwiseAnd: "&",
    exp.BitwiseOr: "|",
    exp.BitwiseXor: "^",
    exp.BitwiseLeftShift: "shiftleft",
    exp.BitwiseRightShift: "shiftright",
}


def _binary(compiler: Compiling, tree: exp.Expression) -> Value:
    return call(compiler, _SIGNS[type(tree)], [tree.this, tree.expression], shown(tree))


def _negated(compiler: Compiling, tree: exp.Expression) -> Value:
    operand = tree.this
    if isinstance(operand, exp.Literal) and not operand.is_string:
        return literals.number(f"-{operand.this}")
    if isinstance(operand, exp.TryCast) and isinstance(operand.this, exp.Literal) and not operand.this.is_string:
        turned = literals.typed(
            literals.number(f"-{operand.this.this}"), literals.type_of(operand.args["to"]), shown(tree)
        )
        if turned is not None:
            return turned
    return call(compiler, "negative", [operand], shown(tree))


def _not(compiler: Compiling, tree: exp.Expression) -> Value:
    return call(compiler, "not", [tree.this], shown(tree))


def _bit_not(compiler: Compiling, tree: exp.Expression) -> Value:
    return call(compiler, "~", [tree.this], shown(tree))


def _distinct_from(compiler: Compiling, tree: exp.Expression) -> Value:
    same = call(compiler, "<=>", [tree.this, tree.expression], shown(tree))
    return same.to(f"(NOT {same.sql})", k.BOOLEAN)


def _is(compiler: Compiling, tree: exp.Expression) -> Value:
    value = compiler.compile(tree.this)
    if isinstance(tree.expression, exp.Null):
        return Value(shown(tree), f"({value.sql} IS NULL)", k.BOOLEAN, value.columns, value.raises)
    if isinstance(tree.expression, exp.Boolean) and value.type in (k.BOOLEAN, k.NULL):
        wanted = "true" if tree.expression.this else "false"
        sql = f"(CAST({value.sql} AS BOOLEAN) IS NOT DISTINCT FROM {wanted})"
        return Value(shown(tree), sql, k.BOOLEAN, value.columns, value.raises)
    raise Mismatch(f"is true and is false need a boolean, not {k.shown(value.type)}")


def _between(compiler: Compiling, tree: exp.Expression) -> Value:
    low = exp.GTE(this=tree.this, expression=tree.args["low"])
    high = exp.LTE(this=tree.this, expression=tree.args["high"])
    if tree.args.get("symmetric"):
        raise Mismatch("between symmetric is not supported")
    return call(compiler, "and", [low, high], shown(tree))


def _in(compiler: Compiling, tree: exp.Expression) -> Value:
    if tree.args.get("query") or tree.args.get("unnest") or not tree.expressions:
        raise compiler.unsupported(tree.args.get("query") or exp.Subquery(this=tree.copy()))
    values = compiler.all([tree.this, *tree.expressions])
    unified = unify(values, what="in")
    comparable(unified[0], "in")
    choices = ", ".join(value.sql for value in unified[1:])
    columns = frozenset[str]().union(*(value.columns for value in values))
    return Value(
        shown(tree), f"({unified[0].sql} IN ({choices}))", k.BOOLEAN, columns, any(value.raises for value in unified)
    )


def _like(compiler: Compiling, tree: exp.Expression) -> Value:
    name = "ilike" if isinstance(tree, exp.ILike) else "like"
    if isinstance(tree.expression, exp.Any | exp.All):
        return _like_each(compiler, tree, name)
    result = call(compiler, name, [tree.this, tree.expression], shown(tree))
    if tree.args.get("negate"):
        return result.to(f"(NOT {result.sql})", k.BOOLEAN)
    return result


def _like_each(compiler: Compiling, tree: exp.Expression, name: str) -> Value:
    """Return `like any (…)` or `like all (…)`; `not like any` is that one of the patterns does not fit."""
    given = tree.expression.this
    patterns = given.expressions if isinstance(given, exp.Tuple) else [given.unnest()]
    if not patterns:
        raise compiler.unsupported(tree)
    results = [call(compiler, name, [tree.this, pattern], shown(tree)) for pattern in patterns]
    sign = "NOT " if tree.args.get("negate") else ""
    word = " OR " if isinstance(tree.expression, exp.Any) else " AND "
    columns = frozenset[str]().union(*(result.columns for result in results))
    sql = word.join(f"({sign}{result.sql})" for result in results)
    return Value(shown(tree), f"({sql})", k.BOOLEAN, columns, any(result.raises for result in results))


def _escape(compiler: Compiling, tree: exp.Expression) -> Value:
    like = tree.this
    if isinstance(like.expression, exp.Any | exp.All):
        raise compiler.unsupported(tree)
    name = "ilike" if isinstance(like, exp.ILike) else "like"
    result = call(compiler, name, [like.this, like.expression, tree.expression], shown(tree))
    if like.args.get("negate"):
        return result.to(f"(NOT {result.sql})", k.BOOLEAN)
    return result


def element(container: Value, key: Value, text: str) -> Value:
    """Return `a[i]` of an array, counted from 0, or `m[k]` of a map; outside an array raises, a missing key is null.

    Raises:
        Mismatch: it has no elements, or the key has the wrong type.

    """
    return replace(_ELEMENT.apply([container, key]), text=text)


def _element(values: list[Value]) -> Value:
    container, key = values
    if k.is_array(container.type):
        if not k.is_integral(key.type):
            raise Mismatch(f"an array's index is a whole number, not {k.shown(key.type)}")
        fail = raising("INVALID_ARRAY_INDEX", "the index is out of bounds: ", f"CAST({key.sql} AS VARCHAR)")
        sql = (
            f"(CASE WHEN {key.sql} >= 0 AND {key.sql} < len({container.sql}) THEN {container.sql}[{key.sql} + 1]"
            f" WHEN {container.sql} IS NOT NULL AND {key.sql} IS NOT NULL THEN {fail} END)"
        )
        return Value("", sql, container.type.value_type, raises=True)
    if k.is_map(container.type):
        unified = unify([key, Value("key", "NULL", container.type.key_type)], what="a map's key")
        if unified[0].type != container.type.key_type:
            raise Mismatch(f"the map's keys are {k.shown(container.type.key_type)}, not {k.shown(key.type)}")
        sql = f"map_extract_value({container.sql}, {unified[0].sql})"
        return Value("", sql, container.type.item_type, raises=container.raises or unified[0].raises)
    raise Mismatch(f"{k.shown(container.type)} has no elements", hint="Only arrays and maps have them.")


_ELEMENT = Function(("[]",), ("any", "any"), build=_element)


def _bracket(compiler: Compiling, tree: exp.Expression) -> Value:
    if len(tree.expressions) != 1 or isinstance(tree.expressions[0], exp.Slice):
        raise compiler.unsupported(tree)
    container = compiler.compile(tree.this)
    index = tree.expressions[0]
    if k.is_struct(container.type) and isinstance(index, exp.Literal) and index.is_string:
        return compiler.field(container, index.name, shown(tree))
    return element(container, compiler.compile(index), shown(tree))


HANDLERS: dict[type[exp.Expression], Callable[[Compiling, exp.Expression], Value]] = {
    **dict.fromkeys(_SIGNS, _binary),
    exp.Neg: _negated,
    exp.Not: _not,
    exp.BitwiseNot: _bit_not,
    exp.NullSafeNEQ: _distinct_from,
    exp.Is: _is,
    exp.Between: _between,
    exp.In: _in,
    exp.Like: _like,
    exp.ILike: _like,
    exp.Escape: _escape,
    exp.Bracket: _bracket,
}
