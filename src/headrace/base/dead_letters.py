"""Dead letters: what is written to `<topic>.dead` of records that cannot be read or computed."""

from __future__ import annotations

import base64
import json
import math
from collections import Counter
from functools import reduce
from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.compute as pc

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

DEAD = pa.schema(
    [
        ("topic", pa.string()),
        ("partition", pa.int32()),
        ("offset", pa.int64()),
        ("reason", pa.string()),
        ("record", pa.string()),
    ]
)
"""The columns of `<topic>.dead`: where the record is, why it could not be read, and the record as JSON or as it was."""


LONGEST_CAUSE = 120
MOST_CAUSES = 20
"""So many causes are counted for a step or source; when there are more, the rarest are forgotten."""
NO_KEY = "no key"
"""The cause where a row has no key, and needs one."""
CAUSES = "dead:"
"""The causes of a step's dead letters are counted under the step's name after this."""
DEAD_SINK = "dead:"
"""Dead letters are staged for the sink with this name, followed by the source's topic."""


def dead_letters(topic: str, partition: pa.Array, offset: pa.Array, reasons: pa.Array, rows: pa.Table) -> pa.Table:
    """Return dead letters of rows, as a table with the columns `DEAD`."""
    records = [as_json(row) for row in rows.to_pylist()]
    count = len(records)
    columns = [pa.array([topic] * count, pa.string()), partition, offset, reasons, pa.array(records, pa.string())]
    return pa.table(columns, schema=DEAD)


def as_json(row: Mapping[str, object]) -> str:
    """Return a row as JSON: bytes as base64, and as texts what JSON has no numbers for, as `topics consume` prints."""
    try:
        return json.dumps(row, default=_value, ensure_ascii=False, allow_nan=False)
    except ValueError:
        return json.dumps(_finite(row), default=_value, ensure_ascii=False, allow_nan=False)


def undecoded_letters(
    topic: str, partition: pa.Array, offset: pa.Array, reasons: pa.Array, values: pa.Array
) -> pa.Table:
    """Return dead letters of records that are bytes: `record` is their text, null where there was no value."""
    try:
        records = values.cast(pa.string())
    except pa.ArrowInvalid:  # not all are UTF-8
        records = pa.array([None if value is None else _text(value) for value in values.to_pylist()], pa.string())
    topics = pa.repeat(pa.scalar(topic), len(values))
    return pa.table([topics, partition, offset, reasons, records], schema=DEAD)


def keyless(rows: pa.Table | pa.RecordBatch, key: Sequence[str]) -> pa.Array | pa.ChunkedArray | None:
    """Return for each row whether all columns of its key are null; None where that is no row."""
    columns = [rows.column(name) for name in key]
    if not columns or not all(column.null_count for column in columns):
        return None
    absent = reduce(pc.and_, map(pc.is_null, columns))
    return absent if pc.any(absent).as_py() else None


def causes(letters: pa.Table) -> dict[str, int]:
    """Return how many of the letters have each cause: the reason up to its first colon, without values."""
    found: Counter[str] = Counter()
    for reason in letters.column("reason").value_counts().to_pylist():
        found[reason["values"].partition(": ")[0][:LONGEST_CAUSE]] += reason["counts"]
    return dict(found)


def _finite(value: object) -> object:
    if isinstance(value, float):
        return value if math.isfinite(value) else str(value)
    if isinstance(value, dict):
        return {name: _finite(part) for name, part in value.items()}
    return [_finite(part) for part in value] if isinstance(value, list | tuple) else value


def _value(value: object) -> str:
    return base64.b64encode(value).decode() if isinstance(value, bytes) else str(value)


def _text(value: object) -> str:
    return value.decode("utf-8", "replace") if isinstance(value, bytes) else str(value)
