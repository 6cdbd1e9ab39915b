"""Event times that an expression computes, before anything else is done with a record."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import duckdb
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from headrace.connect.decoding import NEAR, Span
from headrace.kernels.failing_sql import failing_sql

if TYPE_CHECKING:
    from collections.abc import Collection

    from headrace.expressions import Scalar
    from headrace.kernels.duck import Duck


@dataclass(frozen=True, slots=True)
class EventTimes:
    """Computes the event times of records."""

    duck: Duck
    timing: Scalar
    span: Span = NEAR

    def of(self, rows: pa.Table) -> tuple[pa.ChunkedArray, dict[int, str]]:
        """Return an event time for each row, in microseconds, and why some have none, by row.

        A tombstone without one keeps the time at which it was stored.
        """
        failing: dict[int, str] = {}
        try:
            found = self._computed(rows)
        except duckdb.Error:
            failing = dict(failing_sql(self.duck, self.timing.sql, rows))
            if not failing:
                raise
            found = self._others(rows, failing)
        finally:
            self.duck.forget()
        missing = pc.is_null(found)
        if "_weight" in rows.column_names:
            deleted = pc.less(rows.column("_weight"), 0)
            found = pc.if_else(pc.and_(missing, deleted), rows.column("_time"), found)
            missing = pc.and_not(missing, deleted)
        reasons = {row: self._reason(failing.get(row)) for row in pc.indices_nonzero(missing).to_pylist()}
        far = self.span.far(found)
        if far is not None:
            reasons |= dict.fromkeys(pc.indices_nonzero(far).to_pylist(), f"{self._said} {self.span.reason}")
        return found, dict(sorted(reasons.items()))

    @property
    def _said(self) -> str:
        return f'the event time "{self.timing.text}"'

    def _reason(self, failure: str | None) -> str:
        said = self._said
        return f"{said} is null" if failure is None else f"{said} cannot be computed: {failure}".removesuffix(": ")

    def _computed(self, rows: pa.Table) -> pa.ChunkedArray:
        return self.duck.arrow(f"SELECT epoch_us({self.timing.sql}) AS at FROM {self.duck.register(rows)}").column(0)

    def _others(self, rows: pa.Table, failing: Collection[int]) -> pa.ChunkedArray:
        """Return the times of the rows that do not fail; those of the others are null."""
        fails = np.zeros(rows.num_rows, dtype=np.bool_)
        fails[list(failing)] = True
        times = self._computed(rows.filter(pa.array(~fails))).combine_chunks()
        places = pa.array(np.cumsum(~fails) - 1, mask=fails)
        return pa.chunked_array([times.take(places)])
