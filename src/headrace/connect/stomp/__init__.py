"""STOMP 1.2: queues and durable topics of ActiveMQ, Artemis and others as feeds, destinations as sinks.

Needs the extra: `pip install headrace[stomp]`. Nothing outside this folder knows STOMP.
"""

from typing import TYPE_CHECKING, Any

from headrace.connect.extras import of_extra

if TYPE_CHECKING:
    from headrace.connect.stomp.feeds import queue, topic
    from headrace.connect.stomp.sinks import destination

__all__ = ["destination", "queue", "topic"]
_FILES = {"queue": "feeds", "topic": "feeds", "destination": "sinks"}


def __getattr__(name: str) -> Any:
    """Import what needs stomp.py when it is first used."""
    return of_extra(__name__, _FILES, name, what="STOMP")
