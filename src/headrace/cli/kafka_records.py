"""`headrace topics consume` and `produce` with `--at kafka://…`: records as lines, whatever their format is."""

from __future__ import annotations

import base64
import csv
import json
from typing import TYPE_CHECKING, Any, BinaryIO, TextIO

from headrace.base.errors import InvalidTime
from headrace.base.time import instant
from headrace.cli.consume import selected
from headrace.cli.produce import BadLine, Batches, Lines, Row, csv_rows
from headrace.cli.stop import Stop
from headrace.cli.values import plain

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from headrace.cli.consume import ConsumeRequest
    from headrace.cli.record_filter import RecordFilter

COLUMNS = ("partition", "offset", "time", "key", "value", "headers")
BYTES = ("_key", "_value")
"""Columns that the lines need besides those of the topic: key and value as they are."""


# ---- consume ----


def write_records(request: ConsumeRequest, record_filter: RecordFilter, form: str, out: TextIO) -> None:
    """Write the records that pass the filter to `out`.

    `form`: `"json"`, an object a line with the names of `COLUMNS`; `"csv"`, the same as cells; or `"text"`, the values
    alone, a line each, without tombstones.
    """
    stop = Stop(quiet=True)
    table = csv.writer(out, lineterminator="\n")
    if form == "csv":
        table.writerow(COLUMNS)
    with stop.listening():
        for row in selected(request, record_filter, stop):
            if form == "csv":
                cells = {"key": _cell(row, "key"), "value": _cell(row, "value")}
                named = json.dumps(_headers(row), ensure_ascii=False) if row["headers"] else ""
                table.writerow([*_position(row).values(), *cells.values(), named])
            elif form == "json":
                out.write(_line(row) + "\n")
            elif row["_value"] is not None:
                out.write(_cell(row, "value") + "\n")
            if request.follow:
                out.flush()
            if stop.requested:
                return


def _position(row: dict[str, Any]) -> dict[str, Any]:
    return {"partition": row["_partition"], "offset": row["_offset"], "time": plain(row["_time"])}


def _line(row: dict[str, Any]) -> str:
    """Return a record as a JSON object; a value that is a JSON object or array is there as such."""
    head = json.dumps(_position(row) | {"key": _shown(row, "key")}, ensure_ascii=False)
    value = row["value"]
    if value is None or not _is_nested_json(value):
        value = json.dumps(_shown(row, "value"), ensure_ascii=False)
    return f'{head[:-1]}, "value": {value}, "headers": {json.dumps(_headers(row), ensure_ascii=False)}}}'


def _shown(row: dict[str, Any], name: str) -> Any:
    """Return a key or value as JSON: text, null, or `{"base64": …}` where the bytes are no text."""
    given = row[f"_{name}"]
    return row[name] if row[name] is not None or given is None else {"base64": base64.b64encode(given).decode()}


def _cell(row: dict[str, Any], name: str) -> str:
    shown = _shown(row, name)
    return shown["base64"] if isinstance(shown, dict) else shown or ""


def _headers(row: dict[str, Any]) -> list[list[Any]]:
    return [[each["name"], _text(each["value"])] for each in row["headers"] or ()]


def _text(value: bytes | None) -> Any:
    try:
        return None if value is None else value.decode()
    except UnicodeDecodeError:
        return {"base64": base64.b64encode(value or b"").decode()}


def _is_nested_json(text: str) -> bool:
    if not text.startswith(("{", "[")) or "\n" in text or "\r" in text:
        return False
    try:
        json.loads(text, parse_constant=_no_constant)
    except (ValueError, RecursionError):
        return False
    return True


def _no_constant(name: str) -> None:
    raise ValueError(f"JSON has no {name}")


# ---- produce ----


class RecordReader:
    """Lines of the input as records.

    Args:
        form: `"json"`: an object a line, which is the value as it stands; `"csv"`, with a header: each row is a JSON
            object of texts; `"text"`: each line is a value.
        key: the columns of the key: one as its text, several as a JSON object.
        event_time: the column with the record's time, ISO text or milliseconds since 1970; None: the time of now.

    """

    def __init__(self, form: str, *, key: Sequence[str], event_time: str | None) -> None:
        self.form = form
        self.key = tuple(key)
        self.event_time = event_time

    def batches(self, stream: BinaryIO) -> Batches:
        """Return the records of a stream."""
        lines = Lines(stream)
        rows = {"json": self._json, "csv": self._csv, "text": self._text}[self.form](lines)
        return Batches(rows, lines)

    def _text(self, lines: Lines) -> Iterator[Row]:
        for line in lines:
            value = line.rstrip("\n").removesuffix("\r")
            yield Row(lines.number, line, {"key": None, "value": _bytes(value)})

    def _json(self, lines: Lines) -> Iterator[Row]:
        for line in lines:
            if not line.strip():
                continue
            try:
                values = json.loads(line, parse_constant=_no_constant)
            except ValueError as error:
                yield Row(lines.number, line, None, f"not JSON: {error}")
            except RecursionError:
                yield Row(lines.number, line, None, "not JSON that can be read: it is nested too deeply")
            else:
                yield self._record(lines.number, line, values, line.strip())

    def _csv(self, lines: Lines) -> Iterator[Row]:
        def heard(names: list[str]) -> None:
            missing = [name for name in (*self.key, self.event_time) if name is not None and name not in names]
            if missing:
                hint = f"Its columns are: {', '.join(names)}."
                raise BadLine(1, f'the header has no column "{missing[0]}"', hint=hint)

        def row_of(number: int, text: str, cells: dict[str, str]) -> Row:
            values = {name: cell or None for name, cell in cells.items()}
            return self._record(number, text, values, json.dumps(values, ensure_ascii=False))

        yield from csv_rows(lines, heard, row_of)

    def _record(self, number: int, line: str, values: Any, value: str) -> Row:
        if not isinstance(values, dict):
            return Row(number, line, None, f"a JSON object is expected, not {line.strip()[:40]}")
        try:
            record: dict[str, Any] = {"key": self._key_of(values), "_time": self._time_of(values)}
            deleted = values.get("_deleted") is True
            if deleted and not self.key:
                raise ValueError("it is a tombstone, and no --key says which columns are its key")  # noqa: TRY301
            record["value"] = None if deleted else _bytes(value)
        except (ValueError, InvalidTime) as error:
            return Row(number, line, None, str(getattr(error, "what", error)))
        return Row(number, line, record)

    def _key_of(self, values: dict[str, Any]) -> bytes | None:
        if not self.key:
            return None
        missing = [name for name in self.key if name not in values]
        if missing:
            raise ValueError(f'it has no "{missing[0]}", which is a column of the key')
        if len(self.key) > 1:
            return _bytes(
                json.dumps({name: values[name] for name in self.key}, ensure_ascii=False, separators=(",", ":"))
            )
        only = values[self.key[0]]
        if only is None:
            return None
        return _bytes(only if isinstance(only, str) else json.dumps(only, ensure_ascii=False))

    def _time_of(self, values: dict[str, Any]) -> int | None:
        if self.event_time is None or (values.get("_deleted") is True and self.event_time not in values):
            return None
        if values.get(self.event_time) is None:
            raise ValueError(f'column "{self.event_time}" is the event time, and has no value')
        return instant(values[self.event_time])


def _bytes(text: str) -> bytes:
    """Return a text's bytes; those of a line that were no UTF-8 come back as they were."""
    return text.encode("utf-8", errors="surrogateescape")
