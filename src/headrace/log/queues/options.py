"""How the records of a queue are handed out, and where its state is."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import pyarrow as pa

from headrace.base.arguments import a_whole_number
from headrace.base.errors import InvalidArgument, did_you_mean
from headrace.base.time import MICROS
from headrace.log.groups.naming import checked_seconds

if TYPE_CHECKING:
    from datetime import timedelta

    from headrace.log.topic import Topic


class QueueOptions(NamedTuple):
    """How records are handed out; durations in microseconds."""

    lease: int
    max_deliveries: int
    priority: str | None
    not_before: str | None
    in_order: bool


def checked_options(
    topic: Topic,
    lease: str | timedelta,
    max_deliveries: int,
    *,
    priority: str | None,
    not_before: str | None,
    key_order: bool,
) -> QueueOptions:
    """Return options that are possible for a topic.

    Raises:
        InvalidArgument: one is not.
        InvalidTime: `lease` is not a duration.

    """
    micros = round(checked_seconds(lease, "lease") * MICROS)
    for column, argument, fits, wanted in (
        (priority, "priority", pa.types.is_integer, "whole numbers"),
        (not_before, "not_before", pa.types.is_timestamp, "timestamps"),
    ):
        if column is None:
            continue
        if column not in topic.schema.names:
            hint = did_you_mean(column, topic.schema.names)
            raise InvalidArgument(f'{argument}={column!r} is no column of the topic "{topic.name}"', hint=hint)
        if not fits(topic.schema.field(column).type):
            raise InvalidArgument(
                f"{argument}={column!r} is a column of {topic.schema.field(column).type}", hint=f"Name one of {wanted}."
            )
    if not isinstance(key_order, bool):
        raise InvalidArgument(f"key_order={key_order!r} is not possible", hint="Say True: the key is the topic's.")
    if key_order and not topic.key:
        raise InvalidArgument(
            f'the topic "{topic.name}" has no key, so there is no order by key',
            hint='Create the topic with key="…", or leave key_order out.',
        )
    return QueueOptions(
        micros, a_whole_number(max_deliveries, "max_deliveries", least=1), priority, not_before, key_order
    )
