"""Out of a topic, as lines."""

from __future__ import annotations

import csv
import json
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TextIO

import pyarrow as pa

from headrace.base.errors import InvalidTime, PlanError
from headrace.cli.run import Stop
from headrace.cli.values import as_text, plain

if TYPE_CHECKING:
    from collections.abc import Iterator

    from headrace.cli.picking import Picked
    from headrace.log import Topic

LOOK_SECONDS = 0.2
EARLIEST, LATEST = "earliest", "latest"


@dataclass(frozen=True, kw_only=True)
class Reading:
    """What to read: from where to where, of which partition, how many records, and whether to wait for more."""

    topic: Topic
    start: str
    until: str | None
    partition: int | None
    limit: int | None
    follow: bool
    offsets: bool


def consumed(reading: Reading, picked: Picked, form: str, out: TextIO) -> None:
    """Write the records that are picked to `out`, as JSON lines or CSV."""
    stop = Stop(quiet=True)
    columns = list(reading.topic.schema.names) + (["_partition", "_offset", "_time"] if reading.offsets else [])
    table = csv.writer(out, lineterminator="\n")
    if form == "csv":
        table.writerow(columns)
    with stop.listening():
        for row in _rows(reading, picked, stop):
            if form == "csv":
                table.writerow([as_text(row.get(name)) for name in columns])
            else:
                out.write(json.dumps(plain(row), ensure_ascii=False) + "\n")
            if reading.follow:
                out.flush()
            if stop.told:
                return


def _rows(reading: Reading, picked: Picked, stop: Stop) -> Iterator[dict[str, Any]]:
    at = _places(reading, reading.start, "--from")
    left = reading.limit if reading.limit is not None else float("inf")
    while left > 0:
        ends, final = _ends(reading)
        for partition in at:
            if at[partition] >= ends[partition]:
                continue
            for row in _between(reading, picked, partition, at[partition], ends[partition]):
                yield row
                left -= 1
                if left <= 0:
                    return
            at[partition] = ends[partition]
        if final or not reading.follow or stop.wait(LOOK_SECONDS):
            return


def _ends(reading: Reading) -> tuple[dict[int, int], bool]:
    """Return how far to read now, and whether that is for good: `--until` is reached everywhere."""
    ends = reading.topic.end_offsets()
    if reading.until is None:
        return ends, False
    if reading.until == LATEST:
        return ends, True
    if reading.until.isdigit():
        bounds = dict.fromkeys(ends, int(reading.until))
        final = all(bounds[number] <= ends[number] for number in _chosen(reading, ends))
    else:
        bounds = _places(reading, reading.until, "--until")
        final = all(bounds[number] < ends[number] for number in _chosen(reading, ends))
    return {number: min(bounds.get(number, end), end) for number, end in ends.items()}, final


def _chosen(reading: Reading, ends: dict[int, int]) -> list[int]:
    return list(ends) if reading.partition is None else [reading.partition]


def _between(reading: Reading, picked: Picked, partition: int, start: int, end: int) -> Iterator[dict[str, Any]]:
    topic = reading.topic
    columns = [*topic.schema.names, "_deleted", "_offset", "_time"]
    for batch in topic.batches(partition, start, end, columns=columns):
        number = pa.repeat(pa.scalar(partition, pa.int32()), batch.num_rows)
        rows = picked.of(pa.Table.from_batches([batch]).append_column("_partition", number))
        for row in rows.to_pylist(maps_as_pydicts="strict"):
            yield _shown(row, reading)


def _shown(row: dict[str, Any], reading: Reading) -> dict[str, Any]:
    deleted = row.pop("_deleted")
    known = {name: row.pop(name) for name in ("_partition", "_offset", "_time")}
    if deleted:
        row = {name: row[name] for name in reading.topic.key} | {"_deleted": True}
    return row | (known if reading.offsets else {})


def _places(reading: Reading, text: str, option: str) -> dict[int, int]:
    topic = reading.topic
    first, end = topic.start_offsets(), topic.end_offsets()
    if reading.partition is not None and reading.partition not in end:
        raise PlanError(
            f"the topic {topic.name} has no partition {reading.partition}", hint=f"It has 0 to {len(end) - 1}."
        )
    if text == EARLIEST:
        found = first
    elif text == LATEST:
        found = end
    elif text.isdigit():
        found = {number: min(max(int(text), first[number]), end[number]) for number in end}
    else:
        try:
            found = topic.offsets_at(text)
        except InvalidTime:
            raise PlanError(
                f"{option} {text!r} is no place in a topic",
                hint='Say earliest, latest, an offset such as 1000, or a time such as "2026-01-31 10:00".',
            ) from None
    return found if reading.partition is None else {reading.partition: found[reading.partition]}
