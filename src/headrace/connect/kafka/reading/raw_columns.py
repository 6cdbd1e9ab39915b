"""The columns of records that were not decoded, whichever reader read them."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa

from headrace.connect.format import HEADERS, HEADERS_TYPE, KEY, VALUE

if TYPE_CHECKING:
    from collections.abc import Iterator

EARLIEST, LATEST = -2, -1
"""Times that stand for the first offset, and for the one after the last that is readable."""
TIME = pa.timestamp("us", "UTC")
TYPES: dict[str, pa.DataType] = {
    KEY: pa.binary(),
    VALUE: pa.binary(),
    HEADERS: HEADERS_TYPE,
    "_offset": pa.int64(),
    "_time": TIME,
    "_appended": TIME,
    "_deleted": pa.bool_(),
}
"""The columns and their types."""


class OldFormat(Exception):
    """Batches of message format 0 or 1, from before Kafka 0.11: librdkafka reads them."""


def of_range(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Make `_appended` ascend over all batches of a range, not only in each."""
    greatest: int | None = None
    for batch in batches:
        at = batch.schema.get_field_index("_appended")
        stored = batch.column(at).cast(pa.int64())
        if greatest is not None:
            raised = np.maximum(stored.fill_null(greatest).to_numpy(zero_copy_only=False), greatest)
            stored = pa.array(raised)
        last = stored[len(stored) - 1].as_py()
        greatest = last if last is not None else greatest
        yield batch.set_column(at, "_appended", stored.cast(TIME))
