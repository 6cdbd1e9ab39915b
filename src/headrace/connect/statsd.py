"""StatsD: counters, gauges, timers and sets as rows, read in columns; and rows as metrics.

from headrace.connect import statsd

metrics = app.stream("metrics", source=statsd.metrics("statsd://0.0.0.0:8125"), event_time="at")
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Unpack

import pyarrow as pa
import pyarrow.compute as pc

from headrace.base.arguments import one_of
from headrace.base.errors import InvalidPlan, UnknownColumn
from headrace.base.schema import as_schema
from headrace.base.time import SystemClock
from headrace.connect.feed import DeadRecord, Declared, Feed
from headrace.connect.formats.json_text import text_of
from headrace.connect.messages.datagrams import Datagrams, lost, receiving_socket, sending_socket, udp_address
from headrace.connect.messages.direct import FullOptions, near_in_time, run_direct, when_full
from headrace.connect.messages.writing import addresses, columns_in
from headrace.connect.sink import Form, Sink, SinkWriter

if TYPE_CHECKING:
    import socket
    import threading
    from collections.abc import Iterator

    from headrace.base.buffer import SharedBuffer
    from headrace.base.time import Clock
    from headrace.connect.feed import Landing
    from headrace.connect.messages.datagrams import UdpAddress
    from headrace.connect.messages.direct import WhenFull

METRICS: pa.Schema = as_schema(
    "name string not null, type string not null, value double, member string, change boolean not null, "
    "rate double not null, tags string, at timestamp not null"
)
"""The columns of `metrics`."""
TYPES = {"counter": "c", "gauge": "g", "timer": "ms", "set": "s"}
PORT = 8125
CLOCK = SystemClock()
_WORDS = {"c": "counter", "g": "gauge", "ms": "timer", "h": "timer", "d": "timer", "s": "set"}
_LINE = (
    r"^(?P<name>[^:|@]+):(?P<value>[^:|]+)\|(?P<type>c|g|ms|h|d|s)"
    r"(?:\|@(?P<rate>[0-9]*\.?[0-9]+(?:[eE]-?[0-9]+)?))?(?:\|#(?P<tags>[^|]*))?(?:\|(?:[a-z]:|T)[^|]*)*\r?$"
)
_NUMBER = r"^[+-]?([0-9]+\.?[0-9]*|\.[0-9]+)([eE][+-]?[0-9]+)?$"
_DATAGRAM = 1_432
"""Bytes of metrics in a datagram that is sent: they fit into a packet of Ethernet."""
_MANY = r":[^|:]+:"
_Received = tuple[bytes, int]


def metrics(url: str = "statsd://0.0.0.0:8125", **options: Unpack[FullOptions]) -> StatsdFeed:
    """Return a feed of metrics that arrive as datagrams: at most once.

    Columns: `name`; `type` is "counter", "gauge", "timer" or "set"; `value`, the number, null of sets; `member`, what
    is in a set; `change`: the value is added to the gauge (`+3` or `-3`); `rate`: the part of events that was sampled,
    so a counter counts `value / rate`; `tags`, as DogStatsD sends them; `at`: when it arrived.

    A line that is no metric is a dead letter. What the kernel drops is counted as `lost` in `status`.

    Args:
        url: `statsd://host:port`.
        options: those of direct sources.

    Raises:
        InvalidPlan: the address is none.
        InvalidArgument: an option is not possible.

    """
    return StatsdFeed(address=udp_address(url, scheme="statsd", port=PORT), full=when_full(options))


@dataclass(frozen=True, kw_only=True)
class StatsdFeed(Feed):
    """Metrics; `metrics` creates it."""

    address: UdpAddress
    full: WhenFull

    @property
    def identity(self) -> str:
        """The address."""
        return f"statsd:{self.address.host}:{self.address.port}"

    def declares(self) -> Declared:
        """Return the columns of metrics; nothing identifies one."""
        return Declared(METRICS, ())

    def run(self, landing: Landing, stop: threading.Event) -> None:
        """Land metrics until `stop` is set.

        Raises:
            InvalidPlan: the topic has other columns.
            OSError: nobody can listen at the address.

        """
        if not set(landing.schema.names) <= set(METRICS.names):
            unknown = next(name for name in landing.schema.names if name not in METRICS.names)
            raise UnknownColumn(unknown, step=self.identity, columns=METRICS.names)
        bound = receiving_socket(self.address)
        box = Datagrams(bound)

        def receive(waiting: SharedBuffer[_Received], ending: threading.Event) -> None:
            while not ending.is_set():
                if count := box.receive():
                    lines = b"\n".join(box.each(count))
                    waiting.put((lines, CLOCK.now()), weight=len(lines), records=count)

        def land(received: list[_Received]) -> None:
            tables, dead = list[pa.Table](), list[DeadRecord]()
            for lines, at in near_in_time(received):
                rows, bad = parsed(b"\n".join(lines), at)
                tables.append(rows)
                dead += bad
            landing.append(pa.concat_tables(tables).select(landing.schema.names).cast(landing.schema), dead=dead)

        try:
            run_direct(landing, stop, self.full, receive=receive, land=land, counts=lambda: {"lost": lost(bound)})
        finally:
            box.close()


def parsed(lines: bytes, at: int) -> tuple[pa.Table, list[DeadRecord]]:
    """Return the metrics of lines that arrived at an instant, in microseconds, and the lines that are none."""
    try:
        text = pa.array([lines.decode()])
    except UnicodeDecodeError:
        text = pa.array([lines.decode("utf-8", "replace")])
    each = pc.split_pattern(text, "\n").flatten()
    each = each.filter(pc.greater(pc.utf8_length(pc.utf8_trim_whitespace(each)), 0))
    several = pc.match_substring_regex(each, _MANY)
    if pc.any(several).as_py():
        each = pa.array([one for line in each.to_pylist() for one in _apart(line)], pa.string())
    found = pc.extract_regex(each, _LINE)
    kind, value = found.field("type"), found.field("value")
    is_set = pc.equal(kind, "s")
    good = pc.fill_null(
        pc.and_(pc.is_valid(found), pc.or_(is_set, pc.match_substring_regex(value, _NUMBER))), fill_value=False
    )
    rate = _numbers(found.field("rate"), pc.and_(good, pc.greater(pc.utf8_length(found.field("rate")), 0)))
    good = pc.and_(good, pc.fill_null(pc.and_(pc.greater(rate, 0.0), pc.is_finite(rate)), fill_value=True))
    numbers = _numbers(value, pc.and_(good, pc.invert(is_set)))
    good = pc.and_(good, pc.fill_null(pc.is_finite(numbers), fill_value=True))
    dead = [DeadRecord(line, "it is no metric: name:value|type") for line in each.filter(pc.invert(good)).to_pylist()]
    found, is_set, rate, numbers = (each.filter(good) for each in (found, is_set, rate, numbers))
    kind, value, tags = found.field("type"), found.field("value"), found.field("tags")
    words = pa.array(list(_WORDS.values()))
    signed = pc.match_substring_regex(value, r"^[+-]")
    columns = [
        found.field("name"),
        words.take(pc.index_in(kind, value_set=pa.array(list(_WORDS)))),
        numbers,
        pc.if_else(is_set, value, pa.scalar(None, pa.string())),
        pc.and_(pc.equal(kind, "g"), signed),
        pc.fill_null(rate, 1.0),
        pc.if_else(pc.equal(tags, ""), pa.scalar(None, pa.string()), tags),
        pa.repeat(pa.scalar(at, pa.timestamp("us", "UTC")), len(found)),
    ]
    return pa.table(columns, schema=METRICS), dead


def _apart(line: str) -> list[str]:
    """Return the metrics of a line with several values, `name:1:2:3|ms`."""
    head, bar, rest = line.partition("|")
    name, *values = head.split(":")
    return [f"{name}:{value}{bar}{rest}" for value in values] or [line]


def _numbers(texts: pa.Array, wanted: pa.Array) -> pa.Array:
    """Return texts as numbers, null where none is wanted."""
    return pc.cast(pc.if_else(wanted, pc.utf8_ltrim(texts, characters="+"), pa.scalar(None, pa.string())), pa.float64())


def send(url: str, *, name: str, value: str, type: str = "gauge", tags: str | None = None) -> StatsdSink:  # noqa: A002 -- StatsD's word
    """Return a sink that sends each row as a metric: nobody knows whether it arrives, and a crash repeats some.

    So gauges and sets are right after a crash; a counter may have counted twice. A gauge below zero is set to zero just
    before, in the same datagram: a number with a sign would be added.

    Args:
        url: `statsd://host:port`.
        name: the metric's name; `{column}` is replaced by the column's text.
        value: the column of the value.
        type: "counter", "gauge", "timer" or "set".
        tags: the column of DogStatsD's tags, such as `"env:prod,city:oslo"`.

    Raises:
        InvalidPlan: the address is none, or the name has characters that StatsD cannot send.
        InvalidArgument: the type is not known.

    """
    one_of(type, "type", list(TYPES))
    if not name or any(each in name for each in ":|@#\n"):
        raise InvalidPlan(
            f"{name!r} cannot be the name of a metric", hint='Leave out ":", "|", "@", "#" and line ends.'
        )
    address = udp_address(url, scheme="statsd", port=PORT)
    return StatsdSink(address=address, name=name, value=value, type=type, tags=tags)


@dataclass(frozen=True, kw_only=True)
class StatsdSink(Sink):
    """Metrics to a server; `send` creates it."""

    address: UdpAddress
    name: str
    value: str
    type: str
    tags: str | None
    is_table: bool = False

    @property
    def form(self) -> Form:
        """One change a key for a table, else rows."""
        return "changelog" if self.is_table else "rows"

    def for_step(
        self, *, schema: pa.Schema, key: tuple[str, ...] | None, is_table: bool, sealed: frozenset[str]
    ) -> StatsdSink:
        """Return the sink for the rows of a step.

        Raises:
            InvalidPlan: columns are private, or a table has no key.
            UnknownColumn: the rows have no column that the metric names.

        """
        if sealed or (is_table and not key):
            what = f"private columns: {', '.join(sorted(sealed))}" if sealed else "a table without a key"
            raise InvalidPlan(
                f"StatsD cannot be sent {what}", hint="Leave columns out with .select(…), or keep the key."
            )
        for column in (self.value, *([self.tags] if self.tags else []), *columns_in(self.name)):
            if column not in schema.names:
                raise UnknownColumn(column, step="to StatsD", columns=schema.names)
        return StatsdSink(
            address=self.address, name=self.name, value=self.value, type=self.type, tags=self.tags, is_table=is_table
        )

    def open(self, *, writer: str, clock: Clock) -> SinkWriter:
        """Return a writer."""
        del writer, clock
        return StatsdWriter(self, sending_socket(self.address))


class StatsdWriter(SinkWriter):
    """Sends epochs."""

    def __init__(self, sink: StatsdSink, sender: socket.socket) -> None:
        self.sink, self.socket = sink, sender

    def last_epoch(self) -> int | None:
        """Return None: nobody can tell."""
        return None

    def publish(self, epoch: int, rows: Iterator[pa.RecordBatch]) -> None:
        """Send the metrics of an epoch, as many in a datagram as fit; rows without a value, and deletions, are none."""
        del epoch
        target = (self.sink.address.host, self.sink.address.port)
        waiting, size = list[bytes](), 0
        for batch in rows:
            for line in self._lines(batch):
                if waiting and size + len(line) + 1 > _DATAGRAM:
                    self.socket.sendto(b"\n".join(waiting), target)
                    waiting, size = [], 0
                waiting.append(line)
                size += len(line) + 1
        if waiting:
            self.socket.sendto(b"\n".join(waiting), target)

    def _lines(self, rows: pa.RecordBatch) -> list[bytes]:
        sink = self.sink
        if "_deleted" in rows.schema.names:
            rows = rows.filter(pc.invert(rows.column("_deleted")))
        rows = rows.filter(pc.is_valid(rows.column(sink.value)))
        texts = {
            column: pc.replace_substring_regex(pc.fill_null(text_of(rows.column(column)), ""), r"[:|@#\s]", "_")
            for column in columns_in(sink.name)
        }
        names = pa.array(
            addresses(sink.name, pa.record_batch(texts)) if texts else [sink.name] * rows.num_rows, pa.string()
        )
        values, end = text_of(rows.column(sink.value)), pa.scalar(f"|{TYPES[sink.type]}")
        tags = pa.scalar("")
        if sink.tags:
            found = pc.fill_null(text_of(rows.column(sink.tags)), "")
            tags = pc.if_else(pc.equal(found, ""), "", pc.binary_join_element_wise("|#", found, ""))
        lines = pc.binary_join_element_wise(names, ":", values, end, tags, "")
        if sink.type == "gauge":
            zero = pc.binary_join_element_wise(names, ":0", end, tags, "\n", "")
            signed = pc.starts_with(values, "-")
            lines = pc.if_else(signed, pc.binary_join_element_wise(zero, lines, ""), lines)
        return lines.cast(pa.binary()).to_pylist()  # type: ignore[no-any-return]

    def close(self) -> None:
        """Close the socket."""
        self.socket.close()
