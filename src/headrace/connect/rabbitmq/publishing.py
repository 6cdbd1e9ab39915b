"""Sends messages with publisher confirms: many are under way at the same time."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pika

from headrace.base.broker_errors import BrokerFailed
from headrace.base.outside import Unavailable
from headrace.connect.messages.writing import KEY_HEADER
from headrace.connect.rabbitmq.link import Link

if TYPE_CHECKING:
    from collections.abc import Sequence

    from pika.frame import Method
    from pika.spec import Basic

    from headrace.connect.messages.address import BrokerAddress
    from headrace.connect.messages.writing import Outgoing

MOST_UNDER_WAY = 2_000
_MICROS = 1_000_000
_LONGEST = 255


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
        self._under_way: dict[int, Outgoing] = {}
        self._sent = self._answers = 0
        self.returned: tuple[str, Basic.Return] | None = None
        """The id of a message that no queue has, and what the broker says."""
        self._link = Link(address, heartbeat=0)  # nobody answers heartbeats between epochs
        try:
            self._channel = self._link.channel()
            self._channel.add_on_return_callback(self._on_return)
            self._link.ask(self._channel.confirm_delivery, self._on_answer)
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
            BrokerFailed: a routing key is too long.

        """
        for message in messages:
            if len(message.address.encode()) > _LONGEST:
                raise BrokerFailed(
                    f"a routing key has {_LONGEST} bytes at most: {message.address[:_LONGEST]!r} is longer",
                    detail=f"Its message is {message.id}.",
                )
            self._link.check()
            self._sent += 1
            self._under_way[self._sent] = message
            self._channel.basic_publish(
                self._exchange, message.address, message.body, self._about(message), mandatory=self._mandatory
            )
        self._link.wait(lambda: len(self._under_way) <= MOST_UNDER_WAY, answers=lambda: self._answers)

    def flush(self) -> None:
        """Return when everything is confirmed; raises as `send` does."""
        self._link.wait(lambda: not self._under_way, answers=lambda: self._answers)

    def close(self) -> None:
        """Close the connection."""
        self._link.close()

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

    def _on_answer(self, frame: Method) -> None:
        method = frame.method
        first = next(iter(self._under_way), 0) if method.multiple else method.delivery_tag
        for number in range(first, method.delivery_tag + 1):
            self._under_way.pop(number, None)
        self._answers += 1
        if isinstance(method, pika.spec.Basic.Nack):
            self._link.fail(Unavailable("the broker did not take a message: a queue is full, or has failed"))
        self._link.look()

    def _on_return(self, _: object, method: Basic.Return, about: pika.BasicProperties, body: bytes) -> None:
        del body
        self.returned = self.returned or (about.message_id, method)


def _text(key: bytes) -> str | bytes:
    try:
        return key.decode()
    except UnicodeDecodeError:
        return key
