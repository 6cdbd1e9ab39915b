"""What every store of views guarantees.

A view is the sum of its deltas. A store takes the deltas of a whole epoch at once, each epoch once, and a
reader sees the sum of whole epochs: never a part of one, never one view ahead of another.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple, Protocol

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping
    from contextlib import AbstractContextManager

    import pyarrow as pa

WEIGHT = "_weight"
NO_EPOCH = -1

Key = tuple[str, ...] | None


class ViewDescription(NamedTuple):
    """A view's columns, its key (`None`: a bag of rows, `()`: a single row), and its number of rows."""

    schema: pa.Schema
    key: Key
    rows: int


class Snapshot(Protocol):
    """The views as of one epoch; later epochs are not seen."""

    def applied(self) -> int:
        """Return the epoch of the snapshot, -1 before the first."""
        ...

    def names(self) -> list[str]:
        """Return the views' names, sorted."""
        ...

    def describe(self, name: str) -> ViewDescription:
        """Return a view's columns, key and number of rows.

        Raises:
            UnknownView: there is no such view.

        """
        ...

    def read(self, name: str) -> pa.Table:
        """Return a view's rows with the declared types, sorted by key (a bag by all columns), nulls first.

        Raises:
            UnknownView: there is no such view.

        """
        ...


class Views(Protocol):
    """A store of views: one writer, readers in any process."""

    @property
    def where(self) -> str:
        """What people call the store, without passwords."""
        ...

    def close(self) -> None:
        """Close what is open; a later call opens it again."""
        ...

    def declare(self, name: str, schema: pa.Schema, key: Key) -> None:
        """Create a view, or do nothing if it exists with these columns and this key.

        Args:
            name: the view's name, `[A-Za-z_][A-Za-z0-9_]*`.
            schema: its columns.
            key: the columns that identify a row; `()` is a view of one row, `None` a bag, which counts equal rows.

        Raises:
            InvalidName: the name is not allowed.
            ViewChanged: it exists with other columns or another key; nothing was changed.

        """
        ...

    def applied(self) -> int:
        """Return the last epoch that was applied, -1 if none was."""
        ...

    def apply(self, epoch: int, deltas: Mapping[str, pa.Table], *, replaced: Collection[str] = ()) -> None:
        """Apply an epoch to all its views or to none; an epoch that was applied before does nothing.

        Args:
            epoch: the epoch's number, from 0.
            deltas: by view the rows that change: the view's columns and an integer `_weight`. With a key, a weight
                below zero deletes the row of that key, and one above zero inserts or replaces it, deletions first. In
                a bag the weight is how many equal rows are inserted or removed. A delta is net: at most one row a key
                has a weight above zero. Trap: a row that is withdrawn or replaced is withdrawn with all of its values,
                or the view's digest is no longer that of its rows (`damage`).
            replaced: views that lose all rows that they had before.

        Raises:
            UnknownView: a delta is of a view that was not declared.
            ViewOutOfStep: a row is withdrawn that is not there.

        """
        ...

    def snapshot(self) -> AbstractContextManager[Snapshot]:
        """Return a context in which several reads see the same epoch."""
        ...

    def names(self) -> list[str]:
        """Return the views' names, sorted."""
        ...

    def describe(self, name: str) -> ViewDescription:
        """Return a view's columns, key and number of rows.

        Raises:
            UnknownView: there is no such view.

        """
        ...

    def read(self, name: str) -> pa.Table:
        """Return a view's rows with the declared types, sorted by key (a bag by all columns), nulls first.

        Raises:
            UnknownView: there is no such view.

        """
        ...

    def drop(self, name: str) -> None:
        """Delete a view and its rows.

        Raises:
            UnknownView: there is no such view.

        """
        ...

    def reset(self) -> None:
        """Delete every view, and forget which epochs were applied."""
        ...

    def damage(self) -> dict[str, str]:
        """Return what is damaged, by view: its rows are not those that its epochs made; "" is the whole store.

        It reads everything, and blocks nobody.
        """
        ...
