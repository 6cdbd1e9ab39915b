"""AMQP 1.0: queues and durable topics of ActiveMQ Artemis and other brokers as feeds, addresses as sinks.

Needs the extra: `pip install headrace[amqp]`, whose client is compiled. Nothing outside this folder knows it. The
protocol of RabbitMQ, AMQP 0-9-1, is another one: `headrace.connect.rabbitmq`.
"""

from typing import TYPE_CHECKING, Any

from headrace.connect.extras import of_extra

if TYPE_CHECKING:
    from headrace.connect.amqp.feeds import queue, topic
    from headrace.connect.amqp.sinks import destination

__all__ = ["destination", "queue", "topic"]
_FILES = {"queue": "feeds", "topic": "feeds", "destination": "sinks"}


def __getattr__(name: str) -> Any:
    """Import what needs Proton when it is first used."""
    return of_extra(__name__, _FILES, name, what="AMQP 1.0")
