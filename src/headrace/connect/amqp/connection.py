"""A connection of AMQP 1.0, used by one thread: the protocol is Proton's engine, the socket is our own.

Proton's own loop reads as fast as a broker sends, and has TLS only where it was compiled with it. Here nothing is read
that was not asked for, and TLS is Python's.
"""

from __future__ import annotations

import socket
from contextlib import suppress
from typing import TYPE_CHECKING
from uuid import uuid4

import proton
from proton import Collector, Endpoint, Event, Transport, TransportException

from headrace.base.time import SystemClock
from headrace.base.waiting import readable
from headrace.connect.amqp.address import PORTS, TLS, UNAUTHORIZED, Refused
from headrace.connect.messages.tls import tls_context

if TYPE_CHECKING:
    from collections.abc import Callable

    from proton import Condition, Link, Session

    from headrace.connect.messages.address import BrokerAddress

SECONDS = 15.0
SILENT_SECONDS = 60.0
"""A broker that says nothing for so long, not even that it is there, is taken for dead."""
MOST_BYTES = 16 << 20
"""So many bytes a broker sends that were not asked for yet."""
_FRAME = 1 << 16
_CHUNK = 1 << 18
_MACHINE = SystemClock()
_CLOSED = (
    *(Event.CONNECTION_REMOTE_CLOSE, Event.SESSION_REMOTE_CLOSE, Event.LINK_REMOTE_CLOSE, Event.LINK_REMOTE_DETACH),
)


class Connection:
    """A connection to a broker, with one session.

    Args:
        address: the broker. What follows its host is the virtual host.
        container: who connects, for durable subscriptions; None: nobody in particular.

    Raises:
        Refused: the broker refuses the login.
        OSError: it does not answer.

    """

    def __init__(self, address: BrokerAddress, *, container: str | None = None) -> None:
        encrypted, login = address.scheme == TLS, address.login()
        self._collector, self._transport, self._engine = Collector(), Transport(), proton.Connection()
        self._engine.collect(self._collector)
        self._engine.container = container or f"headrace-{uuid4().hex}"
        self._engine.hostname = address.path or address.host
        sasl = self._transport.sasl()
        sasl.allow_insecure_mechs = True  # whether the connection is encrypted is for the address to say
        if login.user or login.password:
            self._engine.user, self._engine.password = login
        sasl.allowed_mechs("PLAIN" if login.user else "EXTERNAL ANONYMOUS" if encrypted else "ANONYMOUS")
        self._transport.max_frame_size = _FRAME
        self._transport.idle_timeout = SILENT_SECONDS
        self._transport.bind(self._engine)
        self._engine.open()
        self._opened = False
        self._socket = socket.create_connection((address.host, address.port(PORTS[address.scheme])), SECONDS)
        try:
            self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            if encrypted:
                self._socket = tls_context(address).wrap_socket(self._socket, server_hostname=address.host)
            self.until(lambda: bool(self._engine.state & Endpoint.REMOTE_ACTIVE), "the login", seconds=SECONDS)
            self._opened = True
            self.session: Session = self._engine.session()
            self.session.incoming_capacity = MOST_BYTES
            self.session.open()
        except BaseException:
            self._socket.close()
            raise

    @property
    def offers(self) -> frozenset[str]:
        """What the broker says that it can do."""
        return frozenset(str(each) for each in self._engine.remote_offered_capabilities or ())

    @property
    def product(self) -> str:
        """What the broker calls itself, empty if it says nothing."""
        return str(dict(self._engine.remote_properties or {}).get("product", ""))

    def attach(self, link: Link) -> None:
        """Open a link, and return when the broker has.

        Raises:
            Refused: it does not.
            OSError: it does not answer.

        """
        link.open()
        remote = link.remote_target if link.is_sender else link.remote_source
        # a refused link is opened without what it leads to, and then closed with the reason
        self.until(lambda: bool(link.state & Endpoint.REMOTE_ACTIVE) and remote.type != remote.UNSPECIFIED, "a link")

    def until(self, done: Callable[[], bool], what: str, *, seconds: float = SILENT_SECONDS) -> None:
        """Work until something is done.

        Raises:
            Refused: the broker ends it.
            TimeoutError: it is not done within some seconds.
            OSError: the connection is lost.

        """
        limit = _MACHINE.monotonic() + seconds
        while not done():
            self.work(min(1.0, seconds))
            if _MACHINE.monotonic() > limit and not done():
                raise TimeoutError(f"no answer to {what} within {seconds:.0f} s")

    def work(self, seconds: float) -> bool:
        """Send what is to be sent, and read what arrives within some seconds; return whether something did.

        Raises:
            Refused: the broker ends it.
            OSError: the connection is lost.

        """
        self._transport.tick(_MACHINE.monotonic())
        self._write()
        arrives = readable(self._socket, seconds)
        if arrives:
            self._read()
        self._look()
        return arrives

    def close(self, *, politely: bool = True) -> None:
        """Close the connection; `politely`: what was to be sent is sent, and the broker has closed it too."""
        with suppress(Refused, OSError):
            if politely and self._opened:
                self._engine.close()
                self.until(lambda: bool(self._engine.state & Endpoint.REMOTE_CLOSED), "closing", seconds=SECONDS)
        with suppress(OSError):
            self._socket.shutdown(socket.SHUT_RDWR)
        self._socket.close()
        self._transport.unbind()

    def _write(self) -> None:
        while (size := self._transport.pending()) > 0:
            data = self._transport.peek(size)
            self._socket.sendall(data)
            self._transport.pop(len(data))

    def _read(self) -> None:
        data = self._socket.recv(_CHUNK)
        if not data:
            self._look()  # what the broker has said before
            raise ConnectionResetError("the broker has closed the connection")
        view = memoryview(data)
        while view:
            room = self._transport.capacity()
            if room <= 0:
                self._look()
                raise ConnectionResetError("the connection has ended")
            with suppress(TransportException):  # its condition says more
                self._transport.push(bytes(view[:room]))
            view = view[room:]

    def _look(self) -> None:
        """Look at what has happened: what the broker ends is an error."""
        while (event := self._collector.peek()) is not None:
            kind = event.type
            if kind == Event.TRANSPORT_ERROR:
                raise self._refused(self._transport.condition, "the connection has failed")
            if kind in _CLOSED:
                raise self._refused(event.context.remote_condition, "the broker has closed it")
            self._collector.pop()

    def _refused(self, condition: Condition | None, otherwise: str) -> Refused | ConnectionError:
        name = "" if condition is None else str(condition.name)
        said = otherwise if condition is None else str(condition.description or "")
        if not self._opened and name in {UNAUTHORIZED, "amqp:invalid-field"}:
            return Refused(UNAUTHORIZED, said, connecting=True)
        return Refused(name, said)
