"""The folder of an app: its files, its lock, and the commit of each epoch.

app.json            the app's name, its id and its shards
plan.json           the identity of the stateful steps
sources.json        the identity of the sources
private.json        the private columns of the views
reset.json          a reset that is being done
lock                held by the process that runs the app
lease/              who runs the app, where locks cannot be trusted
run.json            what the process that runs the app says of itself
log/                the embedded log
epochs/<n>.json     the commit of epoch n; epochs/<n>/ its staged rows until they are published
epochs/<n>.*.redo   its small files once more, until they are on the disk themselves
state/<step>/<shard>/<file>
views.db            the views, or
views.json          the database that serves them
spark/              Spark's checkpoint
"""

from __future__ import annotations

import os
import shutil
import uuid
from contextlib import suppress
from dataclasses import dataclass, field, fields
from typing import IO, TYPE_CHECKING, Any

from headrace.base import checked
from headrace.base.disk import in_the_way, make_folder, sync_folder
from headrace.base.errors import DamagedFile, InvalidArgument, StorageBusy, StorageOfAnother
from headrace.engine import redo
from headrace.engine.lease import Lease, lock_file
from headrace.kernels.files import read_metadata
from headrace.kernels.redo import SUFFIX
from headrace.kernels.state.state import StateHead
from headrace.kernels.task import StagedFile

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

COMMITS_TO_KEEP = 20
"""How many commits are kept for inspection; recovery needs the last one."""
APP = "app.json"
_MENDS = {
    APP: "Start the app: it is written again from the newest commit.",
    "plan.json": "Restore it from a backup: headrace restore DIR. Or, if the program is the one that ran last, delete "
    "the file: the next start writes it again.",
    "sources.json": "Restore it from a backup: headrace restore DIR. Or, if the app reads the same topics as when it "
    "ran last, delete the file: the next start writes it again.",
    "reset.json": "Delete the file, and run the same headrace reset again.",
    "private.json": "Delete the file, and start the app: it is written again from the plan.",
    "spark/checkpoint.json": "Delete the folder spark/ of the storage: the next start begins a new checkpoint after "
    "the last commit.",
}
"""What mends a damaged file, by its name."""
_COMMIT_MEND = "Start the app: a lost commit is recovered from the log, or the start says what to do."


@dataclass(kw_only=True)
class SourceProgress:
    """How far a source has been read, by partition. JSON has text keys, so partitions are text.

    `times`: the greatest event time. `active`: when rows last arrived, by the clock. Both are microseconds.
    `instance`: whose offsets they are (`Source.instance`). `marks`: what tells the record before each offset from
    others (`SourceReader.mark`), where that is known.
    """

    offsets: dict[str, int] = field(default_factory=dict)
    times: dict[str, int] = field(default_factory=dict)
    active: dict[str, int] = field(default_factory=dict)
    ended: bool = False
    instance: str | None = None
    marks: dict[str, str] = field(default_factory=dict)

    def observe(self, partition: str, time: int, now: int) -> None:
        """Note that rows arrived, and their greatest event time."""
        self.active[partition] = now
        self.times[partition] = max(time, self.times.get(partition, time))


@dataclass(kw_only=True)
class Commit:
    """A committed epoch: what it read, what it computed, and what the next epoch works with."""

    epoch: int
    app: dict[str, Any] = field(default_factory=dict)  # its id and shards, as in app.json
    program: str = ""  # the fingerprint of the program that computed it
    ranges: list[list[str | int]] = field(default_factory=list)  # as `connect.source.to_json` writes them
    sources: dict[str, SourceProgress] = field(default_factory=dict)
    watermarks: dict[str, int | None] = field(default_factory=dict)
    previous: dict[str, int | None] = field(default_factory=dict)
    outputs: dict[str, int | None] = field(default_factory=dict)
    reached: dict[str, int] = field(default_factory=dict)  # watermarks by which steps emitted, later than `previous`
    idle: dict[str, bool] = field(default_factory=dict)
    waiting: bool = False  # steps that detect late rows keep rows
    due: bool = False  # an epoch without input would change the output
    heads: dict[str, dict[str, StateHead]] = field(default_factory=dict)
    staged: list[StagedFile] = field(default_factory=list)
    published: dict[str, int] = field(default_factory=dict)  # by sink, the last epoch before this one with rows for it
    sinks: list[str] | None = None  # the sinks of the program; None in commits of older versions
    refill: list[str] = field(default_factory=list)  # steps and views that a reset emptied: the next start fills them
    replay: bool = False  # all was reset but the outputs: the next start replays everything, and appends what differs
    partial: list[str] = field(default_factory=list)  # the steps that began without the rows before them
    filled: list[str] = field(default_factory=list)  # the steps and sinks that began with it: it is a fill epoch
    replaced: list[str] = field(default_factory=list)  # of these, the sinks whose views lose what they had
    forgotten: dict[str, int] = field(default_factory=dict)  # by topic, the keys' destructions that stores know of
    counts: dict[str, dict[str, int]] = field(default_factory=dict)
    totals: dict[str, dict[str, int]] = field(default_factory=dict)
    rows: int = 0
    seconds: float = 0.0
    limit: int = 0
    at: int = 0
    now: int = 0  # the time of the epoch, when it was planned; never before that of an earlier one
    carrier: str = ""

    @property
    def watermarks_moved(self) -> bool:
        """Whether a step has a watermark that it has not worked with yet."""
        return self.watermarks != self.previous

    def to_json(self) -> str:
        """Return the commit as the text of its file."""
        return checked.to_text(checked.members(self))

    @staticmethod
    def from_json(text: str | bytes, path: Path | str = "commit") -> Commit:
        """Return the commit that `to_json` wrote; `path` is its file, for the error.

        Raises:
            DamagedFile: the text is not what was written.

        """
        data = checked.from_text(text, path, hint=_COMMIT_MEND)
        try:
            return Commit.from_dict(data)
        except (ValueError, KeyError, TypeError, AttributeError) as error:
            raise DamagedFile(str(path), str(error), hint=_COMMIT_MEND) from error

    @staticmethod
    def from_dict(data: dict[str, Any]) -> Commit:
        """Return the commit with these fields; those that are unknown are left out."""
        names = {each.name for each in fields(Commit)}
        data = {name: value for name, value in data.items() if name in names}
        data["sources"] = {name: SourceProgress(**value) for name, value in data["sources"].items()}
        data["heads"] = {
            step: {shard: StateHead(**head) for shard, head in heads.items()} for step, heads in data["heads"].items()
        }
        data["staged"] = [StagedFile(**each) for each in data["staged"]]
        return Commit(**data)


def read_json(path: Path, *, hint: str = "") -> dict[str, Any] | None:
    """Return the content of a JSON file of ours, or None if there is none; `hint` says what mends a damaged one.

    Raises:
        DamagedFile: it cannot be read, or does not match its checksum.

    """
    try:
        raw = path.read_bytes()
    except FileNotFoundError:
        return None
    except NotADirectoryError as error:
        raise InvalidArgument(
            f"there can be no file {path}: {in_the_way(path.parent)} is no folder",
            hint='Give another storage: hr.App(…, storage="FOLDER"), or --storage FOLDER.',
        ) from error
    except OSError as error:
        raise DamagedFile(str(path), str(error), hint=hint) from error
    return checked.from_text(raw, path, hint=hint)


class Storage:
    """The folder of one app."""

    def __init__(self, path: Path, app: str, *, sync: bool = True) -> None:
        self.path = path
        self.app = app
        self.sync = sync
        self.lease = Lease(path)
        self.took_over = False
        """Whether the last owner may still live: then an epoch is committed before anything is removed."""
        self._lock: IO[str] | None = None
        self._published: Path | None = None  # staged rows under another name, to be removed

    # ---- who may write ----

    def acquire(self) -> None:
        """Lock the folder: one process at a time runs the app.

        Raises:
            StorageBusy: another process runs it.
            StorageOfAnother: the folder belongs to an app of another name.

        """
        make_folder(self.path, sync=self.sync)
        lock = (self.path / "lock").open("a+", errors="replace")
        locked = lock_file(lock)
        if locked is False:
            lock.seek(0)
            holder = lock.read().strip()
            lock.close()
            raise StorageBusy(str(self.path), holder)
        try:
            self.took_over = self.lease.take(locked=bool(locked))
            self._claim()
            self._restore()
        except BaseException:
            self.lease.release()
            lock.close()
            raise
        lock.truncate(0)
        lock.write(str(os.getpid()))
        lock.flush()
        self._lock = lock

    def release(self) -> None:
        """Release the lock, so that another process can run the app."""
        if self._lock is not None:
            self.lease.release()
            self._lock.close()
            self._lock = None

    def busy(self) -> bool:
        """Whether a process runs the app now."""
        try:
            lock = (self.path / "lock").open()
        except FileNotFoundError:
            return False
        with lock:
            locked = lock_file(lock, shared=True)
            return locked is False or self.lease.lives(locked=bool(locked))

    def _claim(self) -> None:
        try:
            about = self.about()
        except DamagedFile:
            about = self._about_from_commit()
            if not about:
                raise
            self.write_json(APP, about)
        if not about:
            about = self._about_from_commit() or {"app": self.app, "id": uuid.uuid4().hex, "shards": None}
            self.write_json(APP, about)
        if about["app"] != self.app:
            raise StorageOfAnother(str(self.path), owner=about["app"], app=self.app)

    def about(self) -> dict[str, Any]:
        """Return the app's name, id and shards, or nothing before the first start."""
        return self.read_json(APP) or {}

    def _about_from_commit(self) -> dict[str, Any]:
        """Return what the newest readable commit says of the app, or nothing where none says it.

        The id names what was published: with another one a committed epoch would be published twice.

        Raises:
            DamagedFile: there are commits, and none of them says the id.

        """
        found = self.commits()
        for epoch in reversed(found):
            try:
                commit = self.read_commit(epoch)
            except DamagedFile:
                continue
            if commit.app.get("id"):
                return {"app": self.app, "id": None, "shards": None} | commit.app
        if found:
            hint = "Restore it from a backup: headrace restore DIR. Or compute everything again: "
            hint += "headrace reset FILE --outputs again"
            raise DamagedFile(str(self.path / APP), "it is gone, and no commit says the id of the app", hint=hint)
        return {}

    # ---- small files ----

    def read_json(self, name: str) -> dict[str, Any] | None:
        """Return a JSON file's content, or None if there is none.

        Raises:
            DamagedFile: it cannot be read, or does not match its checksum.

        """
        return read_json(self.path / name, hint=_MENDS.get(name, ""))

    def write_json(self, name: str, data: dict[str, Any]) -> None:
        """Replace a JSON file atomically."""
        path = self.path / name
        make_folder(path.parent, sync=self.sync)
        self._write_aside(path, checked.to_text(data, indent=1), os.replace)

    def _write_aside(self, path: Path, text: str, move: Callable[[str, Path], None]) -> None:
        aside = path.with_name(f".{path.name}.{uuid.uuid4().hex}")
        try:
            with aside.open("w") as file:
                file.write(text)
                file.flush()
                if self.sync:
                    os.fsync(file.fileno())
            move(str(aside), path)
            if self.sync:
                sync_folder(path.parent)
        finally:
            aside.unlink(missing_ok=True)

    # ---- commits ----

    def commit_path(self, epoch: int) -> Path:
        """Return the file whose existence commits the epoch."""
        return self.path / "epochs" / f"{epoch:012d}.json"

    def staging(self, epoch: int) -> Path:
        """Return the folder of an epoch's staged rows."""
        return self.path / "epochs" / f"{epoch:012d}"

    def write_commit(self, commit: Commit, fault: Callable[[str], None]) -> None:
        """Commit an epoch: its file appears complete or not at all, and never replaces another.

        Raises:
            Fenced: another process has taken the app over; whether it or this one committed the epoch, it goes on.

        """
        path = self.commit_path(commit.epoch)
        make_folder(path.parent, sync=self.sync)

        def link(aside: str, there: Path) -> None:
            fault("during_commit")
            self.lease.check()
            try:
                os.link(aside, there)
            except FileExistsError:
                raise self.lease.fenced() from None

        self._write_aside(path, commit.to_json(), link)
        self.lease.check()

    def replace_commit(self, commit: Commit) -> None:
        """Replace the commit of the same epoch atomically: a reset removes steps from it."""
        self._write_aside(self.commit_path(commit.epoch), commit.to_json(), os.replace)

    def restore_commit(self, commit: Commit) -> None:
        """Write a lost commit again; damaged ones from it on are set aside as `<n>.damaged`."""
        for epoch in self.commits():
            if epoch >= commit.epoch:
                path = self.commit_path(epoch)
                path.replace(path.with_suffix(".damaged"))
        self.write_commit(commit, lambda point: None)  # noqa: ARG005 -- nothing happens there

    def read_commit(self, epoch: int) -> Commit:
        """Return a commit.

        Raises:
            DamagedFile: its file cannot be read.

        """
        path = self.commit_path(epoch)
        try:
            raw = path.read_bytes()
        except OSError as error:
            raise DamagedFile(str(path), str(error), hint=_COMMIT_MEND) from error
        commit = Commit.from_json(raw, path)
        if commit.epoch != epoch:
            raise DamagedFile(str(path), f"it is the commit of epoch {commit.epoch}", hint=_COMMIT_MEND)
        return commit

    def commits(self) -> list[int]:
        """Return the epochs whose commits are kept, in order."""
        folder = self.path / "epochs"
        try:
            return sorted(int(e.stem) for e in folder.iterdir() if e.suffix == ".json" and e.stem.isdigit())
        except FileNotFoundError:
            return []

    def last_epoch(self) -> int | None:
        """Return the last committed epoch, None before the first."""
        return max(self.commits(), default=None)

    # ---- power cuts ----

    def _restore(self) -> None:
        """Write what a power cut has taken of the newest commit again, as far as redo logs have it."""
        found = redo.logs(self.path)
        last = self.newest_commit() if found else None
        if last is not None:
            staged = self._staged(last) if self.unpublished(last) else []
            redo.restore(self.path, last.heads, staged, redo.contents(found))

    def mend(self) -> None:
        """Do what a start does after a power cut, and nothing else; the app does not run."""
        if redo.logs(self.path):
            self.acquire()
            self.release()

    def newest_commit(self) -> Commit | None:
        """Return the newest commit that can be read."""
        for epoch in reversed(self.commits()):
            with suppress(DamagedFile):
                return self.read_commit(epoch)
        return None

    def unpublished(self, commit: Commit) -> bool:
        """Whether staged rows of the last commit are still to be published, also where a power cut has taken them."""
        staging = self.staging(commit.epoch)
        if staging.is_dir() or not commit.staged:
            return staging.is_dir()
        if any(path.is_dir() for path in staging.parent.glob(f".{staging.name}.*")):  # see forget_staged
            return False
        found = redo.logs(self.path)
        if any(redo.epoch_of(log) > commit.epoch for log in found):  # the next epoch begins when this one is published
            return False
        known = redo.contents(log for log in found if redo.epoch_of(log) == commit.epoch)
        return all(path.relative_to(self.path).as_posix() in known for path in self._staged(commit))

    def _staged(self, commit: Commit) -> list[Path]:
        return [self.staging(commit.epoch) / each.file for each in commit.staged]

    def settle(self, last: Commit, *, if_due: bool = False) -> None:
        """Sync the files that the last commit needs, and remove redo logs up to its epoch; `if_due`: if these are many.

        Its staged rows, where they are not published, are synced too.
        """
        found = [log for log in redo.logs(self.path) if redo.epoch_of(log) <= last.epoch]
        if found and not self.lease.lost and (redo.is_due(found) or not if_due):
            staged = self._staged(last) if self.staging(last.epoch).is_dir() else []
            redo.settle(self.path, last.heads, staged, found)

    # ---- tidying ----

    def forget_staged(self, epoch: int) -> None:
        """Rename the staged rows of a published epoch; remove those renamed before it, and the oldest commit.

        The commit since then has synced the folder. Removed at once, the files could be gone after a power cut, and
        their folder be there under its first name: it would pass for an epoch that is not published.
        """
        if self._published is not None:
            shutil.rmtree(self._published, ignore_errors=True)
            self._published = None
        staged = self.staging(epoch)
        if staged.is_dir():
            self._published = staged.rename(staged.with_name(f".{staged.name}.{uuid.uuid4().hex}"))
        self.commit_path(epoch - COMMITS_TO_KEEP).unlink(missing_ok=True)

    def forget_uncommitted(self, last: int | None) -> None:
        """Remove the files of attempts after the last commit.

        First they are listed, then the lease is checked: no file of another owner is among them, whenever this process
        was paused, since attempts have names of their own.
        """
        files: list[Path] = []
        folders: list[Path] = []
        if self.sync and (self.path / "epochs").is_dir():
            sync_folder(self.path / "epochs")  # see forget_staged
        for entry in self._entries("epochs"):
            number = entry.name.partition(".")[0] if entry.suffix == SUFFIX else entry.name.removesuffix(".json")
            if entry.name.startswith(".") or (number.isdigit() and int(number) > (-1 if last is None else last)):
                files += [entry] if not entry.is_dir() else list(entry.iterdir())
                folders += [entry] if entry.is_dir() else []
        self.lease.check()
        for file in files:
            file.unlink(missing_ok=True)
        for folder in folders:
            with suppress(OSError):  # another owner writes to it
                folder.rmdir()

    def forget_state(self, heads: dict[str, dict[str, StateHead]]) -> None:
        """Remove state files that no head's chain needs: older than its full file, or of no commit."""
        for step in self._entries("state"):
            for shard in self._entries(f"state/{step.name}"):
                self.forget_files(step.name, shard.name, heads.get(step.name, {}).get(shard.name))

    def forget_files(self, step: str, shard: str, head: StateHead | None, *, before: int | None = None) -> None:
        """Remove a shard's state files that its head's chain does not need, only of epochs before `before` if given."""
        folder = self.path / "state" / step / shard
        needed: set[str] = set()
        file = head.file if head else None
        while file is not None:
            needed.add(file)
            file = read_metadata(folder / file)["previous"]
        listed = [entry for entry in folder.iterdir() if entry.name not in needed]
        self.lease.check()
        for entry in listed:
            if before is None or entry.name < f"{before:012d}-":
                entry.unlink(missing_ok=True)

    def _entries(self, name: str) -> list[Path]:
        folder = self.path / name
        return list(folder.iterdir()) if folder.is_dir() else []
