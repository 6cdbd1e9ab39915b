"""HTTP servers of this process: one an address, with a handler a path, in a thread of its own."""

from __future__ import annotations

import asyncio
import ssl
import threading
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING, NamedTuple, TypeVar
from urllib.parse import urlsplit

from aiohttp import web

from headrace.base.errors import InvalidPlan

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Coroutine, Iterator
    from typing import Any

    Handler = Callable[[web.BaseRequest], Awaitable[web.StreamResponse]]

Result = TypeVar("Result")
_TURNS_SECONDS = 0.05
RETRY_AFTER = 1
"""Seconds: when a sender that was told 429 or 503 may try again."""
_SERVERS: dict[Address, HttpServer] = {}
_LOCK = threading.Lock()


class Address(NamedTuple):
    """Where a server listens; `certificate` and `key` are files, for https."""

    host: str
    port: int
    certificate: str | None = None
    key: str | None = None


def address_of(url: str, *, certificate: str | None, key: str | None) -> tuple[Address, str]:
    """Return the address and the path of a URL to listen at.

    Raises:
        InvalidPlan: it is none, or https without a certificate.

    """
    hint = 'For example "http://0.0.0.0:8080/orders".'
    try:
        parts = urlsplit(url)
        host, port = parts.hostname, parts.port or {"http": 80, "https": 443}[parts.scheme]
    except (ValueError, KeyError, TypeError, AttributeError):
        raise InvalidPlan("this is no address to listen at", hint=hint) from None
    if not host:
        raise InvalidPlan(f"{url!r} has no host", hint=hint)
    if (parts.scheme == "https") != (certificate is not None):
        raise InvalidPlan(
            f"{url!r} needs a certificate" if certificate is None else f"{url!r} is not https",
            hint='endpoint("https://…", certificate="chain.pem", key="key.pem")',
        )
    return Address(host, port, certificate, key), parts.path or "/"


@contextmanager
def serving(address: Address, path: str, handler: Handler) -> Iterator[HttpServer]:
    """Let a handler answer requests to a path; the server runs while it has one.

    Raises:
        InvalidPlan: the path has a handler already.
        OSError: nobody can listen at the address, such as one that is in use.

    """
    with _LOCK:
        server = _SERVERS.get(address)
        if server is None:
            server = HttpServer(address)
            _SERVERS[address] = server
        if path in server.handlers:
            raise InvalidPlan(f"two feeds listen at port {address.port}, path {path}", hint="Give each its own path.")
        server.handlers[path] = handler
        server.failed.discard(path)
    try:
        yield server
    except BaseException:
        server.failed.add(path)
        raise
    finally:
        with _LOCK:
            del server.handlers[path]
            last = not server.handlers
            if last:
                del _SERVERS[address]
        if last:
            server.close()


async def _turns() -> None:
    """Let the loop take some turns."""
    with suppress(TimeoutError):
        await asyncio.wait_for(asyncio.Event().wait(), _TURNS_SECONDS)


class HttpServer:
    """A server that listens from its creation on."""

    def __init__(self, address: Address) -> None:
        self.handlers: dict[str, Handler] = {}
        self.failed = set[str]()
        """The paths whose feeds have failed: they may begin again."""
        self.loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self.loop.run_forever, name="headrace-http", daemon=True)
        self._thread.start()
        try:
            self._server, self._listening = self.run(self._listen(address))
        except BaseException:
            self._end()
            raise

    def run(self, work: Coroutine[Any, Any, Result]) -> Result:
        """Run something in the thread of the server, and return its result."""
        return asyncio.run_coroutine_threadsafe(work, self.loop).result()

    async def _listen(self, address: Address) -> tuple[web.Server[Any], asyncio.Server]:
        server, context = web.Server(self._answer, access_log=None), None
        if address.certificate is not None:
            context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
            context.load_cert_chain(address.certificate, address.key)
        return server, await self.loop.create_server(server, address.host, address.port, ssl=context, backlog=1024)

    async def _answer(self, request: web.BaseRequest) -> web.StreamResponse:
        handler = self.handlers.get(request.path)
        if handler is None and request.path in self.failed:
            return web.Response(status=503, headers={"Retry-After": str(RETRY_AFTER)})
        if handler is None:
            return web.Response(status=404, text="nothing listens at this path\n")
        return await handler(request)

    def close(self) -> None:
        """End the server: requests that are not answered are cut off."""
        try:
            self.run(self._close())
        finally:
            self._end()

    async def _close(self) -> None:
        for listening in self._listening.sockets:
            self.loop.remove_reader(listening.fileno())
        await _turns()  # what was accepted is known to the server then; asyncio forgets it where it closes at once
        self._listening.close()
        await self._server.shutdown(1.0)
        await _turns()  # and connections that end have said so

    def _end(self) -> None:
        self.loop.call_soon_threadsafe(self.loop.stop)
        self._thread.join()
        self.loop.close()
