"""`headrace topics compact`, `clean`, `verify` and `repair`: keep a log small, and check that it is intact."""

from __future__ import annotations

import sys
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

import click

from headrace.base.errors import OutsideError
from headrace.base.text import counted
from headrace.cli.confirming import NotConfirmed
from headrace.cli.output import example, json_option, note, say, say_json, say_rows
from headrace.cli.places import find, log_options, open_log
from headrace.cli.values import sized

if TYPE_CHECKING:
    from pathlib import Path

    from headrace.log import Log, Topic
    from headrace.log.cleaning.rules import Cleaned


class Damaged(OutsideError):
    """Files of a log differ from what was written."""

    condition = "DAMAGED"


@click.command(epilog=example("headrace topics compact users"))
@click.argument("name")
@log_options
@json_option
def compact(name: str, *, log_folder: Path | None, app: str | None, as_json: bool) -> None:
    """Compact the topic NAME now: the last record of each key stays. Readers and writers continue."""
    with open_log(log_folder, app) as log:
        done = {name: find(log, name).compact()}
    _say(done, as_json=as_json)


@click.command(epilog=example("headrace topics clean", "headrace topics clean clicks users"))
@click.argument("names", nargs=-1)
@log_options
@json_option
def clean(names: tuple[str, ...], *, log_folder: Path | None, app: str | None, as_json: bool) -> None:
    """Apply the rules of the topics NAMES, by default of all: retention, compaction where it pays, the archive."""
    with open_log(log_folder, app) as log:
        done = {topic.name: topic.clean() for topic in _named(log, names)}
    _say(done, as_json=as_json)


@click.command(epilog=example("headrace topics verify", "headrace topics verify clicks"))
@click.argument("names", nargs=-1)
@log_options
@json_option
def verify(names: tuple[str, ...], *, log_folder: Path | None, app: str | None, as_json: bool) -> None:
    """Check every checksum and rule of the topics NAMES, by default of all; exit 1 says what is damaged, and where.

    It reads every file and changes nothing.
    """
    with open_log(log_folder, app) as log:
        path = log.path
        checked = {topic.name: topic.verify() for topic in _named(log, names)}
    count = sum(map(len, checked.values()))
    rows: list[dict[str, Any]] = [
        {"topic": name} | asdict(finding) for name, findings in checked.items() for finding in findings
    ]
    if as_json:
        say_json({"topics": list(checked), "whole": not rows, "findings": rows})
    elif rows:
        say_rows(rows, ["topic", "partition", "file", "position", "first", "following", "what"])
    else:
        say(f"{counted(len(checked), 'topic')} in {path}: whole")
    if rows:
        bad = ", ".join(name for name, findings in checked.items() if findings)
        raise Damaged(
            f"{counted(count, 'spot')} of the log {path} {'is' if count == 1 else 'are'} damaged, in: {bad}",
            detail="Intact batches are served; a damaged batch is not.",
            hint="Restore the files named from a copy, or continue reading after the offsets named.",
        )


@click.command(epilog=example("headrace topics repair clicks --yes"))
@click.argument("name")
@click.option("--yes", is_flag=True, help="Do not ask.")
@log_options
@json_option
def repair(name: str, *, yes: bool, log_folder: Path | None, app: str | None, as_json: bool) -> None:
    """Give up the acknowledged records that the topic NAME has lost at its end, after asking.

    If a partition's last segment is missing or shortened, nothing is appended to it (RECORDS_LOST) until the file is
    restored from a copy, or its records are given up here: readers then go on after them. Without such a loss nothing
    happens.
    """
    with open_log(log_folder, app) as log:
        topic = find(log, name)
        if not yes:
            note(f"Giving up what {name} in {log.path} has lost: after this no copy of a file brings it back.")
            if not sys.stdin.isatty():
                raise NotConfirmed("nobody can be asked to confirm it", hint=f"headrace topics repair {name} --yes")
            click.confirm("Go on?", abort=True, err=True)
        lost = topic.repair()
    if as_json:
        given_up = [{"partition": number, "first": at.start, "following": at.stop} for number, at in lost.items()]
        say_json({"topic": name, "given_up": given_up})
        return
    for number, at in lost.items():
        say(f"topic {name}, partition {number}: gave up {counted(len(at), 'record')}, offsets {at[0]} to {at[-1]}")
    if not lost:
        say(f"topic {name}: nothing to repair")


def _named(log: Log, names: tuple[str, ...]) -> list[Topic]:
    return [find(log, name) for name in names or log.topics()]


def _say(done: dict[str, Cleaned], *, as_json: bool) -> None:
    if as_json:
        say_json([{"topic": name} | asdict(cleaned) for name, cleaned in done.items()])
        return
    for name, cleaned in done.items():
        say(f"topic {name}: {'; '.join(_cleaning_lines(cleaned)) or 'nothing to do'}")


def _cleaning_lines(cleaned: Cleaned) -> list[str]:
    lines = []
    if cleaned.segments_dropped:
        lines.append(f"{counted(cleaned.segments_dropped, 'segment')} dropped ({sized(cleaned.bytes_dropped)})")
    if cleaned.bytes_before:
        size = f"{sized(cleaned.bytes_before)} -> {sized(cleaned.bytes_after)}"
        lines.append(f"{counted(cleaned.records_removed, 'record')} compacted away ({size})")
    if cleaned.segments_archived:
        lines.append(f"{counted(cleaned.segments_archived, 'segment')} archived ({sized(cleaned.bytes_archived)})")
    return lines
