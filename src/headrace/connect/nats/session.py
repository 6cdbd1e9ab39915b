"""A connection to NATS, used by one thread: the client is asynchronous, and runs while something is waited for."""

from __future__ import annotations

import asyncio
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING, Any

import nats
from nats.js.errors import APIError, NoStreamResponseError, NotFoundError, ServiceUnavailableError

from headrace.base.broker_errors import BrokerFailed, LoginRefused, QueueMissing
from headrace.base.outside import AccessRefused, Unavailable
from headrace.connect.messages.own_loop import apart
from headrace.connect.messages.tls import secured_address, tls_context

if TYPE_CHECKING:
    from collections.abc import Coroutine, Iterator

    from nats.js import JetStreamContext

    from headrace.connect.messages.address import BrokerAddress

ANSWER_SECONDS = 30.0
CONNECT_SECONDS = 10
_MOMENT = 0.01
EXAMPLE = "nats://ada:env:NATS_PASSWORD@localhost:4222"
PENDING_BYTES = 1 << 30
_REFUSED = ("authorization violation", "authentication", "user authentication")
_FORBIDDEN = "permissions violation"


def nats_address(url: str) -> BrokerAddress:
    """Return the address of a server.

    Raises:
        InvalidPlan: it is none, or has an option that is not known.

    """
    return secured_address(url, schemes=("nats", "tls"), example=EXAMPLE, more=frozenset({"credentials"}))


class Session:
    """A connection. It does not reconnect: whoever uses it begins anew, so that nothing is missed in between.

    Args:
        address: the server, or one of a cluster.

    Raises:
        Unavailable: it does not answer.
        LoginRefused: it does not accept user and password, token or credentials.

    """

    def __init__(self, address: BrokerAddress) -> None:
        self.address = address
        self._loop = asyncio.new_event_loop()
        self._said: Exception | None = None
        self._ended = asyncio.Event()
        try:
            self._client = nats.NATS()
            self.wait(self._client.connect(**self._options()), seconds=2 * CONNECT_SECONDS)
        except BaseException:
            self.close()
            raise
        self.js: JetStreamContext = self._client.jetstream(timeout=ANSWER_SECONDS)

    def wait(self, what: Coroutine[Any, Any, Any], *, seconds: float = ANSWER_SECONDS) -> Any:
        """Return the result of a request.

        Raises:
            Unavailable: there is no answer.
            HeadraceError: the server refuses it.

        """
        with self._failures():
            return self._run(self._answered(what, seconds))

    async def _answered(self, what: Coroutine[Any, Any, Any], seconds: float) -> Any:
        """Return a result, or raise when the connection ends: the client would wait for an answer to the end."""
        task, ended = asyncio.ensure_future(what), asyncio.ensure_future(self._ended.wait())
        await asyncio.wait({task, ended}, timeout=seconds, return_when=asyncio.FIRST_COMPLETED)
        if not task.done():
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)
            raise ConnectionError("the connection has ended" if ended.done() else "there is no answer")
        ended.cancel()
        return task.result()

    def idle(self) -> None:
        """Let the client answer the server for a moment, which would end the connection otherwise.

        Raises:
            Unavailable: the connection has ended.

        """
        with suppress(TimeoutError):
            self._run(asyncio.wait_for(self._ended.wait(), _MOMENT))
        if self._ended.is_set():
            raise Unavailable(f"{self.address.place} has ended the connection")

    def close(self) -> None:
        """Close the connection; what was sent is sent."""
        if self._loop.is_closed():
            return
        with suppress(Exception):
            self._run(self._closed())
            self._run(self._loop.shutdown_asyncgens())  # a turn, for what closes later
        self._loop.close()

    def _run(self, work: Coroutine[Any, Any, Any]) -> Any:
        return apart(lambda: self._loop.run_until_complete(work))

    async def _closed(self) -> None:
        transport = getattr(self._client, "_transport", None)  # a client whose connection ended leaves it open
        with suppress(Exception):
            async with asyncio.timeout(CONNECT_SECONDS):
                await self._client.close()
        if transport is not None:
            transport.close()
        others = asyncio.all_tasks() - {asyncio.current_task()}
        for task in others:
            task.cancel()
        await asyncio.gather(*others, return_exceptions=True)

    def _options(self) -> dict[str, Any]:
        address = self.address
        user, password = address.login()
        options: dict[str, Any] = {
            "servers": f"{address.scheme}://{address.host}:{address.port(4222)}",
            "allow_reconnect": False,
            "max_reconnect_attempts": 1,
            "reconnect_time_wait": 0,
            "connect_timeout": CONNECT_SECONDS,
            "error_cb": self._heard,
            "closed_cb": self._has_ended,
            "pending_size": PENDING_BYTES,
        }
        if password:
            options |= {"user": user, "password": password}
        elif user:
            options["token"] = user
        if "credentials" in address.options:
            options["user_credentials"] = address.options["credentials"]
        if address.scheme == "tls":
            options["tls"] = tls_context(address)
        return options

    async def _heard(self, error: Exception) -> None:
        self._said = error

    async def _has_ended(self) -> None:
        self._ended.set()

    @contextmanager
    def _failures(self) -> Iterator[None]:
        """Turn errors of the client into ours."""
        place = self.address.place
        try:
            yield
        except NotFoundError as error:
            raise QueueMissing(f"{place}: {error.description}", hint="Create it: nats stream add.") from error
        except NoStreamResponseError as error:
            raise self._refused(error) or QueueMissing(
                f"no stream at {place} stores what is sent there", hint="Create one with the subject: nats stream add."
            ) from error
        except ServiceUnavailableError as error:
            raise Unavailable(f"{place}: {error.description or 'JetStream does not answer'}") from error
        except APIError as error:
            raise BrokerFailed(f"{place} refuses a request: {error.description} (error {error.err_code})") from error
        except (nats.errors.Error, OSError, TimeoutError) as error:
            refused = self._refused(error)
            why = str(self._said or error) or type(error).__name__
            raise refused or Unavailable(f"{place} does not answer: {self.address.hidden(why)}") from error

    def _refused(self, error: Exception) -> LoginRefused | AccessRefused | None:
        """Return the error of a user who may not do this, if the server said so."""
        said = f"{self._said or ''} {error}".lower()
        place = self.address.place
        if _FORBIDDEN in said:
            return AccessRefused(
                f"{place} does not let the user do this: {self._said or error}",
                hint="The user needs the subjects that are read or written, $JS.API.> and _INBOX.>.",
            )
        if any(each in said for each in _REFUSED):
            return LoginRefused(
                f"{place} refuses the login", hint="Check user and password, the token or the credentials file."
            )
        return None
