"""Rows -> records of Kafka: keys, values and timestamps as columns."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from headrace.base.dead_letters import keyless
from headrace.connect.format import HEADERS, VALUE
from headrace.connect.formats import format_named
from headrace.connect.kafka.writing.partitioner import buffers

if TYPE_CHECKING:
    from collections.abc import Sequence

    import numpy.typing as npt

    from headrace.connect.format import Format

FIRST_MS = 1
"""Kafka has no times before 1970, and 0 means now to some clients."""
OVERHEAD = 100
"""Bytes around a key and a value: the head of a batch and of a record."""


@dataclass(frozen=True, slots=True)
class Records:
    """Records as columns of the same length.

    `keys` and `values` are binary, null where there is none; `times` are milliseconds since 1970 (int64); `headers` has
    the type `format.HEADERS_TYPE`, or there are none. `places`: for each row the record that says
    what it is; None: the one at its place.
    """

    keys: pa.Array
    values: pa.Array
    times: npt.NDArray[np.int64]
    headers: pa.Array | None = None
    places: npt.NDArray[np.int64] | None = None

    def __len__(self) -> int:
        return len(self.times)

    def take(self, rows: npt.NDArray[np.int64]) -> Records:
        """Return some of the records."""
        at = pa.array(rows)
        headers = None if self.headers is None else self.headers.take(at)
        return Records(self.keys.take(at), self.values.take(at), self.times[rows], headers)

    def rows_of(self, records: npt.NDArray[np.int64]) -> npt.NDArray[np.int64]:
        """Return the rows that some records are of."""
        return records if self.places is None else np.flatnonzero(np.isin(self.places, records))

    def sizes(self) -> npt.NDArray[np.int64]:
        """Return the bytes of each record's key, value and headers, and what is around them."""
        found = np.diff(buffers(self.keys)[0]).astype(np.int64) + np.diff(buffers(self.values)[0]) + OVERHEAD
        if self.headers is not None:
            found += np.asarray([_bytes(each) for each in self.headers.to_pylist()], np.int64)
        return found


def encode(
    rows: pa.RecordBatch,
    schema: pa.Schema,
    key: Sequence[str],
    *,
    format: Format,  # noqa: A002 -- the name that users write
    key_format: Format | None,
    now: int,
) -> Records:
    """Return rows as records.

    Args:
        rows: the columns of the schema, and perhaps `_time` in microseconds (int64), `_deleted`, `_before`, `_headers`.
        schema: the columns of a value.
        key: those of the key; empty: records have none.
        format: of values.
        key_format: of keys; None: as text.
        now: the time of rows without an event time, in microseconds.

    """
    keys = _keys(rows.select(list(key)), key_format) if key else pa.nulls(len(rows), pa.binary())
    encoded, owners, places = format.encode_changes(rows, schema.names, keys)
    if owners is not None:
        keys, rows = keys.take(owners), rows.take(owners)
    headers = next((each.column(HEADERS) for each in (encoded, rows) if HEADERS in each.schema.names), None)
    given = rows.column("_time") if "_time" in rows.schema.names else pa.nulls(len(rows), pa.int64())
    times = pc.fill_null(given.cast(pa.int64()), now).to_numpy(zero_copy_only=False)
    return Records(
        keys=keys,
        values=_binary(encoded.column(VALUE)),
        times=np.maximum(np.floor_divide(times, 1_000), FIRST_MS),
        headers=headers,
        places=None if places is None else np.asarray(places),
    )


def _keys(rows: pa.RecordBatch, key_format: Format | None) -> pa.Array:
    """Return keys; a row whose whole key is null has none."""
    absent = keyless(rows, rows.schema.names)
    encoded = _binary((key_format or format_named("text")).encode(rows))
    return encoded if absent is None else pc.if_else(absent, pa.scalar(None, pa.binary()), encoded)


def _binary(values: pa.Array) -> pa.Array:
    return values.cast(pa.binary())


def _bytes(headers: list[dict[str, str | bytes]] | None) -> int:
    return sum(len(each["name"]) + len(each["value"] or b"") + 10 for each in headers or ())
