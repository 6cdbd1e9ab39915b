"""`headrace verify`: check everything that an app owns."""

from __future__ import annotations

from dataclasses import asdict
from typing import TYPE_CHECKING

import click

from headrace.base.outside import AppDamaged
from headrace.cli.output import example, json_option, note, say, say_json
from headrace.cli.parameters import FOLDER
from headrace.cli.places import STORAGE, check_storage
from headrace.cli.programs import load_app
from headrace.connect.embedded import log_path
from headrace.connect.stores import is_elsewhere
from headrace.engine.recovery.verify import repair_views
from headrace.engine.recovery.verify import verify as verify_all

if TYPE_CHECKING:
    from pathlib import Path


@click.command(
    epilog=example(
        "headrace verify app.py",
        "headrace verify app.py --repair",
        "headrace verify --storage .headrace --json",
        "headrace verify --storage /backup/storage --log /backup/log",
    )
)
@click.argument("file", required=False)
@click.option("--storage", type=FOLDER, help="The app's storage [.headrace].")
@click.option("--log", "log_folder", type=FOLDER, help="The log's folder.")
@click.option("--repair", is_flag=True, help="Build damaged views anew; the app must not be running.")
@json_option
def verify(file: str | None, *, storage: Path | None, log_folder: Path | None, repair: bool, as_json: bool) -> None:
    """Check everything that the app in FILE, or the storage, owns; exit 1 says what is damaged and what mends it.

    It reads every file (descriptions, commits, state, staged rows, views, the journal, every topic of the log and the
    positions of feeds) and compares checksums, the digest of each view, and what was read and published with what the
    commits say. It changes nothing, and may be used while the app runs. Give FILE where the app's topics are not in
    the log of its storage: a storage does not say where what it wrote is.

    With --repair, and FILE, it first builds damaged views anew from the state of the steps above them. A view of
    closed windows, or of rows that no step keeps, cannot be built from state: then nothing is changed, and the error
    names what mends it.
    """
    if repair and (file is None or log_folder is not None):
        raise click.UsageError("--repair starts the program's app: give FILE, and not --log")
    app = None if file is None else load_app(file, storage=storage)
    folder = app.storage if app is not None else storage or STORAGE
    check_storage(folder)
    path = log_folder or log_path(folder, None if app is None else app.topics)
    repaired = repair_views(app) if app is not None and repair else []
    elsewhere = None if app is None else is_elsewhere(app.topics)
    found = [*verify_all(folder, path, elsewhere=elsewhere, progress=_silent if as_json else _say_part)]
    if as_json:
        answer = {"storage": str(folder), "log": str(path), "whole": not found, "findings": list(map(asdict, found))}
        say_json(answer | ({"repaired": repaired} if repair else {}))
    elif repaired:
        say(f"built anew: {', '.join(repaired)}")
    for damage in found if not as_json else ():
        say(f"{damage.part}: {damage.what}\n  file: {damage.file}\n  mend: {damage.mend}")
    if found:
        raise AppDamaged(str(folder), [f"{damage.part}: {damage.what}" for damage in found], mend=found[0].mend)
    if not as_json:
        say(f"{folder} and the log {path}: whole")


def _say_part(part: str) -> None:
    note(f"reading {part} …")


def _silent(part: str) -> None:
    del part
