"""Azure Service Bus: queues and subscriptions as feeds, queues and topics as sinks.

Needs the extra: `pip install headrace[servicebus]`. Nothing outside this folder knows its client.
"""

from typing import TYPE_CHECKING, Any

from headrace.connect.extras import of_extra

if TYPE_CHECKING:
    from headrace.connect.servicebus.receiving import queue, subscription
    from headrace.connect.servicebus.sending import sender

__all__ = ["queue", "sender", "subscription"]
_FILES = {"queue": "receiving", "subscription": "receiving", "sender": "sending"}


def __getattr__(name: str) -> Any:
    """Import what needs Azure's client when it is first used."""
    return of_extra(__name__, _FILES, name, what="Azure Service Bus")
