"""Apache Pulsar: topics come in by the ids of their messages, rows go out with sequence ids that a topic recognises.

Needs the extra: `pip install headrace[pulsar]`. Nothing outside this folder knows Pulsar, and its client is imported
when it is used.
"""

from typing import TYPE_CHECKING, Any

from headrace.connect.extras import of_extra

if TYPE_CHECKING:
    from headrace.connect.pulsar.reading import reader
    from headrace.connect.pulsar.sending import producer

__all__ = ["producer", "reader"]
_FILES = {"reader": "reading", "producer": "sending"}


def __getattr__(name: str) -> Any:
    """Import what needs Pulsar's client when it is first used."""
    return of_extra(__name__, _FILES, name, what="Pulsar")
