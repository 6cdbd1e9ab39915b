"""Order texts: `price desc, k` becomes terms with a direction and a position of nulls."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import sqlglot
from sqlglot import exp
from sqlglot.errors import SqlglotError

from headrace.base.errors import InvalidExpression, WrongType
from headrace.expressions import kinds as k
from headrace.expressions.calls import scalar_of
from headrace.expressions.compiler import Compiler, check
from headrace.expressions.grammar import Grammar, written
from headrace.expressions.guarded import brackets_too_deep, guarded, nests_too_deeply, too_deep

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    import pyarrow as pa

    from headrace.expressions.scalars import Scalar
    from headrace.expressions.user import UserFunction

_NONE: Mapping[str, UserFunction] = {}
_EXAMPLE = 'For example "price desc, name asc nulls last".'


class _NullsLast(Grammar):
    """The same grammar, where nulls are first only if the text says so; in Spark they are first by default too."""

    NULL_ORDERING = "nulls_are_last"


@dataclass(frozen=True, slots=True)
class Term:
    """One term of an order."""

    value: Scalar
    descending: bool
    nulls_first: bool

    @property
    def direction(self) -> str:
        """Direction and position of nulls, as SQL."""
        return f"{'DESC' if self.descending else 'ASC'} NULLS {'FIRST' if self.nulls_first else 'LAST'}"


def order(
    text: str, schema: pa.Schema, *, step: str, functions: Mapping[str, UserFunction] = _NONE
) -> tuple[Term, ...]:
    """Return the terms of an order; the default direction is descending.

    Nulls are where Spark puts them, unless the text says it: first in ascending, last in descending order.

    Raises:
        PlanError: the text is no order, or a term cannot be typed or compared; the error names the step.

    """
    if not isinstance(text, str) or not text.strip():
        raise InvalidExpression(f'step "{step}": {text!r} is no order', hint=_EXAMPLE)
    if brackets_too_deep(text):
        raise too_deep(f'step "{step}": ', text)
    with guarded(f'step "{step}": ', text):
        return tuple(_read_terms(text, schema, step, functions))


def _read_terms(text: str, schema: pa.Schema, step: str, functions: Mapping[str, UserFunction]) -> Iterator[Term]:
    for small, last in zip(_terms(text, Grammar, step), _terms(text, _NullsLast, step), strict=True):
        if nests_too_deeply(small):
            raise too_deep(f'step "{step}": ', text)
        compiler = Compiler(schema, step=step, functions=functions)
        value = scalar_of(check(compiler.compile(small.this), step=step), compiler.user_calls, written(small.this))
        _comparable(value, step)
        up = small.args.get("desc") is False  # None without a direction
        nulls_first = bool((small if up else last).args.get("nulls_first"))
        yield Term(value, descending=not up, nulls_first=nulls_first)


def _terms(text: str, dialect: type[Grammar], step: str) -> list[exp.Ordered]:
    try:
        trees = sqlglot.parse(f"SELECT 1 ORDER BY {text}", dialect=dialect)
    except SqlglotError:
        trees = []
    tree = trees[0] if len(trees) == 1 else None
    parts = {name for name, part in tree.args.items() if part} if isinstance(tree, exp.Select) else set()
    if tree is None or not parts <= {"expressions", "order"} or "order" not in parts:
        raise InvalidExpression(f'step "{step}": cannot read the order {text!r}', hint=_EXAMPLE)
    terms: list[exp.Ordered] = tree.args["order"].expressions
    if not all(isinstance(term, exp.Ordered) for term in terms) or any(term.args.get("with_fill") for term in terms):
        raise InvalidExpression(f'step "{step}": cannot read the order {text!r}', hint=_EXAMPLE)
    return terms


def _comparable(value: Scalar, step: str) -> None:
    if value.type.num_fields:
        raise WrongType(
            f'step "{step}": "{value.text}" is {k.shown(value.type)}, by which rows are not ordered',
            hint="Order by one of its parts.",
        )
    if not value.columns and not value.calls:
        raise InvalidExpression(
            f'step "{step}": "{value.text}" is the same for every row, so it orders nothing', hint=_EXAMPLE
        )
