"""`headrace topics compact`, `clean` and `verify`: what keeps a log small, and what tells that it is whole."""

from __future__ import annotations

from dataclasses import asdict
from typing import TYPE_CHECKING, Any

import click

from headrace.base.errors import OutsideError
from headrace.base.text import counted
from headrace.cli.output import example, json_option, say, say_json, say_rows
from headrace.cli.places import find, log_options, open_log
from headrace.cli.values import sized

if TYPE_CHECKING:
    from pathlib import Path

    from headrace.log import Log, Topic
    from headrace.log.cleaning.rules import Cleaned


class Damaged(OutsideError):
    """Files of a log are not what was written."""

    condition = "DAMAGED"


@click.command(epilog=example("headrace topics compact users"))
@click.argument("name")
@log_options
@json_option
def compact(name: str, *, log: Path | None, app: str | None, as_json: bool) -> None:
    """Compact the topic NAME now: of each key the last record stays. Readers and writers go on."""
    with open_log(log, app) as found:
        done = {name: find(found, name).compact()}
    _say(done, as_json=as_json)


@click.command(epilog=example("headrace topics clean", "headrace topics clean clicks users"))
@click.argument("names", nargs=-1)
@log_options
@json_option
def clean(names: tuple[str, ...], *, log: Path | None, app: str | None, as_json: bool) -> None:
    """Apply the rules of the topics NAMES, by default of all: retention, compaction where it pays, the archive."""
    with open_log(log, app) as found:
        done = {topic.name: topic.clean() for topic in _named(found, names)}
    _say(done, as_json=as_json)


@click.command(epilog=example("headrace topics verify", "headrace topics verify clicks"))
@click.argument("names", nargs=-1)
@log_options
@json_option
def verify(names: tuple[str, ...], *, log: Path | None, app: str | None, as_json: bool) -> None:
    """Check every checksum and rule of the topics NAMES, by default of all; exit 1 says what is damaged, and where.

    Reads all files anew and changes nothing.
    """
    with open_log(log, app) as found:
        path = found.path
        checked = {topic.name: topic.verify() for topic in _named(found, names)}
    count = sum(map(len, checked.values()))
    rows: list[dict[str, Any]] = [{"topic": name} | asdict(each) for name, some in checked.items() for each in some]
    if as_json:
        say_json({"topics": list(checked), "whole": not rows, "findings": rows})
    elif rows:
        say_rows(rows, ["topic", "partition", "file", "position", "first", "following", "what"])
    else:
        say(f"{counted(len(checked), 'topic')} in {path}: whole")
    if rows:
        bad = ", ".join(name for name, some in checked.items() if some)
        raise Damaged(
            f"{counted(count, 'spot')} of the log {path} {'is' if count == 1 else 'are'} damaged, in: {bad}",
            detail="What can be read is served; of a damaged batch nothing is.",
            hint="Restore the files named from a copy, or read on behind the offsets named.",
        )


def _named(log: Log, names: tuple[str, ...]) -> list[Topic]:
    return [find(log, name) for name in names or log.topics()]


def _say(done: dict[str, Cleaned], *, as_json: bool) -> None:
    if as_json:
        say_json([{"topic": name} | asdict(each) for name, each in done.items()])
        return
    for name, each in done.items():
        say(f"topic {name}: {'; '.join(_told(each)) or 'nothing to do'}")


def _told(done: Cleaned) -> list[str]:
    told = []
    if done.segments_dropped:
        told.append(f"{counted(done.segments_dropped, 'segment')} dropped ({sized(done.bytes_dropped)})")
    if done.bytes_before:
        size = f"{sized(done.bytes_before)} -> {sized(done.bytes_after)}"
        told.append(f"{counted(done.records_removed, 'record')} compacted away ({size})")
    if done.segments_archived:
        told.append(f"{counted(done.segments_archived, 'segment')} archived ({sized(done.bytes_archived)})")
    return told
