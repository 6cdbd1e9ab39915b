"""A user's function over a batch of rows: called once, believed only as far as it can be checked."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pyarrow as pa

from headrace.base.errors import FunctionError
from headrace.base.schema import TIMESTAMP, to_ddl
from headrace.kernels import blame
from headrace.kernels.duck import typed, without_zones

if TYPE_CHECKING:
    from headrace.kernels.spec import Apply


def applied(op: Apply, rows: pa.Table) -> pa.Table:
    """Return the delta that the function makes of one; `rows` has the step's columns, `_weight` and `_time`.

    Raises:
        FunctionError: it raised, or gave back what it had not promised.

    """
    given = typed(rows, op.takes).append_column(
        pa.field("_time", TIMESTAMP), rows.column("_time").cast(pa.int64()).cast(TIMESTAMP)
    )
    try:
        made = op.function(given)
    except Exception as error:
        raise FunctionError(
            f'step "{op.step}": {blame.place(op.function, error)} raised {blame.said(error)}',
            detail=blame.NOT_COMMITTED,
        ) from error
    if not isinstance(made, pa.Table):
        raise FunctionError(
            f'step "{op.step}": {blame.place(op.function)} gave {type(made).__name__}, not a pyarrow.Table'
        )
    times = _times(op, given, made)
    try:
        columns = [made.column(field.name).cast(field.type) for field in op.gives]
    except (KeyError, pa.ArrowInvalid, pa.ArrowNotImplementedError) as error:
        raise FunctionError(
            f'step "{op.step}": {blame.place(op.function)} gave rows that do not fit the schema: {error}',
            detail=f"Promised: {to_ddl(op.gives)}.",
        ) from error
    table = pa.table(columns, schema=pa.schema([(field.name, field.type) for field in op.gives]))
    weights = pa.array([1], pa.int32()).take(pa.nulls(made.num_rows, pa.int64()).fill_null(0))
    return without_zones(table).append_column("_weight", weights).append_column("_time", times)


def _times(op: Apply, given: pa.Table, made: pa.Table) -> pa.ChunkedArray:
    if "_time" in made.column_names:
        try:
            times = made.column("_time").cast(TIMESTAMP)
        except (KeyError, pa.ArrowInvalid, pa.ArrowNotImplementedError) as error:
            raise FunctionError(
                f'step "{op.step}": {blame.place(op.function)} gave a column _time that is no event time: {error}'
            ) from error
        if times.null_count:
            place = blame.place(op.function)
            raise FunctionError(
                f'step "{op.step}": {place} gave {times.null_count} rows whose event time _time is null',
                hint="Fill it, or leave such rows out.",
            )
        return times.cast(pa.int64())
    if made.num_rows == given.num_rows:
        return given.column("_time").cast(pa.int64())
    place = blame.place(op.function)
    raise FunctionError(
        f'step "{op.step}": {place} gave {made.num_rows} rows for {given.num_rows}, without their times',
        hint="Let it give back the column _time too: each row's event time.",
    )
