"""A storage takes over a changed program: state moves to new names, windows wait longer, `plan.json` is replaced.

What is to be done is first written to `adopt.json`, then done, then that file is removed. Every part of it can be
repeated, so the next start finishes what a crash cut short, whichever program it starts.
"""

from __future__ import annotations

import shutil
from contextlib import closing
from typing import TYPE_CHECKING, Any

from headrace.base.disk import sync_folder
from headrace.base.time import END_OF_TIME
from headrace.engine.program.identity import identity, kept_over
from headrace.engine.served import views_at

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Mapping

    from headrace.engine.program.changes import ProgramChanges
    from headrace.engine.storage import Commit, Storage
    from headrace.plan.plan import Plan

NOTE = "adopt.json"
PLAN = "plan.json"


def adopt(
    plan: Plan, storage: Storage, changes: ProgramChanges, last: Commit | None, fault: Callable[[str], None]
) -> None:
    """Make a storage that of a program whose changes are accepted. The caller holds the storage."""
    stored = storage.read_json(PLAN)
    shards = int(storage.about()["shards"])
    left = _seen_by_all(storage, last)
    now = kept_over(_moved_plan(stored, changes.moves), identity(plan, shards), last=left)
    if not changes.moves and not changes.later and not changes.rebuilt_steps and not changes.rebuilt_sinks:
        if stored != now:
            storage.write_json(PLAN, now)
        return
    assert last is not None  # noqa: S101 -- nothing moves before the first commit
    fault("before_adopting")
    storage.write_json(
        NOTE,
        {
            "epoch": last.epoch,
            "moves": dict(changes.moves),
            "watermarks": _watermarks(changes, last, "watermarks"),
            "previous": _watermarks(changes, last, "previous"),
            "rebuilt": {"steps": sorted(changes.rebuilt_steps), "sinks": sorted(changes.rebuilt_sinks)},
            "sinks": [name for name, sink in (stored or {}).get("sinks", {}).items() if "left after" not in sink],
            "views": _views_of_other_columns(stored, now, changes),
            "plan": now,
        },
    )
    finish(storage, fault)


def _seen_by_all(storage: Storage, last: Commit | None) -> int | None:
    """Return the last epoch that every sink has: rows that are still staged may never reach one that is gone."""
    if last is None:
        return None
    return last.epoch - 1 if storage.staging(last.epoch).is_dir() else last.epoch


def _watermarks(changes: ProgramChanges, last: Commit, which: str) -> dict[str, int | None]:
    """Return the watermarks of steps whose grace grows: later by as much, so that what is closed stays closed.

    A window is closed where its end is `grace` behind the watermark. From then on the step's watermark stands still
    until that of its input has come so far.
    """
    moved: dict[str, int | None] = {}
    for step, later in changes.later.items():
        before = getattr(last, which).get(changes.moves.get(step, step))
        moved[step] = None if before is None else min(before + later, END_OF_TIME)
    return moved


def finish(storage: Storage, fault: Callable[[str], None]) -> None:
    """Do what `adopt.json` says, if it is there. The caller holds the storage."""
    note = storage.read_json(NOTE)
    if note is None:
        return
    fault("before_moving")
    _move_folders(storage, note["moves"])
    fault("after_moving")
    storage.replace_commit(moved(storage.read_commit(note["epoch"]), note))
    fault("after_renaming")
    _drop_views(storage, note["views"])
    storage.write_json(PLAN, note["plan"])
    fault("before_adopted")
    (storage.path / NOTE).unlink(missing_ok=True)


def finish_adopting(storage: Storage) -> None:
    """Do what `adopt.json` says, for somebody who does not hold the storage.

    Raises:
        StorageBusy: the app runs.

    """
    storage.acquire()
    try:
        finish(storage, lambda point: None)  # noqa: ARG005 -- nothing happens there
    finally:
        storage.release()


def _move_folders(storage: Storage, moves: Mapping[str, str]) -> None:
    """Rename the folders of state; one that is not there has been renamed already, or the step kept nothing."""
    folder = storage.path / "state"
    for new, old in moves.items():
        if (folder / old).is_dir():
            shutil.rmtree(folder / new, ignore_errors=True)  # files of no commit
            (folder / old).rename(folder / new)
    if moves and folder.is_dir() and storage.sync:
        sync_folder(folder)


def moved(commit: Commit, note: Mapping[str, Any]) -> Commit:
    """Return the last commit with the new names and watermarks; the one it was made from may be either."""
    names = {old: new for new, old in note["moves"].items()}
    for field in ("watermarks", "previous", "outputs", "heads", "counts", "totals"):
        setattr(commit, field, {names.get(step, step): value for step, value in getattr(commit, field).items()})
    commit.watermarks |= note["watermarks"]
    commit.previous |= note["previous"]
    _forget(commit, note["rebuilt"]["steps"], note["rebuilt"]["sinks"], note["sinks"])
    return commit


def _forget(commit: Commit, steps: Collection[str], sinks: Collection[str], of_the_app: Collection[str]) -> None:
    """Take steps and sinks out of a commit: what the last commit does not know is filled (`engine/fill`)."""
    if not steps and not sinks:
        return
    for field in ("watermarks", "previous", "heads"):
        setattr(commit, field, {step: value for step, value in getattr(commit, field).items() if step not in steps})
    commit.totals = {name: counts for name, counts in commit.totals.items() if name not in {*steps, *sinks}}
    commit.staged = [staged for staged in commit.staged if staged.sink not in sinks]
    known = of_the_app if commit.sinks is None else commit.sinks
    commit.sinks = [sink for sink in known if sink not in sinks]


def _views_of_other_columns(
    stored: Mapping[str, Any] | None, now: Mapping[str, Any], changes: ProgramChanges
) -> list[str]:
    """Return the views that are computed anew and have other columns, or another key, than they had."""
    was = {} if stored is None else stored.get("sinks", {})
    return [
        name.partition(":")[2]
        for name in sorted(changes.rebuilt_sinks)
        if name in was and any(was[name][field] != now["sinks"][name][field] for field in ("columns", "key"))
    ]


def _drop_views(storage: Storage, names: Collection[str]) -> None:
    """Drop views that the program declares with other columns; the start creates them again."""
    if names:
        with closing(views_at(storage.path)) as views:
            for name in {*names} & {*views.names()}:
                views.drop(name)


def _moved_plan(stored: Mapping[str, Any] | None, moves: Mapping[str, str]) -> Mapping[str, Any] | None:
    """Return a stored plan without the old names of steps whose state moves."""
    if stored is None or not moves:
        return stored
    gone = set(moves.values())
    kept = {part: {n: v for n, v in stored.get(part, {}).items() if n not in gone} for part in ("steps", "inputs")}
    return {**stored, **kept}
