"""Requests: sent to a topic, and matched with their replies by their ids."""

from __future__ import annotations

import threading
import uuid
from concurrent.futures import Future
from concurrent.futures import TimeoutError as NotInTime
from typing import TYPE_CHECKING, Any, Self

from headrace.base.arguments import a_mapping, a_text
from headrace.base.errors import HeadraceError, InvalidArgument
from headrace.base.log_errors import UnknownTopic
from headrace.base.outside import NoReply, RequestFailed
from headrace.base.time import MICROS, as_datetime, waiting_time
from headrace.connect.rpc.exchange import DEADLINE, ERROR, ID, REPLIES, Exchange
from headrace.connect.rpc.stores import exchange_of

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping
    from datetime import timedelta
    from pathlib import Path
    from types import TracebackType

    from headrace.log import Log

    Reply = Future[dict[str, Any]]

LOOK_SECONDS = 0.1
REMEMBER = "10 minutes"


class Client:
    """Sends requests to services, and returns their replies; may be used by many threads.

    A service is a topic that somebody answers: a `Server`, or an app (`app.rpc`). A request is durable before anybody
    answers it, so it is answered also if the service is down for a while, unless its deadline has passed by then.

    Args:
        topics: where the topics are: `"log:PATH"`, a path, an open `Log`, or `"kafka://host:port"`.
        remember: how far a repeated request looks back for its reply; no longer than the service remembers it.

    Raises:
        InvalidPlan: it is no such place.

    """

    def __init__(self, topics: str | Path | Log, *, remember: str | timedelta = REMEMBER) -> None:
        self._exchange: Exchange = exchange_of(topics)
        self._remember = waiting_time(remember, what="remember")
        self._readers: dict[str, _Reader] = {}
        self._lock = threading.Lock()
        self._closed = False

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def ask(
        self,
        topic: str,
        request: Mapping[str, Any],
        *,
        timeout: str | timedelta = "10 seconds",
        request_id: str | None = None,
    ) -> dict[str, Any]:
        """Send a request and return its reply.

        Args:
            topic: the service.
            request: the columns of the request.
            timeout: how long to wait; it is also the request's deadline.
            request_id: what identifies the request, by default a new id. A request that is repeated under its id, by
                any client, is not done again while the service remembers it: it gets the same reply.

        Raises:
            NoReply: there was none in time. It may still be done: repeat it under `error.request_id`.
            RequestFailed: the service could not answer it, and says why.
            UnknownTopic: there is no such service.
            InvalidRows: the request does not have the service's columns.
            InvalidArgument: it is no mapping, or has a column that the client fills.

        """
        micros = waiting_time(timeout, what="timeout")
        sent = self.send(topic, request, timeout=timeout, request_id=request_id)
        try:
            return sent.result(micros / MICROS)
        except NotInTime:
            if name := self._forget(topic, sent):
                raise NoReply(topic, name, micros) from None
            return sent.result()  # it has come at this moment

    def send(
        self,
        topic: str,
        request: Mapping[str, Any],
        *,
        timeout: str | timedelta = "10 seconds",
        request_id: str | None = None,
    ) -> Reply:
        """Send a request, durable on return, and return its reply as a future; arguments and errors as those of `ask`.

        `timeout` is the request's deadline: a server that is free later than that does not begin with it.
        """
        repeated, limit = request_id is not None, waiting_time(timeout, what="timeout")
        name = a_text(request_id, "request_id") if request_id is not None else uuid.uuid4().hex
        columns = a_mapping(request, "request")
        if reserved := {ID, DEADLINE} & columns.keys():
            raise InvalidArgument(f"a request cannot have a column {min(reserved)!r}: the client fills it")
        reader, waiting = self._registered(topic, name)
        try:
            known = self._known(topic, name) if repeated else None
            if known is not None:
                reader.resolve(name, known)
            else:
                deadline = as_datetime(self._exchange.clock.now() + limit)
                row = {ID: name, DEADLINE: deadline.isoformat(), **columns}
                self._exchange.send(topic, [row])
        except BaseException:
            reader.forget(waiting)
            raise
        return waiting

    def close(self) -> None:
        """Stop waiting: futures without a reply are cancelled."""
        with self._lock:
            readers, self._readers, closed, self._closed = list(self._readers.values()), {}, self._closed, True
        for reader in readers:
            reader.close()
        if not closed:
            self._exchange.close()

    def _known(self, topic: str, name: str) -> dict[str, Any] | None:
        """Return the reply that a request had before."""
        tail = self._exchange.tail(f"{topic}{REPLIES}", since=self._exchange.clock.now() - self._remember)
        try:
            found = [each.row for each in tail.poll(0) if each.row[ID] == name]
        finally:
            tail.close()
        return found[-1] if found else None

    def _registered(self, topic: str, name: str) -> tuple[_Reader, Reply]:
        """Wait for a reply from now on; a reader that ends before it knows of that is followed by another one."""
        while True:
            reader = self._reader(topic)
            waiting = reader.wait_for(name)
            if waiting is not None:
                return reader, waiting

    def _reader(self, topic: str) -> _Reader:
        with self._lock:
            if self._closed:
                raise InvalidArgument("the client is closed", hint="Open another one: headrace.Client(…).")
            reader = self._readers.get(topic)
            if reader is None or reader.ended:
                reader = self._readers[topic] = _Reader(self._exchange, topic)
            return reader

    def _forget(self, topic: str, sent: Reply) -> str:
        reader = self._readers.get(topic)  # None: another thread has closed the client
        return "" if reader is None else reader.forget(sent)


class _Reader:
    """Reads the replies of a service in a thread, from before the first request on, until it is closed or fails."""

    def __init__(self, exchange: Exchange, topic: str) -> None:
        self.topic, self.ended = topic, False
        self._waiting: dict[str, list[Reply]] = {}
        self._lock = threading.Lock()
        try:
            self._tail = exchange.tail(f"{topic}{REPLIES}")
        except UnknownTopic as error:
            error.hint = f'No service "{topic}" was ever started here: start the server or the app that answers.'
            raise
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._read, name=f"headrace-replies-{topic}"[:60], daemon=True)
        self._thread.start()

    def wait_for(self, name: str) -> Reply | None:
        """Return a future of the reply; None: this reader has ended, and nobody would set it."""
        future: Reply = Future()
        with self._lock:
            if self.ended:
                return None
            self._waiting.setdefault(name, []).append(future)
        return future

    def forget(self, future: Reply) -> str:
        """Wait for a reply no more; return the id of its request."""
        with self._lock:
            name = next((name for name, some in self._waiting.items() if future in some), "")
            self._waiting.get(name, []).remove(future) if name else None
            if name and not self._waiting[name]:
                del self._waiting[name]
        return name

    def resolve(self, name: str, row: Mapping[str, Any]) -> None:
        with self._lock:
            waiting = self._waiting.pop(name, [])
        for future in _awaited(waiting):
            if row.get(ERROR) is not None:
                future.set_exception(RequestFailed(self.topic, name, str(row[ERROR])))
            else:
                future.set_result({column: value for column, value in row.items() if column not in (ID, ERROR)})

    def close(self) -> None:
        self._stop.set()
        self._thread.join()
        for future in self._given_up():
            future.cancel()

    def _read(self) -> None:
        try:
            while not self._stop.is_set():
                self._read_some()
        except Exception as error:  # noqa: BLE001 -- those who wait raise it
            for future in _awaited(self._given_up()):
                future.set_exception(error)
        finally:
            self._tail.close()

    def _read_some(self) -> None:
        try:
            found = self._tail.poll(LOOK_SECONDS)
        except HeadraceError as error:
            if not error.may_pass:
                raise
            self._stop.wait(LOOK_SECONDS)
            return
        for each in found:
            self.resolve(each.row[ID], each.row)

    def _given_up(self) -> list[Reply]:
        """Return all that wait; from now on nobody can."""
        with self._lock:
            self.ended = True
            waiting, self._waiting = self._waiting, {}
        return [future for some in waiting.values() for future in some]


def _awaited(futures: Iterable[Reply]) -> Iterator[Reply]:
    """Yield the futures that nobody has cancelled; from now on nobody can."""
    return (future for future in futures if future.set_running_or_notify_cancel())
