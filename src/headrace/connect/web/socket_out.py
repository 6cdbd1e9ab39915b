"""Out: rows as messages of a WebSocket. A ping behind them says that the other side has received them."""

from __future__ import annotations

import asyncio
import secrets
from contextlib import suppress
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Unpack

import aiohttp
import pyarrow as pa

from headrace.base.arguments import name_list
from headrace.base.outside import Unavailable
from headrace.connect.messages.address import secret
from headrace.connect.messages.writing import MessageSink, MessageWriter, WritingOptions, writing
from headrace.connect.web.client import Client, Site, WithLogin, site_of, without_login
from headrace.connect.web.socket_in import DATA, connected, ended

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from headrace.base.time import Clock
    from headrace.connect.messages.writing import Outgoing
    from headrace.connect.sink import SinkWriter

PONG_SECONDS = 30


class SendOptions(WritingOptions, WithLogin, total=False):
    """The options of all brokers, and with what a request shows who asks."""


def send(url: str, *, first: str | Sequence[str] = (), **options: Unpack[SendOptions]) -> WebSocketSink:
    """Return a sink that sends each row, and each change of a table, as a message of a WebSocket.

    After each 1,000 messages, and at the end of an epoch, a ping is sent and its pong awaited: the other side has then
    received them. What it does with them nobody says; an epoch that is published again is sent again. Messages have no
    ids: send a column by which the receiver recognises a row. What the server sends is not read.

    Args:
        url: with `ws` or `wss`; it may have a user and a password.
        first: what is sent when a connection is there, such as a login; it may be `env:NAME`.
        options: those of all brokers, `token` and `headers` (of the request that connects).

    Raises:
        InvalidPlan: the URL is none, or an option is not known.

    """
    login, how = without_login(options)
    site = site_of(url, ("ws", "wss"), login)
    return WebSocketSink(site=site, first=name_list(first, "first"), how=writing("", how))


@dataclass(frozen=True, kw_only=True)
class WebSocketSink(MessageSink):
    """Messages to a WebSocket; `send` creates it."""

    site: Site
    first: tuple[str, ...] = field(default=(), repr=False)

    @property
    def where(self) -> str:
        """The URL without secrets."""
        return self.site.place

    def open(self, *, writer: str, clock: Clock) -> SinkWriter:
        """Return a writer; it connects when it is needed.

        Raises:
            InvalidPlan: a variable of the environment is not there.

        """
        del clock
        return WebSocketWriter(self, writer)


class WebSocketWriter(MessageWriter[WebSocketSink]):
    """Sends epochs."""

    def __init__(self, sink: WebSocketSink, writer: str) -> None:
        super().__init__(sink, writer)
        self._client = Client(sink.site)
        self._socket: aiohttp.ClientWebSocketResponse | None = None
        self._text = pa.types.is_string(sink.how.format.stored_type(sink.columns))

    def send(self, epoch: int, messages: Iterator[Sequence[Outgoing]]) -> None:
        """Send an epoch's messages; returns when the other side has received them."""
        del epoch
        try:
            if self._socket is not None:
                self._client.until(self._received(self._socket))  # it may have ended since the last epoch
        except Unavailable:
            self.drop()
        for some in messages:
            self._client.until(self._send(some))

    async def _send(self, messages: Sequence[Outgoing]) -> None:
        socket = await self._connected()
        for message in messages:
            if self._text:
                await socket.send_str(message.body.decode())
            else:
                await socket.send_bytes(message.body)
        await self._received(socket)

    async def _connected(self) -> aiohttp.ClientWebSocketResponse:
        if self._socket is None:
            self._socket = await connected(self._client, self.sink.site, heartbeat=None)
            for text in self.sink.first:
                await self._socket.send_str(secret(text, of=f"what is first sent to {self.sink.where}"))
        return self._socket

    async def _received(self, socket: aiohttp.ClientWebSocketResponse) -> None:
        """Return when the other side has received everything.

        Raises:
            Unavailable: the connection has ended.
            TimeoutError: it does not answer.

        """
        mark = secrets.token_bytes(8)
        async with asyncio.timeout(PONG_SECONDS):
            await socket.ping(mark)
            while True:
                message = await socket.receive()
                if message.type is aiohttp.WSMsgType.PONG and bytes(message.data) == mark:
                    return
                if message.type is aiohttp.WSMsgType.PING:
                    await socket.pong(message.data)
                elif message.type not in (*DATA, aiohttp.WSMsgType.PONG):
                    raise ended(self.sink.site, message)

    def drop(self) -> None:
        """Close a connection that failed; the next one is of the same client."""
        socket, self._socket = self._socket, None
        if socket is not None:
            with suppress(Unavailable):
                self._client.until(socket.close())

    def close(self) -> None:
        """Close the connection."""
        self.drop()
        self._client.close()
