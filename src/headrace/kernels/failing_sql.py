"""The rows of a batch on which an expression fails, found in one pass by DuckDB's TRY, else by halving the batch."""

from __future__ import annotations

from typing import TYPE_CHECKING

import duckdb
import numpy as np
import pyarrow as pa

from headrace.kernels import blame

if TYPE_CHECKING:
    from headrace.kernels.duck import Duck

MOST_MESSAGES = 200
"""For so many rows an epoch and expression, DuckDB is asked what is wrong; the reasons of others have no message."""
_NTH = "_headrace_nth"
_ERROR = "_headrace_error"
_MACRO = f"CREATE OR REPLACE TEMP MACRO {_ERROR}(message) AS list_extract([NULL], CAST('!' || message AS BIGINT))"
"""Fails as `error` does, which TRY refuses since it counts as volatile."""


def failing_sql(duck: Duck, sql: str, rows: pa.Table) -> list[tuple[int, str]]:
    """Return the rows on which an expression fails, each with DuckDB's message.

    Args:
        duck: a connection without a transaction: a statement that fails would end it.
        sql: the expression over the columns of `rows`.
        rows: a table.

    """
    numbered = rows.append_column(_NTH, pa.array(np.arange(rows.num_rows)))
    lenient = sql.replace("error('[", f"{_ERROR}('[")
    try:
        duck.run(_MACRO)
        source = duck.register(numbered)
        query = f"SELECT {_NTH} FROM {source} WHERE TRY(row({lenient})) IS NULL ORDER BY {_NTH}"
        failing = [row for (row,) in duck.rows(query)]
    except duckdb.Error:  # TRY does not take every expression
        if _message(duck, sql, rows.slice(0, 0)) is not None:
            return []  # not for a row's sake
        failing = blame.all_failing(
            lambda start, length: _message(duck, sql, rows.slice(start, length)) is None, rows.num_rows
        )
    messages = [_message(duck, sql, rows.slice(row, 1)) for row in failing[:MOST_MESSAGES]]
    found = [(row, message) for row, message in zip(failing, messages, strict=False) if message is not None]
    return found + [(row, "") for row in failing[MOST_MESSAGES:]]


def _message(duck: Duck, sql: str, rows: pa.Table) -> str | None:
    """Return why an expression fails on rows, or None if it does not."""
    try:
        duck.arrow(f"SELECT {sql} FROM {duck.register(rows)}")
    except duckdb.Error as error:
        return blame.duckdb_text(error)
    return None
