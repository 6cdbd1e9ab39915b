"""Which store serves an app's views: a SQLite file in its storage, or the database that `views.json` names.

`views.json` has the address, and the views' owner: other apps may serve theirs from the same database. All that reads
or mends views finds the store by it, with the program or without.
"""

from __future__ import annotations

import uuid
from typing import TYPE_CHECKING, Any

from headrace.base.blame import PlanError
from headrace.base.errors import InvalidPlan
from headrace.engine.storage import read_json
from headrace.views.sqlite import SqliteViews

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from headrace.connect.postgres.serving.store import PostgresViews
    from headrace.engine.storage import Commit, Storage

FILE = "views.json"
SQLITE = "views.db"
_MEND = "Restore it from a backup: headrace restore DIR"


class ViewsMoved(PlanError):
    """The program serves its views from another place than the epochs of the storage were applied to."""

    condition = "VIEWS_MOVED"

    def __init__(self, app: str, *, before: str, now: str) -> None:
        what = (
            f"from {now} and no longer from {before}" if before != now else f"from {now}, and its storage was restored"
        )
        super().__init__(
            f'the app "{app}" serves its views {what}',
            detail="What is there is not what its epochs have made. What was served before is left as it is.",
            hint="Stop the app and build the views anew from the state of their steps: headrace verify FILE --repair",
        )


def views_at(
    path: Path,
    *,
    durable: bool = True,
    fault: Callable[[str], None] = lambda point: None,  # noqa: ARG005 -- no crash
) -> SqliteViews | PostgresViews:
    """Return the store of the views of a storage; nothing is opened yet.

    Raises:
        InvalidPlan: it is a database, and its client is not installed.
        DamagedFile: `views.json` is not as it was written.

    """
    stored = read_json(path / FILE, hint=_MEND)
    if stored is None:
        return SqliteViews(path / SQLITE, durable=durable)
    return _postgres(stored["url"], stored["owner"], fault)


def has_moved(storage: Storage, wanted: str | None) -> bool:
    """Whether a program serves its views (`App(views=)`) from another store than that of the storage."""
    stored = storage.read_json(FILE)
    return _place(stored) != _place(_described(wanted)) or bool(stored and stored.get("restored"))


def agree_on_views(storage: Storage, wanted: str | None, *, last: Commit | None) -> None:
    """Make the storage's views those that the program names; the caller holds the storage.

    Raises:
        ViewsMoved: they were served from another store.

    """
    if has_moved(storage, wanted):
        if last is not None and any(sink.startswith("view:") for sink in last.sinks or ()):
            before, now = views_at(storage.path), _described(wanted)
            where = str(storage.path / SQLITE) if now is None else _postgres(now["url"], "", _no_fault).where
            raise ViewsMoved(storage.app, before=before.where, now=where)
        move_views(storage, wanted)
    stored = storage.read_json(FILE)
    if stored is not None and stored["url"] != wanted:  # another user, or another option
        storage.write_json(FILE, {**stored, "url": wanted})


def move_views(storage: Storage, wanted: str | None) -> None:
    """Serve the views from another store from now on; it has no epoch of them yet."""
    stored = storage.read_json(FILE)
    if wanted is None:
        (storage.path / FILE).unlink(missing_ok=True)
        return
    owner = f"{storage.app}/{uuid.uuid4().hex}" if stored is None else stored["owner"]
    storage.write_json(FILE, {"url": wanted, "owner": owner})


def restored(description: dict[str, Any]) -> dict[str, Any]:
    """Return `views.json` for a backup: the database is not in it, and goes on."""
    return {**description, "restored": True}


def _postgres(url: str, owner: str, fault: Callable[[str], None]) -> PostgresViews:
    try:
        from headrace.connect.postgres.address import PostgresAddress
        from headrace.connect.postgres.serving.store import PostgresViews
    except ImportError as error:
        raise InvalidPlan(
            f"views in PostgreSQL need a package that is not there: {error.name}",
            hint='pip install "headrace[postgres]"',
        ) from error
    return PostgresViews(PostgresAddress.parse(url), owner, fault=fault)


def _described(wanted: str | None) -> dict[str, Any] | None:
    return None if wanted is None else {"url": wanted}


def _place(described: dict[str, Any] | None) -> str | None:
    return None if described is None else _postgres(described["url"], "", _no_fault).address.place


def _no_fault(point: str) -> None:
    del point
