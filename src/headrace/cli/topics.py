"""`headrace topics`: look into topics, and get records into and out of them through pipes."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Any

import click

from headrace.base.errors import UnknownTopic, did_you_mean
from headrace.base.schema import to_ddl
from headrace.base.time import as_datetime, show_duration
from headrace.cli.consume import Reading, consumed
from headrace.cli.output import Commands, example, json_option, note, say, say_json, say_rows
from headrace.cli.places import log_options, open_log
from headrace.cli.produce import BadLine, Producing, batch_of
from headrace.cli.reset import NotConfirmed
from headrace.cli.values import counted

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from headrace.log import Log, Topic

_FORMATS = click.Choice(["json", "csv"])


@click.group(cls=Commands)
def topics() -> None:
    """Work on the topics of a log: by default of the one in .headrace/log."""


def described(command: Callable[..., Any]) -> Callable[..., Any]:
    """Give a command what a new topic is made of."""
    options: tuple[Callable[[Callable[..., Any]], Callable[..., Any]], ...] = (
        click.option("--key", multiple=True, help="A key column; may be given several times."),
        click.option("--event-time", help="The timestamp column that says when things happened."),
        click.option("--partitions", type=click.IntRange(min=1), default=1, help="How many partitions [1]."),
    )
    for option in options:
        command = option(command)
    return command


def find(log: Log, name: str) -> Topic:
    """Return a topic, or say which one may have been meant and how to make it."""
    if not log.has_topic(name):
        known = log.topics()
        error = UnknownTopic(name, log=str(log.path), topics=known)
        create = f'Create it: headrace topics create {name} --schema "id bigint, at timestamp" --log {log.path}'
        error.hint = f"{did_you_mean(name, known)} {create}".strip()
        raise error
    return log.topic(name)


@topics.command("list", epilog=example("headrace topics list --app app.py"))
@log_options
@json_option
def list_(*, log: Path | None, app: str | None, as_json: bool) -> None:
    """List the topics: partitions, rows, and the first and last event time."""
    with open_log(log, app) as found:
        rows = [_facts(found.topic(name)) for name in found.topics()]
        if as_json:
            say_json(rows)
        elif rows:
            say_rows(rows, ["topic", "partitions", "rows", "first", "last"])
        else:
            note(f"the log {found.path} has no topics")


def _facts(topic: Topic) -> dict[str, Any]:
    starts, ends = topic.start_offsets(), topic.end_offsets()
    spans = [(number, starts[number], end) for number, end in ends.items() if end > starts[number]]
    first = [time for span in spans if (time := topic.min_time(*span)) is not None]
    last = [time for span in spans if (time := topic.max_time(*span)) is not None]
    return {
        "topic": topic.name,
        "partitions": topic.partitions,
        "rows": sum(end - start for _, start, end in spans),
        "first": as_datetime(min(first)) if first else None,
        "last": as_datetime(max(last)) if last else None,
    }


@topics.command(
    epilog=example(
        'headrace topics create clicks --schema "user string, url string, at timestamp" --key user --event-time at'
    )
)
@click.argument("name")
@click.option("--schema", required=True, metavar="DDL", help='Its columns, as in "id bigint, at timestamp".')
@described
@log_options
@json_option
def create(
    name: str,
    *,
    schema: str,
    key: tuple[str, ...],
    event_time: str | None,
    partitions: int,
    log: Path | None,
    **rest: Any,
) -> None:
    """Create the topic NAME."""
    with open_log(log, rest["app"]) as found:
        made = found.create_topic(name, schema, key=key, event_time=event_time, partitions=partitions)
        if rest["as_json"]:
            say_json({"topic": name, "partitions": made.partitions, "schema": to_ddl(made.schema)})
        else:
            say(f"created topic {name} in {found.path}: {to_ddl(made.schema)}")


@topics.command(epilog=example("headrace topics describe clicks"))
@click.argument("name")
@log_options
@json_option
def describe(name: str, *, log: Path | None, app: str | None, as_json: bool) -> None:
    """Describe the topic NAME: columns, key, event time, and each partition."""
    with open_log(log, app) as found:
        topic = find(found, name)
        facts = _facts(topic) | {
            "schema": to_ddl(topic.schema),
            "key": list(topic.key),
            "event_time": topic.event_time,
            "cleanup": topic.cleanup,
            "retention": None if topic.retention is None else show_duration(topic.retention),
        }
        starts, ends = topic.start_offsets(), topic.end_offsets()
    each = [
        {"partition": number, "start": starts[number], "end": end, "rows": end - starts[number]}
        for number, end in ends.items()
    ]
    if as_json:
        say_json(facts | {"offsets": each})
        return
    say(f"topic {name}: {counted(facts['rows'], 'row')} in {counted(facts['partitions'], 'partition')}")
    say(f"columns     {facts['schema']}")
    say(f"key         {', '.join(topic.key) or 'none: whole appends go round the partitions'}")
    say(f"event time  {topic.event_time or 'when a record was appended'}")
    say(f"cleanup     {facts['cleanup']}" + (f", kept for {facts['retention']}" if facts["retention"] else ""))
    say()
    say_rows(each, ["partition", "start", "end", "rows"])


@topics.command(
    epilog=example(
        "cat clicks.jsonl | headrace topics produce clicks",
        'headrace topics produce prices --format csv --schema "id int, price double" < prices.csv',
    )
)
@click.argument("name")
@click.option("--format", "form", type=_FORMATS, default="json", help="JSON lines, or CSV with a header [json].")
@click.option("--schema", metavar="DDL", help="Create the topic if it is missing, with these columns.")
@described
@click.option("--skip-bad", is_flag=True, help="Leave out lines that do not fit, and count them.")
@log_options
@json_option
def produce(name: str, *, form: str, skip_bad: bool, as_json: bool, log: Path | None, **rest: Any) -> None:
    """Append standard input to the topic NAME: a JSON object a line, or CSV with a header.

    Times are ISO text or milliseconds since 1970, bytes are base64; in CSV an empty cell is null, and arrays and
    structs are JSON. A line that does not fit ends the command; the lines before it are in the topic.
    """
    with open_log(log, rest["app"]) as found:
        if rest["schema"] and not found.has_topic(name):
            found.create_topic(
                name, rest["schema"], key=rest["key"], event_time=rest["event_time"], partitions=rest["partitions"]
            )
        producing = Producing(find(found, name), skip_bad=skip_bad, say=None if as_json else note)
        try:
            producing.run(batch_of(sys.stdin.buffer, form, producing.topic))
        except BadLine as error:
            error.detail = f"Appended before it: {counted(producing.appended, 'row')}."
            raise
        finally:
            if as_json:
                say_json({"topic": name, "appended": producing.appended, "bad": producing.bad}, indent=None)
    if not as_json:
        skipped = f", {counted(producing.bad, 'line')} left out" if producing.bad else ""
        note(f"appended {counted(producing.appended, 'row')} to {name}{skipped}")


@topics.command(
    epilog=example(
        "headrace topics consume clicks --from end --follow",
        'headrace topics consume clicks --from "2026-01-31 10:00" --format csv --max 100',
    )
)
@click.argument("name")
@click.option("--from", "start", default="start", help="start, end, an offset, or a time [start].")
@click.option("--partition", type=click.IntRange(min=0), help="This partition only.")
@click.option("--max", "most", type=click.IntRange(min=0), help="So many rows at most.")
@click.option("--follow", is_flag=True, help="Wait for more at the end, until Ctrl-C.")
@click.option("--format", "form", type=_FORMATS, default="json", help="JSON lines, or CSV with a header [json].")
@click.option("--offsets", is_flag=True, help="Add the columns _partition, _offset and _time.")
@log_options
@json_option
def consume(name: str, *, log: Path | None, app: str | None, **options: Any) -> None:
    """Print the records of the topic NAME: a JSON object a line, or CSV; what `produce` reads back.

    A tombstone is its key with "_deleted": true.
    """
    if options["as_json"] and options["form"] == "csv":
        raise click.UsageError("--json and --format csv exclude each other")
    with open_log(log, app) as found:
        reading = Reading(
            topic=find(found, name),
            start=options["start"],
            partition=options["partition"],
            most=options["most"],
            follow=options["follow"],
            offsets=options["offsets"],
        )
        consumed(reading, options["form"], sys.stdout)


@topics.command(epilog=example("headrace topics delete clicks --yes"))
@click.argument("name")
@click.option("--yes", is_flag=True, help="Do not ask.")
@log_options
@json_option
def delete(name: str, *, yes: bool, log: Path | None, app: str | None, as_json: bool) -> None:
    """Delete the topic NAME with all its records, after asking."""
    with open_log(log, app) as found:
        rows = _facts(find(found, name))["rows"]
        if not yes:
            note(f"Deleting the topic {name} in {found.path} destroys its {counted(rows, 'row')}.")
            if not sys.stdin.isatty():
                raise NotConfirmed("there is no one to ask", hint=f"headrace topics delete {name} --yes")
            click.confirm("Go on?", abort=True, err=True)
        found.delete_topic(name)
    if as_json:
        say_json({"topic": name, "deleted": True, "rows": rows})
    else:
        say(f"deleted topic {name} and its {counted(rows, 'row')}")
