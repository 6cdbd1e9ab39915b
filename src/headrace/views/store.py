"""What every store of views promises, whatever it is made of.

A view is the sum of its deltas. A store takes the deltas of a whole epoch at once, each epoch once, and whoever
reads sees the sum of whole epochs: never a part of one, never one view further than another.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple, Protocol

if TYPE_CHECKING:
    from collections.abc import Mapping
    from contextlib import AbstractContextManager

    import pyarrow as pa

WEIGHT = "_weight"
NO_EPOCH = -1

Key = tuple[str, ...] | None


class Described(NamedTuple):
    """What a view is: its columns, its key (`None`: a bag of rows, `()`: a single row), and how many rows it has."""

    schema: pa.Schema
    key: Key
    rows: int


class Snapshot(Protocol):
    """The views as one epoch left them; later epochs do not show."""

    def applied(self) -> int:
        """Return the epoch that this is the state of, -1 before the first."""
        ...

    def names(self) -> list[str]:
        """Return the views' names, sorted."""
        ...

    def describe(self, name: str) -> Described:
        """Return a view's columns, key and number of rows; `UnknownView` if there is none."""
        ...

    def read(self, name: str) -> pa.Table:
        """Return a view's rows, typed as declared, sorted by key (a bag by all columns), nulls first."""
        ...


class Views(Protocol):
    """A store of views: one writer, readers in any process."""

    def declare(self, name: str, schema: pa.Schema, key: Key) -> None:
        """Make a view, or do nothing if it is there with these columns and this key.

        A key of `()` is a view of one row; `None` is a bag, in which equal rows count.

        Raises:
            InvalidName: the name is not allowed.
            ViewChanged: it is there with other columns or another key; nothing was changed.

        """
        ...

    def applied(self) -> int:
        """Return the last epoch that was applied, -1 if none was."""
        ...

    def apply(self, epoch: int, deltas: Mapping[str, pa.Table]) -> None:
        """Apply an epoch to all its views or to none; an epoch that was applied before does nothing.

        A delta has the view's columns and `_weight` int: with a key, a weight below zero deletes the row of that
        key and one above zero puts the row in its place, deletions first; in a bag a weight is how many equal
        rows come or go. A delta is net: at most one row a key above zero.

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

    def describe(self, name: str) -> Described:
        """Return a view's columns, key and number of rows; `UnknownView` if there is none."""
        ...

    def read(self, name: str) -> pa.Table:
        """Return a view's rows, typed as declared, sorted by key (a bag by all columns), nulls first."""
        ...

    def drop(self, name: str) -> None:
        """Forget a view and its rows; `UnknownView` if there is none."""
        ...

    def reset(self) -> None:
        """Forget every view and every epoch."""
        ...
