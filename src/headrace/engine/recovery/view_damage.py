"""What is wrong with the views of a storage: their rows, their file, or which epochs they have."""

from __future__ import annotations

from typing import TYPE_CHECKING

from headrace.base.errors import ViewsDamaged, ViewsFailed
from headrace.engine.publish import with_rows
from headrace.engine.served import views_at

if TYPE_CHECKING:
    from collections.abc import Collection

    from headrace.engine.storage import Commit, Storage
    from headrace.plan.plan import Plan

VIEW_SINK = "view:"


def views_damage(storage: Storage) -> dict[str, str]:
    """Return what is wrong, by view; "" is the whole file. The app may be running."""
    commit = storage.newest_commit()
    given = -1 if commit is None else epoch_given(storage, commit)  # before the views are read: they only advance
    views = views_at(storage.path)
    found = views.damage()
    if commit is None or "" in found:
        return found
    try:
        applied, names = views.applied(), views.names()
    except ViewsFailed as error:
        return found | {"": error.what}
    if applied < given:
        return found | {"": f"it has epochs up to {applied}, and epoch {given} was published to it"}
    return found | dict.fromkeys(missing_views(commit, names), "it is gone")


def epoch_given(storage: Storage, commit: Commit) -> int:
    """Return the last epoch that was published to the views, -1 for none."""
    given = commit.published if storage.unpublished(commit) else with_rows(commit)
    return max((epoch for sink, epoch in given.items() if sink.startswith(VIEW_SINK)), default=-1)


def missing_views(commit: Commit, there: Collection[str]) -> list[str]:
    """Return the views that the last epoch had, and that are not there; not those that the next start fills."""
    had = [sink.removeprefix(VIEW_SINK) for sink in commit.sinks or () if sink.startswith(VIEW_SINK)]
    return [view for view in had if view not in there and f"{VIEW_SINK}{view}" not in commit.refill]


def refuse_gone(storage: Storage) -> None:
    """Refuse to show views as empty that the last epoch had and that are gone; the app may be running.

    Raises:
        ViewsDamaged: some are.

    """
    commit = storage.newest_commit()  # before the views are read: they are declared before an epoch has them
    views = views_at(storage.path)
    gone = [] if commit is None else missing_views(commit, views.names())
    if gone:
        raise ViewsDamaged(views.where, why=f"the views {', '.join(gone)} are gone")


def check_views(where: str, plan: Plan, last: Commit | None, there: Collection[str]) -> None:
    """Refuse to go on where a view of the app is gone from the store `where`: it would begin anew, without its rows.

    Raises:
        ViewsDamaged: it is.

    """
    declared = {sink.view for sink in plan.sinks}
    gone = [] if last is None else [view for view in missing_views(last, there) if view in declared]
    if gone:
        raise ViewsDamaged(where, why=f"the views {', '.join(gone)} are gone")
