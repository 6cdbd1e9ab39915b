"""A connection to a broker of MQTT 5: packets in and out, and what the broker says of failures."""

from __future__ import annotations

import socket
from contextlib import suppress
from typing import TYPE_CHECKING

from headrace.base.broker_errors import BrokerFailed, LoginRefused
from headrace.base.outside import AccessRefused, Unavailable
from headrace.base.time import SystemClock
from headrace.base.waiting import readable
from headrace.connect.messages.tls import secured_address, tls_context
from headrace.connect.mqtt import packets
from headrace.connect.mqtt.packets import Kind, Packet, Property

if TYPE_CHECKING:
    from collections.abc import Sequence

    from headrace.base.blame import OutsideError
    from headrace.connect.messages.address import BrokerAddress
    from headrace.connect.mqtt.packets import Accepted

EXAMPLE = "mqtt://ada:env:MQTT_PASSWORD@localhost:1883"
KEEP_ALIVE = 60
ANSWER_SECONDS = 30.0
_CLOCK = SystemClock()
_BYTES = 1 << 18
_NOT_AUTHORIZED, _TAKEN_OVER, _TOO_LARGE, _QUOTA = 0x87, 0x8E, 0x95, 0x97
_LOGIN = {0x86: "bad user name or password", _NOT_AUTHORIZED: "not authorized", 0x8C: "bad authentication method"}
_LATER = {0x88: "server unavailable", 0x89: "server busy", 0x8B: "server shutting down", 0x8D: "keep alive time-out",
          0x93: "receive maximum exceeded", 0x96: "message rate too high", _QUOTA: "quota exceeded",
          0x9F: "connection rate exceeded", 0x98: "administrative action"}  # fmt: skip


def mqtt_address(url: str) -> BrokerAddress:
    """Return the address of a broker.

    Raises:
        InvalidPlan: it is none, or has an option that is not known.

    """
    return secured_address(url, schemes=("mqtt", "mqtts"), example=EXAMPLE)


class Connection:
    """A connection; `close` it.

    Args:
        address: the broker.
        client: the id of this client.
        session: for how many seconds the broker keeps the session; None: no longer than the connection.
        receive: how many messages the broker may send unacknowledged.

    Raises:
        Unavailable: the broker does not answer.
        LoginRefused: it does not accept user and password.

    """

    def __init__(self, address: BrokerAddress, client: str, *, session: int | None, receive: int = 1) -> None:
        self.address = address
        self._data = bytearray()
        self._waiting: list[Packet] = []
        self._heard = self._sent = _CLOCK.monotonic()
        self._pinged = False
        login = address.login()
        self._socket = self._connected()
        try:
            self.send(packets.connect(client, keep_alive=KEEP_ALIVE, login=login, session=session, receive=receive))
            self.accepted = self._accepted()
        except BaseException:
            self._socket.close()
            raise

    def _accepted(self) -> Accepted:
        accepted = packets.accepted(self.expect(Kind.CONNACK).body)
        if accepted.reason >= packets.FAILED:
            raise self.refused(accepted.reason, "the connection")
        return accepted

    @property
    def has_session(self) -> bool:
        """Whether the broker had kept a session of this client."""
        return self.accepted.has_session

    def limit(self, which: Property, default: int) -> int:
        """Return a limit that the broker said when it accepted the connection."""
        value = self.accepted.properties.get(which, default)
        return value if isinstance(value, int) else default

    def send(self, data: bytes) -> None:
        """Send packets.

        Raises:
            Unavailable: the connection is broken.

        """
        try:
            self._socket.settimeout(ANSWER_SECONDS)
            self._socket.sendall(data)
        except OSError as error:
            raise self._broken(error) from error
        self._sent = _CLOCK.monotonic()

    def receive(self, seconds: float) -> Sequence[Packet]:
        """Return what the broker has sent, within a time; what ends the connection is raised.

        Raises:
            Unavailable: the connection is broken, or the broker ended it for a while.
            OutsideError: the broker ended it for another reason.

        """
        if self._waiting:
            found, self._waiting = self._waiting, []
            return found
        self.keep()
        found = self._read(seconds)
        for each in found:
            if each.kind == Kind.DISCONNECT:
                raise self.refused(each.body[0] if each.body else 0, "to go on")
        return [each for each in found if each.kind != Kind.PINGRESP]

    def expect(self, kind: Kind) -> Packet:
        """Return the next packet of a kind; others wait for `receive`.

        Raises:
            Unavailable: it does not come.
            OutsideError: as `receive`.

        """
        others: list[Packet] = []
        until = _CLOCK.monotonic() + ANSWER_SECONDS
        while _CLOCK.monotonic() < until:
            found = list(self.receive(1.0))
            for at, each in enumerate(found):
                if each.kind == kind:
                    self._waiting = others + found[at + 1 :]
                    return each
                others.append(each)
        raise Unavailable(f"{self.address.place} does not answer")

    def keep(self) -> None:
        """Tell the broker that this client lives, if it is time; it need not be heard.

        Raises:
            Unavailable: the connection is broken, or the broker has not been heard for too long.

        """
        now = _CLOCK.monotonic()
        if now - self._sent > KEEP_ALIVE / 2:
            self._pinged = True
            self.send(packets.packet(Kind.PINGREQ))

    def close(self, *, orderly: bool = True) -> None:
        """Close it; the broker keeps the session for the time that was agreed."""
        with suppress(OSError, Unavailable):
            if orderly:
                self.send(packets.packet(Kind.DISCONNECT))
        self._socket.close()

    def refused(self, reason: int, what: str) -> OutsideError:
        """Return the error of a reason that the broker gave."""
        place = self.address.place
        if reason == _NOT_AUTHORIZED and hasattr(self, "accepted"):
            return AccessRefused(f"{place} does not let the user do this: {what}", hint="Give the user this right.")
        if reason in _LOGIN:
            return LoginRefused(
                f"{place} refuses the login: {_LOGIN[reason]}", hint="Check user and password in the address."
            )
        if reason in _LATER:
            return Unavailable(f"{place} refuses {what}: {_LATER[reason]}")
        if reason == _TAKEN_OVER:
            return BrokerFailed(
                f"another client took over the session at {place}", hint="Give each feed a session of its own."
            )
        hint = "It has to speak MQTT 5." if reason in {0x01, 0x84} else ""
        return BrokerFailed(f"{place} refuses {what}: reason 0x{reason:02X} of MQTT", hint=hint)

    def _connected(self) -> socket.socket:
        address = self.address
        try:
            plain = socket.create_connection((address.host, self._port()), timeout=ANSWER_SECONDS)
            plain.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            if address.scheme == "mqtt":
                return plain
            try:
                return tls_context(address).wrap_socket(plain, server_hostname=address.host)
            except BaseException:
                plain.close()
                raise
        except OSError as error:
            raise self._broken(error) from error

    def _port(self) -> int:
        return self.address.port(8883 if self.address.scheme == "mqtts" else 1883)

    def _read(self, seconds: float) -> list[Packet]:
        try:
            if not self._is_there(seconds):
                if self._pinged and _CLOCK.monotonic() - self._heard > 1.5 * KEEP_ALIVE:
                    raise Unavailable(f"{self.address.place} has not been heard for {1.5 * KEEP_ALIVE:.0f} s")
                return []
            self._socket.settimeout(ANSWER_SECONDS)
            data = self._socket.recv(_BYTES)
        except OSError as error:
            raise self._broken(error) from error
        if not data:
            raise Unavailable(f"{self.address.place} has ended the connection")
        self._heard = _CLOCK.monotonic()
        self._data += data
        return packets.read_packets(self._data)

    def _is_there(self, seconds: float) -> bool:
        """Whether something can be read."""
        return readable(self._socket, seconds)

    def _broken(self, error: OSError) -> Unavailable:
        return Unavailable(f"{self.address.place} does not answer: {type(error).__name__}: {error}")
