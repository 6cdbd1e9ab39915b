"""The format of server-sent events (WHATWG, HTML, "Parsing an event stream"): bytes become events."""

from __future__ import annotations

import re
from typing import NamedTuple

from headrace.base.broker_errors import BrokerFailed

MAX_BYTES = 64 << 20
_ENDS = re.compile(rb"\r\n|\n|\r")
_BOM = b"\xef\xbb\xbf"


class Event(NamedTuple):
    """An event: its data, its type, its own id (None: it has none), and the last id that there was with it."""

    data: str
    type: str
    id: str | None
    last: str


class EventStream:
    """Takes a stream apart, whatever pieces it arrives in. `retry`: after how many seconds to ask anew."""

    def __init__(self, last: str, *, retry: float) -> None:
        self.last, self.retry = last, retry
        self._rest, self._begun = b"", False
        self._next = last
        self._data: list[str] = []
        self._type = ""
        self._own: str | None = None

    def events(self, piece: bytes) -> list[Event]:
        """Return the events that are whole with one more piece.

        Raises:
            BrokerFailed: an event is larger than 64 MB.

        """
        rest = self._rest + piece
        if not self._begun and len(rest) >= len(_BOM):
            rest, self._begun = rest.removeprefix(_BOM), True
        held = b"\r" if rest.endswith(b"\r") else b""  # a line feed may follow, which ends the same line
        *lines, last = _ENDS.split(rest.removesuffix(b"\r"))
        self._rest = last + held
        found = [event for line in lines if (event := self._line(line.decode("utf-8", "replace"))) is not None]
        if len(self._rest) + sum(map(len, self._data)) > MAX_BYTES:
            raise BrokerFailed(f"an event has more than {MAX_BYTES:,} bytes")
        return found

    def _line(self, line: str) -> Event | None:
        if not line:
            return self._event()
        name, _, value = line.partition(":")
        value = value.removeprefix(" ")
        if name == "data":
            self._data.append(value)
        elif name == "event":
            self._type = value
        elif name == "id" and "\0" not in value:
            self._next = self._own = value
        elif name == "retry" and value.isascii() and value.isdigit():
            self.retry = int(value) / 1_000
        return None

    def _event(self) -> Event | None:
        self.last = self._next
        found = Event("\n".join(self._data), self._type or "message", self._own, self.last) if self._data else None
        self._data, self._type, self._own = [], "", None
        return found
