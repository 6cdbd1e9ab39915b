"""Steps that look at one row at a time."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from headrace.base.names import quote
from headrace.expressions.asserted import not_null_columns
from headrace.plan.nodes.node import Node, OneInput

if TYPE_CHECKING:
    from collections.abc import Callable

    import pyarrow as pa

    from headrace.expressions import Scalar


@dataclass(frozen=True, eq=False, kw_only=True)
class Select(OneInput):
    """New columns made of the old ones; `shown` is the verb that the user wrote."""

    verb = "select"

    columns: tuple[tuple[str, Scalar], ...]
    shown: str

    @property
    def key(self) -> tuple[str, ...] | None:
        """The key of the step above under its new names, or None when a part of it is gone."""
        if self.up.key is None:
            return None
        kept = {made.sql: name for name, made in reversed(self.columns)}
        renamed = [kept.get(quote(part)) for part in self.up.key]
        return None if None in renamed else tuple(name for name in renamed if name is not None)

    @property
    def sealed(self) -> frozenset[str]:
        """Those of the step above, under their new names."""
        above = {quote(name) for name in self.up.sealed}
        return frozenset(name for name, made in self.columns if made.sql in above)

    @property
    def not_null(self) -> frozenset[str]:
        """Those of the step above, under their new names."""
        above = {quote(name) for name in self.up.not_null}
        return frozenset(name for name, made in self.columns if made.sql in above)


@dataclass(frozen=True, eq=False, kw_only=True)
class Where(OneInput):
    """The rows for which the condition is true; neither false nor null is."""

    verb = "where"

    condition: Scalar

    @property
    def not_null(self) -> frozenset[str]:
        """Those of the step above, and those of which the condition says it."""
        return self.up.not_null | (not_null_columns(self.condition.text) & frozenset(self.schema.names))


@dataclass(frozen=True, eq=False, kw_only=True)
class Ending(OneInput):
    """A `where` over the records of a table: what does not meet the condition is a delete, for its key is not there."""

    verb = "where"

    condition: Scalar


@dataclass(frozen=True, eq=False, kw_only=True)
class Explode(OneInput):
    """One row for each element of an array, or each entry of a map; rows with nothing in it disappear."""

    verb = "explode"

    column: Scalar
    into: tuple[str, ...]

    @property
    def key(self) -> tuple[str, ...] | None:
        """No key is left: one row became several."""
        return None

    @property
    def sealed(self) -> frozenset[str]:
        """Those of the step above, and the elements of a sealed list."""
        kept = self.up.sealed & frozenset(self.schema.names)
        return kept | frozenset(self.into) if self.column.columns & self.up.sealed else kept - frozenset(self.into)


@dataclass(frozen=True, eq=False, kw_only=True)
class MapBatches(OneInput):
    """A function of the user's over Arrow tables."""

    verb = "map_batches"

    function: Callable[[pa.Table], pa.Table]

    @property
    def key(self) -> tuple[str, ...] | None:
        """Nobody knows what the function did to the key."""
        return None

    @property
    def sealed(self) -> frozenset[str]:
        """None: no function is given sealed columns."""
        return frozenset()


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
    def is_table(self) -> bool:
        """Where one of them is: its rows leave the whole too."""
        return any(up.is_table for up in self.streams)


@dataclass(frozen=True, eq=False, kw_only=True)
class Changes(OneInput):
    """A table read as a stream of what happened to its rows."""

    verb = "changes"

    @property
    def key(self) -> tuple[str, ...] | None:
        """A stream has no key."""
        return None

    @property
    def is_table(self) -> bool:
        """What happened cannot be undone: a stream."""
        return False

    @property
    def append_only(self) -> bool:
        """What happened stays."""
        return True

    @property
    def not_null(self) -> frozenset[str]:
        """As the step above."""
        return self.up.not_null
