"""A backup of an app, its storage and its log, made while it runs; and restoring it.

The storage is copied first, as of a commit, then the views, then the log and the journal as of one moment. So the log
of a backup is as new as its commit or newer, and the journal has what the log has: a restored app runs the epochs
between again, over the same input, as after any loss of commits (`lost_epochs`).
"""

from __future__ import annotations

import os
import shutil
import uuid
from contextlib import suppress
from typing import IO, TYPE_CHECKING, Any, NamedTuple

from headrace.base import checked
from headrace.base.crc import crc32
from headrace.base.disk import make_folder, sync_folder
from headrace.base.errors import DamagedFile, InvalidPlan
from headrace.base.outside import BackupRefused
from headrace.connect.embedded import log_path
from headrace.connect.embedded.boundaries import TOPIC as BOUNDARIES
from headrace.connect.embedded.landing_file import FOLDER as LANDINGS
from headrace.connect.embedded.source import what_differs
from headrace.engine.recovery.journal import FOLDER as JOURNALS
from headrace.engine.recovery.journal import Journal
from headrace.engine.recovery.same_sources import SOURCES
from headrace.engine.served import FILE as SERVED
from headrace.engine.served import restored
from headrace.engine.storage import Storage, read_json
from headrace.kernels.files import read_metadata
from headrace.log import Log
from headrace.log.copying import copied
from headrace.log.privacy import keyfile
from headrace.views.sqlite import SqliteViews

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping
    from pathlib import Path

    from headrace.dsl.app import App
    from headrace.engine.storage import Commit

MANIFEST = "manifest.json"
FORMAT = 1
_ATTEMPTS = 100
_DESCRIPTIONS = ("app.json", "plan.json", "sources.json", "private.json", SERVED)
_UNFINISHED = ("reset.json", "adopt.json")
_BLOCK = 1 << 20


class Backup(NamedTuple):
    """A backup: the app, its last commit (-1: none) and how many files and bytes it has."""

    app: str
    epoch: int
    files: int
    bytes: int


def backup(
    app: App,
    target: Path,
    *,
    progress: Callable[[str], None] = lambda part: None,  # noqa: ARG005 -- nobody asks
) -> Backup:
    """Write a consistent copy of an app's storage and log to a new folder, while the app runs or not.

    It is complete when its manifest is there. Archived segments and Spark's checkpoint are not in it.

    Raises:
        BackupRefused: the folder exists and is not empty, there is nothing to copy, or a reset is unfinished.
        InvalidPlan: a source of the app is read by Spark: its offsets are in Spark's checkpoint.

    """
    if any(node.read_by_spark for node in app.plan().sources()):
        raise InvalidPlan("an app that reads with Spark's own sources cannot be backed up: their offsets are Spark's")
    for owned in (app.storage, log_path(app.storage, app.topics)):
        if target.resolve().is_relative_to(owned.resolve()):
            raise BackupRefused(
                f"the folder {target} is inside {owned}, which it would be a copy of",
                detail="Whatever removes or damages the one would take the other with it.",
                hint="Name a folder elsewhere, best on another disk.",
            )
    if target.exists() and any(target.iterdir()):
        raise BackupRefused(f"the folder {target} is not empty", hint="Name a folder that does not exist.")
    storage, log_folder = Storage(app.storage, app.name), log_path(app.storage, app.topics)
    if not storage.about():
        raise BackupRefused(f"the app {app.name} has never run in {app.storage}", hint="Run it first.")
    if not storage.busy():
        storage.mend()
    files: dict[str, tuple[int, int]] = {}
    progress("storage")
    commit = _copy_storage(storage, target / "storage", files)
    progress("views")
    if (app.storage / "views.db").exists():
        SqliteViews(app.storage / "views.db").copy_to(target / "storage" / "views.db")
        files["storage/views.db"] = _summed(target / "storage" / "views.db")
    progress("log")
    about = storage.about()
    _copy_log(log_folder, target / "log", files, f"{JOURNALS}/{app.name}/{about['id']}")
    manifest = {
        "format": FORMAT,
        "app": app.name,
        "id": about["id"],
        "epoch": -1 if commit is None else commit.epoch,
        "storage": str(app.storage.absolute()),
        "log": str(log_folder.absolute()),
        "files": files,
    }
    _write(target / MANIFEST, checked.to_text(manifest, indent=1).encode())
    return Backup(app.name, int(manifest["epoch"]), len(files), sum(size for size, _ in files.values()))


# ---- copying ---------------------------------------------------------------------------------------------


def _copy_storage(storage: Storage, target: Path, files: dict[str, tuple[int, int]]) -> Commit | None:
    """Copy the newest commit with its state and staged rows; again where the running app removes files meanwhile."""
    failed: int | None = None
    for _ in range(_ATTEMPTS):
        before, epoch = _described(storage), storage.last_epoch()
        shutil.rmtree(target, ignore_errors=True)
        files.clear()
        target.mkdir(parents=True)
        try:
            commit = None if epoch is None else _copy_commit(storage, epoch, target, files)
        except (FileNotFoundError, DamagedFile) as error:
            if failed == epoch == storage.last_epoch():  # nobody has removed it since: it is not there
                raise (
                    error if isinstance(error, DamagedFile) else DamagedFile(str(error.filename), str(error))
                ) from error
            failed = epoch
            continue
        if _described(storage) == before:
            if SERVED in before:
                served = restored(checked.from_text(before[SERVED], target / SERVED))
                before[SERVED] = checked.to_text(served, indent=1).encode()
            for name, content in before.items():
                files[f"storage/{name}"] = _write(target / name, content)
            return commit
    raise BackupRefused("the app commits faster than its state can be copied", hint="Stop it for the backup.")


def _described(storage: Storage) -> dict[str, bytes]:
    """Return the descriptions.

    Raises:
        BackupRefused: a reset or a change of program was cut short.

    """
    if any((storage.path / name).exists() for name in _UNFINISHED):
        raise BackupRefused(f"a reset or a change of {storage.path} is not finished", hint="Start the app first.")
    found = {}
    for name in _DESCRIPTIONS:
        with suppress(FileNotFoundError):
            found[name] = (storage.path / name).read_bytes()
    return found


def _copy_commit(storage: Storage, epoch: int, target: Path, files: dict[str, tuple[int, int]]) -> Commit:
    commit = storage.read_commit(epoch)
    staging = storage.staging(epoch)
    with suppress(FileNotFoundError):  # it is being published: then the views and topics that follow have it
        for staged in commit.staged:
            name = f"epochs/{staging.name}/{staged.file}"
            files[f"storage/{name}"] = _copy(staging / staged.file, target / name)
    if not staging.is_dir():
        shutil.rmtree(target / "epochs", ignore_errors=True)
        for name in [name for name in files if name.startswith("storage/epochs/")]:
            del files[name]
    for name in _state_files(storage, commit):
        files[f"storage/{name}"] = _copy(storage.path / name, target / name)
    path = storage.commit_path(epoch)
    files[f"storage/epochs/{path.name}"] = _copy(path, target / "epochs" / path.name)
    return commit


def _state_files(storage: Storage, commit: Commit) -> Iterator[str]:
    for step, by_shard in commit.heads.items():
        for shard, head in by_shard.items():
            file: str | None = head.file
            while file is not None:
                name = f"state/{step}/{shard}/{file}"
                yield name
                file = read_metadata(storage.path / name)["previous"]


def _copy_log(folder: Path, target: Path, files: dict[str, tuple[int, int]], journal: str) -> None:
    """Copy the topics as of one moment, in which no epoch was committed and no feed stored a position.

    So the topics have the input of every epoch in the journal, and rows of no epoch that is not in it.
    """
    target.mkdir(parents=True, exist_ok=True)
    with Log(folder) as log:
        names = [*([BOUNDARIES] if log.has_topic(BOUNDARIES) else ()), *log.topics()]
        for _ in range(_ATTEMPTS):
            landings, sizes = _landings(folder), _sizes(folder / journal)
            with copied(log, names) as copy:
                if (_landings(folder), _sizes(folder / journal)) != (landings, sizes):
                    continue
                copy.prefixes.update({f"{journal}/{path.name}": (path, size) for path, size in sizes.items()})
                for name, content in {**landings, **copy.contents}.items():
                    files[f"log/{name}"] = _write(target / name, content)
                for name, (path, size) in copy.prefixes.items():
                    files[f"log/{name}"] = _copy(path, target / name, size)
                return
    raise BackupRefused("the app commits faster than its log can be looked at", hint="Stop it for the backup.")


def _sizes(journal: Path) -> dict[Path, int]:
    return {path: path.stat().st_size for path in sorted(journal.glob("*"))}


def _landings(folder: Path) -> dict[str, bytes]:
    """Return the positions of feeds: each has the rows of one append that the topic has, or is about to have."""
    found = {}
    for path in sorted((folder / LANDINGS).glob("[!.]*")):
        with suppress(FileNotFoundError):
            found[f"{LANDINGS}/{path.name}"] = path.read_bytes()
    return found


def _copy(source: Path, target: Path, size: int | None = None) -> tuple[int, int]:
    """Copy a file, or its first bytes, durably; return its size and checksum."""
    left, checksum, done = size, 0, 0
    with source.open("rb") as file, _new(target) as out:
        while block := file.read(_BLOCK if left is None else min(_BLOCK, left)):
            out.write(block)
            checksum, done = crc32(block, checksum), done + len(block)
            left = None if left is None else left - len(block)
        out.flush()
        os.fsync(out.fileno())
    if left:
        raise DamagedFile(str(source), f"it has {done} bytes, not {size}")
    return done, checksum


def _write(path: Path, content: bytes) -> tuple[int, int]:
    with _new(path) as file:
        file.write(content)
        file.flush()
        os.fsync(file.fileno())
    sync_folder(path.parent)
    return len(content), crc32(content)


def _new(path: Path) -> IO[bytes]:
    """Open a new file; one with keys of private columns is its owner's alone, whatever its copy or the umask says."""
    path.parent.mkdir(parents=True, exist_ok=True)
    if path.name != keyfile.FILE_NAME:
        return path.open("wb")
    return os.fdopen(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o600), "wb")


def _sync_folders(root: Path) -> None:
    """Sync a folder and all in it: the names of files that are synced survive a power loss."""
    for inside, _, _ in os.walk(root, topdown=False):
        sync_folder(type(root)(inside))


def _summed(path: Path) -> tuple[int, int]:
    size, checksum = 0, 0
    with path.open("rb") as file:
        while block := file.read(_BLOCK):
            size, checksum = size + len(block), crc32(block, checksum)
    return size, checksum


# ---- restoring -------------------------------------------------------------------------------------------


def restore(source: Path, *, storage: Path | None = None, log: Path | None = None, keep_log: bool = False) -> Backup:
    """Restore a backup to where it was made from, or to other folders, which must not exist.

    Args:
        source: the folder of the backup.
        storage: the folder of the storage instead.
        log: the folder of the log instead; where the log was inside the storage, it is inside the new one.
        keep_log: restore the storage alone, beside the log that is there: lost epochs run again at the start.

    Raises:
        BackupRefused: it is not complete, a folder exists, or the log that is there does not fit.
        DamagedFile: a file of it is not as it was written.

    """
    manifest = _checked(source)
    to_storage = storage or type(source)(manifest["storage"])
    inside = manifest["log"] == str(type(source)(manifest["storage"]) / "log")
    to_log = log or (to_storage / "log" if inside else type(source)(manifest["log"]))
    if keep_log:
        _check_fits(source, manifest, to_log)
    elif to_log.exists():
        raise BackupRefused(f"the log {to_log} exists", hint="Move it away, or keep it and go on with it: --keep-log.")
    kept = {to_log.name} if keep_log and to_log.parent == to_storage else set()
    if to_storage.exists() and {path.name for path in to_storage.iterdir()} - kept:
        raise BackupRefused(f"the storage {to_storage} exists", hint="Move it away first.")
    if keep_log:
        _place({source / "storage": ""}, to_storage)
    elif to_log.is_relative_to(to_storage):
        _place({source / "storage": "", source / "log": to_log.relative_to(to_storage)}, to_storage)
    else:
        _place({source / "storage": ""}, to_storage)  # first: beside the log alone a start would take the app for new
        _place({source / "log": ""}, to_log)
    sizes = [size for size, _ in manifest["files"].values()]
    return Backup(manifest["app"], manifest["epoch"], len(sizes), sum(sizes))


def _checked(source: Path) -> dict[str, Any]:
    """Return the manifest, if every file is as it says."""
    manifest = read_json(source / MANIFEST, hint="Use another backup.")
    if manifest is None or manifest["format"] != FORMAT:
        what = "has no manifest: it is not complete" if manifest is None else f"has format {manifest['format']}"
        raise BackupRefused(f"the backup {source} {what}", hint="Use another backup.")
    for name, (size, checksum) in manifest["files"].items():
        path = source / name
        try:
            whole = _summed(path) == (size, checksum)
        except OSError as error:
            raise DamagedFile(str(path), str(error), hint="Use another backup.") from error
        if not whole:
            raise DamagedFile(str(path), "it is not the file that was backed up", hint="Use another backup.")
    return manifest


def _check_fits(source: Path, manifest: dict[str, Any], folder: Path) -> None:
    """Refuse a log that does not continue the one of the backup."""
    known = Journal(folder, manifest["app"], manifest["id"]).last_epoch()
    if manifest["epoch"] < 0:
        return
    if known is None or known < manifest["epoch"]:
        what = "does not know this app" if known is None else f"ends at epoch {known}"
        raise BackupRefused(
            f"the log {folder} {what}, and the backup has epoch {manifest['epoch']}",
            hint="Restore the log of the backup, too: move that one away, and leave --keep-log out.",
        )
    storage = Storage(source / "storage", manifest["app"])
    identities = storage.read_json(SOURCES) or {}
    with Log(folder) as log:
        for step, read in storage.read_commit(manifest["epoch"]).sources.items():
            why = what_differs(log, identities.get(step, ""), read.instance, offsets=read.offsets, marks=read.marks)
            if why:
                raise BackupRefused(
                    f'the log {folder} does not have what the step "{step}" has read: {why}',
                    hint="Restore the log of the backup, too: move that one away, and leave --keep-log out.",
                )


def _place(sources: Mapping[Path, Path | str], target: Path) -> None:
    """Copy folders, each to its place below the target, then move all there at once.

    Where the target exists, a log that stays or a mounted disk, they are moved entry by entry, the commits first: a
    start that finds these alone refuses what is not there, and knows the app whose log it finds.
    """
    make_folder(target.parent, sync=True)
    there = target.exists()
    aside = (target if there else target.parent) / f".{target.name}.restoring-{uuid.uuid4().hex[:8]}"
    aside.mkdir()
    try:
        for source, place in sources.items():
            for path in sorted(source.rglob("*")):
                if path.is_file():
                    _copy(path, aside / place / path.relative_to(source))
        _sync_folders(aside)
    except BaseException:
        shutil.rmtree(aside, ignore_errors=True)  # a disk that is full has room again
        raise
    if there:
        for path in sorted(aside.iterdir(), key=lambda path: (path.name != "epochs", path.name)):
            path.rename(target / path.name)
        aside.rmdir()
        sync_folder(target)
    else:
        aside.rename(target)
    sync_folder(target.parent)
