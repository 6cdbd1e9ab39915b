"""Reset: an app forgets everything, or one step with the steps and views below it. Topics are never touched.

A whole reset either forgets how far the app has read as well, so that it appends its output again; or it keeps the
offsets, and the next start replays everything up to them (`replay`) and appends only what differs (`levelling`).

A reset is first written to `reset.json`, then done, then that file is removed. Every part of it can be repeated, so
whoever finds the file (the next start, the next reset) finishes what a crash cut short.
"""

from __future__ import annotations

import shutil
import uuid
from contextlib import closing, suppress
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Literal

from headrace.base.disk import sync_folder
from headrace.base.errors import DamagedFile, HeadraceError, PlanError, did_you_mean
from headrace.base.outside import OutputsNotKept, ResetRefused, Unavailable
from headrace.connect.embedded import log_path
from headrace.engine.program.adopting import NOTE as ADOPTING
from headrace.engine.program.adopting import finish_adopting
from headrace.engine.program.fill import fed_by, history
from headrace.engine.program.identity import emptied, forget
from headrace.engine.program.kept_outputs import has_outputs, newest_published, reach_of
from headrace.engine.served import FILE as SERVED
from headrace.engine.served import SQLITE as VIEWS
from headrace.engine.served import views_at
from headrace.engine.storage import Commit, Storage
from headrace.engine.watermarks import SourceWatermark, advance, no_later
from headrace.log import Log

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from headrace.engine.program.kept_outputs import Reach
    from headrace.plan.plan import Plan

NOTE = "reset.json"
Outputs = Literal["keep", "again"]
"""What a whole reset does with what output topics have: keep it, or append all of it again."""


@dataclass(frozen=True, kw_only=True)
class ResetImpact:
    """What a reset takes away, and what it leaves: `steps` and `views` with their rows, `topics` that stay.

    `outputs`: of a whole reset, whether the app goes on from its offsets and appends nothing again. `replayed`: then,
    how far back the topics go that are replayed.
    """

    epoch: int | None
    steps: dict[str, int] = field(default_factory=dict)
    views: dict[str, int] = field(default_factory=dict)
    rows_read: int = 0
    topics: tuple[str, ...] = ()
    outputs: Outputs = "again"
    replayed: Reach = field(default_factory=dict)

    @property
    def nothing(self) -> bool:
        """Whether there is nothing to lose: the app has never run."""
        return self.epoch is None and not self.steps and not self.views


def reset_impact(
    plan: Plan, path: Path, step: str | None = None, *, outputs: Outputs = "again", location: str | None = None
) -> ResetImpact:
    """Return what `reset` would take away; changes nothing.

    Raises:
        PlanError: there is no stateful step of that name.
        OutputsNotKept: `outputs` is "keep", and that is not possible.
        ResetRefused: a step cannot be reset while epochs are lost.

    """
    storage = Storage(path, plan.app)
    last = storage.last_epoch()
    keeps = step is None and outputs == "keep" and last is not None and has_outputs(plan, storage, location)
    commit = _last_commit(storage, last, step is None, keeps)
    replayed = reach_of(plan, storage, commit, location) if keeps else {}
    rows = {name: counts.get("state_rows", 0) for name, counts in commit.totals.items()}
    kept_steps = set(commit.heads) | _stored_steps(storage, whole=step is None and not keeps)
    if step is None:
        steps, views = sorted(kept_steps), _all_views(path)
        topics = [sink.topic for sink in plan.sinks if sink.topic is not None]
    else:
        steps = _below(plan, step, kept_steps)
        _refuse_lost_epochs(storage, step, last, location)
        _refuse_below_spark(plan, step, steps, commit)
        views = _views_of(plan, path, steps)
        topics = [sink.topic for sink in plan.sinks if sink.topic is not None and fed_by(plan, sink.up, steps)]
    return ResetImpact(
        epoch=last,
        steps={name: rows.get(name, 0) for name in steps},
        views=views,
        rows_read=sum(commit.totals.get(plan.name(node), {}).get("rows_out", 0) for node in plan.sources()),
        topics=tuple(topics),
        outputs="keep" if keeps else "again",
        replayed=replayed,
    )


def _last_commit(storage: Storage, last: int | None, whole: bool, keeps: bool) -> Commit:  # noqa: FBT001 -- two cases
    """Return the last commit; a whole reset that begins anew does not need it, and is the way out of damage."""
    if last is None:
        return Commit(epoch=-1)
    try:
        return storage.read_commit(last)
    except DamagedFile as error:
        if keeps:
            raise OutputsNotKept(storage.app, why=error.what) from error
        if whole:
            return Commit(epoch=last)
        raise


def _stored_steps(storage: Storage, *, whole: bool) -> set[str]:
    try:
        return set((storage.read_json("plan.json") or {"steps": {}})["steps"])
    except DamagedFile:
        if whole:
            return set()
        raise


def reset(
    plan: Plan,
    path: Path,
    step: str | None = None,
    *,
    outputs: Outputs = "again",
    location: str | None = None,
    sync: bool = True,
) -> ResetImpact:
    """Forget everything but the topics, or a step with what is below it; return what was lost.

    After a whole reset with `outputs="again"` the app reads its topics from their start and appends to its output
    topics again; those with a table's changelog first get a tombstone for each key (`withdrawing`). With `"keep"` it
    keeps its offsets: the next start computes everything again up to them, and appends only what differs to topics with
    a table's changelog. Where nothing but views was written both are the same, and the app reads from the start.
    `location` is the value of `App(topics=)`.

    After a step's reset it goes on from the offsets it had, and the next start computes the step again: from the
    state of the steps above where that is all of it, else from the topics (`replay`). Topics with a table's changelog
    get what differs.

    Raises:
        StorageBusy: the app runs.
        StorageOfAnother: the storage is another app's.
        PlanError: there is no stateful step of that name.
        OutputsNotKept: `outputs` is "keep", and that is not possible; nothing was reset.
        ResetRefused: a step cannot be reset while epochs are lost; nothing was reset.

    """
    storage = Storage(path, plan.app, sync=sync)
    if (step is not None or outputs == "keep") and (path / ADOPTING).exists():
        finish_adopting(storage)
    impact = reset_impact(plan, path, step, outputs=outputs, location=location)
    if impact.nothing:
        return impact
    storage.acquire()
    try:
        resume(storage)
        storage.write_json(
            NOTE, _note(plan, storage, None if step is None and impact.outputs == "again" else impact, step)
        )
        resume(storage)
    finally:
        storage.release()
    return impact


def resume(storage: Storage) -> None:
    """Finish a reset that a crash cut short, if there is one. The caller holds the storage."""
    note = storage.read_json(NOTE)
    if note is None:
        return
    if note["whole"]:
        _forget_all(storage, note)
    else:
        _forget_steps(storage, note)
    _note_done(storage)


def _note_done(storage: Storage) -> None:
    """Remove the note once all that it says is on the disk; found after a power cut, it would be done once more."""
    if storage.sync:
        sync_folder(storage.path)
    (storage.path / NOTE).unlink(missing_ok=True)
    if storage.sync:
        sync_folder(storage.path)


def _note(plan: Plan, storage: Storage, impact: ResetImpact | None, step: str | None) -> dict[str, Any]:
    if impact is None:
        return {"whole": True, "id": uuid.uuid4().hex}
    keeps = step is None
    steps = sorted({*impact.steps, *(plan.name(node) for node in plan.stateful())} if keeps else impact.steps)
    views = [sink for sink in plan.sinks if sink.view is not None and (keeps or fed_by(plan, sink.up, steps))]
    sinks = sorted({*(sink.name for sink in views), *(f"view:{name}" for name in (impact.views if keeps else ()))})
    return {
        "whole": False,
        "replay": keeps,
        "epoch": impact.epoch,
        "steps": steps,
        "views": sorted(impact.views),
        "sinks": sinks,
        **_watermarks(plan, storage, steps),
    }


# ---- the whole app ----


def _forget_all(storage: Storage, note: Mapping[str, Any]) -> None:
    storage.write_json("app.json", {"app": storage.app, "id": note["id"], "shards": None, "again": True})
    for folder in ("epochs", "state", "spark"):
        _remove(storage.path, folder)
    _reset_views(storage)
    for file in ("plan.json", "sources.json", ADOPTING):
        (storage.path / file).unlink(missing_ok=True)


def _remove(path: Path, folder: str) -> None:
    """Rename a folder, then remove it: a half-removed folder must never be found under its name."""
    for stale in path.glob(f".{folder}.reset-*"):
        shutil.rmtree(stale, ignore_errors=True)
    aside = path / f".{folder}.reset-{uuid.uuid4().hex[:8]}"
    try:
        (path / folder).rename(aside)
    except FileNotFoundError:
        return
    shutil.rmtree(aside, ignore_errors=True)


# ---- a step ----


def _forget_steps(storage: Storage, note: Mapping[str, Any]) -> None:
    steps = note["steps"]
    if note["epoch"] is not None:
        _rewrite(storage, storage.read_commit(note["epoch"]), note)
    if note.get("replay"):
        _forget_all_but_offsets(storage)
        return
    identity = storage.read_json("plan.json")
    if identity is not None and steps:
        storage.write_json("plan.json", forget(identity, steps, note["sinks"]))
    _drop_views(storage, note)
    for step in steps:
        shutil.rmtree(storage.path / "state" / step, ignore_errors=True)


def _drop_views(storage: Storage, note: Mapping[str, Any]) -> None:
    if note.get("new file"):
        _replace_views(storage, storage.path / note["new file"])
        return
    with closing(views_at(storage.path)) as views:
        if note.get("views begin after") is not None:
            views.begin_again(note["views begin after"])
        for view in set(note["views"]) & set(views.names()):
            views.drop(view)


def _replace_views(storage: Storage, new: Path) -> None:
    """Put a new file of views in the place of the damaged one, unless that is done."""
    if new.exists():
        for of_the_old in storage.path.glob(f"{VIEWS}-*"):  # SQLite would apply them to the new one
            of_the_old.unlink()
        new.replace(storage.path / VIEWS)
    if storage.sync:
        sync_folder(storage.path)


def _forget_all_but_offsets(storage: Storage) -> None:
    """Forget what the commit, written anew, does not name; the number of shards may change as after any whole reset."""
    storage.write_json("app.json", {**storage.about(), "shards": None})
    identity = storage.read_json("plan.json")
    if identity is not None:
        storage.write_json("plan.json", emptied(identity))
    for folder in ("state", "spark"):
        _remove(storage.path, folder)
    _reset_views(storage)


def _reset_views(storage: Storage) -> None:
    for entry in storage.path.glob(f"{VIEWS}*"):  # also a new file that a repair did not finish
        entry.unlink(missing_ok=True)
    if (storage.path / SERVED).exists():
        with closing(views_at(storage.path)) as views:
            views.reset()


def _rewrite(storage: Storage, commit: Commit, note: Mapping[str, Any]) -> None:
    """Replace the last commit by one without the steps and their views."""
    steps = note["steps"]
    commit.heads = {step: heads for step, heads in commit.heads.items() if step not in steps}
    commit.watermarks |= note["watermarks"]
    commit.previous |= note.get("previous", note["watermarks"])  # a note of an earlier release has none
    commit.totals = {name: counts for name, counts in commit.totals.items() if name not in {*steps, *note["sinks"]}}
    commit.refill = sorted({*commit.refill, *steps, *note["sinks"]})
    commit.staged = [staged for staged in commit.staged if staged.sink not in note["sinks"]]
    if note.get("replay"):
        commit.replay = True
        commit.app |= {"shards": None}
        commit.published = {sink: epoch for sink, epoch in commit.published.items() if sink not in note["sinks"]}
    storage.replace_commit(commit)


def _watermarks(plan: Plan, storage: Storage, steps: list[str]) -> dict[str, dict[str, int | None]]:
    """Return `watermarks` and `previous` of the steps: their own, and of a step that has none those of its sources.

    Without them, old rows would be accepted again, and windows that were final would open again. Their own are no later
    than what they would be if the steps had always been there: the program may have changed.
    """
    last = storage.last_epoch()
    if last is None:
        return {"watermarks": {}, "previous": {}}
    commit = storage.read_commit(last)
    sources = {plan.name(node): SourceWatermark(commit.outputs.get(plan.name(node))) for node in plan.sources()}
    stateful = [plan.name(node) for node in plan.stateful()]
    used = {name: None if name in steps else commit.watermarks.get(name) for name in stateful}
    for _ in stateful:  # each round moves the watermarks one step further down
        used = advance(plan, sources, used, {})[1]
    latest = {name: used[name] for name in stateful if name in steps}
    own = {"watermarks": commit.watermarks, "previous": commit.previous}
    return {which: no_later({step: of.get(step, time) for step, time in latest.items()}, latest)
            for which, of in own.items()}  # fmt: skip


# ---- which steps a step feeds ----


def _below(plan: Plan, step: str, kept_steps: set[str]) -> list[str]:
    """Return the step and the stateful steps below it; a step that only the storage knows has none below it."""
    stateful = {plan.name(node): node for node in plan.stateful()}
    if step not in stateful:
        if step in kept_steps:
            return [step]
        keeping_state = sorted(set(stateful) | kept_steps)
        plain = step in plan.names.values()
        raise PlanError(
            f'the step "{step}" keeps no state' if plain else f'there is no step "{step}"',
            detail=f"The steps that keep state are: {', '.join(keeping_state)}."
            if keeping_state
            else "No step keeps state.",
            hint=did_you_mean(step, keeping_state),
        )
    return sorted(name for name, node in stateful.items() if name == step or fed_by(plan, node, [step]))


def _refuse_lost_epochs(storage: Storage, step: str, last: int | None, location: str | None) -> None:
    """Refuse where the log or the views know a later epoch: the start would run it again without the step's state."""
    with Log(log_path(storage.path, location).absolute()) as log:
        known = newest_published(storage, log)
    with suppress(HeadraceError), views_at(storage.path).snapshot() as views:  # damaged ones say nothing
        known = max(known, views.applied())
    if known > (-1 if last is None else last):
        raise ResetRefused(step, last=last, known=known)


def _refuse_below_spark(plan: Plan, step: str, steps: list[str], commit: Commit) -> None:
    """Refuse to reset a step below a table in an app that reads with `app.read`: it cannot be filled again."""
    if not any(node.read_by_spark for node in plan.sources()):
        return
    for node in plan.stateful():
        ups = node.ups if plan.name(node) in steps else ()
        above = {name: keeps for up in ups for name, keeps in history(plan, up, steps).items()}
        table = next((name for name, keeps in above.items() if keeps != "nothing" and commit.heads.get(name)), None)
        if table is not None:
            raise PlanError(
                f'the step "{step}" cannot be reset alone: the table of step "{table}" has rows that it would miss',
                detail="The app reads with app.read, so Spark alone knows how far it is read: nothing can fill it.",
                hint=f"Reset both: headrace reset FILE --step {table}; or the whole app: headrace reset FILE",
            )


def _all_views(path: Path) -> dict[str, int]:
    try:
        with views_at(path).snapshot() as now:
            return {name: now.describe(name).rows for name in now.names()}
    except Unavailable:  # a database that is down: they are not known
        raise
    except HeadraceError:
        return {}  # a whole reset is the way out when the file is damaged


def _views_of(plan: Plan, path: Path, steps: list[str]) -> dict[str, int]:
    fed = {sink.view for sink in plan.sinks if sink.view is not None and fed_by(plan, sink.up, steps)}
    return {name: rows for name, rows in _all_views(path).items() if name in fed}
