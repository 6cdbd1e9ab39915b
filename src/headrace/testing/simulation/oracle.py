"""The batch query over all that was sent: by DuckDB for many cases, by Spark for a sample; both run the same text."""

from __future__ import annotations

import threading
from collections import Counter
from dataclasses import dataclass, field
from datetime import datetime
from typing import TYPE_CHECKING, Any, Protocol

import pyarrow as pa

from headrace.kernels.duck import Duck
from headrace.testing.simulation.case import BOUNDED, COLUMNS

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from headrace.testing.simulation.case import Case, Output, Step

RECORD = pa.schema(
    [("id", pa.int32()), ("k", pa.string()), ("g", pa.int32()), ("v", pa.int64()), ("ts", pa.int64()),
     ("_seq", pa.int64()), ("_w", pa.int64()), ("_deleted", pa.bool_())]
)  # fmt: skip

Rows = Counter[tuple[Any, ...]]


@dataclass
class Sent:
    """All records that were sent, in order, each with the watermark of its source when it was read (microseconds)."""

    records: dict[str, list[dict[str, Any]]] = field(default_factory=dict)
    count: int = 0
    watermarks: dict[str, int] = field(default_factory=dict)

    def add(self, source: str, row: Sequence[Any]) -> None:
        """Note a record: a row of the columns, or `(id, at)`, a delete."""
        deleted = len(row) == 2
        values = {"id": row[0], "ts": row[1]} if deleted else dict(zip(COLUMNS, row, strict=True))
        at = None if values["ts"] is None else values["ts"] * 1000
        record = {"k": None, "g": None, "v": None, **values, "ts": at, "_deleted": deleted, "_read": False}
        self.records.setdefault(source, []).append({**record, "_seq": self.count, "_w": None})
        self.count += 1

    def committed(self, delay: Mapping[str, int]) -> None:
        """Note that an epoch read all that had been sent; `delay`: how far a source is out of order."""
        for source, records in self.records.items():
            new = [record for record in records if not record["_read"]]
            for record in new:
                record["_read"] = True
                record["_w"] = self.watermarks.get(source)
            times = [record["ts"] - delay[source] for record in new if record["ts"] is not None and source in delay]
            if times:
                self.watermarks[source] = max([*times, self.watermarks.get(source, times[0])])

    def lose_unread(self, since: int) -> None:
        """Forget the records sent since then that no epoch has read: the log has lost them, and nobody can know."""
        for source, records in self.records.items():
            self.records[source] = [each for each in records if each["_read"] or each["_seq"] < since]

    def table(self, source: str) -> pa.Table:
        """Return a source's records; those without an event time are dead letters."""
        there = [record for record in self.records.get(source, ()) if record["ts"] is not None]
        return pa.Table.from_pylist(there, schema=RECORD)


class Oracle(Protocol):
    """What answers SQL over tables."""

    def answer(self, tables: Mapping[str, pa.Table], queries: Sequence[str]) -> list[pa.Table]:
        """Return the result of each query."""


class DuckOracle:
    """DuckDB; one connection a thread."""

    def __init__(self) -> None:
        self._of_thread = threading.local()

    def answer(self, tables: Mapping[str, pa.Table], queries: Sequence[str]) -> list[pa.Table]:
        """Return the result of each query."""
        if not hasattr(self._of_thread, "duck"):
            self._of_thread.duck = Duck()
        duck = self._of_thread.duck
        for name, table in tables.items():
            duck.connection.register(name, table)
        return [duck.arrow(query) for query in queries]


def queries(case: Case, columns: Mapping[str, Sequence[str]], outputs: Iterable[Output]) -> list[str]:
    """Return a query for each output: its columns over the queries of all steps it needs."""
    by_name = {step.name: step for step in case.steps}

    def above(name: str, found: dict[str, None]) -> dict[str, None]:
        for each in by_name[name].inputs:
            above(each, found)
        found[name] = None
        return found

    texts = []
    for output in outputs:
        used = above(output.step, {})
        parts = [part for name in used for part in _source(by_name[name])]
        parts += [f"{name} AS ({by_name[name].query()})" for name in used if name != BOUNDED]
        wanted = ", ".join(columns[output.name])
        rows = f"({output.sql})" if output.sql else output.step
        texts.append(f"WITH {', '.join(parts)} SELECT {wanted} FROM {rows}")
    return texts


def _source(step: Step) -> list[str]:
    if step.inputs:
        return []
    name = step.name
    if name == BOUNDED:
        log = f"SELECT *, CAST(NULL AS BIGINT) AS _until, false AS _deleted FROM {name}"
        return [f"{name} AS ({step.query()})", f"{name}_log AS ({log})"]
    last = "lead(_seq) OVER (PARTITION BY id ORDER BY _seq)" if name in "tu" else "CAST(NULL AS BIGINT)"
    return [
        f"{name}_log AS (SELECT *, {last} AS _until FROM {name}_records)",
        f"{name}_current AS (SELECT id, k, g, v, ts, _seq, _w FROM {name}_log WHERE _until IS NULL AND NOT _deleted)",
    ]


def as_rows(rows: Iterable[Mapping[str, Any]], columns: Sequence[str]) -> Rows:
    """Count rows by their values; times are microseconds."""
    return Counter(tuple(_plain(row[name]) for name in columns) for row in rows)


def _plain(value: Any) -> Any:
    if isinstance(value, datetime):
        return round(value.timestamp() * 1_000_000)
    return value
