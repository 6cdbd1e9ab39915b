"""`headrace topics create` and `alter`: what a topic is, said in options."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from headrace.base.errors import PlanError
from headrace.base.schema import to_ddl
from headrace.cli.describe import settings_of
from headrace.cli.output import example, json_option, say, say_json
from headrace.cli.places import find, log_options, open_log
from headrace.cli.values import as_bytes, from_text

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from headrace.log import Topic

_NONE = "none"
_SETTINGS = ("retention", "retention_bytes", "cleanup", "delete_retention", "archive", "archive_after")


def _put(options: tuple[Callable[[Any], Any], ...], command: Callable[..., Any]) -> Callable[..., Any]:
    for option in reversed(options):
        command = option(command)
    return command


def described(command: Callable[..., Any]) -> Callable[..., Any]:
    """Give a command what a new topic is made of."""
    options = (
        click.option("--key", multiple=True, help="A key column; may be given several times."),
        click.option("--event-time", help="The timestamp column that says when things happened."),
        click.option("--partitions", type=click.IntRange(min=1), default=1, help="How many partitions [1]."),
    )
    return _put(options, command)


def with_settings(command: Callable[..., Any]) -> Callable[..., Any]:
    """Give a command what may change in a topic."""
    options = (
        click.option("--retention", metavar="TIME", help='How long records are kept, as in "7 days"; none: for ever.'),
        click.option("--retention-bytes", metavar="SIZE", help="How much a partition keeps, as in 10GB; none: all."),
        click.option(
            "--cleanup", type=click.Choice(["delete", "compact"]), help="compact keeps each key's last record."
        ),
        click.option("--delete-retention", metavar="TIME", help="How long tombstones stay once compacted."),
        click.option(
            "--archive", metavar="FOLDER", help="Where old segments go, to be read from there; none: nowhere."
        ),
        click.option("--archive-after", metavar="TIME", help="How old records are when they go there."),
    )
    return _put(options, command)


def _given(options: dict[str, Any]) -> dict[str, Any]:
    """Return the settings that were said; `none` takes one away."""
    made = {name: options[name] for name in _SETTINGS if options[name] is not None}
    made = {name: None if value == _NONE else value for name, value in made.items()}
    if made.get("retention_bytes") is not None:
        try:
            made["retention_bytes"] = as_bytes(made["retention_bytes"])
        except ValueError as error:
            raise click.BadParameter(str(error), param_hint="--retention-bytes") from None
    return made


@click.command(
    epilog=example(
        'headrace topics create clicks --schema "user string, url string, at timestamp" --key user --event-time at',
        'headrace topics create users --schema "id bigint, name string" --key id --cleanup compact',
        'headrace topics create orders --schema "id bigint, user_id bigint, email string" --private email=user_id',
    )
)
@click.argument("name")
@click.option("--schema", required=True, metavar="DDL", help='Its columns, as in "id bigint, at timestamp".')
@described
@click.option(
    "--private",
    multiple=True,
    metavar="COLUMN=SUBJECT",
    help="Seal a column with a key for each value of the other, which `forget` destroys; several times.",
)
@with_settings
@log_options
@json_option
def create(name: str, *, log: Path | None, app: str | None, as_json: bool, **options: Any) -> None:
    """Create the topic NAME."""
    settings = _given(options)
    with open_log(log, app) as found:
        made = found.create_topic(
            name,
            options["schema"],
            key=options["key"],
            event_time=options["event_time"],
            partitions=options["partitions"],
            private=_private(options["private"], options["key"]),
            **settings,
        )
        if as_json:
            known = {"topic": name, "partitions": made.partitions, "schema": to_ddl(made.schema)}
            say_json(known | {"private": made.private} | settings_of(made))
        else:
            say(f"created topic {name} in {found.path}: {to_ddl(made.schema)}")


def _private(given: tuple[str, ...], key: tuple[str, ...]) -> dict[str, str]:
    """Return the subject's column of each private one; a private column alone belongs to the key."""
    made = {}
    for text in given:
        column, told, subject = text.partition("=")
        if not told and len(key) != 1:
            raise PlanError(
                f'--private "{text}" says not whose its values are, and the key is not one column',
                hint=f"Say it like --private {text}=user_id.",
            )
        made[column] = subject if told else key[0]
    return made


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
    "--default", "defaults", multiple=True, metavar="COLUMN=VALUE", help="What an added column is in old records."
)
@click.option("--partitions", type=click.IntRange(min=1), help="How many partitions in all: more than there are.")
@with_settings
@log_options
@json_option
def alter(name: str, *, log: Path | None, app: str | None, as_json: bool, **options: Any) -> None:
    """Change the topic NAME while it is used: its settings, its schema, the number of its partitions.

    All of it or, with one clear error, what comes before the error: settings first, then the schema, then partitions.
    """
    settings = _given(options)
    if options["defaults"] and options["schema"] is None:
        raise click.UsageError("--default is for columns that --schema adds")
    if not settings and options["schema"] is None and options["partitions"] is None:
        raise click.UsageError("nothing to change is said; give --retention, --schema, --partitions or another setting")
    with open_log(log, app) as found:
        topic = find(found, name)
        changed = _altered(topic, settings)
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


def _altered(topic: Topic, settings: dict[str, Any]) -> list[str]:
    before = settings_of(topic)
    if settings:
        topic.alter(**settings)
    after = settings_of(topic)
    return [f"{name}: {_shown(before[name])} -> {_shown(after[name])}" for name in after if after[name] != before[name]]


def _shown(value: object) -> str:
    return _NONE if value is None else str(value)


def _defaults(given: tuple[str, ...], schema: str) -> dict[str, object]:
    from headrace.base.schema import parse

    columns, made = parse(schema), {}
    for text in given:
        name, told, value = text.partition("=")
        if not told or name not in columns.names:
            raise PlanError(
                f'--default "{text}" names no column of the new schema',
                detail=f"Its columns are: {', '.join(columns.names)}.",
                hint="Say it like --default country=CH.",
            )
        try:
            made[name] = from_text(columns.field(name).type)(value)
        except ValueError as error:
            raise PlanError(f'--default "{text}": {error}', hint="Give a value of the column's type.") from None
    return made
