"""`kafka.topic(…)`: one topic of a cluster, in an app whose other topics may be elsewhere."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Literal, get_args

from headrace.base.errors import InvalidPlan
from headrace.base.names import check_topic
from headrace.base.time import instant
from headrace.connect.formats import format_named, format_of
from headrace.connect.kafka.address import KafkaAddress
from headrace.connect.kafka.connector import TopicConnector
from headrace.connect.kafka.sink import TooLarge
from headrace.connect.kafka.source import Isolation, ReaderName

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from datetime import date, datetime

    from headrace.connect.format import Format

_MICROS_OF_MILLI = 1_000
_EDGES: tuple[Literal["earliest", "latest"], ...] = ("earliest", "latest")


def topic(  # noqa: PLR0913 -- options of a topic have names
    address: str | KafkaAddress,
    name: str,
    *,
    start: str | datetime | date = "earliest",
    isolation: Isolation = "read_committed",
    reader: ReaderName | None = None,
    group: str | None = None,
    key: str | Sequence[str] | None = None,
    format: str | Format = "json",  # noqa: A002 -- as `stream` has it
    key_format: str | Format = "text",
    partitions: int | None = None,
    too_large: TooLarge = "fail",
    options: Mapping[str, str] | None = None,
) -> TopicConnector:
    """Return a topic of a Kafka cluster, for `source=` of `app.stream` and `app.table`, and for `.to(…)`.

    Each record is read exactly once. Records that retention removes before they are read are counted as lost, or stop
    the app with `on_error="fail"`.

    An epoch is written as one transaction, with all topics of the app in the cluster: readers with
    `isolation.level=read_committed` see each row exactly once. A table's rows become a changelog: a record a change,
    with the table's key, and no value where a row is deleted. A topic that is missing is created: compacted for a
    table, else without retention, because a record's time is its row's event time, which may be long ago.

    Args:
        address: the cluster, `"kafka://host:port,host:port?option=value"`: see `KafkaAddress`.
        name: the topic; the address's prefix is put before it.
        start: where an app begins that has read nothing yet: "earliest", "latest" (the end when it first looks), or a
            time: records from that time on, by Kafka's timestamps. Partitions that are added later are read from their
            first records. Once something is read, `start` has no effect.
        isolation: "read_committed" sees committed transactions only, and waits behind an open one. "read_uncommitted"
            also sees what is aborted later.
        reader: "fast" reads whole record batches by compiled code; "librdkafka" knows every option, at a tenth of the
            speed. None chooses: "fast" unless the address has options that it does not know.
        group: a consumer group that shows how far the app has read, for tools that show lag; its offsets are never
            read.
        key: for `.to` of a stream, the columns of the records' keys, which choose the partition as Java's clients do;
            without them records are spread. A table has its own key.
        format: for `.to`, how values are written. A stream or table that reads the topic says its own.
        key_format: for `.to`, how keys are written.
        partitions: of a topic that is created; None: the cluster's default.
        too_large: for `.to`, whether a record above the topic's `max.message.bytes` stops the app, with nothing of its
            epoch visible, or becomes a record of `<name>.dead`.
        options: more options of librdkafka, like those of the address.

    Raises:
        InvalidPlan: the address, the name or an argument is not possible.

    Examples:
        >>> from headrace.connect import kafka
        >>> orders = kafka.topic("kafka://localhost:9092", "orders", start="2026-01-01")
        >>> orders.identity
        'kafka:orders'

    """
    check_topic(name)
    place = KafkaAddress.parse(address) if not isinstance(address, KafkaAddress) else address
    if options:
        place = replace(place, options=tuple(sorted((dict(place.options) | dict(options)).items())))
    allowed = ((isolation, Isolation, "isolation"), (reader, ReaderName, "reader"), (too_large, TooLarge, "too_large"))
    for value, known, what in allowed:
        if value is not None and value not in get_args(known):
            raise InvalidPlan(f"{what}={value!r} is not known", hint=f"Known are: {', '.join(get_args(known))}.")
    return TopicConnector(
        address=place,
        topic=name,
        isolation=isolation,
        reader=reader,
        group=group,
        start=_start(start),
        key=(key,) if isinstance(key, str) else tuple(key or ()),
        format=format_named(format) if isinstance(format, str) else format,
        key_format=format_of(key_format),
        partitions=partitions,
        too_large=too_large,
    )


def _start(start: object) -> int | Literal["earliest", "latest"]:
    """Return where reading begins; a time is in milliseconds."""
    for edge in _EDGES:
        if start == edge:
            return edge
    return instant(start) // _MICROS_OF_MILLI
