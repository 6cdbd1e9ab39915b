"""Appending rows in bulk: an append is split over partitions, and each partition gets its rows at once."""

from __future__ import annotations

from typing import TYPE_CHECKING

from headrace.log import records
from headrace.log.appending.producers import identity
from headrace.log.appending.requests import check_arguments, request_for
from headrace.log.appending.together import run_all

if TYPE_CHECKING:
    import pyarrow as pa

    from headrace.log.meta import Meta
    from headrace.log.open_topic import OpenTopic
    from headrace.log.rows import Rows


def append(
    topic: OpenTopic,
    rows: Rows,
    *,
    partition: int | None,
    producer: str | None,
    sequence: int | None,
    sealed: bool,
) -> dict[int, range]:
    """Append rows and return the offsets of each partition; see `Topic.append`."""
    meta = topic.meta()
    check_arguments(meta, partition, producer, sequence)
    now = topic.log.clock.now()
    table = records.as_records(rows, meta, now=now)
    if not table.num_rows:
        return {}
    table = topic.privacy.seal(table, meta, sealed=sealed)
    requests = {}
    for number, part in _by_partition(topic, table, meta, partition, sequence).items():
        request = request_for(part, meta, now)
        if producer is not None and sequence is not None:
            request.producer, request.sequence = identity(producer), sequence
        requests[number] = request
    offsets = run_all(lambda number: topic.writer(number).append(requests[number]), requests, parallel=topic.log.fsync)
    return dict(zip(requests, offsets, strict=True))


def _by_partition(
    topic: OpenTopic, table: pa.Table, meta: Meta, partition: int | None, sequence: int | None
) -> dict[int, pa.Table]:
    if partition is not None:
        return {partition: table}
    if meta.partitions == 1:
        return {0: table}
    if meta.key:
        return records.by_partition(table, meta.key, meta.partitions)
    if sequence is not None:  # a retry must go to the partition of the first attempt
        return {sequence % meta.partitions: table}
    return {topic.next_turn(meta.partitions): table}
