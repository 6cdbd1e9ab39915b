"""Expressions: Spark SQL text, typed by Spark's rules, computed by DuckDB through our table of translations.

`scalar`, `condition` and `aggregates` turn text into frozen values that carry DuckDB's SQL. What a text means is
Spark's meaning in ANSI mode with the session's zone UTC, errors included: each entry of the table is compared with
Spark by `tests/expressions/test_against_spark.py`. What cannot be made equal is refused when it is declared.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from headrace.base.errors import WrongType
from headrace.expressions import kinds as k
from headrace.expressions.aggregates import Rewritten, aggregates, is_aggregate
from headrace.expressions.calls import calls_of, drawn_apart, scalar_of
from headrace.expressions.casts import cast
from headrace.expressions.compiler import Compiler, check
from headrace.expressions.grammar import parse
from headrace.expressions.guarded import guarded
from headrace.expressions.order import Term, order
from headrace.expressions.resolve import refused_name
from headrace.expressions.scalars import AggregateCall, Aggregates, Scalar
from headrace.expressions.sealed import refuse_computing
from headrace.expressions.user import UserFunction

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping

    import pyarrow as pa

__all__ = [
    "AggregateCall",
    "Aggregates",
    "Rewritten",
    "Scalar",
    "Term",
    "UserFunction",
    "aggregates",
    "calls_of",
    "condition",
    "drawn_apart",
    "is_aggregate",
    "order",
    "parse",
    "refused_name",
    "scalar",
]

_NONE: Mapping[str, UserFunction] = {}


def scalar(
    text: str,
    schema: pa.Schema,
    *,
    step: str,
    functions: Mapping[str, UserFunction] = _NONE,
    sealed: Collection[str] = (),
) -> Scalar:
    """Return one typed expression over the columns of `schema`; those that are `sealed` may only be passed on.

    A column is matched by its exact name, else by its name in any case if only one column fits. Nothing is computed:
    a text that fails for some row (division by zero, a bad cast) raises when that row is computed.

    Raises:
        PlanError: the text cannot be read, typed or computed; the error names the step and the part.

    """
    tree = parse(text, step=step)
    with guarded(f'step "{step}": ', text):
        refuse_computing(tree, schema.names, sealed, step=step)
        compiler = Compiler(schema, step=step, functions=functions)
        return scalar_of(check(compiler.compile(tree), step=step), compiler.user_calls, text)


def condition(
    text: str,
    schema: pa.Schema,
    *,
    step: str,
    functions: Mapping[str, UserFunction] = _NONE,
    sealed: Collection[str] = (),
    column_sql: Mapping[str, str] | None = None,
) -> Scalar:
    """Return a condition: a scalar that is boolean; where it is null, a row does not meet it.

    `column_sql` is the SQL of columns that have other names where it is computed.

    Raises:
        PlanError: as `scalar`, or the text is no boolean.

    """
    tree = parse(text, step=step)
    with guarded(f'step "{step}": ', text):
        refuse_computing(tree, schema.names, sealed, step=step)
        compiler = Compiler(schema, step=step, functions=functions, column_sql=column_sql)
        value = compiler.compile(tree)
    if value.type not in (k.BOOLEAN, k.NULL):
        raise WrongType(
            f'step "{step}": the condition {text!r} is {k.shown(value.type)}, not boolean',
            hint=f"Compare it with something, for example {text} is not null.",
        )
    return scalar_of(cast(value, k.BOOLEAN), compiler.user_calls, text)
