"""`kafka.topic(…)`: one topic of a cluster, in an app whose other topics may be elsewhere."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Literal, get_args

from headrace.base import arguments
from headrace.base.errors import InvalidPlan
from headrace.base.names import check_topic
from headrace.base.time import instant
from headrace.connect.formats import format_named, format_of
from headrace.connect.kafka.address import KafkaAddress
from headrace.connect.kafka.connector import TopicConnector
from headrace.connect.kafka.reading.topic_reader import ReaderName
from headrace.connect.kafka.sink import TooLarge
from headrace.connect.kafka.source import Isolation

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

    Each record is read exactly once; those that retention removes before are counted as lost, or stop the app with
    `on_error="fail"`. An epoch is written as one transaction: readers with `isolation.level=read_committed` see each
    row exactly once. A table's records have its key, and no value where a row is deleted.

    Args:
        address: the cluster, `"kafka://host:port,host:port?option=value"`: see `KafkaAddress`.
        name: the topic; the address's prefix is put before it.
        start: where an app begins that has read nothing yet: "earliest", "latest" (the end when it first looks), or a
            time, by Kafka's timestamps. Partitions that are added later are read from their first records.
        isolation: "read_committed" waits behind an open transaction; "read_uncommitted" sees what is aborted later.
        reader: "fast", or "librdkafka", a tenth as fast, which knows every option; None chooses by the options.
        group: a consumer group that shows how far the app has read; its offsets are never read.
        key: the columns of written records' keys, which choose the partition; a table has its own.
        format: how values are written. A stream or table that reads the topic says its own.
        key_format: how keys are written.
        partitions: of a topic that `.to` creates; None: the cluster's default.
        too_large: whether a record above the topic's limit stops the app, or becomes one of `<name>.dead`.
        options: more options of librdkafka, like those of the address.

    Raises:
        InvalidPlan: the address, the name or an argument is not possible.

    Examples:
        >>> from headrace.connect import kafka
        >>> kafka.topic("kafka://localhost:9092", "orders", start="2026-01-01").identity
        'kafka:orders'

    """
    check_topic(name)
    _check_words(isolation=(isolation, Isolation), reader=(reader, ReaderName), too_large=(too_large, TooLarge))
    return TopicConnector(
        address=_place(address, options or {}),
        topic=name,
        isolation=isolation,
        reader=reader,
        group=_group(group),
        start=_start(start),
        key=() if key is None else arguments.name_list(key, "key"),
        format=format_named(format) if isinstance(format, str) else format,
        key_format=format_of(key_format),
        partitions=None if partitions is None else arguments.a_whole_number(partitions, "partitions", least=1),
        too_large=too_large,
    )


def _place(address: str | KafkaAddress, options: Mapping[str, str]) -> KafkaAddress:
    place = address if isinstance(address, KafkaAddress) else KafkaAddress.parse(address)
    if not options:
        return place
    more = arguments.a_mapping(options, "options")
    given = {name: arguments.a_text(value, f'options["{name}"]') for name, value in more.items()}
    return replace(place, options=tuple(sorted((dict(place.options) | given).items())))


def _group(group: str | None) -> str | None:
    if group is None or arguments.a_text(group, "group"):
        return group
    raise InvalidPlan("a consumer group has a name", hint="Leave group= out, and no group shows how far it was read.")


def _check_words(**given: tuple[str | None, object]) -> None:
    """Refuse what is not one of the words that an argument may be."""
    for what, (value, words) in given.items():
        if value is not None and value not in get_args(words):
            raise InvalidPlan(f"{what}={value!r} is not known", hint=f"Known are: {', '.join(get_args(words))}.")


def _start(start: object) -> int | Literal["earliest", "latest"]:
    """Return where reading begins; a time is in milliseconds: Kafka has none before 1970."""
    for edge in _EDGES:
        if start == edge:
            return edge
    return max(0, -(-instant(start) // _MICROS_OF_MILLI))
