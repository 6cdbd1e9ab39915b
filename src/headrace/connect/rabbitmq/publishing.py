"""Sends messages with publisher confirms: many are under way at the same time."""

from __future__ import annotations

from contextlib import suppress
from typing import TYPE_CHECKING, Any

import pika
from pika.exceptions import AMQPError

from headrace.base.outside import Unavailable
from headrace.connect.messages.writing import KEY_HEADER
from headrace.connect.rabbitmq.address import parameters

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from pika.channel import Channel
    from pika.frame import Method
    from pika.spec import Basic

    from headrace.connect.messages.address import BrokerAddress
    from headrace.connect.messages.writing import Outgoing

MOST_UNDER_WAY = 2_000
SILENT_SECONDS = 60.0
_MICROS = 1_000_000


class Publisher:
    """A connection that sends to one exchange. After an error it is of no use.

    Args:
        address: the broker.
        exchange: the exchange's name.
        content_type: of all messages.
        mandatory: whether a message that reaches no queue is an error.

    Raises:
        AMQPError, OSError: the broker does not answer, or refuses the login.

    """

    def __init__(self, address: BrokerAddress, exchange: str, *, content_type: str | None, mandatory: bool) -> None:
        self._exchange, self._content_type, self._mandatory = exchange, content_type, mandatory
        self._error: BaseException | None = None
        self._channel: Channel | None = None
        self._confirming = self._closes = False
        self._under_way: dict[int, Outgoing] = {}
        self._sent = 0
        self._answers = self._answered = 0
        self._timer: object = None
        self._done: Callable[[], bool] = lambda: False
        self.returned: tuple[str, Basic.Return] | None = None
        """The id of a message that no queue has, and what the broker says."""
        self._connection = pika.SelectConnection(  # no heartbeat: nobody answers them between epochs
            parameters(address, heartbeat=0),
            on_open_callback=lambda connection: connection.channel(on_open_callback=self._opened),
            on_open_error_callback=lambda _, error: self._fail(error),
            on_close_callback=lambda _, error: self._fail(error),
        )
        try:
            self._until(lambda: self._confirming)
        except BaseException:
            self.close()
            raise

    @property
    def under_way(self) -> Sequence[Outgoing]:
        """The messages that are not confirmed yet, in order."""
        return list(self._under_way.values())

    def send(self, messages: Sequence[Outgoing]) -> None:
        """Send messages; return when few of all that were sent are not confirmed yet.

        Raises:
            AMQPError, OSError, Unavailable: the broker does not answer, or refuses them.

        """
        for message in messages:
            self._check()
            assert self._channel is not None  # noqa: S101 -- it is open
            self._sent += 1
            self._under_way[self._sent] = message
            self._channel.basic_publish(
                self._exchange, message.address, message.body, self._about(message), mandatory=self._mandatory
            )
        self._until(lambda: len(self._under_way) <= MOST_UNDER_WAY)

    def flush(self) -> None:
        """Return when everything is confirmed; raises as `send` does."""
        self._until(lambda: not self._under_way)

    def close(self) -> None:
        """Close the connection."""
        with suppress(AMQPError, OSError, Unavailable):
            if self._connection.is_open:
                self._error, self._closes = None, True
                self._connection.close()
                self._until(lambda: self._connection.is_closed)
        loop = self._connection.ioloop
        loop.add_callback(loop.stop)
        loop.start()  # what is left to do, such as closing the socket of a connection that was lost
        loop.close()

    def _about(self, message: Outgoing) -> pika.BasicProperties:
        headers: dict[str, Any] = dict(message.headers)
        if message.key is not None:
            headers[KEY_HEADER] = _text(message.key)
        seconds = None if message.time is None else message.time // _MICROS
        return pika.BasicProperties(
            message_id=message.id,
            content_type=self._content_type,
            delivery_mode=pika.DeliveryMode.Persistent.value,
            timestamp=seconds if seconds is not None and seconds >= 0 else None,  # AMQP has no times before 1970
            headers=headers or None,
        )

    def _opened(self, channel: Channel) -> None:
        self._channel = channel
        channel.add_on_close_callback(lambda _, error: None if self._closes else self._fail(error))
        channel.add_on_return_callback(self._on_return)
        channel.confirm_delivery(self._on_answer, callback=self._on_confirming)

    def _on_confirming(self, _: object) -> None:
        self._confirming = True
        self._look()

    def _on_answer(self, frame: Method) -> None:
        method = frame.method
        first = next(iter(self._under_way), 0) if method.multiple else method.delivery_tag
        for number in range(first, method.delivery_tag + 1):
            self._under_way.pop(number, None)
        self._answers += 1
        if isinstance(method, pika.spec.Basic.Nack):
            self._fail(Unavailable("the broker did not take a message: a queue is full, or has failed"))
        self._look()

    def _on_return(self, _: object, method: Basic.Return, about: pika.BasicProperties, body: bytes) -> None:
        del body
        self.returned = self.returned or (about.message_id, method)

    def _fail(self, error: BaseException) -> None:
        self._error = self._error or error
        self._connection.ioloop.stop()

    def _look(self) -> None:
        if self._done():
            self._connection.ioloop.stop()

    def _check(self) -> None:
        if self._error is not None:
            raise self._error

    def _until(self, done: Callable[[], bool]) -> None:
        """Let the connection work until something is done, it fails, or the broker is silent for too long."""
        self._check()
        if done():
            return
        self._done, self._answered = done, self._answers
        self._timer = self._connection.ioloop.call_later(SILENT_SECONDS, self._late)
        self._connection.ioloop.start()
        self._connection.ioloop.remove_timeout(self._timer)
        self._done = lambda: False
        self._check()

    def _late(self) -> None:
        """Fail if nothing was confirmed since the last look."""
        if self._answered == self._answers:
            self._fail(Unavailable(f"the broker confirms nothing for {SILENT_SECONDS:.0f} s"))
        self._answered = self._answers
        self._timer = self._connection.ioloop.call_later(SILENT_SECONDS, self._late)


def _text(key: bytes) -> str | bytes:
    try:
        return key.decode()
    except UnicodeDecodeError:
        return key
