"""RabbitMQ: queues and streams as feeds, exchanges as sinks.

Needs the extra: `pip install headrace[rabbitmq]`. Nothing outside this folder knows AMQP 0-9-1.
"""

from typing import TYPE_CHECKING, Any

from headrace.connect.extras import of_extra

if TYPE_CHECKING:
    from headrace.connect.rabbitmq.exchanges import exchange
    from headrace.connect.rabbitmq.queues import queue
    from headrace.connect.rabbitmq.streams import stream

__all__ = ["exchange", "queue", "stream"]
_FILES = {name: f"{name}s" for name in __all__}


def __getattr__(name: str) -> Any:
    """Import what needs pika when it is first used."""
    return of_extra(__name__, _FILES, name, what="RabbitMQ")
