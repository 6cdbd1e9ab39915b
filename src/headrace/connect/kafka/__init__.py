"""Kafka: topics of a cluster as sources and sinks, exactly once in both directions.

Needs the extra: `pip install headrace[kafka]`. Nothing outside this folder knows Kafka, and this file imports none of
its clients before they are used.
"""

from typing import TYPE_CHECKING, Any

from headrace.base.errors import InvalidPlan
from headrace.connect.kafka.address import KafkaAddress

if TYPE_CHECKING:
    from headrace.connect.kafka.declared import topic

__all__ = ["KafkaAddress", "topic"]


def __getattr__(name: str) -> Any:
    """Import what needs Kafka's clients when it is first used."""
    if name == "topic":
        try:
            from headrace.connect.kafka.declared import topic as found
        except ImportError as error:
            raise InvalidPlan(
                f"a topic of Kafka needs a package that is not there: {error.name}",
                hint='pip install "headrace[kafka]"',
            ) from error
        globals()[name] = found
        return found
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
