"""`headrace topics forget`: somebody's private values are gone, wherever they were copied to."""

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
@click.option("--subject", required=True, metavar="VALUE", help="Whom: a value of the column that says whose it is.")
@click.option("--column", metavar="NAME", help="The column that it stands in, where there are several [all].")
@log_options
@json_option
def forget(name: str, *, subject: str, column: str | None, log: Path | None, app: str | None, as_json: bool) -> None:
    """Destroy the keys of a subject's private values in the topic NAME, for good.

    Reading gives null for them from now on: in the topic and its archive, and in the state, topics and views of apps.
    What left them in clear text before (files, revealed columns, backups) is not reached: see docs/privacy.md.
    """
    with open_log(log, app) as found:
        destroyed = _forgotten(find(found, name), subject, column)
    if as_json:
        say_json({"topic": name, "subject": subject, "destroyed": destroyed})
    elif destroyed:
        say(f"topic {name}: {counted(destroyed, 'key')} of {subject} destroyed")
    else:
        say(f"topic {name}: {subject} was forgotten before; no key is left")


def _forgotten(topic: Topic, text: str, column: str | None) -> int:
    """Forget the subject that a text means in each column; what it means depends on the column's type."""
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
            f"--subject {text!r} is no subject of the topic {topic.name}", detail=f"Subjects are: {kinds}."
        )
    destroyed, unknown = 0, []
    for place, subject in (subjects or {None: text}).items():
        try:
            destroyed += topic.forget(subject, column=place)
        except UnknownSubject as error:
            unknown.append(error)
    if unknown and len(unknown) == len(subjects):
        raise unknown[0]
    return destroyed
