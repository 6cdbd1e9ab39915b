"""Commits that are lost, or that an older copy of the storage does not have: recovered, or their epochs run again.

The journal (`journal`) says what each epoch read and decided. Where all state of a lost commit is still there, its file
is written again. Else the epoch is run again over the same input, with the same watermarks: what it published already
is dropped as a repetition, so nothing is missing and nothing is there twice. Where that is not known: `EpochsLost`.
"""

from __future__ import annotations

import logging
from dataclasses import replace
from itertools import count
from typing import TYPE_CHECKING

from headrace.base.errors import DamagedFile
from headrace.base.outside import EpochsLost
from headrace.connect.embedded.marks import marks_of
from headrace.connect.source import from_json
from headrace.engine.pace import add_counts
from headrace.engine.recovery.fencing import FENCE
from headrace.engine.recovery.same_sources import check_instances, differs
from headrace.kernels.files import read_metadata

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from headrace.connect.topics import TopicStore
    from headrace.engine.inputs import Inputs
    from headrace.engine.recovery.journal import Journal
    from headrace.engine.storage import Commit, Storage
    from headrace.log import Log

logger = logging.getLogger("headrace.engine")


def recovered(storage: Storage, journal: Journal) -> tuple[Commit | None, list[Commit]]:
    """Return the last commit, and of the epochs after it what the journal says, in order.

    A commit that is lost or damaged is written again if its state is complete. Nothing else is changed.

    Raises:
        DamagedFile: the newest commit is damaged, and the journal does not have it.
        EpochsLost: the journal has epochs that do not follow the newest commit, or its state is gone.

    """
    last, damaged = _newest_readable(storage)
    base = -1 if last is None else last.epoch
    known = journal.last_epoch()
    entries = {} if known is None or known <= base else journal.entries(base)
    chain = _chain(storage, last, entries)
    for error in damaged:
        if len(chain) < len(entries) or not entries:
            raise error
    whole = next((commit for commit in reversed(chain) if _state_is_whole(storage, commit)), None)
    if whole is None:
        if chain and last is not None and not _state_is_whole(storage, last):  # moved to new names, or removed since
            why = "the state that they began with is gone"
            raise EpochsLost(str(storage.path), last=last.epoch, known=chain[-1].epoch, why=why)
        return last, [entries[commit.epoch] for commit in chain]
    storage.restore_commit(whole)
    logger.warning("the commit of epoch %d was lost, and is recovered from the journal", whole.epoch)
    return whole, [entries[commit.epoch] for commit in chain if commit.epoch > whole.epoch]


def _newest_readable(storage: Storage) -> tuple[Commit | None, list[DamagedFile]]:
    """Return the newest commit that can be read, and the errors of those that are newer."""
    damaged: list[DamagedFile] = []
    for epoch in reversed(storage.commits()):
        try:
            return storage.read_commit(epoch), damaged
        except DamagedFile as error:
            error.hint = "Restore storage and log from a backup: headrace restore DIR. Or compute everything again: "
            error.hint += "headrace reset FILE --outputs again"
            damaged.append(error)
    return None, damaged


def _chain(storage: Storage, last: Commit | None, entries: Mapping[int, Commit]) -> list[Commit]:
    """Return the commits of the lost epochs, as they were.

    Raises:
        EpochsLost: an epoch is missing between them, or they do not follow the last commit.

    """
    before, chain = last, []
    for epoch in count(0 if last is None else last.epoch + 1):
        entry = entries.get(epoch)
        if entry is None:
            break
        if before is not None and not _follows(entry, before):
            raise EpochsLost(str(storage.path), last=before.epoch, known=max(entries), why="it continues another copy")
        before = _complete(before, entry)
        chain.append(before)
    if len(chain) < len(entries):
        at = None if before is None else before.epoch
        raise EpochsLost(str(storage.path), last=at, known=max(entries), why="what the next epoch read is not known")
    return chain


def _follows(entry: Commit, before: Commit) -> bool:
    """Whether an epoch began where another one ended, with its watermarks.

    One that fills what is new, or fences, leaves the watermark to the epoch after it, which works with it.
    """
    used = before.previous if entry.filled or entry.carrier == FENCE else before.watermarks
    starts = {(offsets.source, offsets.partition): offsets.start for offsets in reversed(from_json(entry.ranges))}
    read = {
        (step, partition): offset
        for step, progress in before.sources.items()
        for partition, offset in progress.offsets.items()
    }
    same_watermarks = all(mark == used.get(step) for step, mark in entry.previous.items() if step not in entry.filled)
    return same_watermarks and all(start >= read.get(partition, 0) for partition, start in starts.items())


def _complete(before: Commit | None, entry: Commit) -> Commit:
    """Return the commit that a line of the journal was made of."""
    heads = {} if before is None else {step: dict(by_shard) for step, by_shard in before.heads.items()}
    heads = {step: by_shard for step, by_shard in heads.items() if step not in entry.filled}
    for step, changed in entry.heads.items():
        heads.setdefault(step, {}).update(changed)
    return replace(entry, heads=heads, totals=add_counts({} if before is None else before.totals, entry.counts))


def _state_is_whole(storage: Storage, commit: Commit) -> bool:
    """Whether all files of a commit's state are there; and its staged rows, where they may not be published yet."""
    staging = storage.staging(commit.epoch)
    if staging.is_dir() and any(not (staging / staged.file).exists() for staged in commit.staged):
        return False
    try:
        for step, by_shard in commit.heads.items():
            for shard, head in by_shard.items():
                file: str | None = head.file
                while file is not None:
                    file = read_metadata(storage.path / "state" / step / shard / file)["previous"]
    except DamagedFile:
        return False
    return True


# ---- checks at the start ---------------------------------------------------------------------------------


def check_marks(storage: Storage, log: Log, identity: str, last: Commit | None) -> None:
    """Compare the epochs that output topics have with the commits, where there is no journal.

    Raises:
        EpochsLost: a topic has a later one.

    """
    at = -1 if last is None else last.epoch
    published = max((marks.last for marks in marks_of(log, storage.app) if marks.id == identity), default=-1)
    if published > at:
        raise EpochsLost(
            str(storage.path), last=None if last is None else at, known=published, why="there is no journal of them"
        )


def tell_if_new(storage: Storage, topics: TopicStore, identity: str) -> None:
    """Warn of a storage that is new where another one of the app has published: all of it comes once more.

    So it is after `headrace reset --outputs again`, and where the storage's folder is lost, or another by mistake.
    """
    known = topics.published_by(storage.app)
    published = sorted(set().union(*(names for other, names in known.items() if other != identity)))
    if published:
        new = 'the storage %s of the app "%s" is new, but another one of it has published to: %s; all comes again'
        logger.warning(new, storage.path, storage.app, ", ".join(published))


def check_program(storage: Storage, last: Commit | None, lost: Sequence[Commit], program: str) -> None:
    """Refuse to run lost epochs again with another program than theirs; `program`: its fingerprint.

    Raises:
        EpochsLost: another program ran one of them.

    """
    if any(entry.program != program for entry in lost):
        at, why = None if last is None else last.epoch, "another version of the program ran them"
        raise EpochsLost(str(storage.path), last=at, known=lost[-1].epoch, why=why)


def check_repeatable(storage: Storage, inputs: Inputs, last: Commit | None, entry: Commit) -> None:
    """Refuse to run a lost epoch again whose input is not what it was.

    Raises:
        EpochsLost: its records are gone.
        SourceReplaced: a topic that it read was deleted, perhaps created again.

    """
    why = ""
    check_instances(inputs.inputs, entry)
    for offsets in from_json(entry.ranges):
        bounds = inputs.bounds_of(offsets.source) if offsets.source in inputs.inputs else None
        if bounds is None or not (
            bounds.earliest.get(offsets.partition, offsets.end) <= offsets.start
            and offsets.end <= bounds.end.get(offsets.partition, 0)
        ):
            why = why or f"the records of {offsets.source} that they read are gone"
        elif differs(inputs, offsets.source, offsets.partition, entry.sources[offsets.source]):
            why = why or f"{offsets.source} has other records than those that they read"
    if why:
        at = None if last is None else last.epoch
        raise EpochsLost(str(storage.path), last=at, known=entry.epoch, why=why)


def as_decided(commit: Commit, entry: Commit) -> Commit:
    """Return the commit of an epoch that was run again, with the decisions of its first run."""
    return replace(
        commit,
        sources=entry.sources,
        watermarks=entry.watermarks,
        previous=entry.previous,
        outputs=entry.outputs,
        reached=entry.reached,
        idle=entry.idle,
        limit=entry.limit,
        at=entry.at,
        now=entry.now,
    )
