"""A server: answers the requests of a topic by a function, with others of its group."""

from __future__ import annotations

import logging
import threading
from typing import TYPE_CHECKING, Any, Self

from headrace.base.arguments import a_mapping
from headrace.base.errors import HeadraceError, InvalidArgument, InvalidRows
from headrace.base.time import instant, waiting_time
from headrace.connect.rpc.client import LOOK_SECONDS, REMEMBER
from headrace.connect.rpc.exchange import DEADLINE, ERROR, ID, REPLIES, Received
from headrace.connect.rpc.stores import exchange_of

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence
    from pathlib import Path
    from types import TracebackType

    from headrace.log import Log

_LOGGER = logging.getLogger("headrace.rpc")
FIRST_PAUSE, LONGEST_PAUSE = 0.2, 10.0


class Server:
    """Answers requests by a function; start it in as many processes as there are partitions to share the work.

    The servers of a group are consumers of a group, so a request is at one of them, and one that dies is replaced. All
    requests of one id are in one partition: who has it knows the replies of the last `remember`, from the topic of the
    replies, so a repeated request, and one that a crash has left without a commit, gets the reply that it had.

    Trap: a server that dies after its function has done something, and before the reply is durable, is followed by one
    that calls the function again, with the same `request_id`. Where that must not be, do it in a transaction with
    `request_id`, or let an app answer.

    Args:
        topics: as for `Client`.
        topic: the service: requests are in this topic, replies in `<topic>.replies`.
        answer: gets a request's columns, `request_id` among them, and returns the columns of the reply. What it raises
            is the error of this reply, and stops nothing.
        request: the columns of a request, to create the topics where they are missing: "product string, amount int".
        reply: the columns of a reply, for the same.
        partitions: how many the topics are created with: so many servers can share the work.
        group: the name of the servers' group.
        remember: how long a reply is remembered for repetitions.

    Raises:
        InvalidArgument: `answer` cannot be called.
        UnknownTopic: there is no such topic, and `request` and `reply` do not say how to create it.

    """

    def __init__(
        self,
        topics: str | Path | Log,
        topic: str,
        answer: Callable[[dict[str, Any]], Mapping[str, Any]],
        *,
        request: str | None = None,
        reply: str | None = None,
        partitions: int = 4,
        **options: Any,
    ) -> None:
        if not callable(answer):
            raise InvalidArgument(f"answer={answer!r} cannot be called")
        group, remember = options.pop("group", "servers"), options.pop("remember", REMEMBER)
        if options:
            raise InvalidArgument(f"there is no option {min(options)!r}", hint="There are: group, remember.")
        self._remember = waiting_time(remember, what="remember")
        self.topic, self._answer = topic, answer
        self._known: dict[int, dict[str, dict[str, Any]]] = {}
        self._times: dict[int, dict[str, int]] = {}
        self._exchange = exchange_of(topics)
        try:
            if request is not None and reply is not None:
                self._exchange.create(topic, columns_of_requests(request), partitions=partitions)
                self._exchange.create(f"{topic}{REPLIES}", columns_of_replies(reply), partitions=partitions)
            self._exchange.tail(f"{topic}{REPLIES}").close()  # it is there
            self._members = self._exchange.members(topic, group, self._revoked)
        except BaseException:
            self._exchange.close()
            raise
        self.answered = self.repeated = self.expired = 0
        """How many requests were answered, how many of these had been before, and how many came after their time."""

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def run(self, stop: threading.Event | None = None) -> None:
        """Answer requests until `stop` is set, or for ever. Failures that may pass are tried again with back-off.

        Raises:
            HeadraceError: it cannot go on.

        """
        stop, pause = stop or threading.Event(), FIRST_PAUSE
        while not stop.is_set():
            try:
                self.step(LOOK_SECONDS)
                pause = FIRST_PAUSE
            except HeadraceError as error:
                if not error.may_pass:
                    raise
                _LOGGER.warning("service %s: %s; trying again", self.topic, error.what)
                self._known.clear()
                stop.wait(pause)
                pause = min(2 * pause, LONGEST_PAUSE)

    def step(self, seconds: float = 0.0) -> int:
        """Answer the requests that are there, waiting so long for the first; return how many were polled."""
        found = self._members.poll(seconds)
        try:
            self._answer_all(found)
        except BaseException:  # what is not answered is polled again, by this server or by another one
            self._known.clear()
            self._members.rewind(found)
            raise
        return len(found)

    def _answer_all(self, found: Sequence[Received]) -> None:
        replies: dict[int, list[dict[str, Any]]] = {}
        for each in found:
            reply = self._reply(each)
            if reply is not None:
                replies.setdefault(each.partition, []).append(reply)
        for partition, rows in replies.items():
            self._send(rows, partition)
        if found and not self._members.commit():
            self._known.clear()

    def _send(self, rows: Sequence[Mapping[str, Any]], partition: int) -> None:
        """Send replies; one that does not fit the columns of replies is an error, and takes no other with it."""
        try:
            self._exchange.send(f"{self.topic}{REPLIES}", rows, partition=partition)
        except InvalidRows as error:
            if len(rows) > 1:
                for row in rows:
                    self._send([row], partition)
                return
            name = rows[0][ID]
            _LOGGER.warning("service %s: the reply to %s does not fit: %s", self.topic, name, error.what)
            failed = self._known[partition][name] = _failed(name, error)
            self._exchange.send(f"{self.topic}{REPLIES}", [failed], partition=partition)

    def close(self) -> None:
        """Leave the group: the others get its requests."""
        self._members.close()
        self._exchange.close()

    def _reply(self, request: Received) -> dict[str, Any] | None:
        """Return the reply to a request; None: its time is over."""
        known, name = self._replies_of(request.partition), str(request.row[ID])
        if name in known:
            self.answered, self.repeated = self.answered + 1, self.repeated + 1
            return known[name]
        now, deadline = self._exchange.clock.now(), request.row.get(DEADLINE)
        given = {column: value for column, value in request.row.items() if column != DEADLINE}
        try:
            if deadline is not None and instant(deadline) < now:
                self.expired += 1
                return None
            reply = {ID: name, ERROR: None, **a_mapping(self._answer(given), "reply")}
        except Exception as error:
            _LOGGER.warning("service %s: request %s failed", self.topic, name, exc_info=error)
            reply = _failed(name, error)
        self.answered += 1
        known[name] = reply
        self._times[request.partition][name] = now
        return reply

    def _replies_of(self, partition: int) -> dict[str, dict[str, Any]]:
        """Return the replies of a partition that are remembered, read when the first request of it is there."""
        now = self._exchange.clock.now()
        if partition not in self._known:
            stored = self._exchange.stored(f"{self.topic}{REPLIES}", partition, since=now - self._remember)
            self._known[partition] = {row[ID]: row for row in stored}
            self._times[partition] = dict.fromkeys(self._known[partition], now)
        known, times = self._known[partition], self._times[partition]
        while times and times[oldest := next(iter(times))] < now - self._remember:
            del times[oldest]
            known.pop(oldest, None)
        return known

    def _revoked(self, partitions: Sequence[int]) -> None:
        for partition in partitions:
            self._known.pop(partition, None)


def _failed(name: str, error: Exception) -> dict[str, Any]:
    """Return the reply that says what went wrong; what is no UTF-8, as in odd names of files, is written out."""
    why = f"{type(error).__name__}: {error.what if isinstance(error, (InvalidRows, InvalidArgument)) else error}"
    return {ID: name, ERROR: why.encode(errors="backslashreplace").decode()}


def columns_of_requests(columns: str) -> str:
    """Return the columns of the topic of a service."""
    return f"{ID} string, {DEADLINE} timestamp, {columns}"


def columns_of_replies(columns: str) -> str:
    """Return the columns of the topic of its replies."""
    return f"{ID} string, {ERROR} string, {columns}"
