"""Append requests: arguments are checked, and records encoded for the writer of a partition."""

from __future__ import annotations

from typing import TYPE_CHECKING

from headrace.base.errors import InvalidRows, InvalidTopic
from headrace.base.names import is_unicode
from headrace.log.appending.producers import is_sequence
from headrace.log.appending.writer import Request
from headrace.log.segments import payload as payloads

if TYPE_CHECKING:
    import pyarrow as pa

    from headrace.log.meta import Meta


def request_for(part: pa.Table, meta: Meta, now: int) -> Request:
    """Return the request that appends records to one partition."""
    encoded = list(payloads.encode(part, event_time=meta.event_time, now=now))
    return Request(payloads=encoded, schema=len(meta.schemas))


def check_partition(meta: Meta, number: object) -> None:
    """Raise `InvalidTopic` unless `number` is a partition of the topic."""
    if isinstance(number, int) and not isinstance(number, bool) and 0 <= number < meta.partitions:
        return
    raise InvalidTopic(
        f'the topic "{meta.name}" has no partition {number!r}',
        hint=f"Its partitions are 0 to {meta.partitions - 1}.",
    )


def check_arguments(meta: Meta, partition: int | None, producer: str | None, sequence: int | None) -> None:
    """Raise `InvalidTopic` or `InvalidRows` where the arguments of an append are not possible."""
    if partition is not None:
        check_partition(meta, partition)
    if (producer is None) != (sequence is None):
        raise InvalidRows("producer and sequence belong together", hint="Give both or neither.")
    if producer is not None and not (isinstance(producer, str) and is_unicode(producer) and is_sequence(sequence)):
        raise InvalidRows(f"producer must be text and sequence a number, not {producer!r} and {sequence!r}")
