"""Syslog: what devices and daemons log, by UDP and TCP, of RFC 5424 and RFC 3164, as rows.

from headrace.connect import syslog

lines = app.stream("lines", source=syslog.lines("udp://0.0.0.0:5514"), event_time="at")
"""

from __future__ import annotations

import logging
import selectors
import socket
from dataclasses import dataclass
from typing import TYPE_CHECKING, Unpack
from urllib.parse import urlsplit

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from headrace.base.errors import InvalidPlan, InvalidTime, UnknownColumn
from headrace.base.schema import as_schema
from headrace.base.time import SystemClock, as_datetime, instant
from headrace.connect.feed import DeadRecord, Declared, Feed
from headrace.connect.messages.datagrams import Datagrams, UdpAddress, lost, receiving_socket
from headrace.connect.messages.direct import LOOK_SECONDS, FullOptions, near_in_time, run_direct, when_full

if TYPE_CHECKING:
    import threading

    from headrace.base.buffer import SharedBuffer
    from headrace.connect.feed import Landing
    from headrace.connect.messages.direct import WhenFull

LINES: pa.Schema = as_schema(
    "at timestamp not null, received timestamp not null, facility int not null, severity int not null, host string, "
    "app string, process string, id string, data string, message string"
)
"""The columns of `lines`."""
LONGEST = 1 << 20
"""A message of TCP that is longer ends its connection."""
CLOCK = SystemClock()
logger = logging.getLogger("headrace.syslog")
_REST_SECONDS = 1.0
"""How long no connection is accepted after one could not be: the machine has no file or no memory for it."""
_NEW = (
    r"^<(?P<priority>[0-9]{1,3})>1 (?P<at>\S+) (?P<host>\S+) (?P<app>\S+) (?P<process>\S+) (?P<id>\S+) "
    r'(?P<data>-|(?:\[[^ \]"]+(?: [^ =\]"]+="(?:[^"\\]|\\.)*")*\])+)(?: (?:\x{FEFF})?(?P<message>(?s:.*)))?$'
)
_OLD = (
    r"^<(?P<priority>[0-9]{1,3})>(?P<at>[A-Z][a-z]{2} [ 0-9][0-9] [0-9]{2}:[0-9]{2}:[0-9]{2}) (?P<host>\S+) "
    r"(?:(?P<app>[^\s:\[]+)(?:\[(?P<process>[^\]]*)\])?: )?(?P<message>(?s:.*))$"
)
_MOST_PRIORITY = 191
_Received = tuple[list[bytes], int]


def lines(url: str, **options: Unpack[FullOptions]) -> SyslogFeed:
    """Return a feed of syslog messages: at most once, since syslog acknowledges nothing.

    Columns: `at`, the message's own time; `received`; `facility` and `severity`, numbers; `host`, `app`, `process`,
    `id`, the structured `data` as it is written, and `message`. RFC 3164 has no year and no time zone: it is UTC, and
    the year that brings it nearest to now. A message that is neither is a dead letter.

    Args:
        url: `udp://host:port`, or `tcp://host:port`, whose messages end with a line end or begin with their length.
        options: those of direct sources. With "block" TCP stops being read.

    Raises:
        InvalidPlan: the address is none.
        InvalidArgument: an option is not possible.

    """
    parts = urlsplit(url) if isinstance(url, str) else None
    if parts is None or parts.scheme not in ("udp", "tcp") or not parts.hostname or not parts.port:
        raise InvalidPlan("this is no address to listen at", hint='For example "udp://0.0.0.0:5514".')
    return SyslogFeed(scheme=parts.scheme, address=UdpAddress(parts.hostname, parts.port), full=when_full(options))


@dataclass(frozen=True, kw_only=True)
class SyslogFeed(Feed):
    """Syslog messages; `lines` creates it."""

    scheme: str
    address: UdpAddress
    full: WhenFull

    @property
    def identity(self) -> str:
        """The address."""
        return f"syslog:{self.scheme}:{self.address.host}:{self.address.port}"

    def declares(self) -> Declared:
        """Return the columns of messages; nothing identifies one."""
        return Declared(LINES, ())

    def run(self, landing: Landing, stop: threading.Event) -> None:
        """Land messages until `stop` is set.

        Raises:
            UnknownColumn: the topic has other columns.
            OSError: nobody can listen at the address.

        """
        if unknown := [name for name in landing.schema.names if name not in LINES.names]:
            raise UnknownColumn(unknown[0], step=self.identity, columns=LINES.names)

        def land(received: list[_Received]) -> None:
            tables, dead = list[pa.Table](), list[DeadRecord]()
            for found, at in near_in_time(received):
                rows, bad = parsed([each for some in found for each in some], at)
                tables.append(rows)
                dead += bad
            landing.append(pa.concat_tables(tables).select(landing.schema.names).cast(landing.schema), dead=dead)

        if self.scheme == "udp":
            bound = receiving_socket(self.address)
            box = Datagrams(bound)

            def receive(waiting: SharedBuffer[_Received], ending: threading.Event) -> None:
                while not ending.is_set():
                    if count := box.receive():
                        _put(waiting, [bytes(each).rstrip(b"\n") for each in box.each(count)])

            try:
                run_direct(landing, stop, self.full, receive=receive, land=land, counts=lambda: {"lost": lost(bound)})
            finally:
                box.close()
            return
        server = _TcpServer(self.address)
        try:
            run_direct(landing, stop, self.full, receive=server.receive, land=land)
        finally:
            server.close()


def _put(waiting: SharedBuffer[_Received], found: list[bytes]) -> None:
    if found:
        waiting.put((found, CLOCK.now()), weight=sum(map(len, found)) + 100 * len(found), records=len(found))


class _TcpServer:
    """Takes connections, and cuts what they send into messages."""

    def __init__(self, address: UdpAddress) -> None:
        self._listener = socket.create_server((address.host, address.port), family=address.family)
        self._listener.setblocking(False)  # noqa: FBT003 -- the socket's own word
        self._selector = selectors.DefaultSelector()
        self._selector.register(self._listener, selectors.EVENT_READ)
        self._partial: dict[socket.socket, bytes] = {}
        self._rests_until: float | None = None

    def receive(self, waiting: SharedBuffer[_Received], ending: threading.Event) -> None:
        """Put messages into the buffer; while that is full, nothing is read, so senders wait."""
        while not ending.is_set():
            if self._rests_until is not None and CLOCK.monotonic() >= self._rests_until:
                self._rests_until = None
                self._selector.register(self._listener, selectors.EVENT_READ)
            for key, _ in self._selector.select(LOOK_SECONDS):
                if key.fileobj is self._listener:
                    self._accept()
                else:
                    _put(waiting, self._read(key.fileobj))  # type: ignore[arg-type]

    def _accept(self) -> None:
        """Take a connection, if it is still there and there is room for it; the others go on."""
        try:
            taken, _ = self._listener.accept()
        except (ConnectionError, BlockingIOError):  # it has ended before it was taken
            return
        except OSError as error:
            logger.warning("a syslog connection cannot be accepted, it is tried again: %s", error)
            self._selector.unregister(self._listener)
            self._rests_until = CLOCK.monotonic() + _REST_SECONDS
            return
        self._selector.register(taken, selectors.EVENT_READ)
        self._partial[taken] = b""

    def _read(self, sender: socket.socket) -> list[bytes]:
        try:
            data = sender.recv(1 << 18)
        except OSError:
            data = b""
        whole, rest = messages_in(self._partial[sender] + data, ended=not data)
        if not data or len(rest) > LONGEST:
            self._selector.unregister(sender)
            sender.close()
            del self._partial[sender]
        else:
            self._partial[sender] = rest
        return whole

    def close(self) -> None:
        """End the connections."""
        for each in (self._listener, *self._partial):
            each.close()
        self._selector.close()


def messages_in(data: bytes, *, ended: bool) -> tuple[list[bytes], bytes]:
    """Return the messages in what a connection has sent (RFC 6587), and the rest, which is not whole yet."""
    found, at = list[bytes](), 0
    while at < len(data):
        space = data.find(b" ", at, at + 8)
        if data[at : at + 1].isdigit() and space > 0 and data[at:space].isdigit():
            end = space + 1 + int(data[at:space])
            if end > len(data):
                break
            found.append(data[space + 1 : end])
        else:
            end = data.find(b"\n", at) + 1
            if not end and ended:
                end = len(data)
            if not end:
                break
            found.append(data[at:end].rstrip(b"\r\n"))
        at = end
    return [each for each in found if each], data[at:]


def parsed(found: list[bytes], now: int) -> tuple[pa.Table, list[DeadRecord]]:
    """Return messages that arrived at an instant, in microseconds, as rows, and those that are none."""
    texts = pa.array([each.decode("utf-8", "replace") for each in found], pa.string())
    new, old = pc.extract_regex(texts, _NEW), pc.extract_regex(texts, _OLD)
    is_new = pc.is_valid(new)

    def field(name: str, *, in_old: bool = True) -> pa.Array:
        other = old.field(name) if in_old else pa.nulls(len(texts), pa.string())
        text = pc.if_else(is_new, new.field(name), pc.if_else(pc.is_valid(old), other, None))
        return pc.if_else(pc.is_in(text, pa.array(["", "-"])), pa.scalar(None, pa.string()), text)

    message = pc.if_else(is_new, new.field("message"), pc.if_else(pc.is_valid(old), old.field("message"), None))
    priority = pc.cast(field("priority"), pa.int32())
    times = _times(new.field("at"), old.field("at"), is_new, now)
    good = pc.and_(pc.fill_null(pc.less_equal(priority, _MOST_PRIORITY), fill_value=False), pc.is_valid(times))
    columns = [
        times,
        pa.repeat(pa.scalar(now, pa.timestamp("us", "UTC")), len(texts)),
        pc.cast(pc.divide(priority, 8), pa.int32()),
        pc.cast(pc.subtract(priority, pc.multiply(pc.divide(priority, 8), 8)), pa.int32()),
        field("host"),
        field("app"),
        field("process"),
        field("id", in_old=False),
        field("data", in_old=False),
        message,
    ]
    rows = pa.Table.from_arrays(columns, names=LINES.names).filter(good).cast(LINES)
    why = "it is no message of RFC 5424 or RFC 3164"
    return rows, [DeadRecord(text, why) for text in texts.filter(pc.invert(good)).to_pylist()]


def _times(new: pa.Array, old: pa.Array, is_new: pa.Array, now: int) -> pa.Array:
    """Return the times of messages; null where there is none that can be."""
    own = np.asarray(pc.fill_null(is_new, fill_value=False))
    found: list[int | None] = []
    for is_of_new, text, other in zip(own.tolist(), new.to_pylist(), old.to_pylist(), strict=True):
        try:
            found.append(_instant(text, now) if is_of_new else None if other is None else _without_year(other, now))
        except (ValueError, InvalidTime):
            found.append(None)
    return pa.array(found, pa.timestamp("us", "UTC"))


def _instant(text: str, now: int) -> int:
    return now if text == "-" else instant(text)


def _without_year(text: str, now: int) -> int:
    """Return the instant of `Oct 11 22:14:15` in the year that brings it nearest to now."""
    year = as_datetime(now).year
    found = list[int]()
    for each in range(year - 4, year + 5):
        month = _MONTHS.index(text[:3]) + 1
        try:
            found.append(instant(f"{each}-{month:02d}-{int(text[4:6]):02d} {text[7:]}"))
        except InvalidTime:
            continue  # the 29th of February
    return min(found, key=lambda at: abs(at - now))


_MONTHS = ("Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec")
