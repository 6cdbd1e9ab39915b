"""`headrace topics consume`: records of a topic, printed as lines."""

from __future__ import annotations

import csv
import json
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TextIO

import pyarrow as pa

from headrace.base.errors import InvalidTime, PlanError
from headrace.cli.stop import Stop
from headrace.cli.values import as_text, plain, rows_of

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from headrace.cli.endpoints import ReadableTopic
    from headrace.cli.record_filter import RecordFilter

LOOK_SECONDS = 0.2
EARLIEST, LATEST = "earliest", "latest"


@dataclass(frozen=True, kw_only=True)
class ConsumeRequest:
    """Which records to print.

    `start` and `until` are `earliest`, `latest`, an offset or a time, as on the command line. `limit` is a number of
    records, `partition` None is all. `follow` waits for more records; `offsets` prints their system columns too.
    `columns` are more columns of the topic, for the writer of lines.
    """

    topic: ReadableTopic
    start: str
    until: str | None
    partition: int | None
    limit: int | None
    follow: bool
    offsets: bool = False
    columns: tuple[str, ...] = ()


def write_records(request: ConsumeRequest, record_filter: RecordFilter, form: str, out: TextIO) -> None:
    """Write the records that pass the filter to `out`; `form` is `"json"` (an object a line) or `"csv"`."""
    stop = Stop(quiet=True)
    columns = list(request.topic.schema.names) + (["_partition", "_offset", "_time"] if request.offsets else [])
    table = csv.writer(out, lineterminator="\n")
    if form == "csv":
        table.writerow(columns)
    with stop.listening():
        for full in selected(request, record_filter, stop):
            row = _row_to_show(full, request)
            if form == "csv":
                table.writerow([as_text(row.get(name)) for name in columns])
            else:
                out.write(json.dumps(plain(row), ensure_ascii=False) + "\n")
            if request.follow:
                out.flush()
            if stop.requested:
                return


def selected(request: ConsumeRequest, record_filter: RecordFilter, stop: Stop) -> Iterator[dict[str, Any]]:
    """Yield the records that pass the filter, with `_deleted`, `_partition`, `_offset` and `_time`."""
    position = dict(_offsets(request, request.start, "--from"))
    remaining = request.limit if request.limit is not None else float("inf")
    while remaining > 0:
        ends, final = _ends(request)
        if request.partition is None:
            position |= dict.fromkeys(ends.keys() - position, 0)  # partitions that were added meanwhile
        for partition, at in list(position.items()):
            if at >= ends[partition]:
                continue
            for row in _rows_between(request, record_filter, partition, at, ends[partition]):
                yield row
                remaining -= 1
                if remaining <= 0:
                    return
            position[partition] = ends[partition]
        if final or not request.follow or stop.wait(LOOK_SECONDS):
            return


def _ends(request: ConsumeRequest) -> tuple[Mapping[int, int], bool]:
    """Return the offsets to read up to now, and whether they are final: every partition has reached `--until`."""
    ends = request.topic.end_offsets()
    if request.until is None:
        return ends, False
    if request.until == LATEST:
        return ends, True
    if request.until.isdigit():
        bounds: Mapping[int, int] = dict.fromkeys(ends, int(request.until))
        final = all(bounds[number] <= ends[number] for number in _partitions(request, ends))
    else:
        bounds = _offsets(request, request.until, "--until")
        final = all(bounds[number] < ends[number] for number in _partitions(request, ends))
    return {number: min(bounds.get(number, end), end) for number, end in ends.items()}, final


def _partitions(request: ConsumeRequest, ends: Mapping[int, int]) -> list[int]:
    return list(ends) if request.partition is None else [request.partition]


def _rows_between(
    request: ConsumeRequest, record_filter: RecordFilter, partition: int, start: int, end: int
) -> Iterator[dict[str, Any]]:
    topic = request.topic
    columns = [*topic.schema.names, "_deleted", "_offset", "_time", *request.columns]
    for batch in topic.batches(partition, start, end, columns=columns):
        number = pa.repeat(pa.scalar(partition, pa.int32()), batch.num_rows)
        rows = record_filter.apply(pa.Table.from_batches([batch]).append_column("_partition", number))
        yield from rows_of(rows)


def _row_to_show(row: dict[str, Any], request: ConsumeRequest) -> dict[str, Any]:
    deleted = row.pop("_deleted")
    system = {name: row.pop(name) for name in ("_partition", "_offset", "_time")}
    if deleted:
        row = {name: row[name] for name in request.topic.key} | {"_deleted": True}
    return row | (system if request.offsets else {})


def _offsets(request: ConsumeRequest, text: str, option: str) -> Mapping[int, int]:
    topic = request.topic
    first, end = topic.start_offsets(), topic.end_offsets()
    if request.partition is not None and request.partition not in end:
        raise PlanError(
            f"the topic {topic.name} has no partition {request.partition}", hint=f"It has 0 to {len(end) - 1}."
        )
    offsets: Mapping[int, int]
    if text == EARLIEST:
        offsets = first
    elif text == LATEST:
        offsets = end
    elif text.isdigit():
        offsets = {number: min(max(int(text), first[number]), end[number]) for number in end}
    else:
        try:
            offsets = topic.offsets_at(text)
        except InvalidTime:
            raise PlanError(
                f"{option} {text!r} is not a position in a topic",
                hint='Give earliest, latest, an offset such as 1000, or a time such as "2026-01-31 10:00".',
            ) from None
    return offsets if request.partition is None else {request.partition: offsets[request.partition]}
