"""A connection to one broker: Kafka's protocol over a blocking socket.

Requests and responses are encoded by kafka-python's protocol classes. The socket is ours, because responses with tens
of megabytes of records should be received into one buffer, without an event loop in between.
"""

from __future__ import annotations

import io
import socket
import ssl
import struct
from collections import deque
from typing import TYPE_CHECKING, Any

import numpy as np
from kafka.protocol.admin import DescribeTransactionsRequest, DescribeTransactionsResponse
from kafka.protocol.consumer import (
    FetchRequest,
    FetchResponse,
    ListOffsetsRequest,
    ListOffsetsResponse,
    OffsetForLeaderEpochRequest,
    OffsetForLeaderEpochResponse,
)
from kafka.protocol.metadata import (
    ApiVersionsRequest,
    ApiVersionsResponse,
    FindCoordinatorRequest,
    FindCoordinatorResponse,
    MetadataRequest,
    MetadataResponse,
)
from kafka.protocol.producer import (
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnResponse,
    EndTxnRequest,
    EndTxnResponse,
    InitProducerIdRequest,
    InitProducerIdResponse,
    ProduceRequest,
    ProduceResponse,
)
from kafka.protocol.sasl import (
    SaslAuthenticateRequest,
    SaslAuthenticateResponse,
    SaslHandshakeRequest,
    SaslHandshakeResponse,
)

from headrace.base.broker_errors import LoginRefused
from headrace.base.outside import Unavailable
from headrace.base.time import SystemClock

if TYPE_CHECKING:
    from headrace.connect.kafka.client.settings import WireSettings

_APIS: dict[type, tuple[Any, int]] = {
    FetchRequest: (FetchResponse, 16),
    ListOffsetsRequest: (ListOffsetsResponse, 8),
    MetadataRequest: (MetadataResponse, 12),
    OffsetForLeaderEpochRequest: (OffsetForLeaderEpochResponse, 4),
    # what writes speaks the protocol of KIP-98, not that of KIP-890: partitions are added to a transaction
    FindCoordinatorRequest: (FindCoordinatorResponse, 3),
    InitProducerIdRequest: (InitProducerIdResponse, 4),
    AddPartitionsToTxnRequest: (AddPartitionsToTxnResponse, 3),
    ProduceRequest: (ProduceResponse, 11),
    EndTxnRequest: (EndTxnResponse, 3),
    DescribeTransactionsRequest: (DescribeTransactionsResponse, 0),
    SaslHandshakeRequest: (SaslHandshakeResponse, 1),
    SaslAuthenticateRequest: (SaslAuthenticateResponse, 2),
}
"""The response of each request, and the newest version of it that we speak."""

_UNSUPPORTED_MECHANISM = 33
_LOST_IN_TLS = (ssl.SSLEOFError, ssl.SSLZeroReturnError, ssl.SSLSyscallError)
_SESSION_SHARE = 0.8  # of a login's lifetime for which a connection serves
_HEADER_BYTES = 64  # of a response: more than its header has
_CLOCK = SystemClock()  # the network takes real time, whatever clock an app has


class Connection:
    """An open connection. One thread uses it at a time; requests are answered in the order of sending.

    Raises:
        Unavailable: no connection, or none in time.
        LoginRefused: the broker refuses the mechanism or the credentials.

    """

    def __init__(self, host: str, port: int, settings: WireSettings) -> None:
        self.key = host, port
        self.place = f"{host}:{port}"
        self._settings = settings
        self._number = 0
        self._sent: deque[tuple[int, Any, int]] = deque()
        self._versions: dict[int, tuple[int, int]] = {}
        self._serves_until = float("inf")
        self.alive = True
        self._socket = self._connected(host, port)
        self._open()

    @property
    def idle(self) -> bool:
        """Whether it can be used for another request: nothing is on its way, and the login still holds."""
        return self.alive and not self._sent and _CLOCK.monotonic() < self._serves_until

    def version(self, request: type) -> int:
        """Return the version in which a request is sent."""
        ours = _APIS[request][1]
        return min(ours, self._versions.get(request.API_KEY, (0, ours))[1])  # type: ignore[attr-defined]

    def send(self, request: Any) -> None:
        """Send a request; `receive` returns the response."""
        kind = type(request)
        response, version = (
            (ApiVersionsResponse, 0) if kind is ApiVersionsRequest else (_APIS[kind][0], self.version(kind))
        )
        self._number += 1
        request.API_VERSION = version
        request.with_header(correlation_id=self._number, client_id=self._settings.client)
        try:
            self._socket.sendall(request.encode(framed=True, header=True))
        except OSError as error:
            raise self._lost(error) from error
        self._sent.append((self._number, response, version))

    def receive(self) -> Any:
        """Return the response to the oldest request that has none."""
        number, response, version = self._sent.popleft()
        size = struct.unpack(">i", self._bytes(4))[0]
        if not 0 <= size <= self._settings.frame_bytes:
            raise self._lost(f"a response has {size} bytes: that is no Kafka broker")
        frame = self._bytes(size)
        head = io.BytesIO(frame[:_HEADER_BYTES])
        header = response.parse_header(head, version=version)
        if header.correlation_id != number:
            raise self._lost(f"response {header.correlation_id} came for request {number}")
        return response.decode(frame[head.tell() :], version=version)

    def ask(self, request: Any) -> Any:
        """Send a request and return its response."""
        self.send(request)
        return self.receive()

    def speaks(self, request: type) -> bool:
        """Whether the broker knows a request."""
        return request.API_KEY in self._versions  # type: ignore[attr-defined]

    def close(self) -> None:
        """Close it; what is on its way is dropped."""
        self.alive = False
        self._socket.close()

    def __del__(self) -> None:
        if self.alive:  # forgotten, as after an error that nobody expected
            self.close()

    def _bytes(self, size: int) -> memoryview:
        whole = memoryview(np.empty(size, np.uint8))  # type: ignore[arg-type] # not zeroed, unlike a bytearray
        got = 0
        try:
            while got < size:
                more = self._socket.recv_into(whole[got:])
                if not more:
                    raise self._lost("it closed the connection")
                got += more
        except OSError as error:
            raise self._lost(error) from error
        return whole

    def _lost(self, why: object) -> Unavailable:
        self.close()
        hint = "" if self._versions else "If it runs, it may want TLS or a login: security.protocol."
        return Unavailable(f"the connection to the Kafka broker {self.place} is lost: {why}", hint=hint)

    # ---- opening ----

    def _connected(self, host: str, port: int) -> socket.socket:
        plain: socket.socket | None = None
        try:
            plain = socket.create_connection((host, port), self._settings.connect_timeout)
            plain.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            tls = self._settings.tls
            open_ = plain if tls is None else tls.wrap_socket(plain, server_hostname=host)
            open_.settimeout(self._settings.timeout)
        except OSError as error:
            self.alive = False
            if plain is not None:
                plain.close()
            if isinstance(error, ssl.SSLError) and not isinstance(error, _LOST_IN_TLS):
                raise LoginRefused(
                    f"no encrypted connection to the Kafka broker {self.place}: {error}",
                    hint="Check security.protocol, and ssl.ca.location: the certificates that are trusted.",
                ) from error
            speaks = " Does it speak TLS there? See security.protocol." if isinstance(error, ssl.SSLError) else ""
            raise Unavailable(
                f"no connection to the Kafka broker {self.place}: {error}",
                hint=f"Is it running, and is its advertised address reachable from here?{speaks}",
            ) from error
        return open_

    def _open(self) -> None:
        try:
            found = self.ask(ApiVersionsRequest())
            self._versions = {each.api_key: (each.min_version, each.max_version) for each in found.api_keys}
            if self._settings.mechanism is not None:
                self._log_in(self._settings.mechanism)
        except BaseException:
            self.close()
            raise

    def _log_in(self, mechanism: str) -> None:
        from kafka.net.sasl import get_sasl_mechanism

        answer = self.ask(SaslHandshakeRequest(mechanism=mechanism))
        if answer.error_code == _UNSUPPORTED_MECHANISM:
            offered = ", ".join(answer.mechanisms)
            raise LoginRefused(
                f"the Kafka broker {self.place} does not take the login mechanism {mechanism}",
                hint=f"It offers: {offered}. Set sasl.mechanism in the address.",
            )
        names = {"sasl_plain_username": self._settings.username, "sasl_plain_password": self._settings.password}
        client = get_sasl_mechanism(mechanism)(**names, sasl_mechanism=mechanism)
        while not client.is_done():
            answer = self.ask(SaslAuthenticateRequest(auth_bytes=client.auth_bytes()))
            if answer.error_code:
                raise LoginRefused(
                    f"the Kafka broker {self.place} refuses the login: {answer.error_message or answer.error_code}",
                    hint="Check sasl.username and sasl.password of the address.",
                )
            client.receive(answer.auth_bytes)
        lifetime = getattr(answer, "session_lifetime_ms", 0) or 0
        if lifetime > 0:
            self._serves_until = _CLOCK.monotonic() + lifetime / 1_000 * _SESSION_SHARE
