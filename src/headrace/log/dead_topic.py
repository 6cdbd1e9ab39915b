"""The topic of the dead letters of a topic, `<topic>.dead`: one rule for apps, feeds and work queues."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

from headrace.base.dead_letters import DEAD
from headrace.base.errors import TopicDiffers
from headrace.base.log_errors import TopicExists
from headrace.base.schema import to_ddl

if TYPE_CHECKING:
    from pathlib import Path

    import pyarrow as pa

    from headrace.log.topic import Topic


class TopicsOf(Protocol):
    """What is needed of the log."""

    @property
    def path(self) -> Path:
        """Its folder."""

    def has_topic(self, name: str) -> bool:
        """Tell whether there is a topic."""

    def topic(self, name: str) -> Topic:
        """Return a topic."""

    def create_topic(self, name: str, schema: pa.Schema) -> Topic:
        """Create a topic."""


def dead_topic(log: TopicsOf, name: str) -> Topic:
    """Return the dead-letter topic of a topic, created if it is missing.

    Raises:
        TopicDiffers: there is a topic of its name that cannot take dead letters.

    """
    dead = f"{name}.dead"
    if not log.has_topic(dead):
        try:
            return log.create_topic(dead, DEAD)
        except TopicExists:
            pass
    topic = log.topic(dead)
    has = {field.name: field.type for field in topic.schema}
    if any(has.get(field.name) != field.type for field in DEAD):
        raise TopicDiffers(
            f'the topic "{dead}" has other columns than dead letters have, and those of "{name}" go there',
            detail=f"It has: {to_ddl(topic.schema)}. Dead letters have: {to_ddl(DEAD)}.",
            hint="Give that topic another name; or delete it, if nobody needs it: "
            f'Log("{log.path}").delete_topic("{dead}").',
        )
    return topic
