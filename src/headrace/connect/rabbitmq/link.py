"""A connection to RabbitMQ that works only while somebody waits for it: there is no thread."""

from __future__ import annotations

from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING

import pika
from pika.exceptions import AMQPError, ChannelClosedByClient

from headrace.base.outside import Unavailable
from headrace.connect.rabbitmq.address import failures, parameters
from headrace.connect.rabbitmq.deliveries import Deliveries

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from pika.channel import Channel

    from headrace.connect.messages.address import BrokerAddress

SILENT_SECONDS = 60.0


class Connection(pika.SelectConnection):  # type: ignore[misc]  # pika has no types
    """pika's connection, whose deliveries are read by `Deliveries`.

    If pika no longer calls `_on_data_available`, it reads deliveries itself and calls the consumer's callback.
    """

    def __init__(self, *args: object, **more: object) -> None:
        self.deliveries = Deliveries(super()._on_data_available)
        super().__init__(*args, **more)

    def _on_data_available(self, data_in: bytes) -> None:
        self.bytes_received += len(data_in)  # a connection without any is given up; pika counts its own twice
        self.deliveries.read(data_in)


class Link:
    """A connection. After an error it is of no use.

    Args:
        address: the broker.
        heartbeat: seconds, while somebody waits; 0: none.

    Raises:
        AMQPError, OSError, Unavailable: the broker does not answer, or refuses the login.

    """

    def __init__(self, address: BrokerAddress, *, heartbeat: int) -> None:
        self._error: BaseException | None = None
        self._done: Callable[[], bool] = _never
        self._late = False
        self._connection = Connection(
            parameters(address, heartbeat=heartbeat),
            on_open_callback=lambda _: self.look(),
            on_open_error_callback=lambda _, error: self.fail(error),
            on_close_callback=lambda _, error: self.fail(error),
        )
        try:
            self.wait(lambda: self._connection.is_open)
        except BaseException:
            self.close()
            raise

    @property
    def deliveries(self) -> Deliveries:
        """What is delivered by this connection."""
        return self._connection.deliveries

    def channel(self) -> Channel:
        """Open a channel; its end is an error of the connection, unless we close it."""
        channel = self._connection.channel(on_open_callback=lambda _: self.look())
        channel.add_on_close_callback(self._on_channel_closed)
        self.wait(lambda: channel.is_open)
        return channel

    def until(self, done: Callable[[], bool], *, seconds: float) -> bool:
        """Let the connection work until something is done; False: it is not, after some seconds.

        Raises:
            AMQPError, OSError, Unavailable: the broker does not answer, or refuses something.

        """
        self.check()
        if done():
            return True
        self._late = False
        loop = self._connection.ioloop
        timer = loop.call_later(seconds, self._on_late)
        try:
            while not (self._late or done()):
                self._done = done
                loop.start()
                self.check()
        finally:
            loop.remove_timeout(timer)
            self._done = _never
        return done()

    def wait(self, done: Callable[[], bool], *, answers: Callable[[], int] = lambda: 0) -> None:
        """Let the connection work until something is done; raises as `until` does.

        Args:
            done: whether it is.
            answers: changes with each answer of the broker: it may take as long as there are some.

        """
        before = answers()
        while not self.until(done, seconds=SILENT_SECONDS):
            if before == answers():
                raise Unavailable(f"the broker answers nothing for {SILENT_SECONDS:.0f} s")
            before = answers()

    def ask(self, request: Callable[..., object], *arguments: object, **more: object) -> None:
        """Call a method of a channel that takes a `callback`, and wait for the answer; raises as `until` does."""
        answers = list[object]()

        def answered(answer: object) -> None:
            answers.append(answer)
            self.look()

        request(*arguments, callback=answered, **more)
        self.wait(lambda: bool(answers))

    def look(self) -> None:
        """Something has happened: let `until` return if it waits for that."""
        if self._done():
            self._done = _never  # it stops once
            self._connection.ioloop.stop()

    def fail(self, error: BaseException) -> None:
        """Let `until` raise an error, now and whenever it is called."""
        self._error = self._error or error
        self._connection.ioloop.stop()

    def check(self) -> None:
        """Raise the error that the connection has failed with."""
        if self._error is not None:
            raise self._error

    def close(self) -> None:
        """Close the connection."""
        with suppress(AMQPError, OSError, Unavailable):
            if self._connection.is_open:
                self._error = None
                self._connection.close()
                self.until(lambda: self._connection.is_closed, seconds=SILENT_SECONDS)
        loop = self._connection.ioloop
        loop.add_callback(loop.stop)
        loop.start()  # what is left to do, such as closing the socket of a connection that was lost
        loop.close()

    def _on_channel_closed(self, _: object, error: BaseException) -> None:
        if not isinstance(error, ChannelClosedByClient) and not self._connection.is_closing:
            self.fail(error)
        self.look()

    def _on_late(self) -> None:
        self._late = True
        self._connection.ioloop.stop()


@contextmanager
def connected(address: BrokerAddress, where: str, *, create: str) -> Iterator[Link]:
    """Give a connection, with its failures as ours; `where` and `create` are what they say."""
    with failures(where, address, create=create):
        link = Link(address, heartbeat=60)
        try:
            yield link
        finally:
            link.close()


def _never() -> bool:
    return False
