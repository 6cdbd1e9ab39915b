"""Aggregates that a sketch answers: bounded state and a stated error; sketches of parts of a group are merged.

A call becomes a value here; the sketch itself is created where tasks run. Arguments are in Spark's order.
"""

from __future__ import annotations

from dataclasses import dataclass
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any, Literal

import pyarrow as pa
from sqlglot import exp

from headrace.base.errors import UnsupportedFunction
from headrace.expressions import kinds as k
from headrace.expressions.mismatch import Mismatch
from headrace.expressions.user import UserFunction

if TYPE_CHECKING:
    from collections.abc import Sequence

    from headrace.expressions.values import Value

STATE = pa.schema([("parts", pa.list_(pa.binary()))])
_LEAST_RSD, _MOST_RSD = 0.001, 0.4
_MOST_ACCURACY = 20_000
_MOST_TRACKED = 1_000_000


@dataclass(frozen=True, slots=True)
class Sketch:
    """A sketch with its parameters; `exact` is the exact aggregate to use where rows are withdrawn."""

    kind: Literal["distinct", "percentile", "top"]
    parameters: tuple[float, ...]
    many: bool
    exact: str


_NAMES = {
    "approx_count_distinct": "distinct",
    "approx_percentile": "percentile",
    "percentile_approx": "percentile",
    "approx_top_k": "top",
}
SKETCHES = frozenset(_NAMES)


def sketch_of(name: str, values: Sequence[Value], constants: Sequence[exp.Expression]) -> UserFunction:
    """Return the aggregate that answers a call.

    Raises:
        Mismatch: it is called with other arguments than it takes, or the library is not installed.

    """
    if not values:
        raise Mismatch(f"{name} takes a value first")
    if find_spec("datasketches") is None:
        raise Mismatch(
            f"{name} needs the package datasketches, which is not installed",
            hint="pip install datasketches; it has wheels for Python 3.11 to 3.13.",
            condition=UnsupportedFunction,
        )
    sketch, takes, returns = _MAKERS[_NAMES[name]](name, values[0], constants)
    function: Any = sketch  # an aggregate is an object, and this one becomes it where tasks run
    parameters = ", ".join(f"{parameter:g}" for parameter in sketch.parameters)
    return UserFunction(
        name=f"{name}[{parameters}]",
        function=function,
        returns=returns,
        takes=(takes,),
        least=1,
        most=1,
        deterministic=True,
        version=None,
        state=STATE,
    )


def _distinct(name: str, value: Value, constants: Sequence[exp.Expression]) -> tuple[Sketch, pa.DataType, pa.DataType]:
    _at_most(name, constants, 1, "the value and the standard error: approx_count_distinct(user, 0.02)")
    rsd = _number(name, "standard error", constants[0], _LEAST_RSD, _MOST_RSD) if constants else 0.05
    return Sketch("distinct", (rsd,), many=False, exact=f"count(distinct {value.text})"), _plain(name, value), k.BIGINT


def _percentile(
    name: str, value: Value, constants: Sequence[exp.Expression]
) -> tuple[Sketch, pa.DataType, pa.DataType]:
    _at_most(name, constants, 2, "the value, the fraction and the accuracy: approx_percentile(ms, 0.99, 1000)")
    if not constants:
        raise Mismatch(
            f"{name} needs a fraction", hint="approx_percentile(ms, 0.99), or approx_percentile(ms, array(0.5, 0.99))"
        )
    if not k.is_number(value.type):
        raise Mismatch(f"{name} takes a number, not {k.shown(value.type)}")
    many = isinstance(constants[0], exp.Anonymous) and constants[0].name.lower() == "array"
    fractions = constants[0].expressions if many else [constants[0]]
    at = tuple(_number(name, "fraction", fraction, 0, 1) for fraction in fractions)
    accuracy = _number(name, "accuracy", constants[1], 1, _MOST_ACCURACY) if len(constants) > 1 else 10_000
    exact = f"percentile({value.text}, …) or median({value.text})"
    returns = pa.list_(value.type) if many else value.type
    return Sketch("percentile", (accuracy, *at), many=many, exact=exact), k.DOUBLE, returns


def _top(name: str, value: Value, constants: Sequence[exp.Expression]) -> tuple[Sketch, pa.DataType, pa.DataType]:
    _at_most(name, constants, 2, "the value, how many, and how many to track: approx_top_k(url, 10, 10000)")
    count = _number(name, "number of items", constants[0], 1, _MOST_TRACKED, whole=True) if constants else 5
    tracked = (
        _number(name, "number of tracked items", constants[1], count, _MOST_TRACKED, whole=True)
        if len(constants) > 1
        else 10_000
    )
    kind = _plain(name, value)
    exact = f'.group_by(…, "{value.text}").agg(n="count(*)") and then .group_by(…).top({count:g}, "n")'
    item = pa.struct([("item", kind), ("count", k.BIGINT)])
    return Sketch("top", (count, max(tracked, count)), many=False, exact=exact), kind, pa.list_(item)


_MAKERS = {"distinct": _distinct, "percentile": _percentile, "top": _top}


def _plain(name: str, value: Value) -> pa.DataType:
    kind = value.type
    if (
        k.is_number(kind)
        or pa.types.is_string(kind)
        or kind == k.BOOLEAN
        or pa.types.is_date(kind)
        or pa.types.is_timestamp(kind)
    ):
        return kind
    raise Mismatch(f"{name} takes numbers, text, booleans, dates and timestamps, not {k.shown(kind)}",
                   hint="Take a field of it, or cast it to string.")  # fmt: skip


def _at_most(name: str, constants: Sequence[exp.Expression], most: int, what: str) -> None:
    if len(constants) > most:
        raise Mismatch(f"{name} takes at most {most + 1} arguments, not {len(constants) + 1}", hint=f"They are {what}.")


def _number(name: str, what: str, tree: exp.Expression, least: float, most: float, *, whole: bool = False) -> float:
    """Return a constant argument."""
    negative = isinstance(tree, exp.Neg)
    literal = tree.this if negative else tree
    if not isinstance(literal, exp.Literal) or literal.is_string:
        raise Mismatch(f"the {what} of {name} must be a constant")
    number = float(literal.this) * (-1 if negative else 1)
    if not least <= number <= most or (whole and number != int(number)):
        kind = "a whole number " if whole else ""
        raise Mismatch(f"the {what} of {name} must be {kind}from {least:g} to {most:g}, not {number:g}")
    return number
