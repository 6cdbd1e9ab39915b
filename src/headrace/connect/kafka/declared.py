"""`kafka.topic(…)`: one topic of a cluster, in an app whose other topics may be elsewhere."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Literal, get_args

from headrace.base.errors import InvalidPlan
from headrace.base.names import check_topic
from headrace.base.time import instant
from headrace.connect.kafka.address import KafkaAddress
from headrace.connect.kafka.source import Isolation, KafkaSource, ReaderName

if TYPE_CHECKING:
    from collections.abc import Mapping
    from datetime import date, datetime

_MICROS_OF_MILLI = 1_000
_EDGES: tuple[Literal["earliest", "latest"], ...] = ("earliest", "latest")


def topic(
    address: str | KafkaAddress,
    name: str,
    *,
    start: str | datetime | date = "earliest",
    isolation: Isolation = "read_committed",
    reader: ReaderName | None = None,
    group: str | None = None,
    options: Mapping[str, str] | None = None,
) -> KafkaSource:
    """Return a topic of a Kafka cluster, for `source=` of `app.stream` and `app.table`.

    Each record is read exactly once. Records that retention removes before they are read are counted as lost, or stop
    the app with `on_error="fail"`.

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
    for value, known, what in ((isolation, get_args(Isolation), "isolation"), (reader, get_args(ReaderName), "reader")):
        if value is not None and value not in known:
            raise InvalidPlan(f"{what}={value!r} is not known", hint=f"Known are: {', '.join(known)}.")
    return KafkaSource(address=place, topic=name, isolation=isolation, reader=reader, group=group, start=_start(start))


def _start(start: object) -> int | Literal["earliest", "latest"]:
    """Return where reading begins; a time is in milliseconds."""
    for edge in _EDGES:
        if start == edge:
            return edge
    return instant(start) // _MICROS_OF_MILLI
