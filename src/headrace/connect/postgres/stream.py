"""A replication slot as a stream of messages, over psycopg's low-level connection.

psycopg has no interface for replication, but libpq's COPY works in both directions on such a connection.
"""

from __future__ import annotations

import struct
from typing import TYPE_CHECKING, NamedTuple

import psycopg
from psycopg.pq import ExecStatus

from headrace.base.time import SystemClock
from headrace.base.waiting import readable, writable
from headrace.connect.capture.errors import NotCapturable
from headrace.connect.postgres.errors import SlotBusy, SlotLost, ours
from headrace.connect.postgres.position import lsn_text

if TYPE_CHECKING:
    from headrace.connect.postgres.address import PostgresAddress

CLOCK = SystemClock()
HEADER = 25
"""Bytes before the message of the plugin: a kind, two positions and a time."""
LONGEST_SECONDS = 0.2
"""For so long reading goes on after its time, while it goes on arriving: a reader that is behind takes more at once."""
ANSWER_SECONDS = 10.0
"""The server hears so often that somebody listens (its wal_sender_timeout is 60 s unless it was changed)."""
_DATA, _KEEPALIVE, _COMMIT, _MESSAGE = ord("w"), ord("k"), ord("C"), ord("M")
_STATUS = struct.Struct(">cQQQqB")
_LONG = struct.Struct(">Q")
_IN_USE, _GONE, _UNDEFINED = "55006", "42704", "55000"


class Received(NamedTuple):
    """Messages of whole transactions, as they were sent; `end`: the server has sent all transactions before it."""

    messages: list[bytes]
    end: int


class SlotStream:
    """Reads a slot from a position; one process at a time can."""

    def __init__(self, address: PostgresAddress, *, slot: str, publication: str, start: int) -> None:
        self._address = address
        self._slot = slot
        self._connection = address.open(replication="database")
        self._pg = self._connection.pgconn
        self._confirmed = start
        self._answered = CLOCK.monotonic()
        self._part: list[bytes] = []
        self._end = start
        quoted = publication.replace('"', '""').replace("'", "''")
        try:
            self._begin(
                f"START_REPLICATION SLOT \"{slot}\" LOGICAL {lsn_text(start)} (proto_version '1', "
                f"publication_names '\"{quoted}\"', messages 'true')"
            )
        except BaseException:
            self.close()
            raise

    def read(  # noqa: C901 -- one loop over messages, the hot path
        self, seconds: float, *, most_bytes: int, gather: float = 0.0
    ) -> Received:
        """Return what arrives, whole transactions only: after so many seconds at most, or with so many bytes.

        A transaction that is larger than `most_bytes` is returned whole: it must fit into the memory. After the first
        one it waits `gather` seconds for others: landing a hundred costs hardly more than landing one. One with a
        message (`pg_logical_emit_message`) is the last, since somebody waits for it.
        """
        whole: list[bytes] = []
        size, until, gathering, awaited = 0, CLOCK.monotonic() + seconds, False, False
        part, get = self._part, self._pg.get_copy_data
        try:
            while size < most_bytes:
                number, data = get(1)
                if number > 0:
                    message = bytes(data)
                    if message[0] == _DATA:
                        if message[HEADER] == _MESSAGE and not message[HEADER + 1]:
                            continue  # of no transaction: kept, it would look like the beginning of one
                        part.append(message)
                        size += number
                        kind = message[HEADER]
                        awaited = awaited or kind == _MESSAGE
                        if kind == _COMMIT:
                            whole += part
                            part.clear()
                            self._end = max(self._end, _LONG.unpack_from(message, 9)[0])
                            if awaited:
                                break
                    elif message[0] == _KEEPALIVE:
                        self._keepalive(message)
                elif number == 0:
                    now = CLOCK.monotonic()
                    if whole and not gathering:
                        gathering, until = True, min(until, now + gather)
                    arrived = self._wait(max(0.0, min(until - now, 1.0)))
                    if CLOCK.monotonic() >= until + (LONGEST_SECONDS if arrived else 0.0):
                        break
                else:
                    self._ended()
            self._answer()
        except psycopg.Error as error:
            raise self._explained(error) from error
        return Received(whole, self._end)

    @property
    def between(self) -> bool:
        """Whether no transaction has been received in part."""
        return not self._part

    def confirm(self, position: int) -> None:
        """Tell the server that everything before a position is durable here; it may forget it."""
        self._confirmed = max(self._confirmed, position)
        self._answer(now=True)

    def keep_alive(self) -> None:
        """Tell the server, every few seconds, that this reader lives though it does not read."""
        self._answer()

    def close(self) -> None:
        """End the stream."""
        self._connection.close()

    def _begin(self, command: str) -> None:
        try:
            self._pg.send_query(command.encode())
            while self._pg.flush():
                writable(self._pg.socket, 1.0)
            self._pg.consume_input()
            while self._pg.is_busy():
                self._wait(1.0)
            result = self._pg.get_result()
        except psycopg.Error as error:
            raise self._explained(error) from error
        if result is None or result.status != ExecStatus.COPY_BOTH:
            raise self._explained(psycopg.errors.error_from_result(result) if result else psycopg.OperationalError())

    def _wait(self, seconds: float) -> bool:
        """Wait until something arrives; return whether it has."""
        arrived = readable(self._pg.socket, seconds)
        self._pg.consume_input()
        return arrived

    def _keepalive(self, message: bytes) -> None:
        if not self._part:
            self._end = max(self._end, _LONG.unpack_from(message, 1)[0])
        if message[17]:
            self._answer(now=True)

    def _answer(self, *, now: bool = False) -> None:
        if now or CLOCK.monotonic() - self._answered > ANSWER_SECONDS:
            self._answered = CLOCK.monotonic()
            at = self._confirmed
            try:
                self._pg.put_copy_data(_STATUS.pack(b"r", at, at, at, 0, 0))
                self._pg.flush()
            except psycopg.Error as error:
                raise self._explained(error) from error

    def _ended(self) -> None:
        result = self._pg.get_result()
        raise (
            psycopg.errors.error_from_result(result)
            if result and result.error_message
            else psycopg.OperationalError("the server ended the stream")
        )

    def _explained(self, error: psycopg.Error) -> Exception:
        state, said = error.sqlstate, str(error)
        if state == _IN_USE:
            return SlotBusy(self._slot, said.rpartition("PID")[2].strip() or "unknown")
        if state == _GONE and "slot" in said:
            return SlotLost(self._slot, position=lsn_text(self._confirmed), why="does not exist")
        if state == _UNDEFINED and "slot" in said:
            return SlotLost(self._slot, position=lsn_text(self._confirmed), why="was invalidated by the server")
        if state == "42704":
            return NotCapturable(
                f"{self._address}: {said.splitlines()[0]}",
                hint="Start again: a publication that is missing is created.",
            )
        return ours(error, str(self._address))
