"""Out of a topic, as lines."""

from __future__ import annotations

import csv
import json
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TextIO

from headrace.base.errors import InvalidTime, PlanError
from headrace.cli.run import Stop
from headrace.cli.values import as_text, plain

if TYPE_CHECKING:
    from collections.abc import Iterator

    from headrace.log import Topic

LOOK_SECONDS = 0.2


@dataclass(frozen=True, kw_only=True)
class Reading:
    """What to read: from where, of which partition, how many rows, and whether to wait for more."""

    topic: Topic
    start: str
    partition: int | None
    most: int | None
    follow: bool
    offsets: bool


def consumed(reading: Reading, form: str, out: TextIO) -> None:
    """Write the records to `out`, as JSON lines or CSV."""
    stop = Stop(quiet=True)
    columns = list(reading.topic.schema.names) + (["_partition", "_offset", "_time"] if reading.offsets else [])
    table = csv.writer(out, lineterminator="\n")
    if form == "csv":
        table.writerow(columns)
    with stop.listening():
        for row in _rows(reading, stop):
            if form == "csv":
                table.writerow([as_text(row.get(name)) for name in columns])
            else:
                out.write(json.dumps(plain(row), ensure_ascii=False) + "\n")
            if reading.follow:
                out.flush()
            if stop.told:
                return


def _rows(reading: Reading, stop: Stop) -> Iterator[dict[str, Any]]:
    topic, at = reading.topic, _starts(reading)
    left = reading.most if reading.most is not None else float("inf")
    while left > 0:
        ends = topic.end_offsets()
        for partition in at:
            for row in _between(reading, partition, at[partition], ends[partition]):
                yield row
                left -= 1
                if left <= 0:
                    return
            at[partition] = ends[partition]
        if not reading.follow or stop.wait(LOOK_SECONDS):
            return


def _between(reading: Reading, partition: int, start: int, end: int) -> Iterator[dict[str, Any]]:
    topic = reading.topic
    columns = [*topic.schema.names, "_deleted", *(["_offset", "_time"] if reading.offsets else [])]
    for batch in topic.batches(partition, start, end, columns=columns) if end > start else ():
        for row in batch.to_pylist(maps_as_pydicts="strict"):
            yield _shown(row, reading, partition)


def _shown(row: dict[str, Any], reading: Reading, partition: int) -> dict[str, Any]:
    deleted = row.pop("_deleted")
    extra = {"_partition": partition} if reading.offsets else {}
    extra |= {name: row.pop(name) for name in ("_offset", "_time") if reading.offsets}
    if deleted:
        row = {name: row[name] for name in reading.topic.key} | {"_deleted": True}
    return row | extra


def _starts(reading: Reading) -> dict[int, int]:
    topic = reading.topic
    first, end = topic.start_offsets(), topic.end_offsets()
    if reading.partition is not None and reading.partition not in end:
        raise PlanError(
            f"the topic {topic.name} has no partition {reading.partition}", hint=f"It has 0 to {len(end) - 1}."
        )
    if reading.start == "start":
        found = first
    elif reading.start == "end":
        found = end
    elif reading.start.isdigit():
        found = {number: min(max(int(reading.start), first[number]), end[number]) for number in end}
    else:
        try:
            found = topic.offsets_at(reading.start)
        except InvalidTime:
            raise PlanError(
                f"--from {reading.start!r} is no place in a topic",
                hint='Say start, end, an offset such as 1000, or a time such as "2026-01-31 10:00".',
            ) from None
    return found if reading.partition is None else {reading.partition: found[reading.partition]}
