"""A server of the web as a client sees it: its address without secrets, a session, and its failures as ours."""

from __future__ import annotations

import asyncio
from contextlib import suppress
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Self, TypedDict, TypeVar
from urllib.parse import urlsplit

import aiohttp

from headrace.base.arguments import a_mapping
from headrace.base.broker_errors import BrokerFailed, LoginRefused, QueueMissing
from headrace.base.errors import InvalidPlan
from headrace.base.outside import AccessRefused, Unavailable
from headrace.connect.messages.address import names_host, place_of, secret
from headrace.connect.messages.own_loop import apart

if TYPE_CHECKING:
    import threading
    from collections.abc import Coroutine, Mapping, Sequence

Result = TypeVar("Result")
LOOK_SECONDS = 0.1
CONNECT_SECONDS = 30
READ_BYTES = 1 << 20
_OK, _REDIRECTED, _FAILED = 200, 300, 500
_LATER = {408, 423, 425, 429}


class WithLogin(TypedDict, total=False):
    """With what a request shows who asks.

    `token`: requests have the header `Authorization: Bearer <token>`; it may be `env:NAME`. `headers`: more headers;
    values may be `env:NAME`.
    """

    token: str
    headers: Mapping[str, str]


@dataclass(frozen=True, slots=True, kw_only=True)
class Site:
    """A URL, and what is sent with each request. Printing it shows no secrets."""

    url: str = field(repr=False)
    token: str | None = field(default=None, repr=False)
    headers: tuple[tuple[str, str], ...] = field(default=(), repr=False)

    @property
    def place(self) -> str:
        """The URL without user, password and query."""
        return place_of(self.url)

    def request_headers(self) -> dict[str, str]:
        """Return the headers with their secrets.

        Raises:
            InvalidPlan: a variable of the environment is not there.

        """
        found = {name: secret(value, of=f"the header {name} of {self.place}") for name, value in self.headers}
        if self.token is not None:
            found["Authorization"] = f"Bearer {secret(self.token, of=f'the token of {self.place}')}"
        return found

    def refused(self, status: int, reason: str | None) -> Exception | None:
        """Return the error of an answer, None for one of success."""
        said = f"{self.place} answers {status} {reason or ''}".strip()
        if _OK <= status < _REDIRECTED:
            return None
        if status == 401:  # noqa: PLR2004 -- HTTP's own number
            return LoginRefused(said, hint='Give token="env:NAME", or headers={"X-Api-Key": "env:NAME"}.')
        if status == 403:  # noqa: PLR2004 -- HTTP's own number
            return AccessRefused(said, hint="Who asks may not read it: let them, or give another token.")
        if status in {404, 410}:
            return QueueMissing(said, hint="Check the address.")
        if status in _LATER or status >= _FAILED:
            return Unavailable(said)
        return BrokerFailed(said, hint="Check the address and the headers.")


def site_of(url: str, schemes: Sequence[str], login: WithLogin) -> Site:
    """Return a site.

    Raises:
        InvalidPlan: the URL is none with these schemes, or there are two logins.
        InvalidArgument: `headers` is no mapping.

    """
    if not names_host(url, schemes):
        raise InvalidPlan("this is no such address", hint=f'For example "{schemes[-1]}://example.org/orders".')
    if "token" in login and "@" in urlsplit(url).netloc:
        raise InvalidPlan("a user in the address and token= are two logins", hint="Leave one of them out.")
    return Site(
        url=url, token=login.get("token"), headers=tuple(a_mapping(login.get("headers", {}), "headers").items())
    )


def without_login(options: Mapping[str, Any]) -> tuple[WithLogin, Any]:
    """Return with what a request shows who asks, and the other options."""
    names = WithLogin.__annotations__
    login = {name: value for name, value in options.items() if name in names}
    return WithLogin(**login), {name: value for name, value in options.items() if name not in names}  # type: ignore[typeddict-item]


class Client:
    """A session of HTTP for one thread at a time; waits for the server look whether a feed is to stop. Use `with`."""

    def __init__(self, site: Site) -> None:
        headers = site.request_headers()
        self._site = site
        self._runner = asyncio.Runner()
        self.session = self._run(self._opened(headers))

    async def _opened(self, headers: Mapping[str, str]) -> aiohttp.ClientSession:
        timeout = aiohttp.ClientTimeout(total=None, sock_connect=CONNECT_SECONDS)
        return aiohttp.ClientSession(headers=headers, timeout=timeout, read_bufsize=READ_BYTES, trust_env=True)

    def until(
        self, work: Coroutine[Any, Any, Result], stop: threading.Event | None = None, *, look: float = LOOK_SECONDS
    ) -> Result | None:
        """Return what something asynchronous returns; None where `stop` was set before.

        Raises:
            Unavailable: the server does not answer, or the connection is lost.

        """
        try:
            return self._run(self._until(work, stop, look))
        except (aiohttp.ClientError, OSError, TimeoutError) as error:
            raise Unavailable(f"{self._site.place} does not answer: {_said(error)}") from error

    def check(self, url: str) -> None:
        """Ask once, without the body of the answer.

        Raises:
            Unavailable: the server does not answer, or not now.
            HeadraceError: it refuses.

        """
        self.until(self._check(url))

    async def _check(self, url: str) -> None:
        async with self.session.get(url, allow_redirects=not self._site.headers) as response:
            if (refused := self._site.refused(response.status, response.reason)) is not None:
                raise refused

    async def _until(
        self, work: Coroutine[Any, Any, Result], stop: threading.Event | None, look: float
    ) -> Result | None:
        task = asyncio.ensure_future(work)
        while not task.done():
            if stop is not None and stop.is_set():
                task.cancel()
                with suppress(asyncio.CancelledError):
                    await task
                return None
            await asyncio.wait({task}, timeout=look)
        return task.result()

    def __enter__(self) -> Self:
        """Return it."""
        return self

    def __exit__(self, *failure: object) -> None:
        """Close it."""
        self.close()

    def close(self) -> None:
        """Close its connections."""
        self._run(self.session.close())
        apart(self._runner.close)

    def _run(self, work: Coroutine[Any, Any, Result]) -> Result:
        return apart(lambda: self._runner.run(work))


def _said(error: Exception) -> str:
    """Return what went wrong without the URL, which may have secrets."""
    if isinstance(error, aiohttp.ClientConnectorError):
        return f"{type(error).__name__}: {error.os_error}"
    if isinstance(error, aiohttp.ClientResponseError | aiohttp.InvalidURL):
        return type(error).__name__
    return f"{type(error).__name__}: {error}"
