"""Sealed columns where an app's rows leave it: views and sinks give the values, or null where they were forgotten.

The storage's `private.json` says which columns of which views are sealed, and which topics have their keys, so that
whoever reads a view needs no program for it.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from headrace.log.privacy.subjects import Origin, unseal_table

if TYPE_CHECKING:
    from collections.abc import Iterable
    from pathlib import Path

    import pyarrow as pa

    from headrace.engine.outside import Outside
    from headrace.engine.storage import Storage
    from headrace.plan.plan import Plan

FILE_NAME = "private.json"


def remember(plan: Plan, storage: Storage, outside: Outside) -> None:
    """Write down what is sealed in the views of a plan; what an earlier plan left sealed stays known."""
    kept: dict[str, Any] = storage.read_json(FILE_NAME) or {"views": {}, "origins": []}
    views = {sink.view: sorted(sink.up.sealed) for sink in plan.sinks if sink.view is not None}
    path = outside.topics.log.path
    log = "" if path == storage.path / "log" else str(path.absolute())
    found = {(origin.log or log, origin.topic, origin.id) for origin in outside.origins}
    now = {
        "views": {name: columns for name, columns in (kept["views"] | views).items() if columns},
        "origins": sorted([*map(list, found), *(each for each in kept["origins"] if tuple(each) not in found)]),
    }
    if now != kept:
        storage.write_json(FILE_NAME, now)


def open_view(storage: Path, view: str, rows: pa.Table) -> pa.Table:
    """Return rows of a view with the values of its private columns, null where the subject was forgotten."""
    known = _known(storage)
    return opened(storage, known["views"].get(view, ()), rows) if known else rows


def opened(storage: Path, columns: Iterable[str], rows: pa.Table) -> pa.Table:
    """Return rows of an app with the values of these sealed columns."""
    found = [Origin(*each) for each in _known(storage).get("origins", ())]
    log = str(storage / "log")
    return unseal_table(rows, columns, {each.id: each._replace(log=each.log or log) for each in found})


def _known(storage: Path) -> dict[str, Any]:
    try:
        found: dict[str, Any] = json.loads((storage / FILE_NAME).read_text(encoding="utf-8"))
    except FileNotFoundError:
        return {}
    return found
