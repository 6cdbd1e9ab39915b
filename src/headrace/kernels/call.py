"""Calls of the user's scalar functions: whole columns in, a whole column out, before the SQL that reads it.

DuckDB could call them from inside a query, but for 2048 rows at a time, and twice where a filter reads a column of a
select: so a column is computed here, once, whatever reads it.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa

from headrace.base.errors import FunctionError
from headrace.base.names import quote
from headrace.base.schema import type_name
from headrace.kernels import blame
from headrace.kernels.arrays import one_array
from headrace.kernels.duck import typed
from headrace.kernels.failing_sql import failing_sql
from headrace.kernels.op import Operator, StepResult
from headrace.kernels.zones import without_zones

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Sequence

    from headrace.kernels.delta import Delta
    from headrace.kernels.duck import Duck
    from headrace.kernels.op import Context

_FAMILIES: tuple[Callable[[pa.DataType], bool], ...] = (
    lambda kind: pa.types.is_integer(kind) or pa.types.is_floating(kind) or pa.types.is_decimal(kind),
    lambda kind: pa.types.is_string(kind) or pa.types.is_large_string(kind) or kind == pa.string_view(),
    lambda kind: (
        pa.types.is_binary(kind)
        or pa.types.is_large_binary(kind)
        or pa.types.is_fixed_size_binary(kind)
        or kind == pa.binary_view()
    ),
    pa.types.is_timestamp,
    pa.types.is_date,
    pa.types.is_boolean,
    lambda kind: pa.types.is_list(kind) or pa.types.is_large_list(kind) or pa.types.is_fixed_size_list(kind),
    pa.types.is_map,
    pa.types.is_struct,
)


@dataclass(frozen=True, slots=True, kw_only=True)
class FunctionCall:
    """A call of a user's scalar function: the column of its results, and its arguments, each SQL and its type."""

    column: str
    name: str
    function: Callable[..., pa.Array]
    arguments: tuple[tuple[str, pa.DataType], ...]
    returns: pa.DataType


@dataclass(frozen=True, slots=True, kw_only=True)
class Call(Operator):
    """Rows with the results of a user's functions as further columns; later calls may read earlier columns."""

    calls: tuple[FunctionCall, ...]

    @property
    def calls_users(self) -> bool:
        """Always."""
        return True

    def run(self, inputs: Sequence[Delta], context: Context) -> StepResult:
        """Make the calls for each table of the delta."""
        return StepResult([called(context.duck, self, part) for part in inputs[0].tables])


def called(duck: Duck, op: Call, rows: pa.Table) -> pa.Table:
    """Return rows with a column for each call, in the order of the calls: a later one may read an earlier column.

    Raises:
        FunctionError: a function raised, or its result is not what it declares.

    """
    for call in op.calls:
        results = _CallRun(op.step, call).column(_arguments(duck, call, rows))
        rows = rows.append_column(call.column, without_zones(pa.table({"": results})).column(0))
    return rows


def failing_calls(duck: Duck, op: Call, rows: pa.Table) -> list[tuple[int, str, str, str]]:
    """Return the rows on which a call fails, each with the function's name, why, and its arguments."""
    found: list[tuple[int, str, str, str]] = []
    left = pa.array(np.arange(rows.num_rows))
    for call in op.calls:
        wrong = {row: why for sql, _ in call.arguments for row, why in failing_sql(duck, sql, rows)}
        found += [(left[row].as_py(), call.name, why, "") for row, why in sorted(wrong.items())]
        rows, left = _kept(rows, left, wrong)
        arguments = _arguments(duck, call, rows)
        run = _CallRun(op.step, call)
        failing = run.failing(arguments)
        for row in failing:
            values = f"{call.name}({blame.row_text(arguments, row)})"
            found.append((left[row].as_py(), call.name, run.why(arguments, row), values))
        rows, left = _kept(rows, left, failing)
        try:
            rows = called(duck, replace(op, calls=(call,)), rows)
        except FunctionError:
            return found  # no single row is to blame
    return found


def _kept(rows: pa.Table, numbers: pa.Array, left_out: Collection[int]) -> tuple[pa.Table, pa.Array]:
    if not left_out:
        return rows, numbers
    kept = pa.array([row for row in range(rows.num_rows) if row not in left_out], pa.int64())
    return rows.take(kept), numbers.take(kept)


def _arguments(duck: Duck, call: FunctionCall, rows: pa.Table) -> list[pa.Array]:
    """Compute the arguments, row for row; a plain column is taken as it is."""
    plain = {quote(name): name for name in rows.column_names}
    names = [plain.get(sql, f"_x{i}") for i, (sql, _) in enumerate(call.arguments)]
    missing = [f"{sql} AS {name}" for (sql, _), name in zip(call.arguments, names, strict=True) if sql not in plain]
    source = rows
    if missing:
        computed = duck.arrow(f"SELECT {', '.join(missing)} FROM {duck.register(rows)}")
        for name in computed.column_names:
            source = source.append_column(name, computed.column(name))
    schema = pa.schema([(f"_{i}", kind) for i, (_, kind) in enumerate(call.arguments)])
    arguments = pa.table([source.column(name) for name in names], names=schema.names)
    return [one_array(column) for column in typed(arguments, schema).columns]


class _CallRun:
    """One call over one batch, and the search for who is to blame when it fails."""

    def __init__(self, step: str, call: FunctionCall) -> None:
        self.step = step
        self.call = call

    def column(self, arguments: list[pa.Array]) -> pa.Array:
        try:
            return self._results(arguments)
        except CallError as failure:
            raise self._error(failure, arguments) from failure.__cause__

    def _results(self, arguments: list[pa.Array]) -> pa.Array:
        function, count = self.call.function, len(arguments[0])
        try:
            results = function(*arguments)
        except Exception as error:
            raise CallError(f"raised {blame.message(error)}", error, of_rows=True) from error
        if not isinstance(results, pa.Array | pa.ChunkedArray):
            raise CallError(f"gave {type(results).__name__}, not a pyarrow.Array")
        if len(results) != count:
            raise CallError(f"gave {len(results)} values for {count} rows")
        return fitted(results, self.call.returns)

    def _error(self, failure: CallError, arguments: list[pa.Array]) -> FunctionError:
        where = blame.location(self.call.function, failure.error)
        detail = blame.NOT_COMMITTED
        if failure.of_rows:
            row = blame.first_failing(lambda start, length: self._works(arguments, start, length), len(arguments[0]))
            if row is None:
                found = f"No row of the {len(arguments[0])} in this batch fails alone."
            else:
                found = f"The first row that fails: {self.call.name}({blame.row_text(arguments, row)})."
            detail = f"{found} It was called again with parts of the batch to find that. {detail}"
        return FunctionError(f'step "{self.step}": {where}, called as {self.call.name}, {failure.what}', detail=detail)

    def failing(self, arguments: list[pa.Array]) -> list[int]:
        """Return the rows on which the function fails, called with each of them alone."""
        return blame.all_failing(lambda start, length: self._works(arguments, start, length), len(arguments[0]))

    def why(self, arguments: list[pa.Array], row: int) -> str:
        """Return why it fails on a row."""
        try:
            self._results([argument.slice(row, 1) for argument in arguments])
        except CallError as failure:
            return failure.what
        return ""

    def _works(self, arguments: list[pa.Array], start: int, length: int) -> bool:
        try:
            self._results([argument.slice(start, length) for argument in arguments])
        except CallError:
            return False
        return True


class CallError(Exception):
    """A call raised, or its result is not what was declared; `of_rows`: a single row may be the cause."""

    def __init__(self, what: str, error: BaseException | None = None, *, of_rows: bool = False) -> None:
        super().__init__(what)
        self.what = what
        self.error = error
        self.of_rows = of_rows


def fitted(results: pa.Array, kind: pa.DataType) -> pa.Array:
    """Return the results of a function in the declared type, where no value changes by that.

    Raises:
        CallError: the type is another, or a value does not fit.

    """
    if results.type == kind:
        return results
    if not _same_family(results.type, kind):
        raise CallError(f"gave {_shown(results.type)}, not the {type_name(kind)} that returns= says")
    try:
        return results.cast(kind)
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError) as error:
        text = " ".join(str(error).split())
        raise CallError(
            f"gave {_shown(results.type)} that does not fit {type_name(kind)}: {text}", of_rows=True
        ) from None


def _same_family(actual: pa.DataType, declared: pa.DataType) -> bool:
    if pa.types.is_null(actual):
        return True
    if pa.types.is_dictionary(actual):
        return _same_family(actual.value_type, declared)
    if not any(family(actual) and family(declared) for family in _FAMILIES):
        return False
    if pa.types.is_struct(actual):
        return [f.name for f in actual] == [f.name for f in declared] and all(
            _same_family(a.type, b.type) for a, b in zip(actual, declared, strict=True)
        )
    inner = zip(_inside(actual), _inside(declared), strict=True)
    return all(_same_family(a, b) for a, b in inner)


def _inside(kind: pa.DataType) -> list[Any]:
    if pa.types.is_map(kind):
        return [kind.key_type, kind.item_type]
    return [kind.field(i).type for i in range(kind.num_fields)]


def _shown(kind: pa.DataType) -> str:
    from headrace.base.errors import InvalidSchema

    try:
        return type_name(kind)
    except InvalidSchema:
        return str(kind)
