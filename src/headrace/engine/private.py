"""Private columns in views and sinks: sealed tokens become values again, or null where the subject was forgotten.

The storage's `private.json` lists the sealed columns of each view and the topics that have the keys, so a view can be
read without the app's program.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from headrace.engine.storage import read_json
from headrace.log.privacy.subjects import Origin, destroyed_in, unseal_table

if TYPE_CHECKING:
    from collections.abc import Iterable
    from pathlib import Path

    import pyarrow as pa

    from headrace.engine.outside import Outside
    from headrace.engine.storage import Commit, Storage
    from headrace.plan.plan import Plan

FILE_NAME = "private.json"


def remember(plan: Plan, storage: Storage, outside: Outside) -> None:
    """Store which columns of the views are sealed; columns that an earlier plan sealed stay listed."""
    stored: dict[str, Any] = storage.read_json(FILE_NAME) or {"views": {}, "origins": []}
    views = {sink.view: sorted(sink.up.sealed) for sink in plan.sinks if sink.view is not None}
    path = outside.log.path
    log = "" if path == storage.path.absolute() / "log" else str(path)
    found = {(origin.log or log, origin.topic, origin.id) for origin in outside.origins}
    now = {
        "views": {name: columns for name, columns in (stored["views"] | views).items() if columns},
        "origins": sorted([*map(list, found), *(known for known in stored["origins"] if tuple(known) not in found)]),
    }
    if now != stored:
        storage.write_json(FILE_NAME, now)


def open_view(storage: Path, view: str, rows: pa.Table) -> pa.Table:
    """Return rows of a view with the values of its private columns, null where the subject was forgotten."""
    stored = _stored(storage)
    return opened(storage, stored["views"].get(view, ()), rows) if stored else rows


def opened(storage: Path, columns: Iterable[str], rows: pa.Table) -> pa.Table:
    """Return rows with the values of their sealed `columns`."""
    origins = [Origin(*fields) for fields in _stored(storage).get("origins", ())]
    log = str(storage / "log")
    return unseal_table(rows, columns, {origin.id: origin._replace(log=origin.log or log) for origin in origins})


class Destroyed:
    """How often keys of an app's private columns were destroyed, by the topics that have the keys."""

    def __init__(self, storage: Path) -> None:
        self._storage = storage
        self._origins: list[Origin] | None = None

    def now(self) -> dict[str, int]:
        """Return it by the topics' ids: other numbers than before say that a subject was forgotten."""
        if self._origins is None:
            named = [Origin(*fields) for fields in _stored(self._storage).get("origins", ())]
            self._origins = [each._replace(log=each.log or str(self._storage / "log")) for each in named]
        return {origin.id: destroyed_in(origin) for origin in self._origins}

    def since(self, commit: Commit) -> bool:
        """Whether keys were destroyed after the stores of an app got the rows of a commit."""
        return bool(commit.forgotten) and commit.forgotten != self.now()


def _stored(storage: Path) -> dict[str, Any]:
    return read_json(storage / FILE_NAME, hint="Delete the file, and start the app: it is written again.") or {}
