"""In: the messages of a WebSocket. Nobody sends one again, so each arrives at most once."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Unpack

import aiohttp

from headrace.base.arguments import name_list
from headrace.base.outside import Unavailable
from headrace.base.time import SystemClock, as_datetime
from headrace.connect.feed import Feed
from headrace.connect.messages.address import secret
from headrace.connect.messages.direct import FullOptions, run_direct, when_full, without_full
from headrace.connect.messages.reading import Message, MessageLanding, Reading, reading
from headrace.connect.web.client import Client, Site, site_of, without_login
from headrace.connect.web.polling import PollOptions

if TYPE_CHECKING:
    import threading
    from collections.abc import Sequence

    from headrace.base.buffer import SharedBuffer
    from headrace.connect.feed import Landing
    from headrace.connect.messages.direct import WhenFull

KNOWN = ("received",)
MAX_BYTES = 64 << 20
HEARTBEAT_SECONDS = 20.0
"""So often the server is asked whether it is there; one that does not answer within half of it is gone."""
_OVERHEAD, _CLOSE_SECONDS = 200, 1.0
DATA = (aiohttp.WSMsgType.TEXT, aiohttp.WSMsgType.BINARY)
CLOCK = SystemClock()


class SocketOptions(PollOptions, FullOptions, total=False):
    """The options of a WebSocket that is read."""


def socket(url: str, *, first: str | Sequence[str] = (), **options: Unpack[SocketOptions]) -> WebSocketFeed:
    """Return a feed of the messages of a WebSocket: at most once.

    What the server sends while there is no connection is lost, and what was received in the last 20 ms before a crash.
    After a connection is lost a new one is made, with back-off; `status` says so. With `on_full="block"` it stops being
    read when the buffer is full, so the server waits, or ends the connection.

    Args:
        url: with `ws` or `wss`; it may have a user and a password.
        first: what is sent when a connection is there, such as a subscription; it may be `env:NAME`.
        options: those of all brokers and of direct sources, `token` and `headers`; `metadata=` knows "received" too.

    Raises:
        InvalidPlan: the URL is none, or an option is not known.
        InvalidArgument: an option has an impossible value.

    """
    full = when_full(options)
    login, how = without_login(without_full(options))
    return WebSocketFeed(
        site=site_of(url, ("ws", "wss"), login),
        first=name_list(first, "first"),
        full=full,
        how=reading(KNOWN, {"id": None} | how),
    )


@dataclass(frozen=True, kw_only=True)
class WebSocketFeed(Feed):
    """Messages of a WebSocket; `socket` creates it."""

    site: Site
    first: tuple[str, ...] = field(repr=False)
    full: WhenFull
    how: Reading

    @property
    def identity(self) -> str:
        """The URL without secrets and options."""
        return f"websocket:{self.site.place}"

    def check(self) -> None:
        """Connect once; raises as `run` does."""
        with Client(self.site) as client:
            connection = client.until(connected(client, self.site))
            if connection is not None:
                client.until(connection.close())

    def run(self, landing: Landing, stop: threading.Event) -> None:
        """Land messages until `stop` is set.

        Raises:
            Unavailable: the server does not answer, or the connection has ended.
            HeadraceError: it refuses.

        """
        messages = MessageLanding(landing, self.how)

        def land(received: list[list[Message]]) -> None:
            messages.land([each for some in received for each in some])

        run_direct(messages, stop, self.full, receive=self._receive, land=land)

    def _receive(self, waiting: SharedBuffer[list[Message]], ending: threading.Event) -> None:
        with Client(self.site) as client:
            connection = client.until(connected(client, self.site), ending)
            if connection is None:
                return
            for text in self.first:
                client.until(connection.send_str(secret(text, of=f"what is first sent to {self.site.place}")), ending)
            try:
                client.until(self._received(connection, waiting), ending)
            finally:
                client.until(connection.close())

    async def _received(
        self, connection: aiohttp.ClientWebSocketResponse, waiting: SharedBuffer[list[Message]]
    ) -> None:
        """Put what arrives into the buffer; where it is full the server waits by TCP.

        Raises:
            Unavailable: the connection has ended.

        """
        while True:
            message = await connection.receive()
            if message.type not in DATA:
                raise ended(self.site, message)
            body = message.data.encode() if isinstance(message.data, str) else message.data
            found = [Message(body, about={"received": as_datetime(CLOCK.now())})]
            waiting.put(found, weight=len(body) + _OVERHEAD, records=1)


def ended(site: Site, message: aiohttp.WSMessage) -> Unavailable:
    """Return the error of a connection that has ended with a message."""
    why = f"{message.data if isinstance(message.data, int) else message.type.name} {message.extra or ''}".strip()
    return Unavailable(f"{site.place} has ended the connection: {why}")


async def connected(
    client: Client, site: Site, *, heartbeat: float | None = HEARTBEAT_SECONDS
) -> aiohttp.ClientWebSocketResponse:
    """Return a connection; without a heartbeat the caller answers pings.

    Raises:
        HeadraceError: the server refuses.

    """
    timeout = aiohttp.ClientWSTimeout(ws_close=_CLOSE_SECONDS)
    try:
        return await client.session.ws_connect(
            site.url, heartbeat=heartbeat, autoping=heartbeat is not None, max_msg_size=MAX_BYTES, timeout=timeout
        )
    except aiohttp.WSServerHandshakeError as error:
        raise site.refused(error.status, error.message) or Unavailable(f"{site.place} is no WebSocket") from error
