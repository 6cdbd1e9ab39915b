"""The keys that a topic has: what a new snapshot does not find in the database is deleted."""

from __future__ import annotations

from contextlib import closing
from typing import TYPE_CHECKING

import duckdb
import pyarrow as pa

from headrace.connect.capture.source import DELETED

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from headrace.connect.open_topic import OpenTopic


def known_keys(topic: OpenTopic, key: Sequence[str]) -> pa.Table:
    """Return the keys of the rows that a topic has: those whose last record is no delete. DuckDB spills what is large.

    A key that moved to another partition when some were added may be there though it is deleted.
    """
    numbered = pa.schema(
        [*(topic.schema.field(name) for name in key), (DELETED, pa.bool_()), ("_part", pa.int32()), ("_n", pa.int64())]
    )
    quoted = ", ".join(f'"{name.replace(chr(34), chr(34) * 2)}"' for name in key)
    with closing(duckdb.connect()) as db:
        db.register("records", pa.RecordBatchReader.from_batches(numbered, _records(topic, key, numbered)))
        last = f"SELECT {quoted}, arg_max({DELETED}, _n) AS gone FROM records GROUP BY {quoted}, _part"
        return db.sql(f"SELECT DISTINCT {quoted} FROM ({last}) WHERE NOT gone").to_arrow_table()


def without(known: pa.Table, here: pa.Table) -> pa.Table:
    """Return those of some keys that are not among others of the same types. A null in a key is equal to a null."""
    with closing(duckdb.connect()) as db:
        db.register("known", known)
        db.register("here", here)
        return db.sql("SELECT * FROM known EXCEPT SELECT * FROM here").to_arrow_table()


def _records(topic: OpenTopic, key: Sequence[str], schema: pa.Schema) -> Iterator[pa.RecordBatch]:
    starts, ends, number = topic.start_offsets(), topic.end_offsets(), 0
    for part, end in ends.items():
        for batch in topic.batches(part, starts[part], end, columns=[*key, DELETED]):
            count = batch.num_rows
            columns = [batch.column(place).cast(schema.field(place).type) for place in range(len(key) + 1)]
            order = pa.array(range(number, number + count), pa.int64())
            number += count
            yield pa.RecordBatch.from_arrays(
                [*columns, pa.repeat(pa.scalar(part, pa.int32()), count), order], schema=schema
            )
