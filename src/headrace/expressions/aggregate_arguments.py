"""The arguments of aggregates over ordered values: percentiles, the median, the mode, texts in an order."""

from __future__ import annotations

from dataclasses import dataclass

from sqlglot import exp

from headrace.base.errors import InvalidExpression
from headrace.expressions.mismatch import Mismatch

_ORDERED = ("percentile_cont", "percentile_disc", "mode")
TEXTS = ("listagg", "string_agg")
_FRACTIONS = {"percentile": 2, "percentile_cont": 1, "percentile_disc": 1}
"""How many arguments there are; the last one is the fraction."""


@dataclass(frozen=True, slots=True)
class AggregateArguments:
    """The values, the fractions (`many`: an array of them), and whether the order of the values is descending.

    `order` are the terms by which `listagg` is ordered.
    """

    values: list[exp.Expression]
    at: tuple[float, ...] = ()
    many: bool = False
    descending: bool = False
    order: tuple[exp.Expression, ...] = ()


def call_of(node: exp.Expression) -> exp.Expression:
    """Return the call itself, without `within group (…)`."""
    return node.this if isinstance(node, exp.WithinGroup) else node


def arguments_of(node: exp.Expression) -> AggregateArguments:
    """Return the arguments of a call, in one form for all aggregates.

    Raises:
        Mismatch: the fractions are no constants between 0 and 1, or there is no order of the values.

    """
    call = call_of(node)
    name, trees = call.name.lower(), list(call.expressions)
    if isinstance(node, exp.WithinGroup):
        return _ordered(name, trees, node.expression)
    if name in ("percentile_cont", "percentile_disc"):
        raise Mismatch(f"{name} needs the order of its values", hint=f"{name}(0.5) within group (order by price)")
    if name == "median":
        return AggregateArguments(trees, at=(0.5,))
    if name == "mode":
        return AggregateArguments(trees[:1] if len(trees) > 1 and isinstance(trees[1], exp.Boolean) else trees)
    if name in _FRACTIONS:
        return _with_fractions(name, trees)
    return AggregateArguments(trees)


def _ordered(name: str, trees: list[exp.Expression], order: exp.Expression) -> AggregateArguments:
    if name in TEXTS and isinstance(order, exp.Order):
        return AggregateArguments(trees, order=tuple(order.expressions))
    if name not in _ORDERED:
        raise Mismatch(f"{name} does not take within group", condition=InvalidExpression)
    terms = order.expressions if isinstance(order, exp.Order) else []
    if len(terms) != 1:
        raise Mismatch(f"{name} within group is ordered by one value", condition=InvalidExpression)
    value, descending = [terms[0].this], bool(terms[0].args.get("desc"))
    if name == "mode":
        if trees:
            raise Mismatch("mode() within group takes no arguments", condition=InvalidExpression)
        return AggregateArguments(value, descending=descending)
    fractions = _with_fractions(name, trees)
    return AggregateArguments(value, at=fractions.at, many=fractions.many, descending=descending)


def _with_fractions(name: str, trees: list[exp.Expression]) -> AggregateArguments:
    count = _FRACTIONS[name]
    if len(trees) != count:
        hint = "Rows that count several times are several rows." if len(trees) > count else ""
        raise Mismatch(f"{name} takes {count}, not {len(trees)} arguments", hint=hint)
    fractions = trees[-1]
    many = isinstance(fractions, exp.Anonymous) and fractions.name.lower() == "array"
    at = tuple(_fraction(tree, name) for tree in (fractions.expressions if many else [fractions]))
    return AggregateArguments(trees[:-1], at=at, many=many)


def _fraction(tree: exp.Expression, name: str) -> float:
    if not isinstance(tree, exp.Literal) or tree.is_string:
        raise Mismatch(f"the fraction of {name} must be a constant, or an array of constants")
    fraction = float(tree.this)
    if not 0 <= fraction <= 1:
        raise Mismatch(f"the fraction of {name} must be between 0 and 1, not {tree.this}")
    return fraction
