"""`headrace topics describe`: what a topic is, what it was, and where its records are."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from headrace.base.schema import to_ddl
from headrace.base.text import counted
from headrace.base.time import as_datetime
from headrace.cli.output import example, json_option, say, say_json, say_rows
from headrace.cli.places import find, log_options, open_log
from headrace.cli.values import as_duration, sized

if TYPE_CHECKING:
    from pathlib import Path

    from headrace.log import Topic

_DURATIONS = ("retention", "delete_retention", "archive_after")


def facts(topic: Topic) -> dict[str, Any]:
    """Return what a topic holds, in all."""
    each = _partitions(topic)
    first = [part["first"] for part in each if part["first"] is not None]
    last = [part["last"] for part in each if part["last"] is not None]
    return {
        "topic": topic.name,
        "partitions": topic.partitions,
        "rows": sum(part["rows"] for part in each),
        "bytes": sum(part["bytes"] for part in each),
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


@click.command(epilog=example("headrace topics describe clicks"))
@click.argument("name")
@log_options
@json_option
def describe(name: str, *, log: Path | None, app: str | None, as_json: bool) -> None:
    """Describe the topic NAME: columns, key, settings, the schemas it has had, and each partition.

    In a compacted topic "rows" counts offsets: records that compaction took are in it.
    """
    with open_log(log, app) as found:
        topic = find(found, name)
        known = facts(topic) | {
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
        each = _partitions(topic)
    if as_json:
        say_json(known | {"offsets": each})
    else:
        _say(known, each)


def _say(known: dict[str, Any], each: list[dict[str, Any]]) -> None:
    rows, partitions = counted(known["rows"], "row"), counted(known["partitions"], "partition")
    say(f"topic {known['topic']}: {rows} in {partitions}, {sized(known['bytes'])}")
    lines = {
        "columns": known["schema"],
        "key": ", ".join(known["key"]) or "none: whole appends go round the partitions",
        "event time": known["event_time"] or "when a record was appended",
        "cleanup": known["cleanup"],
        "retention": " and ".join(_kept(known)) or "for ever",
    }
    if known["private"]:
        lines["private"] = ", ".join(f"{column} of {subject}" for column, subject in known["private"].items())
    if known["sealed"]["columns"]:
        lines["sealed"] = f"{', '.join(known['sealed']['columns'])}: by {', '.join(known['sealed']['by'])}"
    if known["cleanup"] == "compact":
        lines["tombstones"] = f"kept for {known['delete_retention']} once compacted"
    if known["archive"] is not None:
        lines["archive"] = f"{known['archive']}, after {known['archive_after'] or 'a segment is closed'}"
    for number, schema in enumerate(known["schemas"][:-1], 1):
        lines[f"schema {number}"] = schema
    for what, said in lines.items():
        say(f"{what:<12}{said}")
    say()
    shown = [part | {"size": sized(part["bytes"])} for part in each]
    say_rows(shown, ["partition", "start", "end", "rows", "size", "first", "last"])


def _kept(known: dict[str, Any]) -> list[str]:
    kept = [] if known["retention"] is None else [known["retention"]]
    return kept if known["retention_bytes"] is None else [*kept, f"{sized(known['retention_bytes'])} a partition"]
