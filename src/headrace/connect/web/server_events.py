"""In: server-sent events; the id of the last one is stored with each append, and the server goes on behind it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Unpack

import aiohttp

from headrace.base.arguments import a_whole_number
from headrace.base.broker_errors import BrokerFailed
from headrace.base.time import MICROS, SystemClock, as_datetime, duration
from headrace.connect.feed import Feed
from headrace.connect.messages.reading import Message, MessageLanding, Reading, reading
from headrace.connect.web.client import CONNECT_SECONDS, Client, Site, site_of, without_login
from headrace.connect.web.event_stream import EventStream

if TYPE_CHECKING:
    import threading
    from datetime import timedelta

    from headrace.connect.feed import Landing
    from headrace.connect.web.polling import PollOptions

KNOWN = ("event", "received")
RETRY_SECONDS = 1.0
_LONGEST_RETRY = 3_600.0
_NO_MORE = 204
_KIND = "text/event-stream"
CLOCK = SystemClock()


def events(url: str, *, silence: str | timedelta = "2 minutes", **options: Unpack[PollOptions]) -> ServerEvents:
    """Return a feed of server-sent events: exactly once from a server that goes on behind `Last-Event-ID`.

    The id of the last event is stored with each append, and sent when the feed asks again: after a crash, when the
    server ends the answer, or is silent. An answer 204 ends the feed.

    Trap: a server that knows no `Last-Event-ID` sends from now on (what was sent meanwhile is lost), or all again: then
    `id="id"` drops those of the last `remember` ids. Events without an id after one that has one may come again.

    Args:
        url: where to ask, with `http` or `https`; it may have a user and a password.
        silence: after so long without a byte the connection is taken for lost. Servers send comments to be alive.
        options: those of all brokers, `token` and `headers`; `id` is None here; `metadata=` knows "event" (the type)
            and "received" too.

    Raises:
        InvalidPlan: the URL is none, or an option is not known.
        InvalidTime: `silence` is no duration.

    """
    login, how = without_login(options)
    return ServerEvents(
        site=site_of(url, ("http", "https"), login),
        silence=a_whole_number(duration(silence, what="silence"), "silence", least=1),
        how=reading(KNOWN, {"id": None} | how),
    )


@dataclass(frozen=True, kw_only=True)
class ServerEvents(Feed):
    """Server-sent events; `events` creates it. `silence` in microseconds."""

    site: Site
    silence: int
    how: Reading

    @property
    def identity(self) -> str:
        """The URL without secrets and options."""
        return f"events:{self.site.place}"

    def check(self) -> None:
        """Ask once; raises as `run` does."""
        with Client(self.site) as client:
            client.check(self.site.url)

    def run(self, landing: Landing, stop: threading.Event) -> None:
        """Land events until `stop` is set, or the server says that there will be none.

        Raises:
            Unavailable: the server does not answer.
            LoginRefused: it wants other credentials.
            AccessRefused: who asks may not read it.
            QueueMissing: there is nothing at this address.
            BrokerFailed: it answers with something else than events.

        """
        messages = MessageLanding(landing, self.how)
        stream = EventStream((messages.position or b"").decode(), retry=RETRY_SECONDS)
        with Client(self.site) as client:
            while not stop.is_set():
                response = client.until(self._asked(client, stream.last), stop)
                if response is None:
                    return
                try:
                    if response.status == _NO_MORE:
                        return
                    stream = EventStream(stream.last, retry=stream.retry)  # an event that was cut off is forgotten
                    self._land(client, response, stream, messages, stop)
                finally:
                    response.close()
                stop.wait(min(stream.retry, _LONGEST_RETRY))

    async def _asked(self, client: Client, last: str) -> aiohttp.ClientResponse:
        headers = {"Accept": _KIND, "Cache-Control": "no-store"} | ({"Last-Event-ID": last} if last else {})
        timeout = aiohttp.ClientTimeout(total=None, sock_connect=CONNECT_SECONDS, sock_read=self.silence / MICROS)
        response = await client.session.get(
            self.site.url, headers=headers, timeout=timeout, allow_redirects=not self.site.headers
        )
        refused = self.site.refused(response.status, response.reason)
        if refused is None and response.status != _NO_MORE and response.content_type != _KIND:
            refused = BrokerFailed(f"{self.site.place} answers with {response.content_type}, not with events")
        if refused is not None:
            response.close()
            raise refused
        return response

    def _land(
        self,
        client: Client,
        response: aiohttp.ClientResponse,
        stream: EventStream,
        messages: MessageLanding,
        stop: threading.Event,
    ) -> None:
        """Land the events of an answer until it ends."""
        while not stop.is_set():
            if not messages.has_room():
                stop.wait(0.1)  # the server waits by TCP
                continue
            piece = client.until(response.content.readany(), stop)
            if not piece:
                return
            found = stream.events(piece)
            if found:
                about = {"received": as_datetime(CLOCK.now())}
                landed = [Message(each.data.encode(), each.id, about=about | {"event": each.type}) for each in found]
                messages.land(landed, position=found[-1].last.encode())
