"""`headrace topics produce`: append lines of JSON or CSV to a topic in batches, and name every bad line."""

from __future__ import annotations

import csv
import io
import itertools
import json
import math
from collections import Counter
from operator import itemgetter
from typing import IO, TYPE_CHECKING, Any, BinaryIO, NamedTuple

import pyarrow as pa

from headrace.base.errors import InvalidRows, PlanError, did_you_mean
from headrace.base.text import counted
from headrace.base.time import SystemClock
from headrace.base.waiting import readable
from headrace.cli.json_tables import JsonTables
from headrace.cli.values import from_json, from_text
from headrace.log.rows import rows_to_table
from headrace.log.segments.payload import SYSTEM_COLUMNS, WRITABLE_COLUMNS

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

    from headrace.cli.endpoints import WritableTopic

BATCH_ROWS = 10_000
CHUNK_BYTES = 1 << 20
QUIET_SECONDS = 0.05
"""When no input has arrived for this long, the rows read so far are appended."""
LINGER_SECONDS = 1.0
SAY_SECONDS = 2.0


class BadLine(PlanError):
    """A line of the input does not fit the topic."""

    condition = "BAD_LINE"

    def __init__(self, number: int, why: str, *, hint: str = "") -> None:
        super().__init__(
            f"line {number}: {why}", hint=hint or "Correct it, or leave such lines out: --skip-bad, or --rejects FILE."
        )
        self.number = number


class Row(NamedTuple):
    """A line of the input: its number and text, and its values or why it has none."""

    line: int
    text: str
    values: dict[str, Any] | None
    why: str = ""


class Block(NamedTuple):
    """Lines of the input that are all good: as a table, and as they are."""

    table: pa.Table
    lines: list[bytes]
    first: int
    """The number of the first line."""


class Lines:
    """The lines of a byte stream; `dry` says whether reading the next one would block."""

    def __init__(self, stream: BinaryIO) -> None:
        self._stream = stream
        self._rest = b""
        self._ready: list[bytes] = []
        self._ended = False
        self.number = 0
        self.last = ""

    def __iter__(self) -> Iterator[str]:
        while self._ready or self._fill():
            self.number += 1
            self.last = text_of(self._ready.pop(), self.number)
            yield self.last

    def block(self) -> list[bytes]:
        """Return lines that are there, about a batch of them, and leave them where they are; none at the end."""
        self._fill()
        while len(self._ready) < BATCH_ROWS and not self._ended and not self._waits():
            self._read()
        return self._ready[::-1]

    def skip(self, count: int) -> None:
        """Leave out the next lines, which `block` gave."""
        del self._ready[len(self._ready) - count :]
        self.number += count

    @property
    def dry(self) -> bool:
        """Whether no more input is available at the moment."""
        return not self._ready and not self._ended and self._waits()

    def _waits(self) -> bool:
        try:
            return not readable(self._stream, QUIET_SECONDS)
        except (OSError, ValueError, io.UnsupportedOperation):
            return False  # not a pipe: reading never blocks

    def _fill(self) -> bool:
        while not self._ready and not self._ended:
            self._read()
        return bool(self._ready)

    def _read(self) -> None:
        chunk: bytes = self._stream.read1(CHUNK_BYTES)  # type: ignore[attr-defined] # buffered streams have it
        *lines, rest = (self._rest + chunk).split(b"\n")
        whole = [line + b"\n" for line in lines]
        if not chunk:
            self._ended = True
            whole, rest = ([rest] if rest else []), b""
        self._rest = rest
        self._ready[:0] = reversed(whole)


def text_of(line: bytes, number: int) -> str:
    """Return a line as text; bytes that are none are kept, so that they are refused by name."""
    return line.decode("utf-8-sig" if number == 1 else "utf-8", errors="surrogateescape")


class Batches(NamedTuple):
    """Rows in input order, also as blocks, and the lines they are read from."""

    rows: Iterator[Row | Block]
    lines: Lines


def read_batches(stream: BinaryIO, form: str, topic: WritableTopic) -> Batches:
    """Return the rows of a stream; `form` is `"json"` (an object a line) or `"csv"` (with a header)."""
    lines = Lines(stream)
    return Batches(_json_rows(lines, topic) if form == "json" else _csv_rows(lines, topic), lines)


class Producer:
    """Appends rows in batches; `appended` and `bad` count the rows so far.

    `rejects`: where bad lines are written to, a JSON object a line with `line`, `reason` and `record`. With it, and
    with `skip_bad`, a bad line does not end the input.
    """

    def __init__(
        self, topic: WritableTopic, *, skip_bad: bool, say: Callable[[str], None] | None, rejects: IO[str] | None = None
    ) -> None:
        self.topic = topic
        self.skip_bad = skip_bad or rejects is not None
        self.say = say
        self.rejects = rejects
        self.appended = 0
        self.bad = 0
        self._rejected: list[dict[str, Any]] = []  # of this batch
        self._clock = SystemClock()
        self._last_said = self._clock.monotonic()

    def run(self, batches: Batches) -> None:
        """Append all rows.

        Raises:
            BadLine: a line does not fit the topic; the lines before it are appended.

        """
        waiting: list[Row] = []
        since = self._clock.monotonic()
        for row in batches.rows:
            if isinstance(row, Block):
                self._append(waiting)
                waiting = []
                self._append_block(row)
                continue
            waiting.append(row)
            full = len(waiting) >= BATCH_ROWS or (row.values is None and not self.skip_bad)
            if full or self._clock.monotonic() - since > LINGER_SECONDS or batches.lines.dry:
                self._append(waiting)
                waiting = []
                since = self._clock.monotonic()
        self._append(waiting)

    def _append_block(self, block: Block) -> None:
        try:
            self.topic.append(block.table)
        except (InvalidRows, ValueError, pa.ArrowException):  # which line it is, shows line by line
            self._append(list(_rows_of(block, self.topic)))
            return
        self._count(block.table.num_rows)

    def _append(self, rows: list[Row]) -> None:
        good: list[Row] = []
        bad: BadLine | None = None
        for row in rows:
            if row.values is not None:
                good.append(row)
            elif self.skip_bad:
                self._reject(row, row.why)
            else:
                bad = BadLine(row.line, row.why)
                break
        try:
            untimed = next(filter(None, (self._untimed(row.values or {}) for row in good)), None)
            if untimed is not None:
                raise untimed
            self._send(good)
        except (InvalidRows, ValueError, TypeError, ArithmeticError, RecursionError, pa.ArrowException) as error:
            good, misfit = self._fitting(good, error)
            self._send(good)
            bad = misfit or bad
        self._write_rejects()
        if bad is not None:
            raise bad

    def _send(self, rows: list[Row]) -> None:
        self.topic.append([row.values or {} for row in rows])
        self._count(len(rows))

    def _count(self, rows: int) -> None:
        self.appended += rows
        if self.say is not None and self._clock.monotonic() - self._last_said >= SAY_SECONDS:
            self._last_said = self._clock.monotonic()
            self.say(f"{counted(self.appended, 'row')} appended …")

    def _fitting(self, rows: list[Row], error: Exception) -> tuple[list[Row], BadLine | None]:
        """Return the rows that fit; without `skip_bad` only those before the first bad line, and its error."""
        good = []
        for row in rows:
            why = self._misfit(row.values or {})
            if why is None:
                good.append(row)
                continue
            reason = why.what.removeprefix("rows[0]").lstrip(": ")
            if not self.skip_bad:
                return good, BadLine(row.line, reason, hint=why.hint)
            self._reject(row, reason)
        if len(good) == len(rows):
            raise error
        return good, None

    def _reject(self, row: Row, reason: str) -> None:
        self.bad += 1
        if self.rejects is not None:
            text = row.text.encode("utf-8", "backslashreplace").decode()
            self._rejected.append({"line": row.line, "reason": reason, "record": text.rstrip("\r\n")})

    def _write_rejects(self) -> None:
        if self.rejects is not None and self._rejected:
            for record in sorted(self._rejected, key=itemgetter("line")):
                reason = str(record["reason"]).encode("utf-8", "backslashreplace").decode()
                self.rejects.write(json.dumps(record | {"reason": reason}, ensure_ascii=False) + "\n")
            self.rejects.flush()
            self._rejected = []

    def _misfit(self, values: dict[str, Any]) -> InvalidRows | None:
        if values.get("_deleted") and not self.topic.key:
            return InvalidRows(f'it is a tombstone, but the topic "{self.topic.name}" has no key')
        try:
            rows_to_table([values], self.topic.schema)
        except InvalidRows as error:
            return error
        except (ValueError, TypeError, ArithmeticError, RecursionError, pa.ArrowException) as error:
            return InvalidRows(f"it cannot be stored: {error}")
        return self._untimed(values)

    def _untimed(self, values: Mapping[str, Any]) -> InvalidRows | None:
        """Return the error of a row without event time; a tombstone needs none."""
        at = self.topic.event_time
        if at is None or values.get(at) is not None or values.get("_deleted"):
            return None
        return InvalidRows(f'column "{at}" is the event time, and has no value')


# ---- formats ----


def _json_rows(lines: Lines, topic: WritableTopic) -> Iterator[Row | Block]:
    """Yield the rows of lines: as a block where all are good, else one by one."""
    tables, read = JsonTables(topic.schema, topic.event_time), _JsonLine(topic)
    while block := lines.block():
        table = tables.table(block)
        if table is not None:
            first = lines.number + 1
            lines.skip(len(block))
            yield Block(table, block, first)
            continue
        for line in itertools.islice(lines, len(block)):
            if line.strip():
                yield read.row(lines.number, line)


def _rows_of(block: Block, topic: WritableTopic) -> Iterator[Row]:
    read = _JsonLine(topic)
    for number, line in enumerate(block.lines, block.first):
        if line.strip():
            yield read.row(number, text_of(line, number))


class _JsonLine:
    """Reads a line at a time."""

    def __init__(self, topic: WritableTopic) -> None:
        by_column = ((field.name, from_json(field.type)) for field in topic.schema)
        self._converters = {name: convert for name, convert in by_column if convert is not None}

    def row(self, number: int, line: str) -> Row:
        """Return the row of a line, or why it is none."""
        try:
            values = json.loads(line, parse_float=_finite)
        except ValueError as error:
            return Row(number, line, None, f"not JSON: {error}")
        except RecursionError:
            return Row(number, line, None, "not JSON that can be read: it is nested too deeply")
        if isinstance(values, dict) and values:
            present = {name: convert for name, convert in self._converters.items() if name in values}
            return _convert(number, line, values, present)
        wanted = "a JSON object with values" if isinstance(values, dict) else "a JSON object"
        return Row(number, line, None, f"{wanted} is expected, not {line.strip()[:40]}")


def _finite(text: str) -> float:
    value = float(text)
    if math.isinf(value):
        raise ValueError(f"the number {text[:40]} is too large for a double")
    return value


def csv_rows(
    lines: Lines, heard: Callable[[list[str]], None], row_of: Callable[[int, str, dict[str, str]], Row]
) -> Iterator[Row]:
    """Yield the rows of CSV with a header, and those that are none with the reason.

    Args:
        lines: the lines.
        heard: called with the names of the header, once.
        row_of: returns a row, of the number of its line, its text, and its cells by name.

    Raises:
        BadLine: the header names a column twice.

    """
    reader = csv.reader(iter(lines), strict=True)
    names = next(reader, [])
    for name, times in Counter(names).items():
        if times > 1:
            raise BadLine(1, f'the header names the column "{name}" {times} times', hint="Name each column once.")
    heard(names)
    while True:
        try:
            cells = next(reader)
        except StopIteration:
            return
        except csv.Error as error:
            yield Row(reader.line_num, lines.last, None, f"not CSV: {error}")
            continue
        text = _csv_text(cells)
        if len(cells) == len(names):
            yield row_of(reader.line_num, text, dict(zip(names, cells, strict=True)))
        elif cells:
            yield Row(reader.line_num, text, None, f"it has {len(cells)} cells, the header has {len(names)}")


def _csv_rows(lines: Lines, topic: WritableTopic) -> Iterator[Row]:
    converters: dict[str, Callable[[Any], Any]] = {}
    yield from csv_rows(
        lines,
        lambda names: converters.update(_csv_columns(names, topic) if names else {}),
        lambda number, text, cells: _convert(number, text, cells, converters),
    )


def _csv_text(cells: list[str]) -> str:
    written = io.StringIO()
    csv.writer(written, lineterminator="").writerow(cells)
    return written.getvalue()


def _csv_columns(names: list[str], topic: WritableTopic) -> dict[str, Callable[[Any], Any]]:
    kinds = {field.name: field.type for field in topic.schema} | {
        name: SYSTEM_COLUMNS[name] for name in WRITABLE_COLUMNS
    }
    for name in names:
        if name not in kinds:
            raise BadLine(
                1,
                f'the header names a column "{name}" that the topic "{topic.name}" does not have',
                hint=did_you_mean(name, topic.schema.names) or f"Its columns are: {', '.join(topic.schema.names)}.",
            )
    return {name: from_text(kinds[name]) for name in names}


def _convert(line: int, text: str, values: dict[str, Any], converters: Mapping[str, Callable[[Any], Any]]) -> Row:
    row = dict(values)
    for name, convert in converters.items():
        try:
            row[name] = convert(values[name])
        except (ValueError, TypeError) as error:
            return Row(line, text, None, f'column "{name}": {error}')
        except RecursionError:
            return Row(line, text, None, f'column "{name}": it is nested too deeply')
    return Row(line, text, row)
