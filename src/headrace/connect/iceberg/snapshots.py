"""Snapshots with the mark of an epoch: writer and epoch in the summary, and in a property of the table.

A snapshot is committed only as the next one after that in which the writer has looked for its last epoch: the library's
own retries, which would write it after another one, are off. So of two processes that write an epoch, one has it
refused, looks again, and finds it there.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from pyiceberg.table import TableProperties

if TYPE_CHECKING:
    from collections.abc import Callable

    from pyiceberg.table import Table

    from headrace.connect.iceberg.files import Change

WRITER, EPOCH = "headrace.writer", "headrace.epoch"
IDLE_MANIFESTS = 16
"""So many manifests that say only what was deleted are listed before they are left out."""


def commit_epoch(table: Table, epoch: int, change: Change, *, writer: str, fault: Callable[[str], None]) -> None:
    """Commit an epoch as the snapshot after the one that the table was loaded at.

    Raises:
        CommitFailedException: another one is there by now.

    """
    summary = {WRITER: writer, EPOCH: str(epoch)}
    _without_retries(table)
    with table.transaction() as transaction:
        transaction.set_properties({property_of(writer): str(epoch)})
        update = transaction.update_snapshot(snapshot_properties=summary)
        with update.overwrite() if change.replaced else update.fast_append() as snapshot:
            for each in change.replaced:
                snapshot.delete_data_file(each)
            for each in change.added:
                snapshot.append_data_file(each)
        if change.replaced and change.idle_manifests > IDLE_MANIFESTS:
            with transaction.update_snapshot(snapshot_properties=summary).fast_append():
                pass  # it lists manifests with files alone
        fault("before_commit")


def property_of(writer: str) -> str:
    """Return the name of the table's property that has the last epoch of a writer."""
    return f"{EPOCH}.{writer}"


def last_epoch(table: Table, writer: str) -> int:
    """Return the last epoch of a writer that a table has, -1 if none.

    What the snapshots say counts, since a table may be rolled back to an older one. Where all of the writer's have been
    expired, the property says it.
    """
    snapshot = table.current_snapshot()
    while snapshot is not None:
        summary = {} if snapshot.summary is None else snapshot.summary.additional_properties
        if summary.get(WRITER) == writer:
            return int(summary[EPOCH])
        parent = snapshot.parent_snapshot_id
        snapshot = None if parent is None else table.snapshot_by_id(parent)
    return int(table.properties.get(property_of(writer), -1))


def _without_retries(table: Table) -> None:
    """Make a commit of this copy of a table fail at once where it is not the next one; nothing of that is stored."""
    properties: dict[str, Any] = {**table.metadata.properties, TableProperties.COMMIT_NUM_RETRIES: "0"}
    table.metadata = table.metadata.model_copy(update={"properties": properties})
