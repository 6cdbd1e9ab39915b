"""Views that are damaged are built anew from the state of the steps above them.

What is damaged is written to `reset.json`, and dropped; the next start fills it (`fill`) like what a reset emptied. A
file that SQLite cannot use is replaced as a whole; views in it that are whole nevertheless move to the new file. Views
that are served from another store now, or from a database that lacks epochs, are all filled.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from headrace.base.outside import AppDamaged
from headrace.base.time import SystemClock
from headrace.connect.embedded import log_path
from headrace.engine.epoch import Settings
from headrace.engine.program.adopting import finish
from headrace.engine.program.comparing import compared
from headrace.engine.program.rebuilding import rebuild
from headrace.engine.program.reset import NOTE, resume
from headrace.engine.recovery.journal import Journal
from headrace.engine.recovery.lost_epochs import recovered
from headrace.engine.recovery.opening import open_engine
from headrace.engine.recovery.view_damage import VIEW_SINK, epoch_given, views_damage
from headrace.engine.served import FILE, SQLITE, has_moved, move_views
from headrace.engine.storage import Storage
from headrace.views.sqlite import SqliteViews

if TYPE_CHECKING:
    from headrace.dsl.app import App
    from headrace.engine.storage import Commit
    from headrace.plan.plan import Plan

NEW_FILE = "views.db.new"


def repair(app: App) -> list[str]:
    """Build the damaged views of an app anew, and return their names; nothing changes if none is damaged.

    Raises:
        StorageBusy: the app runs.
        AppDamaged: a view cannot be built anew, and what else mends it; nothing was changed.
        PlanChanged: the program is not the one that ran last.
        HeadraceError: the app cannot be started; the next start builds the views.

    """
    views = drop_damaged_views(app)
    if views:
        shards = int(Storage(app.storage, app.name).about()["shards"])
        settings = Settings(storage=app.storage, topics=app.topics, shards=shards, clock=SystemClock())
        open_engine(app.plan(), settings).close()
    return views


def drop_damaged_views(app: App) -> list[str]:
    """Drop damaged views, so that the next start builds them anew, and return their names; errors as of `repair`."""
    plan, storage = app.plan(), Storage(app.storage, app.name)
    storage.acquire()
    try:
        finish(storage, lambda point: None)  # noqa: ARG005 -- nothing happens there
        resume(storage)
        moved = has_moved(storage, plan.views)
        found = {"": "they are served from another store now"} if moved else views_damage(storage)
        if not found:
            return []
        log = log_path(app.storage, app.topics).absolute()
        last, lost = recovered(storage, Journal(log, plan.app, storage.about()["id"]))
        if last is None or lost:
            mend = "Start the app without --verify: lost epochs run again. Then repeat the repair."
            raise AppDamaged(str(storage.path), list(found.values()), mend=mend)
        compared(plan, app.storage, app.shards).refuse()
        if moved:
            move_views(storage, plan.views)
        return _drop(plan, storage, found, last)
    finally:
        storage.release()


def _drop(plan: Plan, storage: Storage, found: dict[str, str], last: Commit) -> list[str]:
    (storage.path / NEW_FILE).unlink(missing_ok=True)
    whole, in_file = "" in found, not (storage.path / FILE).exists()
    every = {sink.view for sink in plan.sinks if sink.view is not None}
    views = {*found} if not whole else _new_file(plan, storage, last) if in_file else every
    _refuse(plan, storage, found, sorted(views))
    storage.write_json(
        NOTE,
        {
            "whole": False,
            "epoch": last.epoch,
            "steps": [],
            "views": sorted(views),
            "sinks": [f"{VIEW_SINK}{view}" for view in sorted(views)],
            "watermarks": {},
            "previous": {},
            "new file": NEW_FILE if whole and in_file else None,
            "views begin after": last.epoch if whole and not in_file else None,
        },
    )
    resume(storage)
    return sorted(views)


def _new_file(plan: Plan, storage: Storage, last: Commit) -> set[str]:
    """Write the file that replaces that of the views; return the views that it lacks."""
    path = storage.path / NEW_FILE
    epoch, copied = SqliteViews(storage.path / SQLITE, durable=storage.sync).rescue_to(path)
    if epoch < epoch_given(storage, last) or epoch > last.epoch:
        path.unlink(missing_ok=True)
        epoch, copied = last.epoch, set()
    with SqliteViews(path, durable=storage.sync) as views:
        views.apply(epoch, {})
    return {sink.view for sink in plan.sinks if sink.view is not None} - copied


def _refuse(plan: Plan, storage: Storage, found: dict[str, str], views: list[str]) -> None:
    """Refuse where a view cannot be built anew.

    Raises:
        AppDamaged: why it cannot, and what mends it.

    """
    sinks = {sink.view: sink for sink in plan.sinks if sink.view is not None}
    by_spark = any(node.read_by_spark for node in plan.sources())
    reasons = []
    for view in views:
        if view not in sinks:
            reasons.append(f'the view "{view}" is not in the program')
        elif by_spark:
            reasons.append(f'the view "{view}" cannot be built anew in an app that reads with app.read')
        else:
            why = rebuild(plan, sinks[view].up, sinks[view].name, ()).why_not
            if why:
                reasons.append(f'the view "{view}" cannot be built anew: {why}')
    if reasons:
        (storage.path / NEW_FILE).unlink(missing_ok=True)
        raise AppDamaged(str(storage.path), [*reasons, *found.values()], mend=mend_of(plan, views, found))


def mend_of(plan: Plan | None, views: list[str], found: dict[str, str]) -> str:
    """Return what mends views that cannot be built from state: a replay of their steps, or a backup."""
    steps = sorted({step for view, step in feeding_steps(plan).items() if view in views and step}) if plan else []
    if "" in found or not steps:
        return (
            "Restore storage and log from a backup: headrace restore DIR. Or compute everything again: "
            "headrace reset FILE"
        )
    resets = "; ".join(f"headrace reset FILE --step {step}" for step in steps)
    return (
        f"Compute their steps again from the topics: {resets}. Or restore storage and log from a backup: "
        "headrace restore DIR"
    )


def feeding_steps(plan: Plan) -> dict[str, str | None]:
    """Return by view the nearest step with state that feeds it, None for none."""
    found: dict[str, str | None] = {}
    for sink in plan.sinks:
        if sink.view is not None:
            found[sink.view] = next((plan.name(up) for up in reversed([*sink.up.walk()]) if up.stateful), None)
    return found
