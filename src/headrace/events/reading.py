"""Events of a stream, read by their offsets."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from headrace.events.event import SCHEMA, STREAM, Recorded

if TYPE_CHECKING:
    from collections.abc import Iterator

    import numpy.typing as npt

    from headrace.log import Topic

_NEAR = 64
"""Events so near to each other are read at once, with what is in between."""


def read_events(topic: Topic, partition: int, offsets: npt.NDArray[np.int64], stream: str) -> Iterator[Recorded]:
    """Yield the events of a stream that are at some offsets, which ascend, in order."""
    if not len(offsets):
        return
    cuts = np.flatnonzero(np.diff(offsets) > _NEAR) + 1
    for part in np.split(offsets, cuts):
        found = topic.batches(partition, int(part[0]), int(part[-1]) + 1, columns=SCHEMA.names)
        events = pa.Table.from_batches(list(found), schema=SCHEMA)
        mine = events.filter(pc.equal(events.column(STREAM), stream))
        for row in mine.to_pylist():
            meta = row.pop("meta")
            data = json.loads(row.pop("data"))
            yield Recorded(**row, data=data, meta=None if meta is None else json.loads(meta))
