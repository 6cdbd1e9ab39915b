"""NATS JetStream: streams come in by their sequence numbers, rows go out with ids that its streams recognise.

Needs the extra: `pip install headrace[nats]`. Nothing outside this folder knows NATS, and its client is imported when
it is used.
"""

from typing import TYPE_CHECKING, Any

from headrace.connect.extras import of_extra

if TYPE_CHECKING:
    from headrace.connect.nats.consumer import stream
    from headrace.connect.nats.publisher import subject

__all__ = ["stream", "subject"]
_FILES = {"stream": "consumer", "subject": "publisher"}


def __getattr__(name: str) -> Any:
    """Import what needs NATS' client when it is first used."""
    return of_extra(__name__, _FILES, name, what="NATS")
