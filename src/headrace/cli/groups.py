"""`headrace groups`: how far groups have read a log: of consumers, of a queue's workers, and apps."""

from __future__ import annotations

from dataclasses import asdict
from typing import TYPE_CHECKING, Any

import click

from headrace.base.errors import HeadraceError, InvalidArgument, PlanError, UnknownGroup
from headrace.cli.output import Commands, example, json_option, note, say, say_json, say_rows
from headrace.cli.places import log_options, open_log
from headrace.engine.recovery.journal import FOLDER, Journal
from headrace.log.groups.looking import GroupState, PartitionRead, group_named, groups_of, reset_group

if TYPE_CHECKING:
    from pathlib import Path

    from headrace.log import Log

_APP = "app"
_INSTEAD = "See who reads a topic: headrace topics describe NAME {at}. kafka-consumer-groups moves groups."
_KINDS = {"consumers": "members", "queue": "workers"}


@click.group(cls=Commands)
def groups() -> None:
    """Look at who reads a log, and how far: groups of consumers, queues, and apps."""


@groups.command("list", epilog=example("headrace groups list --log .headrace/log"))
@log_options
@json_option
def list_(*, log_folder: Path | None, app: str | None, as_json: bool) -> None:
    """List all groups: their topics, how many members they have, and how many records they have not done."""
    with open_log(log_folder, app, instead=_INSTEAD) as log:
        found = [*groups_of(log, now=log.clock.now()), *_apps(log)]
    if as_json:
        say_json([_facts(each) for each in found])
    elif found:
        columns = ["group", "kind", "topics", "members", "lag"]
        say_rows([_facts(each) | {"topics": ", ".join(_topics(each))} for each in found], columns)
    else:
        note(f"the log {log.path} has no groups")


@groups.command(epilog=example("headrace groups describe billing --log .headrace/log"))
@click.argument("name")
@log_options
@json_option
def describe(name: str, *, log_folder: Path | None, app: str | None, as_json: bool) -> None:
    """Show how far a group, a queue or an app came in each partition, and which process reads it."""
    with open_log(log_folder, app, instead=_INSTEAD) as log:
        found = [each for each in _apps(log) if each.name == name]
        try:
            found = [*group_named(log, name, now=log.clock.now()), *found]
        except UnknownGroup:
            if not found:
                raise
    if as_json:
        say_json([_facts(each) | {"partitions": [_partition(one) for one in each.partitions]} for each in found])
        return
    for each in found:
        rows = [_partition(one) for one in each.partitions]
        members = f", {each.members} {_KINDS[each.kind]}" if each.kind in _KINDS else ""
        say_rows(rows, ["topic", "partition", "next", "end", "lag", "process"], title=f"{name} ({each.kind}{members})")
        if each.work is not None:
            say(", ".join(f"{count} {state}" for state, count in each.work._asdict().items()))


@groups.command(
    epilog=example("headrace groups reset billing --to earliest", "headrace groups reset billing --to 2026-01-01")
)
@click.argument("name")
@click.option("--to", required=True, metavar="WHERE", help="earliest, latest, an offset, or a time: 2026-01-01T12:00.")
@click.option("--topic", help="Only this topic; by default all that the group has read.")
@log_options
@json_option
def reset(name: str, *, to: str, topic: str | None, log_folder: Path | None, app: str | None, as_json: bool) -> None:
    """Let a group of consumers begin elsewhere; nobody may be a member of it.

    An app begins again with `headrace reset`.
    """
    with open_log(log_folder, app, instead=_INSTEAD) as log:
        try:
            known = group_named(log, name, now=log.clock.now())
        except UnknownGroup:
            if all(each.name != name for each in _apps(log)):
                raise
            what = f'"{name}" is an app, whose offsets are in its storage'
            raise PlanError(what, hint="To compute it anew: headrace reset FILE.") from None
        found = [each for each in known if each.work is None]
        if not found:
            raise PlanError(f'"{name}" is a queue, which has no offsets to set', hint="Use a group of another name.")
        partitions = [one for one in found[0].partitions if topic is None or one.topic == topic]
        if not partitions:
            raise InvalidArgument(f'the group "{name}" has read no topic "{topic}"')
        offsets = {(one.topic, one.partition): _offset(log, one, to) for one in partitions}
        reset_group(log, name, offsets)
    rows = [
        {"topic": one.topic, "partition": one.partition, "was": one.next, "is": offsets[one.topic, one.partition]}
        for one in partitions
    ]
    say_json(rows) if as_json else say_rows(rows, ["topic", "partition", "was", "is"])


def _offset(log: Log, partition: PartitionRead, to: str) -> int:
    if to == "earliest":
        return partition.start
    if to == "latest":
        return partition.end
    if to.isdecimal():
        offset = int(to)
        if not partition.start <= offset <= partition.end:
            raise InvalidArgument(
                f"{offset} is no offset of {partition.topic}/{partition.partition}",
                hint=f"It has {partition.start} to {partition.end}.",
            )
        return offset
    return log.topic(partition.topic).offsets_at(to)[partition.partition]


def _apps(log: Log) -> list[GroupState]:
    """Return the apps that have read the log, as groups: by the newest line of their journals."""
    return [
        GroupState(name=folder.parent.name, kind=_APP, members=0, partitions=_read_by(log, folder))
        for folder in sorted((log.path / FOLDER).glob("*/*"))
        if folder.is_dir()
    ]


def _read_by(log: Log, folder: Path) -> list[PartitionRead]:
    journal = Journal(log.path, folder.parent.name, folder.name)
    last = journal.last_epoch()
    if last is None:
        return []
    found = []
    for topic, progress in sorted(journal.entries(last - 1)[last].sources.items()):
        try:
            opened = log.topic(topic)
        except HeadraceError:
            continue  # it is no topic of this log
        starts, ends = opened.start_offsets(), opened.end_offsets()
        for number, offset in sorted((int(each), offset) for each, offset in progress.offsets.items()):
            if number in ends:
                bounds = {"start": starts[number], "end": ends[number]}
                found.append(PartitionRead(topic=topic, partition=number, next=offset, **bounds))
    return found


def _topics(group: GroupState) -> list[str]:
    return sorted({each.topic for each in group.partitions})


def _facts(group: GroupState) -> dict[str, Any]:
    facts: dict[str, Any] = {"group": group.name, "kind": group.kind, "topics": _topics(group)}
    facts |= {"members": group.members if group.kind != _APP else None, "lag": group.lag}
    return facts | ({"work": group.work._asdict()} if group.work is not None else {})


def _partition(one: PartitionRead) -> dict[str, Any]:
    return asdict(one) | {"lag": one.lag}
