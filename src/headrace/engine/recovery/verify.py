"""Verifies everything that an app owns: descriptions, commits, state, staged rows, views, the journal and the topics.

It reads every byte and changes nothing, also while the app runs.
"""

from __future__ import annotations

import logging
from contextlib import suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING

from headrace.base.errors import DamagedFile, HeadraceError
from headrace.base.outside import AppDamaged
from headrace.connect.embedded import log_path
from headrace.connect.embedded.boundaries import TOPIC as BOUNDARIES
from headrace.connect.embedded.landing import check_landing
from headrace.connect.embedded.landing_file import FOLDER as LANDINGS
from headrace.connect.embedded.source import what_differs
from headrace.connect.stores import is_elsewhere
from headrace.engine import redo
from headrace.engine.publish import with_rows
from headrace.engine.recovery.journal import Journal
from headrace.engine.recovery.repair import drop_damaged_views, repair
from headrace.engine.recovery.same_sources import SOURCES
from headrace.engine.recovery.view_damage import views_damage
from headrace.engine.served import has_moved, views_at
from headrace.engine.storage import Storage
from headrace.kernels.files import read_tables
from headrace.log import Log

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from headrace.dsl.app import App

logger = logging.getLogger("headrace.engine")
_RESTORE = "Restore storage and log from a backup: headrace restore DIR."
_REPAIR = "Stop the app, then: headrace verify FILE --repair"
_START = "Start the app"
_MAYBE_ELSEWHERE = (
    f"If the app has its topics elsewhere (topics=…), say which app it is: headrace verify FILE. {_RESTORE}"
)
_NOTHING = "Nothing"
_IN_LOG = f"{_START}: a redo log has the file."
_SAME_PROGRAM = "Restore it from a backup: headrace restore DIR. Or, if the program is the one that ran last, start it \
without --verify: the file is written again."
_NEEDED = {
    "app.json": f"{_START}: it is written again from the newest commit.",
    "plan.json": _SAME_PROGRAM,
    "sources.json": _SAME_PROGRAM,
}
_ATTEMPTS = 5  # at a commit whose files the running app removes meanwhile


@dataclass(frozen=True, slots=True, kw_only=True)
class Damage:
    """Something that is not as it was written.

    `part`: what it belongs to. `file`: where it is. `what`: how it differs. `mend`: a step that mends it.
    """

    part: str
    file: str
    what: str
    mend: str


def verify(
    folder: Path,
    log_folder: Path,
    *,
    elsewhere: bool | None = None,
    progress: Callable[[str], None] = lambda part: None,  # noqa: ARG005 -- nobody asks
) -> Iterator[Damage]:
    """Yield what is damaged of an app.

    Args:
        folder: its storage.
        log_folder: its log.
        elsewhere: whether its topics are in no log, as the program says; None: a storage says it of topics that are
            read, and of others it is not known.
        progress: called with each part before it is read.

    """
    storage, about = Storage(folder, ""), {}
    with suppress(DamagedFile):  # which is a finding
        about = storage.about()
    storage.app = about.get("app", storage.app)
    progress("descriptions and commits")
    yield from _descriptions(storage)
    yield from _commits(storage)
    progress("state")
    yield from _state(storage)
    progress("views")
    yield from _views(storage)
    if not about.get("id"):
        return
    progress("the journal")
    yield from _journal(storage, Journal(log_folder, storage.app, about["id"]))
    with Log(log_folder) as log:
        for name in [*log.topics(), *([BOUNDARIES] if log.has_topic(BOUNDARIES) else ())]:
            progress(f"topic {name}")
            yield from _topic(log, name)
            yield from _landing(log, name)
        progress("what was read")
        yield from _read(storage, log)
        if not elsewhere and not _reads_elsewhere(storage):
            progress("what was published")
            yield from _published(storage, log, about["id"], absent=_MAYBE_ELSEWHERE if elsewhere is None else _RESTORE)


def check(app: App) -> None:
    """Verify an app before it is started; what the start mends itself is left to it, damaged views too.

    Raises:
        AppDamaged: what is damaged, and what mends it.

    """
    if _views_to_repair(app):
        views = drop_damaged_views(app)
        logger.warning("damaged views are built anew from the state of the steps above: %s", ", ".join(views))


def repair_views(app: App) -> list[str]:
    """Verify an app, build its damaged views anew, and return their names.

    Raises:
        StorageBusy: the app runs.
        AppDamaged: something else is damaged too, or a view cannot be built anew; nothing was changed.
        PlanChanged: the program is not the one that ran last.
        HeadraceError: the app cannot be started; the next start builds the views.

    """
    return repair(app) if _views_to_repair(app) else []


def _views_to_repair(app: App) -> bool:
    if not app.storage.is_dir():
        return False
    every = [*verify(app.storage, log_path(app.storage, app.topics), elsewhere=is_elsewhere(app.topics))]
    found = [damage for damage in every if not damage.mend.startswith((_START, _REPAIR, _NOTHING))]
    if found:
        raise AppDamaged(str(app.storage), [f"{each.part}: {each.what}" for each in found], mend=found[0].mend)
    storage = Storage(app.storage, app.name)
    moved = storage.newest_commit() is not None and has_moved(storage, app.views)
    return moved or any(damage.mend == _REPAIR for damage in every)


def _damage(part: str, error: HeadraceError, file: Path | str = "") -> Damage:
    return Damage(part=part, file=str(file), what=error.what, mend=error.hint or _RESTORE)


def _descriptions(storage: Storage) -> Iterator[Damage]:
    names = {path.relative_to(storage.path).as_posix() for path in storage.path.glob("*.json")}
    names |= {f"spark/{path.name}" for path in storage.path.glob("spark/*.json")}
    for name in sorted(names):
        try:
            storage.read_json(name)
        except DamagedFile as error:
            yield _damage("description", error, storage.path / name)
    for name, mend in _NEEDED.items() if storage.commits() else ():
        if not (storage.path / name).exists():
            yield Damage(part="description", file=str(storage.path / name), what="it is gone", mend=mend)


def _commits(storage: Storage) -> Iterator[Damage]:
    epochs = storage.commits()
    for epoch in epochs:
        path = storage.commit_path(epoch)
        try:
            storage.read_commit(epoch)
        except DamagedFile as error:
            if path.exists():  # else the running app has removed an old one
                needed = epoch == epochs[-1]
                mend = error.hint if needed else "Nothing needs it: delete it, or leave it until the app does."
                yield Damage(part="commit", file=str(path), what=error.what, mend=mend)


def _state(storage: Storage) -> Iterator[Damage]:
    """Yield damage of state and staged rows, of the newest commit while nothing newer is committed."""
    found: list[Damage] = []
    for _ in range(_ATTEMPTS):
        before = storage.last_epoch()
        found = [*_state_once(storage)]
        if not found or storage.last_epoch() == before:
            break
    yield from found


def _state_once(storage: Storage) -> Iterator[Damage]:
    commit = storage.newest_commit()
    if commit is None:
        return
    for step, by_shard in commit.heads.items():
        for shard, head in by_shard.items():
            file: str | None = head.file
            while file is not None:
                path = storage.path / "state" / step / shard / file
                try:
                    file = read_tables(path)[1]["previous"]
                except DamagedFile as error:
                    mend = f"{_RESTORE} Or compute the step again: headrace reset FILE --step {step}"
                    mend = _IN_LOG if _in_log(storage, path) else mend
                    yield Damage(part=f'state of step "{step}"', file=str(path), what=error.what, mend=mend)
                    break
    staging = storage.staging(commit.epoch)
    for staged in commit.staged if staging.is_dir() else ():
        path = staging / staged.file
        try:
            read_tables(path)
        except DamagedFile as error:
            if staging.is_dir():  # else it was published meanwhile
                mend = f"{_RESTORE} Or compute everything again: headrace reset FILE --outputs again"
                mend = _IN_LOG if _in_log(storage, path) else mend
                yield Damage(part=f"staged rows of {staged.sink}", file=str(path), what=error.what, mend=mend)


def _in_log(storage: Storage, path: Path) -> bool:
    return path.relative_to(storage.path).as_posix() in redo.contents(redo.logs(storage.path))


def _views(storage: Storage) -> Iterator[Damage]:
    where = views_at(storage.path).where
    for view, what in views_damage(storage).items():
        part = f'view "{view}"' if view else "views"
        yield Damage(part=part, file=where, what=what, mend=_REPAIR)


def _journal(storage: Storage, journal: Journal) -> Iterator[Damage]:
    known, last = journal.last_epoch(), storage.last_epoch()  # in this order: the app may be running
    if known is not None and (last is None or last < known):
        what = f"the commits end at epoch {last}, and epoch {known} was published"
        mend = f"{_START}: lost commits are recovered, or their epochs run again."
        yield Damage(part="commit", file=str(storage.path / "epochs"), what=what, mend=mend)
    for path, count in journal.damaged():
        mend = "Nothing, unless commits are lost: then the epochs of these lines cannot be recovered."
        yield Damage(part="journal", file=str(path), what=f"{count} lines do not match their checksums", mend=mend)


def _topic(log: Log, name: str) -> Iterator[Damage]:
    try:
        for finding in log.topic(name).verify():
            mend = f"{_RESTORE} Or read on after the offsets named."
            yield Damage(part=f'topic "{name}"', file=finding.file, what=str(finding), mend=mend)
    except HeadraceError as error:
        yield _damage(f'topic "{name}"', error)


def _landing(log: Log, name: str) -> Iterator[Damage]:
    try:
        check_landing(log, name)
    except HeadraceError as error:
        yield _damage(f'the position of the feed of "{name}"', error, log.path / LANDINGS / name)


def _read(storage: Storage, log: Log) -> Iterator[Damage]:
    """Yield the topics that are not those of which the newest commit says how far they were read."""
    commit, identities = storage.newest_commit(), {}
    with suppress(DamagedFile):  # which is a finding
        identities = storage.read_json(SOURCES) or {}
    for step, read in commit.sources.items() if commit is not None else ():
        try:
            what = what_differs(log, identities.get(step, ""), read.instance, offsets=read.offsets, marks=read.marks)
        except HeadraceError:  # the topic is damaged, which is a finding
            continue
        if what:
            mend = f"{_RESTORE} Or compute everything again: headrace reset FILE --outputs again"
            yield Damage(part=f'source "{step}"', file=str(log.path / "topics"), what=what, mend=mend)


def _reads_elsewhere(storage: Storage) -> bool:
    """Whether a source without a connector of its own is in no log: then the app's topics are not."""
    try:
        sources = (storage.read_json("plan.json") or {}).get("sources", {})
        identities = storage.read_json(SOURCES) or {}
    except DamagedFile:  # which is a finding
        return False
    own = [step for step, source in sources.items() if source["connector"] is None]
    return any(identities.get(step, "").startswith("kafka:") for step in own)


def _published(storage: Storage, log: Log, identity: str, *, absent: str) -> Iterator[Damage]:
    """Yield the sinks that have less than was published to them; `absent` mends a topic that the log does not have."""
    commit = storage.newest_commit()
    if commit is None:
        return
    for sink, epoch in (commit.published if storage.unpublished(commit) else with_rows(commit)).items():
        name = sink.removeprefix("topic:")
        if name == sink:
            continue
        has = None
        try:
            if log.has_topic(name):
                has = log.topic(name).last_sequence(f"{storage.app}/{identity}/{sink}")
        except HeadraceError:  # the topic is damaged, which is a finding
            continue
        if has is None or has < epoch:
            what, mend = f"it lacks epoch {epoch}, which the app has published", _RESTORE
            if not log.has_topic(name):
                what, mend = f"it is not in the log, and {what}", absent
            yield Damage(part=f'topic "{name}"', file=str(log.path / "topics" / name), what=what, mend=mend)
