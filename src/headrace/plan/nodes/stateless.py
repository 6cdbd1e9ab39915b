"""Steps that compute each row by itself."""

from __future__ import annotations

from abc import abstractmethod
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from headrace.base.names import quote
from headrace.expressions.asserted import not_null_columns
from headrace.plan.nodes.meaning import Meaning, digest
from headrace.plan.nodes.node import CORRECTED, Description, Node, OneInput, Partition
from headrace.plan.nodes.stateful import CHANGE_TYPE

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Sequence

    import pyarrow as pa

    from headrace.expressions import Scalar


@dataclass(frozen=True, eq=False, kw_only=True)
class Stateless(OneInput):
    """A step over one other that keeps nothing of a row."""

    @property
    def keeps_time(self) -> bool:
        """As the step above."""
        return self.append_only or self.up.keeps_time

    @property
    def arrival_inputs(self) -> tuple[Node, ...] | None:
        """As the step above."""
        return (self.up,)

    @abstractmethod
    def meaning(self, above: Sequence[Meaning]) -> Meaning:
        """Return what its rows mean, from what those of the steps above mean.

        It is stored and compared at every start: what a released version wrote must come out the same.
        """


@dataclass(frozen=True, eq=False, kw_only=True)
class Select(Stateless):
    """New columns, computed from those of the input; `shown` is the verb that the user wrote."""

    verb = "select"

    columns: tuple[tuple[str, Scalar], ...]
    shown: str

    @property
    def key(self) -> tuple[str, ...] | None:
        """The key of the step above under its new names, or None when a part of it is gone."""
        return None if self.up.key is None else self._renamed(self.up.key)

    @property
    def sealed(self) -> frozenset[str]:
        """Those of the step above, under their new names."""
        above = {quote(name) for name in self.up.sealed}
        return frozenset(name for name, column in self.columns if column.sql in above)

    @property
    def not_null(self) -> frozenset[str]:
        """Those of the step above, under their new names."""
        above = {quote(name) for name in self.up.not_null}
        return frozenset(name for name, column in self.columns if column.sql in above)

    @property
    def event_time_column(self) -> str | None:
        """That of the step above under its new name, or the one with the corrected time."""
        above = self.up.event_time_column
        corrected = [name for name, column in self.columns if column.sql == CORRECTED]
        renamed = [name for name, column in self.columns if above is not None and column.sql == quote(above)]
        return next(iter([*corrected, *renamed]), None)

    @property
    def shown_verb(self) -> str:
        """What the user wrote."""
        return self.shown

    def partition_after(self, above: Partition) -> Partition:
        """Return the columns under their new names, or None where one of them is gone."""
        return None if above is None else self._renamed(above)

    def reads_for(self, wanted: frozenset[str]) -> tuple[frozenset[str], ...]:
        """Return what it passes on of those, and what all that it computes reads: that may fail, wanted or not."""
        return (frozenset(name for _, column in self.computed(wanted) for name in column.columns),)

    def computed(self, wanted: Collection[str]) -> list[tuple[str, Scalar]]:
        """Return its columns without those of the step above that are not wanted."""
        above = {quote(name) for name in self.up.schema.names}
        return [(name, column) for name, column in self.columns if name in wanted or column.sql not in above]

    def meaning(self, above: Sequence[Meaning]) -> Meaning:
        """Return the rows above with these columns."""
        return replace(above[0], columns={name: above[0].value(column) for name, column in self.columns})

    def describe(self) -> Description:
        """Return the columns."""
        columns = (name if name == column.text else f"{column.text} AS {name}" for name, column in self.columns)
        return Description(detail=", ".join(columns))

    def _renamed(self, names: tuple[str, ...]) -> tuple[str, ...] | None:
        new_names = {column.sql: name for name, column in reversed(self.columns)}
        renamed = [new_names.get(quote(name)) for name in names]
        return None if None in renamed else tuple(name for name in renamed if name is not None)


@dataclass(frozen=True, eq=False, kw_only=True)
class Where(Stateless):
    """The rows for which the condition is true; neither false nor null is.

    `missed`: it was written below a step that keeps rows (`plan/filters.py`), whose state lacks the others.
    """

    verb = "where"

    condition: Scalar
    missed: bool = False

    @property
    def not_null(self) -> frozenset[str]:
        """Those of the step above, and those of which the condition says it."""
        return self.up.not_null | (not_null_columns(self.condition.text) & frozenset(self.schema.names))

    @property
    def event_time_column(self) -> str | None:
        """As the step above."""
        return self.up.event_time_column

    def partition_after(self, above: Partition) -> Partition:
        """Return `above`: the rows stay as they are."""
        return above

    def reads_for(self, wanted: frozenset[str]) -> tuple[frozenset[str], ...]:
        """Return those and the condition's; with functions of the user's, which get whole rows, all."""
        return super().reads_for(wanted) if self.condition.calls else (wanted | self.condition.columns,)

    def meaning(self, above: Sequence[Meaning]) -> Meaning:
        """Return the rows that meet the condition."""
        return above[0].met(self.condition)

    def describe(self) -> Description:
        """Return the condition."""
        return Description(detail=self.condition.text)


@dataclass(frozen=True, eq=False, kw_only=True)
class Ending(Stateless):
    """A `where` over the records of a table: a record that does not meet the condition becomes a delete of its key."""

    verb = "where"

    condition: Scalar

    def partition_after(self, above: Partition) -> Partition:
        """Return `above`: the rows stay as they are."""
        return above

    def meaning(self, above: Sequence[Meaning]) -> Meaning:
        """Return all records, of which the condition makes some deletes."""
        return replace(above[0], rows=digest(["ending", above[0].met(self.condition).text(())]))

    def describe(self) -> Description:
        """Return the condition."""
        return Description(detail=f"{self.condition.text}, else deleted")


@dataclass(frozen=True, eq=False, kw_only=True)
class Explode(Stateless):
    """One row for each element of an array, or each entry of a map; a row with an empty or null one disappears."""

    verb = "explode"

    column: Scalar
    into: tuple[str, ...]

    @property
    def key(self) -> tuple[str, ...] | None:
        """None: one row became several."""
        return None

    @property
    def sealed(self) -> frozenset[str]:
        """Those of the step above, and the elements of a sealed list."""
        kept = self.up.sealed & frozenset(self.schema.names)
        return kept | frozenset(self.into) if self.column.columns & self.up.sealed else kept - frozenset(self.into)

    @property
    def event_time_column(self) -> str | None:
        """As the step above, unless an element takes its name."""
        above = self.up.event_time_column
        return None if above in self.into else above

    def partition_after(self, above: Partition) -> Partition:
        """Return `above`, unless an element takes the name of one of the columns."""
        return None if above is None or set(self.into) & set(above) else above

    def meaning(self, above: Sequence[Meaning]) -> Meaning:
        """Return a row for each element."""
        rows = digest(["explode", above[0].text(()), above[0].value(self.column)])
        kept = {name: above[0].columns.get(name, name) for name in self.schema.names if name not in self.into}
        return Meaning(rows, kept | {name: f"{rows}.{number}" for number, name in enumerate(self.into)})

    def describe(self) -> Description:
        """Return the column, and what its elements are called."""
        return Description(detail=f"{self.column.text} AS {', '.join(self.into)}")


@dataclass(frozen=True, eq=False, kw_only=True)
class MapBatches(Stateless):
    """A function of the user's over Arrow tables."""

    verb = "map_batches"

    function: Callable[[pa.Table], pa.Table]

    @property
    def key(self) -> tuple[str, ...] | None:
        """None: the function may change the key."""
        return None

    @property
    def sealed(self) -> frozenset[str]:
        """None: functions get no sealed columns."""
        return frozenset()

    def meaning(self, above: Sequence[Meaning]) -> Meaning:
        """Return what a function of this name makes of the rows above; what it does with them nobody knows."""
        rows = digest(["map_batches", self._function_name, above[0].text()])
        return Meaning.of(rows, self.schema.names)

    def describe(self) -> Description:
        """Return the name of the function."""
        return Description(detail=self._function_name)

    @property
    def _function_name(self) -> str:
        return getattr(self.function, "__qualname__", type(self.function).__qualname__)


@dataclass(frozen=True, eq=False, kw_only=True)
class Union(Node):
    """All rows of several steps of one schema."""

    verb = "union"

    streams: tuple[Node, ...]

    @property
    def ups(self) -> tuple[Node, ...]:
        """The steps."""
        return self.streams

    @property
    def arrival_inputs(self) -> tuple[Node, ...] | None:
        """As the steps above."""
        return self.ups

    @property
    def is_table(self) -> bool:
        """Whether one of them is: a row that it withdraws is withdrawn here."""
        return any(up.is_table for up in self.streams)

    @property
    def keeps_time(self) -> bool:
        """As the steps above."""
        return self.append_only or all(up.keeps_time for up in self.ups)

    @property
    def event_time_column(self) -> str | None:
        """The one that all of them agree on."""
        above = {up.event_time_column for up in self.ups}
        return above.pop() if len(above) == 1 else None

    def meaning(self, above: Sequence[Meaning]) -> Meaning:
        """Return the rows of all, in whatever order they are named."""
        return Meaning.of(digest(["union", sorted(each.text(self.schema.names) for each in above)]), self.schema.names)

    def describe(self) -> Description:
        """Return nothing: its inputs say all."""
        return Description()


@dataclass(frozen=True, eq=False, kw_only=True)
class Changes(Stateless):
    """A table read as a stream of the changes of its rows."""

    verb = "changes"

    @property
    def key(self) -> tuple[str, ...] | None:
        """A stream has no key."""
        return None

    @property
    def arrival_inputs(self) -> tuple[Node, ...] | None:
        """None: a change is the net one of an epoch."""
        return None

    @property
    def is_table(self) -> bool:
        """No: a change is a fact."""
        return False

    @property
    def append_only(self) -> bool:
        """Yes: a change is a fact."""
        return True

    @property
    def not_null(self) -> frozenset[str]:
        """As the step above."""
        return self.up.not_null

    def partition_after(self, above: Partition) -> Partition:
        """Return `above`: the rows stay as they are."""
        return above

    def meaning(self, above: Sequence[Meaning]) -> Meaning:
        """Return the changes of the rows above, which their key tells apart."""
        key = None if self.up.key is None else [above[0].columns.get(name, name) for name in self.up.key]
        rows = digest(["changes", above[0].text(()), key])
        return Meaning(rows, {**above[0].columns, CHANGE_TYPE: f"{rows}.{CHANGE_TYPE}"})

    def describe(self) -> Description:
        """Return the kinds of changes."""
        return Description(detail="insert, update_preimage, update_postimage, delete")
