"""Answers: ours, in process, cut anyhow; and those of batch Spark and of DuckDB over the same events."""

from __future__ import annotations

from collections import Counter
from datetime import datetime
from decimal import Decimal
from typing import TYPE_CHECKING, Any

import duckdb
import pyarrow as pa

from headrace import Table
from headrace.testing import Driver

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from bench.nexmark.generator import Events
    from bench.nexmark.queries import Form, Query

Rows = Counter[tuple[tuple[str, Any], ...]]
RESULT = "result"
MACROS = """
CREATE MACRO date_format(t, f) AS strftime(t, replace(replace(replace(replace(replace(f,
    'yyyy', '%Y'), 'MM', '%m'), 'dd', '%d'), 'HH', '%H'), 'mm', '%M'));
"""
"""Functions of Spark SQL that DuckDB lacks."""


def answer(
    query: Query, form: Form, cuts: Sequence[Events], *, crash_at: str | None = None, carrier: str = "in process"
) -> Rows:
    """Run a query in process over events, one epoch a cut, and return its result.

    Args:
        query: the query.
        form: as verbs, or as SQL.
        cuts: the events of each epoch.
        crash_at: a point at which the process dies in the epoch of the second cut, to start again.
        carrier: that of the `Driver`.

    """
    app, result = query.app(form)
    is_table = isinstance(result, Table)
    if isinstance(result, Table):
        result.to_view(RESULT)
    else:
        result.to_topic(RESULT)
    with Driver(app, shards=2, carrier=carrier) as driver:  # type: ignore[arg-type]
        for number, events in enumerate(cuts):
            for name in query.reads:
                driver.log.topic(name).append(getattr(events, name))
            if crash_at is not None and number == 1:
                driver.crash(at=crash_at)
                driver.restart()
            driver.step()
        driver.finish()
        return counted(driver.view(RESULT) if is_table else driver.read(RESULT))


def by_spark(spark: Any, query: Query, cuts: Sequence[Events]) -> Rows:
    """Return what batch Spark answers."""
    session = spark.newSession()
    for name, table in whole(cuts).items():
        session.createDataFrame(table).createOrReplaceTempView(name)
    return counted(session.sql(query.spark).toArrow().to_pylist())


def by_duckdb(query: Query, cuts: Sequence[Events]) -> Rows:
    """Return what DuckDB answers."""
    with duckdb.connect() as con:
        con.execute(f"SET TimeZone = 'UTC'; {MACROS}")
        for name, table in whole(cuts).items():
            con.register(f"{name}_in_utc", table)
            con.execute(
                f"CREATE VIEW {name} AS SELECT * REPLACE "
                f"({', '.join(f'{at} AT TIME ZONE $$UTC$$ AS {at}' for at in _times(table))}) FROM {name}_in_utc"
            )
        return counted(con.sql(query.duckdb).to_arrow_table().to_pylist())


def whole(cuts: Sequence[Events]) -> dict[str, pa.Table]:
    """Return all events by stream."""
    return {name: pa.concat_tables(getattr(events, name) for events in cuts) for name in cuts[0]._fields}


def _times(table: pa.Table) -> list[str]:
    return [field.name for field in table.schema if pa.types.is_timestamp(field.type)]


def counted(rows: Sequence[Mapping[str, Any]]) -> Rows:
    """Return rows with how often each is there; names and types of numbers do not count, the zone is UTC."""
    return Counter(tuple(sorted((name, _plain(value)) for name, value in row.items())) for row in rows)


def _plain(value: Any) -> Any:
    if isinstance(value, datetime):
        return value.replace(tzinfo=None)
    if isinstance(value, Decimal):
        return float(value)
    return float(f"{value:.12g}") if isinstance(value, float) else value
