"""`headrace topics forget`: destroy the keys of a subject's private values, wherever the values were copied to."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from headrace.base.errors import InvalidRows, UnknownSubject
from headrace.base.schema import type_name
from headrace.base.text import counted
from headrace.cli.output import example, json_option, say, say_json
from headrace.cli.places import find, log_options, open_log
from headrace.cli.values import from_text

if TYPE_CHECKING:
    from pathlib import Path

    from headrace.log import Topic


@click.command(epilog=example("headrace topics forget orders --subject 4711"))
@click.argument("name")
@click.option("--subject", required=True, metavar="VALUE", help="Whose values: a value of the subject column.")
@click.option("--column", metavar="NAME", help="The subject column, where there are several [all].")
@log_options
@json_option
def forget(
    name: str, *, subject: str, column: str | None, log_folder: Path | None, app: str | None, as_json: bool
) -> None:
    """Destroy the keys of a subject's private values in the topic NAME, for good.

    From now on these values read as null: in the topic and its archive, and in the state, topics and views of apps.
    Stores that follow a table of an app lose them with its next epoch. Other copies in clear text (files, rows of
    streams in stores, backups) are not reached: see docs/privacy.md.
    """
    with open_log(log_folder, app) as log:
        destroyed = _forget(find(log, name), subject, column)
    if as_json:
        say_json({"topic": name, "subject": subject, "destroyed": destroyed})
    elif destroyed:
        say(f"topic {name}: {counted(destroyed, 'key')} of {subject} destroyed")
    else:
        say(f"topic {name}: {subject} was forgotten before; no key is left")


def _forget(topic: Topic, text: str, column: str | None) -> int:
    """Forget a subject in each subject column; return how many keys were destroyed.

    The text is converted to each column's type; a column that it does not fit is left out.
    """
    subjects: dict[str | None, object] = {}
    for name in sorted(set(topic.private.values())) if column is None else [column]:
        kind = topic.schema.field(name).type if name in topic.schema.names else None
        try:
            subjects[name] = from_text(kind)(text) if kind is not None else text
        except ValueError:
            continue
    if not subjects and topic.private:
        kinds = ", ".join(f"{name} {type_name(topic.schema.field(name).type)}" for name in topic.private.values())
        raise InvalidRows(
            f"--subject {text!r} cannot be a subject of the topic {topic.name}", detail=f"Subjects are: {kinds}."
        )
    destroyed, unknown = 0, []
    for subject_column, subject in (subjects or {None: text}).items():
        try:
            destroyed += topic.forget(subject, column=subject_column)
        except UnknownSubject as error:
            unknown.append(error)
    if unknown and len(unknown) == len(subjects):
        raise unknown[0]
    return destroyed
