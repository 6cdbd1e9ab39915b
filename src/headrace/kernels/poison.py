"""The rows on which an expression or a function of the user's fails: which they are, and why.

Only a failure starts a search, so rows that are computed cost nothing. DuckDB's TRY finds the failing rows of a batch
in one pass; a function is called again with halves of its batch.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from headrace.base.names import quote
from headrace.kernels import blame
from headrace.kernels.apply import Apply, fails_on
from headrace.kernels.call import Call, called, failing_calls
from headrace.kernels.failing_sql import failing_sql
from headrace.kernels.joins.side_join import SideJoin
from headrace.kernels.query import Query

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from headrace.kernels.duck import Duck
    from headrace.kernels.op import Op
    from headrace.kernels.program import Level


@dataclass(frozen=True, slots=True, kw_only=True)
class FailingRow:
    """A row of a batch, the expression or function that fails on it, why, and the values that it reads."""

    row: int
    step: str
    what: str
    why: str
    values: str
    refused: bool = False

    def __str__(self) -> str:
        return f"{self.what} fails for {self.values}." if self.values else f"{self.what} fails."

    @property
    def reason(self) -> str:
        """The reason in a dead letter; up to the last colon it is the same for all rows of one cause."""
        return f'step "{self.step}" fails at {self.what}: {self.why}'.removesuffix(": ")


def failing_rows(duck: Duck, op: Op, rows: pa.Table) -> list[FailingRow]:
    """Return the rows of an operation's input that fail by themselves, in order; none where no single row does.

    Args:
        duck: a connection without a transaction: a statement that fails would end it.
        op: the operation that failed.
        rows: one table of its input.

    """
    found: dict[int, FailingRow] = {}
    for check in op.checks:
        for row, why in failing_sql(duck, check.sql, rows):
            values = _values(rows, row, check.columns)
            failing = FailingRow(row=row, step=op.step, what=check.text, why=why, values=values, refused=check.refuses)
            found.setdefault(row, failing)
    if isinstance(op, Call):
        left = _others(rows, found)
        for place, name, why, values in failing_calls(duck, op, rows.take(left)):
            row = left[place].as_py()
            found[row] = FailingRow(row=row, step=op.step, what=f"{name}(…)", why=why, values=values)
    if isinstance(op, Apply):
        shown = [name for name in op.takes.names if name not in op.hidden]
        for row, why in fails_on(op, rows):
            name = getattr(op.function, "__qualname__", type(op.function).__qualname__)
            values = _values(rows, row, shown)
            found[row] = FailingRow(row=row, step=op.step, what=f"{name}(…)", why=why, values=values)
    return [found[row] for row in sorted(found)]


def without(rows: pa.Table, failing: Sequence[FailingRow]) -> pa.Table:
    """Return the other rows."""
    return rows.take(_others(rows, [each.row for each in failing])) if failing else rows


def failing_records(duck: Duck, level: Level, inputs: Mapping[int, Sequence[pa.Table]]) -> dict[int, list[FailingRow]]:
    """Return the records on which level 0 fails, by the delta that they enter; rows are counted through its tables.

    Stateless operations pass event times on as they are. So the search puts each record's number where its event time
    is, and finds the record of every row that it comes to. A user's function over batches ends the search: how its
    rows come about is not known.
    """
    traced: dict[int, list[pa.Table]] = {}
    starts: dict[int, int] = {}
    count = 0
    for number, tables in inputs.items():
        starts[number] = count
        for table in tables:
            at = table.schema.get_field_index("_time")
            records = pa.array(np.arange(count, count + table.num_rows))
            traced.setdefault(number, []).append(table.set_column(at, "_time", records))
            count += table.num_rows
    found: dict[int, FailingRow] = {}
    for op in level.ops:
        for rows in [rows for number in op.inputs for rows in traced.get(number, ()) if rows.num_rows]:
            failing = [] if isinstance(op, Apply) else failing_rows(duck, op, rows)
            for each in failing:
                found.setdefault(rows.column("_time")[each.row].as_py(), each)
            _trace(duck, op, without(rows, failing), traced)
    return {
        number: [
            replace(each, row=record - start)
            for record, each in sorted(found.items())
            if start <= record < start + sum(table.num_rows for table in inputs[number])
        ]
        for number, start in starts.items()
    }


def _trace(duck: Duck, op: Op, rows: pa.Table, traced: dict[int, list[pa.Table]]) -> None:
    """Compute an operation's rows with the numbers of their records, where it passes them on."""
    if isinstance(op, Query) and "AS _time" not in op.before:
        source = duck.register(rows)
        traced.setdefault(op.output, []).append(duck.arrow(f"SELECT * FROM ({op.before} {source} {op.after})"))
    elif isinstance(op, Call):
        traced.setdefault(op.output, []).append(called(duck, op, rows))
    elif isinstance(op, SideJoin):
        traced.setdefault(op.output, []).append(op.joined(rows))


def _others(rows: pa.Table, left_out: Sequence[int] | Mapping[int, FailingRow]) -> pa.Array:
    every = pa.array(np.arange(rows.num_rows))
    return every.filter(pc.invert(pc.is_in(every, value_set=pa.array(list(left_out), pa.int64()))))


def _values(rows: pa.Table, row: int, columns: Sequence[str]) -> str:
    known = [name for name in columns if name in rows.column_names]
    texts = [f"{quote(name)} = {blame.row_text([rows.column(name)], row)}" for name in known]
    return ", ".join(texts).replace('"', "")
