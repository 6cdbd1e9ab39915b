"""Dead letters: what is written to `<topic>.dead` of records that cannot be read or computed."""

from __future__ import annotations

import json

import pyarrow as pa

DEAD = pa.schema(
    [
        ("topic", pa.string()),
        ("partition", pa.int32()),
        ("offset", pa.int64()),
        ("reason", pa.string()),
        ("record", pa.string()),
    ]
)
"""The columns of `<topic>.dead`: where the record is, why it could not be read, and the record as JSON."""


DEAD_SINK = "dead:"
"""Dead letters are staged for the sink with this name, followed by the source's topic."""


def dead_letters(topic: str, partition: pa.Array, offset: pa.Array, reasons: pa.Array, rows: pa.Table) -> pa.Table:
    """Return dead letters of rows, as a table with the columns `DEAD`."""
    records = [json.dumps(row, default=_text, ensure_ascii=False) for row in rows.to_pylist()]
    count = len(records)
    columns = [pa.array([topic] * count, pa.string()), partition, offset, reasons, pa.array(records, pa.string())]
    return pa.table(columns, schema=DEAD)


def _text(value: object) -> str:
    return value.decode("utf-8", "replace") if isinstance(value, bytes) else str(value)
