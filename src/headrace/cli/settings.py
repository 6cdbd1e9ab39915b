"""`headrace topics create` and `alter`: a topic's columns and settings as options."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click
from click.core import ParameterSource

from headrace.base.errors import PlanError, TopicExists
from headrace.base.schema import to_ddl
from headrace.cli.describe import settings_of
from headrace.cli.output import example, json_option, say, say_json
from headrace.cli.places import at_option, cluster_at, find, log_options, open_log
from headrace.cli.programs import load_app
from headrace.cli.values import as_bytes, from_text

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from headrace.log import Log, Topic

_NONE = "none"
_SETTINGS = ("retention", "retention_bytes", "cleanup", "delete_retention", "archive", "archive_after")


def _apply(options: tuple[Callable[[Any], Any], ...], command: Callable[..., Any]) -> Callable[..., Any]:
    for option in reversed(options):
        command = option(command)
    return command


def topic_options(command: Callable[..., Any]) -> Callable[..., Any]:
    """Give a command the options of a new topic."""
    options = (
        click.option("--key", multiple=True, help="A key column; may be repeated."),
        click.option("--event-time", help="The timestamp column that says when things happened."),
        click.option("--partitions", type=click.IntRange(min=1), default=1, help="How many partitions [1]."),
    )
    return _apply(options, command)


def setting_options(command: Callable[..., Any]) -> Callable[..., Any]:
    """Give a command the settings that may change in a topic."""
    options = (
        click.option(
            "--retention", metavar="TIME", help='How long records are kept, such as "7 days"; none: for ever.'
        ),
        click.option(
            "--retention-bytes", metavar="SIZE", help="How many bytes a partition keeps, such as 10GB; none: all."
        ),
        click.option(
            "--cleanup", type=click.Choice(["delete", "compact"]), help="compact keeps each key's last record."
        ),
        click.option("--delete-retention", metavar="TIME", help="How long tombstones stay once compacted."),
        click.option(
            "--archive", metavar="FOLDER", help="The folder old segments move to, still readable; none: nowhere."
        ),
        click.option("--archive-after", metavar="TIME", help="How old records are when they move there."),
    )
    return _apply(options, command)


def _settings(options: dict[str, Any]) -> dict[str, Any]:
    """Return the settings that were given; the value `none` removes one."""
    given = {name: options[name] for name in _SETTINGS if options[name] is not None}
    settings: dict[str, Any] = {name: None if value == _NONE else value for name, value in given.items()}
    if settings.get("retention_bytes") is not None:
        try:
            settings["retention_bytes"] = as_bytes(settings["retention_bytes"])
        except ValueError as error:
            raise click.BadParameter(str(error), param_hint="--retention-bytes") from None
    return settings


@click.command(
    epilog=example(
        'headrace topics create clicks --schema "user string, url string, at timestamp" --key user --event-time at',
        'headrace topics create users --schema "id bigint, name string" --key id --cleanup compact',
        'headrace topics create orders --schema "id bigint, user_id bigint, email string" --private email=user_id',
        "headrace topics create users --at kafka://localhost:9092 --cleanup compact --set segment.ms=600000",
    )
)
@click.argument("name")
@click.option(
    "--schema", metavar="DDL", help='Its columns, such as "id bigint, at timestamp" [with --app: what it declares].'
)
@topic_options
@click.option(
    "--private",
    multiple=True,
    metavar="COLUMN=SUBJECT",
    help="Seal a column with a key for each value of the subject column; `forget` destroys it. May be repeated.",
)
@setting_options
@click.option(
    "--set", "settings", multiple=True, metavar="NAME=VALUE", help="With --at: a setting of Kafka's. May be repeated."
)
@at_option
@log_options
@json_option
def create(name: str, *, log_folder: Path | None, app: str | None, as_json: bool, **options: Any) -> None:
    """Create the topic NAME; with --app and without --schema as the app itself would, with what it declares.

    With --at in Kafka, where records have no schema: --partitions, --cleanup, --retention, --retention-bytes,
    --delete-retention and --set; what is not given is as the cluster has it by default.
    """
    if options["at"] is not None:
        _create_in_kafka(name, options | {"log": log_folder, "app": app}, as_json=as_json)
        return
    if options["settings"]:
        raise click.UsageError("--set is for topics of Kafka: say --at kafka://host:port")
    settings = _settings(options)
    with open_log(log_folder, app, creates=True) as log:
        if options["schema"] is None:
            topic = _declared(log, name, app, options)
            if settings:
                topic.alter(**settings)
        else:
            topic = log.create_topic(
                name,
                options["schema"],
                key=options["key"],
                event_time=options["event_time"],
                partitions=options["partitions"],
                private=_private(options["private"], options["key"]),
                **settings,
            )
        if as_json:
            facts = {"topic": name, "partitions": topic.partitions, "schema": to_ddl(topic.schema)}
            say_json(facts | {"private": topic.private} | settings_of(topic))
        else:
            say(f"created topic {name} in {log.path}: {to_ddl(topic.schema)}")


def _create_in_kafka(name: str, options: dict[str, Any], *, as_json: bool) -> None:
    absent = ("log", "app", "schema", "key", "event_time", "private", "archive", "archive_after")
    address = cluster_at(options["at"], **{option: options[option] for option in absent})
    from headrace.cli.kafka_topics import create_topic

    given = click.get_current_context().get_parameter_source("partitions") is ParameterSource.COMMANDLINE
    create_topic(address, name, options | ({} if given else {"partitions": None}), as_json=as_json)


def _declared(log: Log, name: str, app: str | None, options: dict[str, Any]) -> Topic:
    """Create a topic that an app declares, and return it."""
    if app is None:
        raise click.UsageError("say which columns it has, with --schema DDL or with --app FILE, which declares them")
    for option in ("key", "event_time", "private"):
        if options[option]:
            raise click.UsageError(
                f"--{option.replace('_', '-')} is what the app declares; leave it out, or --schema in"
            )
    from headrace.engine.outside import create_declared
    from headrace.engine.storage import Storage

    if log.has_topic(name):
        raise TopicExists(f'the log "{log.path}" already has a topic "{name}"', hint=f"headrace topics describe {name}")
    given = click.get_current_context().get_parameter_source("partitions") is ParameterSource.COMMANDLINE
    program = load_app(app)
    shards = program.shards or Storage(program.storage, program.name).about().get("shards") or 1
    create_declared(program.plan(), log, name, partitions=options["partitions"] if given else shards)
    return log.topic(name)


def _private(texts: tuple[str, ...], key: tuple[str, ...]) -> dict[str, str]:
    """Return the subject column of each private column; without `=SUBJECT` it is the key."""
    subjects = {}
    for text in texts:
        column, equals, subject = text.partition("=")
        if not equals and len(key) != 1:
            raise PlanError(
                f'--private "{text}" does not name the subject column, and the key is not one column',
                hint=f"Write --private {text}=user_id.",
            )
        subjects[column] = subject if equals else key[0]
    return subjects


@click.command(
    epilog=example(
        'headrace topics alter clicks --retention "30 days" --partitions 8',
        'headrace topics alter clicks --schema "user string, url string, at timestamp, country string" '
        "--default country=CH",
    )
)
@click.argument("name")
@click.option("--schema", metavar="DDL", help="The whole new schema: columns added, types widened, nulls allowed.")
@click.option(
    "--default", "defaults", multiple=True, metavar="COLUMN=VALUE", help="The value of an added column in old records."
)
@click.option("--partitions", type=click.IntRange(min=1), help="The new number of partitions; it cannot shrink.")
@setting_options
@log_options
@json_option
def alter(name: str, *, log_folder: Path | None, app: str | None, as_json: bool, **options: Any) -> None:
    """Change the topic NAME while it is used: its settings, its schema, the number of its partitions.

    Settings change first, then the schema, then the partitions. After an error, what came before it has changed.
    """
    settings = _settings(options)
    if options["defaults"] and options["schema"] is None:
        raise click.UsageError("--default is for columns that --schema adds")
    if not settings and options["schema"] is None and options["partitions"] is None:
        raise click.UsageError("nothing to change; give --retention, --schema, --partitions or another setting")
    with open_log(log_folder, app) as log:
        topic = find(log, name)
        changed = _alter(topic, settings)
        if options["schema"] is not None:
            changed += topic.evolve(options["schema"], _defaults(options["defaults"], options["schema"]))
        if options["partitions"] is not None:
            before = topic.partitions
            topic.add_partitions(options["partitions"])
            changed += [f"partitions: {before} -> {topic.partitions}"] if topic.partitions != before else []
    if as_json:
        say_json({"topic": name, "changed": changed})
    else:
        say(f"topic {name}: " + ("; ".join(changed) or "nothing changed"))


def _alter(topic: Topic, settings: dict[str, Any]) -> list[str]:
    before = settings_of(topic)
    if settings:
        topic.alter(**settings)
    after = settings_of(topic)
    return [f"{name}: {_shown(before[name])} -> {_shown(after[name])}" for name in after if after[name] != before[name]]


def _shown(value: object) -> str:
    return _NONE if value is None else str(value)


def _defaults(texts: tuple[str, ...], schema: str) -> dict[str, object]:
    from headrace.base.schema import parse

    columns, defaults = parse(schema), {}
    for text in texts:
        name, equals, value = text.partition("=")
        if not equals or name not in columns.names:
            raise PlanError(
                f'--default "{text}" names no column of the new schema',
                detail=f"Its columns are: {', '.join(columns.names)}.",
                hint="Write --default country=CH.",
            )
        try:
            defaults[name] = from_text(columns.field(name).type)(value)
        except ValueError as error:
            raise PlanError(f'--default "{text}": {error}', hint="Give a value of the column's type.") from None
    return defaults
