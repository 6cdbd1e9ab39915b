"""Dead letters: what is written to `<topic>.dead` of records that cannot be read or computed."""

from __future__ import annotations

import json
from collections import Counter

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


LONGEST_CAUSE = 120
MOST_CAUSES = 20
"""So many causes are counted for a step or source; when there are more, the rarest are forgotten."""
CAUSES = "dead:"
"""The causes of a step's dead letters are counted under the step's name after this."""
DEAD_SINK = "dead:"
"""Dead letters are staged for the sink with this name, followed by the source's topic."""


def dead_letters(topic: str, partition: pa.Array, offset: pa.Array, reasons: pa.Array, rows: pa.Table) -> pa.Table:
    """Return dead letters of rows, as a table with the columns `DEAD`."""
    records = [json.dumps(row, default=_text, ensure_ascii=False) for row in rows.to_pylist()]
    count = len(records)
    columns = [pa.array([topic] * count, pa.string()), partition, offset, reasons, pa.array(records, pa.string())]
    return pa.table(columns, schema=DEAD)


def causes(letters: pa.Table) -> dict[str, int]:
    """Return how many of the letters have each cause: the reason up to its first colon, without values."""
    return dict(Counter(reason.partition(": ")[0][:LONGEST_CAUSE] for reason in letters.column("reason").to_pylist()))


def _text(value: object) -> str:
    return value.decode("utf-8", "replace") if isinstance(value, bytes) else str(value)
