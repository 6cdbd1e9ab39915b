"""A user's function over a batch of rows: called once, its result checked."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.compute as pc

from headrace.base.errors import FunctionError
from headrace.base.schema import TIMESTAMP, to_ddl
from headrace.kernels import blame
from headrace.kernels.counts import Counts
from headrace.kernels.duck import typed
from headrace.kernels.op import Operator, StepResult
from headrace.kernels.zones import without_zones

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from headrace.kernels.delta import Delta
    from headrace.kernels.op import Context


@dataclass(frozen=True, slots=True, kw_only=True)
class Apply(Operator):
    """A user's function over Arrow tables; `takes` and `returns` are the columns of its argument and its result."""

    takes: pa.Schema
    returns: pa.Schema
    function: Callable[[pa.Table], pa.Table]
    arrived: str | None = None
    """The column with the time at which each row was stored; where rows are not one to one, they get the last."""
    hidden: tuple[str, ...] = ()
    """The private columns: errors do not show them."""

    @property
    def calls_users(self) -> bool:
        """Always."""
        return True

    def run(self, inputs: Sequence[Delta], context: Context) -> StepResult:
        """Call the function for each table of the delta."""
        del context
        tables = [applied(self, part) for part in inputs[0].tables]
        return StepResult(tables, counts=Counts(rows_out=sum(part.num_rows for part in tables)))


def applied(op: Apply, rows: pa.Table) -> pa.Table:
    """Return the delta that the function computes from one; `rows` has the step's columns, `_weight` and `_time`.

    Raises:
        FunctionError: it raised, or its result is not what it declares.

    """
    argument = typed(rows, op.takes).append_column(
        pa.field("_time", TIMESTAMP), rows.column("_time").cast(pa.int64()).cast(TIMESTAMP)
    )
    try:
        result = op.function(argument)
    except Exception as error:
        raise FunctionError(
            f'step "{op.step}": {blame.location(op.function, error)} raised {blame.message(error)}',
            detail=blame.NOT_COMMITTED,
        ) from error
    if not isinstance(result, pa.Table):
        raise FunctionError(
            f'step "{op.step}": {blame.location(op.function)} gave {type(result).__name__}, not a pyarrow.Table'
        )
    times = _times(op, argument, result)
    try:
        columns = [result.column(field.name).cast(field.type) for field in op.returns]
    except (KeyError, pa.ArrowInvalid, pa.ArrowNotImplementedError) as error:
        raise FunctionError(
            f'step "{op.step}": {blame.location(op.function)} gave rows that do not fit the schema: {error}',
            detail=f"Promised: {to_ddl(op.returns)}.",
        ) from error
    table = pa.table(columns, schema=pa.schema([(field.name, field.type) for field in op.returns]))
    weights = pa.array([1], pa.int32()).take(pa.nulls(result.num_rows, pa.int64()).fill_null(0))
    delta = without_zones(table).append_column("_weight", weights).append_column("_time", times)
    return delta if op.arrived is None else delta.append_column(op.arrived, _arrived(rows.column(op.arrived), delta))


def _arrived(before: pa.ChunkedArray, delta: pa.Table) -> pa.ChunkedArray:
    if len(before) == delta.num_rows:
        return before
    return pa.chunked_array([pa.repeat(pc.max(before), delta.num_rows)])


def fails_on(op: Apply, rows: pa.Table) -> list[tuple[int, str]]:
    """Return the rows on which the function fails, called with each of them alone, and why."""
    why: dict[int, str] = {}

    def works(start: int, length: int) -> bool:
        try:
            applied(op, rows.slice(start, length))
        except FunctionError as error:
            why[start] = error.what.partition(") ")[2] or error.what
            return False
        return True

    return [(row, why[row]) for row in blame.all_failing(works, rows.num_rows)]


def _times(op: Apply, argument: pa.Table, result: pa.Table) -> pa.ChunkedArray:
    if "_time" in result.column_names:
        try:
            times = result.column("_time").cast(TIMESTAMP)
        except (KeyError, pa.ArrowInvalid, pa.ArrowNotImplementedError) as error:
            raise FunctionError(
                f'step "{op.step}": {blame.location(op.function)} gave a column _time that is no event time: {error}'
            ) from error
        if times.null_count:
            location = blame.location(op.function)
            raise FunctionError(
                f'step "{op.step}": {location} gave {times.null_count} rows whose event time _time is null',
                hint="Fill it, or leave such rows out.",
            )
        return times.cast(pa.int64())
    if result.num_rows == argument.num_rows:
        return argument.column("_time").cast(pa.int64())
    location = blame.location(op.function)
    raise FunctionError(
        f'step "{op.step}": {location} gave {result.num_rows} rows for {argument.num_rows}, without their times',
        hint="Let it give back the column _time too: each row's event time.",
    )
