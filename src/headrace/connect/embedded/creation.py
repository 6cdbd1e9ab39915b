"""Topics of the embedded log for an app: created if they are missing, checked if they exist."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pyarrow as pa

from headrace.base.errors import TopicDiffers
from headrace.base.schema import to_ddl
from headrace.connect.embedded.private import check_declared, mark_sealed
from headrace.connect.format import VALUE
from headrace.log import evolution

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from headrace.connect.format import Format
    from headrace.connect.topics import TopicSpec
    from headrace.log import Log, Topic
    from headrace.log.privacy.subjects import Origin


_RECORDS = (pa.string(), pa.binary())
"""The types that a column of records may have."""


def topic_of_source(log: Log, spec: TopicSpec, partitions: int) -> Topic:
    """Return the topic that a source reads, created if it is missing.

    Raises:
        TopicDiffers: it has other columns, or is read as a table and one key may be in several partitions.

    """
    if spec.private and not log.has_topic(spec.name):
        _create_private(log, spec, partitions)
    topic = _ensure(log, spec, partitions, cleanup="compact" if spec.upserts else "delete")
    if spec.upserts:
        _refuse_scattered_keys(topic, spec.key)
    if spec.sent_time is not None and "compact" in topic.cleanup:
        raise TopicDiffers(
            f'the topic "{spec.name}" is compacted, and sent_time needs to know when each record arrived',
            detail="Compaction merges records, and keeps only the arrival time of the last one.",
            hint="Leave sent_time out, or read a topic that is not compacted.",
        )
    check_declared(topic, spec.schema.names, dict(spec.private))
    return topic


def topic_of_sink(log: Log, spec: TopicSpec, partitions: int, origins: Iterable[Origin]) -> Topic:
    """Return the topic that a sink appends to, created if it is missing.

    Raises:
        TopicDiffers: it has other columns, or clear values in columns where the app writes sealed ones.

    """
    topic = _ensure(log, spec, partitions, cleanup="compact" if spec.changelog and spec.key else "delete")
    if spec.format is not None and pa.types.is_string(topic.schema.field(VALUE).type):
        _refuse_bytes(topic, spec.format, spec.schema)
    mark_sealed(topic, spec.schema.names, spec.sealed, origins)
    return topic


def stored_schema(spec: TopicSpec) -> pa.Schema:
    """Return the columns of a topic: the declared ones, or with a format the key and the record."""
    if spec.format is None:
        return spec.schema
    keys = [field for field in spec.schema if field.name in spec.key]
    return pa.schema([*keys, pa.field(VALUE, spec.format.stored_type(spec.schema))])


def _ensure(log: Log, spec: TopicSpec, partitions: int, *, cleanup: str) -> Topic:
    schema = stored_schema(spec)
    if not log.has_topic(spec.name):
        return log.create_topic(
            spec.name,
            schema,
            partitions=spec.partitions or partitions,
            key=spec.key or None,
            event_time=spec.event_time if spec.event_time in schema.names else None,
            cleanup=cleanup,
        )
    topic = log.topic(spec.name)
    if spec.follows:
        merged = evolution.merged(topic.schema, schema)
        if merged != topic.schema and evolution.may_become(topic.schema, merged, topic.key):
            topic.evolve(merged)
    has = {field.name: field.type for field in topic.schema}
    records = () if spec.format is None else (VALUE,)
    for field in schema:
        if has.get(field.name) != field.type and not (field.name in records and has.get(field.name) in _RECORDS):
            raise TopicDiffers(
                f'the topic "{spec.name}" has no column "{field.name}" of the declared type',
                detail=f"It has: {to_ddl(topic.schema)}. Declared: {to_ddl(schema)}.",
                hint=_way_on(log, topic, schema),
            )
    return topic


def _refuse_bytes(topic: Topic, form: Format, schema: pa.Schema) -> None:
    """Refuse to write records that are bytes to a topic whose records are text."""
    if pa.types.is_binary(form.stored_type(schema)):
        raise TopicDiffers(
            f'the topic "{topic.name}" has records that are text, and the format {form.name} writes bytes',
            hint="Write to another topic.",
        )


def _create_private(log: Log, spec: TopicSpec, partitions: int) -> None:
    subjects = {name: subject for name, subject in spec.private if subject is not None}
    log.create_topic(
        spec.name,
        spec.schema,
        partitions=spec.partitions or partitions,
        key=spec.key or None,
        event_time=spec.event_time,
        private=subjects or [name for name, _ in spec.private],
        cleanup="compact" if spec.upserts else "delete",
    )


def _refuse_scattered_keys(topic: Topic, key: Sequence[str]) -> None:
    """Refuse to read a topic as a table if the records of one key may be in several partitions, without an order."""
    if topic.partitions > 1 and not (topic.key and set(topic.key) <= set(key)):
        has = f"is spread by {', '.join(topic.key)}" if topic.key else "has no key"
        raise TopicDiffers(
            f'the topic "{topic.name}" cannot be read as a table by {", ".join(key)}: it {has}',
            detail=f"Records of one key may be in any of its {topic.partitions} partitions, and have no order there.",
            hint=f"Read it as a stream and take the last by event time: app.stream(…, event_time=…)"
            f".latest({', '.join(repr(name) for name in key)}).",
        )


def _way_on(log: Log, topic: Topic, declared: pa.Schema) -> str:
    """Return a hint: how the topic or the declaration can be changed to fit."""
    merged = evolution.merged(topic.schema, declared)
    if evolution.may_become(topic.schema, merged, topic.key):
        call = f'Log("{log.path}").topic("{topic.name}").evolve("{to_ddl(merged)}")'
        return f"The topic can take what is declared: {call}."
    return "Declare the columns that the topic has, or use another topic."
