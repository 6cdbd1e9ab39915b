"""`headrace topics describe`: a topic's columns, settings and partitions."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from headrace.base.schema import to_ddl
from headrace.base.text import counted
from headrace.base.time import as_datetime
from headrace.cli.output import example, json_option, say, say_json, say_rows
from headrace.cli.places import at_option, cluster_at, find, log_options, open_log
from headrace.cli.values import as_duration, sized

if TYPE_CHECKING:
    from pathlib import Path

    from headrace.log import Topic

_DURATIONS = ("retention", "delete_retention", "archive_after")


def facts(topic: Topic) -> dict[str, Any]:
    """Return the totals of a topic: partitions, rows, bytes, first and last event time."""
    partitions = _partitions(topic)
    first = [part["first"] for part in partitions if part["first"] is not None]
    last = [part["last"] for part in partitions if part["last"] is not None]
    return {
        "topic": topic.name,
        "partitions": topic.partitions,
        "rows": sum(part["rows"] for part in partitions),
        "bytes": sum(part["bytes"] for part in partitions),
        "first": min(first) if first else None,
        "last": max(last) if last else None,
    }


def _partitions(topic: Topic) -> list[dict[str, Any]]:
    starts, ends, sizes = topic.start_offsets(), topic.end_offsets(), topic.sizes()
    return [
        {
            "partition": number,
            "start": starts[number],
            "end": end,
            "rows": end - starts[number],
            "bytes": sizes[number],
            "first": _time(topic.min_time(number, starts[number], end)),
            "last": _time(topic.max_time(number, starts[number], end)),
        }
        for number, end in ends.items()
    ]


def _time(micros: int | None) -> Any:
    return None if micros is None else as_datetime(micros)


def settings_of(topic: Topic) -> dict[str, Any]:
    """Return a topic's settings as `create` and `alter` take them."""
    return {
        name: as_duration(value) if name in _DURATIONS and value is not None else value
        for name, value in topic.settings.items()
    }


@click.command(
    epilog=example("headrace topics describe clicks", "headrace topics describe clicks --at kafka://localhost:9092")
)
@click.argument("name")
@at_option
@log_options
@json_option
def describe(name: str, *, at: str | None, log_folder: Path | None, app: str | None, as_json: bool) -> None:
    """Describe the topic NAME: columns, key, settings, earlier schemas, and each partition.

    In a compacted topic "rows" counts offsets: records that compaction removed are included. With --at: its settings in
    Kafka, each partition, and the consumer groups that have read it, with how many offsets each lags behind.
    """
    if at is not None:
        address = cluster_at(at, log=log_folder, app=app)
        from headrace.cli.kafka_topics import describe_topic

        describe_topic(address, name, as_json=as_json)
        return
    with open_log(log_folder, app) as log:
        topic = find(log, name)
        description = facts(topic) | {
            "schema": to_ddl(topic.schema),
            "schemas": [to_ddl(schema) for schema in topic.schemas],
            "key": list(topic.key),
            "event_time": topic.event_time,
            "private": topic.private,
            "sealed": {
                "columns": sorted(topic.sealed),
                "by": sorted({o.topic for o in topic.key_owners} - {topic.name}),
            },
            **settings_of(topic),
        }
        partitions = _partitions(topic)
    if as_json:
        say_json(description | {"offsets": partitions})
    else:
        _say(description, partitions)


def _say(description: dict[str, Any], partitions: list[dict[str, Any]]) -> None:
    totals = f"{counted(description['rows'], 'row')} in {counted(description['partitions'], 'partition')}"
    say(f"topic {description['topic']}: {totals}, {sized(description['bytes'])}")
    lines = {
        "columns": description["schema"],
        "key": ", ".join(description["key"]) or "none: each append goes to the next partition as a whole",
        "event time": description["event_time"] or "when a record was appended",
        "cleanup": description["cleanup"],
        "retention": " and ".join(_retention(description)) or "for ever",
    }
    if description["private"]:
        lines["private"] = ", ".join(f"{column} of {subject}" for column, subject in description["private"].items())
    if description["sealed"]["columns"]:
        lines["sealed"] = f"{', '.join(description['sealed']['columns'])}: by {', '.join(description['sealed']['by'])}"
    if description["cleanup"] == "compact":
        lines["tombstones"] = f"kept for {description['delete_retention']} once compacted"
    if description["archive"] is not None:
        lines["archive"] = f"{description['archive']}, after {description['archive_after'] or 'a segment is closed'}"
    for number, schema in enumerate(description["schemas"][:-1], 1):
        lines[f"schema {number}"] = schema
    for label, value in lines.items():
        say(f"{label:<12}{value}")
    say()
    shown = [part | {"size": sized(part["bytes"])} for part in partitions]
    say_rows(shown, ["partition", "start", "end", "rows", "size", "first", "last"])


def _retention(description: dict[str, Any]) -> list[str]:
    limits = []
    if description["retention"] is not None:
        limits.append(description["retention"])
    if description["retention_bytes"] is not None:
        limits.append(f"{sized(description['retention_bytes'])} a partition")
    return limits
