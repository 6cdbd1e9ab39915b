"""`headrace backup` and `headrace restore`: a consistent copy of an app and its log."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from headrace.base.text import counted
from headrace.cli.output import example, json_option, note, say, say_json
from headrace.cli.parameters import FOLDER
from headrace.cli.programs import load_app
from headrace.cli.values import sized
from headrace.engine.recovery import backup as engine

if TYPE_CHECKING:
    from pathlib import Path


@click.command(epilog=example("headrace backup app.py /backups/2026-01-31"))
@click.argument("file")
@click.argument("folder", metavar="DIR", type=FOLDER)
@click.option("--storage", type=FOLDER, help="Use this storage, not the one in FILE.")
@json_option
def backup(file: str, folder: Path, *, storage: Path | None, as_json: bool) -> None:
    """Copy the storage and the log of the app in FILE to the new folder DIR, while it runs or not.

    All of it fits together: a restored app goes on where the copy was made, and loses and repeats nothing. DIR has a
    manifest with a checksum of every file, which is written last. Archived segments of topics are not copied.
    """
    app = load_app(file, storage=storage)
    done = engine.backup(app, folder, progress=_silent if as_json else _say_part)
    _say(done, "backed up", folder, as_json=as_json)


@click.command(epilog=example("headrace restore /backups/2026-01-31", "headrace restore DIR --storage new/place"))
@click.argument("folder", metavar="DIR", type=FOLDER)
@click.option("--storage", type=FOLDER, help="Where the storage goes, if not to where it was.")
@click.option("--log", "log_folder", type=FOLDER, help="Where the log goes, if not to where it was.")
@click.option("--keep-log", is_flag=True, help="Restore the storage alone, and go on with the log that is there.")
@json_option
def restore(folder: Path, *, storage: Path | None, log_folder: Path | None, keep_log: bool, as_json: bool) -> None:
    """Restore the backup in DIR to where it was made from. Folders that exist are refused: move them away first.

    Every file is compared with the manifest first. With --keep-log the log that is there must know the app and have
    what the backup has read; epochs that it has and the backup has not run again at the next start, over the same
    input, and publish nothing twice.
    """
    done = engine.restore(folder, storage=storage, log=log_folder, keep_log=keep_log)
    _say(done, "restored", folder, as_json=as_json)


def _say(done: engine.Backup, what: str, folder: Path, *, as_json: bool) -> None:
    if as_json:
        say_json({"folder": str(folder), **done._asdict()})
        return
    at = "before its first epoch" if done.epoch < 0 else f"as of epoch {done.epoch}"
    say(f"{what} app {done.app} {at}: {counted(done.files, 'file')}, {sized(done.bytes)}, {folder}")


def _say_part(part: str) -> None:
    note(f"copying {part} …")


def _silent(part: str) -> None:
    del part
