"""The log of a server as a stream of events, and results as bytes, over PyMySQL's connection.

PyMySQL has no interface for either; this file alone uses the inside of its connections.
"""

from __future__ import annotations

import ssl
import struct
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import pymysql

from headrace.base.blame import InternalError
from headrace.base.outside import Unavailable
from headrace.base.time import SystemClock
from headrace.base.waiting import readable
from headrace.connect.capture.errors import ChangesLost, NotCapturable
from headrace.connect.mysql import kernels
from headrace.connect.mysql.errors import ours
from headrace.connect.mysql.position import LogPlace

if TYPE_CHECKING:
    from headrace.connect.capture.cells import Bytes, Longs
    from headrace.connect.mysql.address import MysqlAddress

CLOCK = SystemClock()
HEARTBEAT_SECONDS = 0.2
"""The server says so often where its log ends, if nothing happens."""
SILENT_SECONDS = 30.0
"""A server that has said nothing for so long does not answer."""
_BLOCK = 1 << 20
_DUMP = struct.Struct("<BIHI")
_COM_BINLOG_DUMP, _COM_QUERY = 0x12, 0x03
_ERROR, _END, _END_SIZE = 0xFF, 0xFE, 9
_LOST_LOG = 1236
_GONE = ("GTID", "purged", "impossible position", "first log file")
_WORDS = tuple(np.frombuffer(word, np.uint8) for word in (b"BEGIN", b"COMMIT", b"ROLLBACK"))
_ROW_CHANGES = (*kernels.WRITES, *kernels.UPDATES, *kernels.DELETES)


class Received(NamedTuple):
    """Events of whole transactions, as `kernels.scan` fills them; `files`: their names by number."""

    data: Bytes
    events: Longs
    transactions: Longs
    files: dict[int, str]

    def content(self, event: int) -> bytes:
        """Return an event's own bytes."""
        return self.data[self.events[event, kernels.START] : self.events[event, kernels.END]].tobytes()


class LogStream:
    """Reads the log of a server behind some transactions."""

    def __init__(self, address: MysqlAddress, *, gtids: str, server_id: int) -> None:
        self._address = address
        self._gtids = gtids
        self._connection = address.open()
        self._raw = bytearray()
        self._state = np.zeros(3, np.int64)
        self._files: dict[int, str] = {}
        self._heard = CLOCK.monotonic()
        self.place: LogPlace | None = None
        """Where the stream is; None until the server has said it."""
        try:
            self._begin(server_id)
        except BaseException:
            self.close()
            raise

    def _begin(self, server_id: int) -> None:
        try:
            with self._connection.cursor() as cursor:
                cursor.execute("SELECT @@global.binlog_checksum")
                (checksum,) = cursor.fetchone() or ("NONE",)
                cursor.execute("SET @master_binlog_checksum = %s", [checksum])
                cursor.execute("SET @mariadb_slave_capability = 4")
                cursor.execute("SET @master_heartbeat_period = %s", [int(HEARTBEAT_SECONDS * 1e9)])
                cursor.execute("SET @slave_connect_state = %s", [self._gtids])
                cursor.execute("SET @slave_gtid_strict_mode = 1")
            self._state[1] = checksum != "NONE"
            self._connection._next_seq_id = 0
            self._connection.write_packet(_DUMP.pack(_COM_BINLOG_DUMP, 4, 0, server_id))
        except pymysql.Error as error:
            raise ours(error, str(self._address)) from error

    def read(self, seconds: float, *, most_bytes: int) -> Received:
        """Return what arrives, whole transactions only: after so many seconds at most, or with so many bytes.

        A transaction that is larger than `most_bytes` is returned whole: it must fit into the memory.

        Raises:
            Unavailable: the server does not answer.
            ChangesLost: the log does not have what follows any more.

        """
        before, until, closed = len(self._raw), CLOCK.monotonic() + seconds, False
        most = max(most_bytes, 2 * before)  # what is read twice is little, however large a transaction is
        try:
            while len(self._raw) < most and self._readable(until, waits=len(self._raw) == before):
                block = self._connection._sock.recv(_BLOCK)
                if not block:
                    closed = True
                    break
                self._raw += block
                self._heard = CLOCK.monotonic()
        except (OSError, ssl.SSLError) as error:
            raise Unavailable(f"{self._address} does not answer: {error}") from error
        if CLOCK.monotonic() - self._heard > SILENT_SECONDS:
            raise Unavailable(f"{self._address} has been silent for {SILENT_SECONDS:.0f} s")
        found = self._whole()  # the last that a server sends is why it ends
        if closed and not len(found.events):
            raise Unavailable(f"{self._address} ended the connection")
        return found

    @property
    def between(self) -> bool:
        """Whether no transaction has been received in part."""
        return not self._raw

    def close(self) -> None:
        """End the stream."""
        self._connection._force_close()

    def _readable(self, until: float, *, waits: bool) -> bool:
        left = max(0.0, until - CLOCK.monotonic()) if waits else 0.0
        return readable(self._connection._sock, left)

    def _whole(self) -> Received:
        raw = np.frombuffer(bytes(self._raw), np.uint8)
        out, ends = np.empty(len(raw), np.uint8), np.empty(len(raw) // 4 + 1, np.int64)
        taken = np.empty_like(ends)
        count = kernels.packets(raw, out, ends, taken)
        ends = ends[:count]
        events = np.zeros((count, kernels.FIELDS), np.int64)
        transactions = np.zeros((count + 1, kernels.TRANSACTION_FIELDS), np.int64)
        state = np.append(self._state[:2], 0)
        whole, problem = kernels.scan(out, ends, kernels.CRC, _WORDS, (events, transactions), state)
        if problem:
            start = int(ends[whole - 1]) if whole else 0
            self._fail(out[start : int(ends[whole])].tobytes(), problem)
        self._state = state
        del self._raw[: int(taken[whole - 1]) if whole else 0]
        found = Received(out, events[:whole], transactions[: int(state[2]) + 1], self._files)
        self._follow_files(found)
        return found

    def _follow_files(self, found: Received) -> None:
        """Note the names of files, and where the stream is."""
        kinds = found.events[:, kernels.KIND]
        first = int(self._state[0]) - int((kinds == kernels.ROTATE).sum())
        for number, event in enumerate(np.flatnonzero(kinds == kernels.ROTATE)):
            content = found.content(int(event))
            self._files[first + number + 1] = content[8:].decode()
            if self.place is not None:
                self.place = LogPlace.of(content[8:].decode(), int.from_bytes(content[:8], "little"))
        if len(kinds) and kinds[-1] not in (kernels.ROTATE, kernels.FORMAT):
            at = int(found.events[-1, kernels.START]) - kernels.HEADER + 14
            byte = int.from_bytes(found.data[at : at + 4].tobytes(), "little")
            self.place = LogPlace.of(self._files[int(self._state[0])], byte)

    def _fail(self, content: bytes, problem: int) -> None:
        if problem == kernels.BAD_CHECKSUM:
            raise ChangesLost("the captured tables", "an event of the server's log is damaged (its checksum is wrong)")
        if content[:1] == bytes([_END]):
            raise Unavailable(f"{self._address} ended the stream")
        if content[:1] != bytes([_ERROR]):
            raise InternalError(f"an event of the log is not as it should be: {content[:40].hex()}")
        code, said = int.from_bytes(content[1:3], "little"), content[9:].decode(errors="replace")
        if code == _LOST_LOG and any(word in said for word in _GONE):
            raise ChangesLost("the captured tables", f"the server does not have its log after {self._gtids}: {said}")
        if code == _LOST_LOG:
            raise NotCapturable(f"{self._address}: {said}", hint="The server's log cannot be read: see its error log.")
        raise ours(pymysql.OperationalError(code, said), str(self._address))


def text_rows(connection: pymysql.Connection[Any], query: str, width: int) -> tuple[Bytes, Longs, Longs]:
    """Return the rows of a query as bytes, and for each row and column where its text begins and how long it is."""
    connection._execute_command(_COM_QUERY, query)
    connection._read_packet()
    for _ in range(width + 1):  # descriptions of the columns, and their end
        connection._read_packet()
    raw, source, at, last, continues = bytearray(), connection._rfile, 0, 0, False
    while not (at and _ends(raw, last)):
        block = source.read1(_BLOCK)
        if not block:
            raise pymysql.OperationalError(2013, "Lost connection to MySQL server during query")
        raw += block
        at, last, continues = kernels.last_packet(np.frombuffer(bytes(raw), np.uint8), at, last, continues)
    return _cells(np.frombuffer(raw, np.uint8), width)


def _ends(raw: bytearray, last: int) -> bool:
    """Whether the last whole packet is the end of a result."""
    if raw[last + 4] == _ERROR:
        code, said = int.from_bytes(raw[last + 5 : last + 7], "little"), raw[last + 13 :].decode(errors="replace")
        raise pymysql.OperationalError(code, said)
    return raw[last + 4] == _END and raw[last] < _END_SIZE and not raw[last + 1] and not raw[last + 2]


def _cells(raw: Bytes, width: int) -> tuple[Bytes, Longs, Longs]:
    out, ends = np.empty(len(raw), np.uint8), np.empty(len(raw) // 4 + 1, np.int64)
    count = kernels.packets(raw, out, ends, np.empty_like(ends)) - 1
    starts, sizes = np.empty((count, width), np.int64), np.empty((count, width), np.int64)
    if kernels.text_cells(out, ends, starts, sizes) < 0:
        raise InternalError("a row of a result is not as it should be")
    return out, starts, sizes
