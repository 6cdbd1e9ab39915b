"""A connection of STOMP 1.2, used by one thread: frames are stomp.py's, the socket is our own.

stomp.py's connections read in a thread of their own, as fast as the broker sends. Here nothing is read that was not
asked for, so what is not read waits in the broker.
"""

from __future__ import annotations

import re
import socket
from contextlib import suppress
from itertools import count
from typing import TYPE_CHECKING

from stomp.utils import Frame, convert_frame, parse_frame

from headrace.base.time import SystemClock
from headrace.base.waiting import readable
from headrace.connect.messages.tls import tls_context
from headrace.connect.stomp.address import PORT, TLS, TLS_PORT, BrokerSaid

if TYPE_CHECKING:
    from collections.abc import Mapping

    from headrace.connect.messages.address import BrokerAddress

SECONDS = 15.0
ANSWER_SECONDS = 120.0
HEARTBEAT_MS = 10_000
_CHUNK = 1 << 18
_END_OF_HEAD = re.compile(rb"\r?\n\r?\n")
_LENGTH = re.compile(rb"^content-length:\s*(\d+)", re.MULTILINE)
_ESCAPES = str.maketrans({"\\": "\\\\", "\n": "\\n", "\r": "\\r", ":": "\\c"})
_MACHINE = SystemClock()


class Connection:
    """A connection to a broker.

    Args:
        address: the broker.
        client_id: who connects, for durable subscriptions; None: nobody in particular.

    Raises:
        BrokerSaid: the broker refuses the login.
        OSError: it does not answer.

    """

    def __init__(self, address: BrokerAddress, *, client_id: str | None = None) -> None:
        encrypted = address.scheme == TLS
        place = address.host, address.port(TLS_PORT if encrypted else PORT)
        self._buffer = bytearray()
        self._messages: list[Frame] = []
        self._receipts = count()
        self._sent_at = _MACHINE.monotonic()
        self._socket = socket.create_connection(place, SECONDS)
        try:
            self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            if encrypted:
                self._socket = tls_context(address).wrap_socket(self._socket, server_hostname=address.host)
            self.server = self._connect(address, client_id)
            """What the broker calls itself."""
        except BaseException:
            self._socket.close()
            raise

    def _connect(self, address: BrokerAddress, client_id: str | None) -> str:
        login = address.login()
        headers = {
            "accept-version": "1.2",
            "host": address.path or address.host,
            "heart-beat": f"{HEARTBEAT_MS},0",
            **({"login": login.user, "passcode": login.password} if login.user or login.password else {}),
            **({"client-id": client_id} if client_id else {}),
        }
        self.send("CONNECT", headers)
        while True:
            for frame in self._read(SECONDS, connecting=True):
                if frame.cmd == "CONNECTED":
                    return str(frame.headers.get("server", ""))

    def send(self, command: str, headers: Mapping[str, str], body: bytes = b"") -> None:
        """Send a frame; it waits while the broker does not read."""
        if body or command == "SEND":
            headers = {**headers, "content-length": str(len(body))}
        if command != "CONNECT":
            headers = {_escaped(name): _escaped(value) for name, value in headers.items()}
        frame = Frame(command, dict(headers), body)
        self._socket.sendall(b"".join(convert_frame(frame)))
        self._sent_at = _MACHINE.monotonic()

    def ask(self, command: str, headers: Mapping[str, str]) -> None:
        """Send a frame, and return when the broker has done what it says, and everything before it.

        Raises:
            BrokerSaid: it does not do it.
            TimeoutError: it does not answer.

        """
        receipt = f"r{next(self._receipts)}"
        self.send(command, {**headers, "receipt": receipt})
        until = _MACHINE.monotonic() + ANSWER_SECONDS
        while True:
            frames = self._read(1.0)
            self.beat()
            self._messages += [each for each in frames if each.cmd == "MESSAGE"]
            if any(each.cmd == "RECEIPT" and each.headers.get("receipt-id") == receipt for each in frames):
                return
            if _MACHINE.monotonic() > until:
                raise TimeoutError(f"no answer to {command} within {ANSWER_SECONDS:.0f} s")

    def messages(self, seconds: float) -> list[Frame]:
        """Return messages that have arrived, within some seconds; and keep the connection alive."""
        held, self._messages = self._messages, []
        if held:
            return held
        self.beat()
        return [each for each in self._read(seconds) if each.cmd == "MESSAGE"]

    def check(self) -> None:
        """Read what the broker has said meanwhile, so that its errors are seen soon."""
        self._messages += [each for each in self._read(0) if each.cmd == "MESSAGE"]

    def beat(self) -> None:
        """Tell the broker that this client is there, if it has not heard anything for a while."""
        if _MACHINE.monotonic() - self._sent_at > HEARTBEAT_MS / 2_000:
            self._socket.sendall(b"\n")
            self._sent_at = _MACHINE.monotonic()

    def close(self) -> None:
        """Close the connection."""
        with suppress(OSError):
            self._socket.shutdown(socket.SHUT_RDWR)
        self._socket.close()

    def _read(self, seconds: float, *, connecting: bool = False) -> list[Frame]:
        """Return the frames that arrive within some seconds, none if none does."""
        if readable(self._socket, seconds):
            data = self._socket.recv(_CHUNK)
            if not data:
                raise ConnectionResetError("the broker has closed the connection")
            self._buffer += data
        frames = []
        while (frame := self._take()) is not None:
            if frame.cmd == "ERROR":
                body = bytes(frame.body or b"").decode("utf-8", "replace").strip()
                text = " ".join(filter(None, [frame.headers.get("message", ""), body]))
                raise BrokerSaid(text[:1_000], connecting=connecting)
            frames.append(frame)
        return frames

    def _take(self) -> Frame | None:
        """Take the first frame out of what was read, None where it is not whole."""
        buffer = self._buffer
        start = 0
        while bytes(buffer[start : start + 1]) in (b"\n", b"\r"):  # heart-beats, and ends of lines after frames
            start += 1
        if start:
            del buffer[:start]
        head = _END_OF_HEAD.search(buffer)
        if head is None:
            return None
        length = _LENGTH.search(buffer, 0, head.start())
        end = head.end() + int(length[1]) if length else buffer.find(b"\0", head.end())
        if end < 0 or len(buffer) <= end:
            return None
        frame = parse_frame(bytes(buffer[:end]))
        del buffer[: end + 1]
        return frame


def _escaped(text: str) -> str:
    return text.translate(_ESCAPES)
