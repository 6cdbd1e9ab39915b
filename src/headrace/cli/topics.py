"""`headrace topics`: list and change topics, and pipe records into and out of them."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Any

import click

from headrace.base.text import counted
from headrace.cli.confirming import NotConfirmed
from headrace.cli.consume import ConsumeRequest, write_records
from headrace.cli.describe import describe, facts
from headrace.cli.forget import forget
from headrace.cli.output import Commands, example, json_option, note, say, say_json, say_rows
from headrace.cli.places import at_option, cluster_at, find, log_options, open_log
from headrace.cli.produce import BadLine, Producer, read_batches
from headrace.cli.settings import alter, create, topic_options
from headrace.cli.upkeep import clean, compact, repair, verify
from headrace.cli.values import sized

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from headrace.cli.endpoints import ReadableTopic, WritableTopic
    from headrace.cli.produce import Batches

_FORMATS = click.Choice(["json", "csv"])
_RECORD_FORMATS = click.Choice(["json", "csv", "text"])


@click.group(cls=Commands)
def topics() -> None:
    """Work on the topics of a log: by default of the one in .headrace/log; with --at on those of Kafka."""


@topics.command("list", epilog=example("headrace topics list --app app.py"))
@at_option
@log_options
@json_option
def list_(*, at: str | None, log_folder: Path | None, app: str | None, as_json: bool) -> None:
    """List the topics: partitions, rows, size, and the first and last event time.

    With --at those of Kafka: partitions, copies, and rows, where "rows" counts offsets.
    """
    if at is not None:
        address = cluster_at(at, log=log_folder, app=app)
        from headrace.cli.kafka_topics import list_topics

        list_topics(address, as_json=as_json)
        return
    with open_log(log_folder, app) as log:
        rows = [facts(log.topic(name)) for name in log.topics()]
        if as_json:
            say_json(rows)
        elif rows:
            shown = [row | {"size": sized(row["bytes"])} for row in rows]
            say_rows(shown, ["topic", "partitions", "rows", "size", "first", "last"])
        else:
            note(f"the log {log.path} has no topics")


@topics.command(
    epilog=example(
        "cat clicks.jsonl | headrace topics produce clicks",
        'headrace topics produce prices --format csv --schema "id int, price double" < prices.csv',
        "cat clicks.jsonl | headrace topics produce clicks --at kafka://localhost:9092 --key user --event-time at",
    )
)
@click.argument("name")
@click.option(
    "--format",
    "form",
    type=_RECORD_FORMATS,
    default="json",
    help="JSON lines, CSV with a header, or with --at text: each line is a value [json].",
)
@click.option("--schema", metavar="DDL", help="Create the topic if it is missing, with these columns.")
@topic_options
@click.option("--skip-bad", is_flag=True, help="Skip lines that do not fit, and count them.")
@click.option(
    "--rejects",
    type=click.File("w", encoding="utf-8", lazy=False),
    help="Skip lines that do not fit, and write them to this file with their reasons.",
)
@at_option
@log_options
@json_option
def produce(name: str, *, form: str, as_json: bool, log_folder: Path | None, **options: Any) -> None:
    """Append standard input to the topic NAME: a JSON object a line, or CSV with a header.

    Times are ISO text or milliseconds since 1970, bytes are base64; in CSV an empty cell is null, and arrays and
    structs are JSON. A line that does not fit ends the command; the lines before it are in the topic. The event time
    must have a value. A line of --rejects is {"line": number, "reason": text, "record": the line}.

    With --at each line is the value of a record of Kafka, as it stands; --key names the columns of its key (one: its
    text, several: a JSON object; a line with "_deleted": true is a tombstone), --event-time the column of its time.
    """
    if options["at"] is not None:
        _produce_records(name, form, options | {"log": log_folder}, as_json=as_json)
        return
    if form == "text":
        raise click.UsageError("--format text is for topics of Kafka: say --at kafka://host:port")
    with open_log(log_folder, options["app"], creates=options["schema"] is not None) as log:
        if options["schema"] and not log.has_topic(name):
            log.create_topic(
                name,
                options["schema"],
                key=options["key"],
                event_time=options["event_time"],
                partitions=options["partitions"],
            )
        topic = find(log, name)
        _produce(topic, lambda: read_batches(sys.stdin.buffer, form, topic), options, as_json=as_json)


def _produce_records(name: str, form: str, options: dict[str, Any], *, as_json: bool) -> None:
    refused = {option: options[option] for option in ("schema", "log", "app")}
    address = cluster_at(options["at"], **refused)
    from headrace.cli.kafka_records import RecordReader
    from headrace.cli.kafka_topics import note_what_times_do, opened

    reader = RecordReader(form, key=options["key"], event_time=options["event_time"])
    topic = opened(address, name)
    try:
        _produce(topic, lambda: reader.batches(sys.stdin.buffer), options, as_json=as_json)
        if topic.oldest is not None:
            note_what_times_do(address, name, topic.oldest, dated=reader.event_time is not None)
    finally:
        topic.close()


def _produce(topic: WritableTopic, read: Callable[[], Batches], options: dict[str, Any], *, as_json: bool) -> None:
    say_progress = None if as_json else note
    producer = Producer(topic, skip_bad=options["skip_bad"], say=say_progress, rejects=options["rejects"])
    try:
        producer.run(read())
    except BadLine as error:
        error.detail = f"Appended before it: {counted(producer.appended, 'row')}."
        raise
    finally:
        if as_json:
            say_json({"topic": topic.name, "appended": producer.appended, "bad": producer.bad}, indent=None)
    if not as_json:
        skipped = f", {counted(producer.bad, 'line')} left out" if producer.bad else ""
        note(f"appended {counted(producer.appended, 'row')} to {topic.name}{skipped}")


@topics.command(
    epilog=example(
        "headrace topics consume clicks --from latest --follow",
        'headrace topics consume clicks --from "2026-01-31 10:00" --until "2026-01-31 11:00" --format csv',
        "headrace topics consume clicks --where \"url like '%/cart' and user is not null\" --limit 10",
        "headrace topics consume clicks --at kafka://localhost:9092 --key ann --follow",
    )
)
@click.argument("name")
@click.option("--from", "start", default="earliest", help="earliest, latest, an offset, or a time [earliest].")
@click.option("--until", help="Stop before this: an offset, a time, or latest.")
@click.option("--partition", type=click.IntRange(min=0), help="This partition only.")
@click.option(
    "--key", "keys", multiple=True, metavar="VALUE", help="This key only; COLUMN=VALUE for each column of a longer key."
)
@click.option("--where", metavar="CONDITION", help="Only records for which this Spark SQL condition is true.")
@click.option("--limit", type=click.IntRange(min=0), help="At most this many records.")
@click.option("--follow", is_flag=True, help="Wait for more at the end, until Ctrl-C.")
@click.option(
    "--format",
    "form",
    type=_RECORD_FORMATS,
    default="json",
    help="JSON lines, CSV with a header, or with --at text: the values alone [json].",
)
@click.option("--offsets", is_flag=True, help="Add the columns _partition, _offset and _time.")
@at_option
@log_options
@json_option
def consume(name: str, *, log_folder: Path | None, app: str | None, **options: Any) -> None:
    """Print the records of the topic NAME: a JSON object a line, or CSV; what `produce` reads back.

    A tombstone is its key with "_deleted": true. A condition may use _partition, _offset, _time and _deleted too.

    With --at a record of Kafka is {"partition", "offset", "time", "key", "value", "headers"}: a value that is a JSON
    object or array as such, other bytes as text, or {"base64"} where they are none. Conditions use key and value as
    text: get_json_object(value, '$.user') = 'ann'. What is not committed is not shown.
    """
    if options["as_json"] and options["form"] != "json":
        raise click.UsageError(f"--json and --format {options['form']} exclude each other")
    if options["at"] is not None:
        _consume_records(name, options | {"log": log_folder, "app": app})
        return
    if options["form"] == "text":
        raise click.UsageError("--format text is for topics of Kafka: say --at kafka://host:port")
    from headrace.cli.record_filter import RecordFilter

    with open_log(log_folder, app) as log:
        topic = find(log, name)
        request = _request(topic, options)
        with RecordFilter(topic, keys=options["keys"], where=options["where"]) as record_filter:
            write_records(request, record_filter, options["form"], sys.stdout)


def _consume_records(name: str, options: dict[str, Any]) -> None:
    address = cluster_at(options["at"], log=options["log"], app=options["app"])
    from headrace.cli import kafka_records
    from headrace.cli.kafka_topics import opened
    from headrace.cli.record_filter import RecordFilter

    topic = opened(address, name)
    try:
        request = _request(topic, options, columns=kafka_records.BYTES)
        with RecordFilter(topic, keys=options["keys"], where=options["where"]) as record_filter:
            kafka_records.write_records(request, record_filter, options["form"], sys.stdout)
    finally:
        topic.close()


def _request(topic: ReadableTopic, options: dict[str, Any], *, columns: tuple[str, ...] = ()) -> ConsumeRequest:
    return ConsumeRequest(
        topic=topic,
        start=options["start"],
        until=options["until"],
        partition=options["partition"],
        limit=options["limit"],
        follow=options["follow"],
        offsets=options["offsets"],
        columns=columns,
    )


@topics.command(epilog=example("headrace topics delete clicks --yes"))
@click.argument("name")
@click.option("--yes", is_flag=True, help="Do not ask.")
@at_option
@log_options
@json_option
def delete(name: str, *, yes: bool, at: str | None, log_folder: Path | None, app: str | None, as_json: bool) -> None:
    """Delete the topic NAME with all its records, after asking."""
    if at is not None:
        address = cluster_at(at, log=log_folder, app=app)
        from headrace.cli.kafka_topics import delete_topic

        delete_topic(address, name, yes=yes, as_json=as_json)
        return
    with open_log(log_folder, app) as log:
        topic = find(log, name)
        rows = sum(topic.end_offsets().values()) - sum(topic.start_offsets().values())
        if not yes:
            note(f"Deleting the topic {name} in {log.path} destroys its {counted(rows, 'row')}.")
            if not sys.stdin.isatty():
                raise NotConfirmed("nobody can be asked to confirm it", hint=f"headrace topics delete {name} --yes")
            click.confirm("Go on?", abort=True, err=True)
        log.delete_topic(name)
    if as_json:
        say_json({"topic": name, "deleted": True, "rows": rows})
    else:
        say(f"deleted topic {name} and its {counted(rows, 'row')}")


for command in (create, describe, alter, compact, clean, verify, repair, forget):
    topics.add_command(command)
