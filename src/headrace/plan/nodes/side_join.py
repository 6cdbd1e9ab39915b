"""A stream with a few rows that never change, which every task has."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import pyarrow as pa

from headrace.plan.nodes.latest import Latest
from headrace.plan.nodes.meaning import Meaning, digest
from headrace.plan.nodes.node import Description, Partition
from headrace.plan.nodes.sources import Source
from headrace.plan.nodes.stateless import Stateless

if TYPE_CHECKING:
    from collections.abc import Sequence

    from headrace.plan.nodes.join import How, JoinColumn
    from headrace.plan.nodes.lookup_join import LookupJoin


@dataclass(frozen=True, eq=False, kw_only=True)
class SideJoin(Stateless):
    """Rows of a stream, each with the rows of a small bounded table that match it.

    All rows of the table were there before any of the stream's, so what a row finds depends on neither time nor cut:
    it is computed by itself, where it is. `columns` are as in `Join`, `side` is the table's source.
    """

    verb = "join"

    side: Source
    on: tuple[tuple[str, str], ...]
    how: How
    columns: tuple[JoinColumn, ...]

    @staticmethod
    def instead_of(lookup: LookupJoin) -> SideJoin | None:
        """Return the same join without state, where the table is bounded, small, and as its source has it; else None.

        What a connector calls small is its own (`Source.side`). Keys must have one form of each value.
        """
        table = lookup.right
        if not isinstance(table, Latest) or table.by_time or lookup.where is not None or not lookup.on:
            return None
        source = table.up
        if not isinstance(source, Source) or not _is_plain(source):
            return None
        names = [*((lookup.left, ours) for ours, _ in lookup.on), *((table, name) for name in table.keys)]
        names += [(table, theirs) for _, theirs in lookup.on]
        if not all(_has_one_form(node.schema.field(name).type) for node, name in names):
            return None
        if not getattr(source.connector, "side", lambda _: False)(table.keys):
            return None
        return SideJoin(
            schema=lookup.schema,
            name=lookup.name,
            up=lookup.left,
            side=source,
            on=lookup.on,
            how=lookup.how,
            columns=lookup.columns,
        )

    @property
    def sealed(self) -> frozenset[str]:
        """Those of its stream, under their names here."""
        return frozenset(column.name for column in self.columns if column.left in self.up.sealed)

    @property
    def not_null(self) -> frozenset[str]:
        """Those of its stream, under their names here."""
        return frozenset(column.name for column in self.columns if column.left in self.up.not_null)

    def partition_after(self, above: Partition) -> Partition:
        """Return the columns under their names here: a row stays where it is."""
        named = {column.left: column.name for column in self.columns if column.left is not None}
        return None if above is None else tuple(named[name] for name in above)

    def meaning(self, above: Sequence[Meaning]) -> Meaning:
        """Return the rows above with what the table has for them: its content is a part of what they mean."""
        on = [[above[0].columns.get(ours, ours), theirs] for ours, theirs in self.on]
        rows = digest(["side", above[0].text(()), self.side.connector.identity, on, self.how, self.side.record_key])
        columns = {
            column.name: f"{rows}.{column.right}" if column.left is None else above[0].columns[column.left]
            for column in self.columns
        }
        return Meaning(rows, columns)

    def reads_for(self, wanted: frozenset[str]) -> tuple[frozenset[str], ...]:
        """Return those of its stream, and the columns in which rows match."""
        kept = {column.left for column in self.columns if column.left is not None and column.name in wanted}
        return (frozenset({*kept, *(ours for ours, _ in self.on)}),)

    def describe(self) -> Description:
        """Return what rows match by."""
        on = " and ".join(f"{left} = {right}" if left != right else left for left, right in self.on)
        return Description(detail=f"{self.how}, on {on}, with {self.side.label}, a bounded table that every task has")


def _is_plain(source: Source) -> bool:
    """Return whether a source is read as a table whose rows are what it has, all of them good."""
    timed = source.event_time or source.timing or source.sent_time
    return source.upserts and not timed and source.format is None and not source.private


def _has_one_form(kind: pa.DataType) -> bool:
    types = pa.types
    return bool(
        types.is_signed_integer(kind)
        or types.is_string(kind)
        or types.is_boolean(kind)
        or types.is_date32(kind)
        or types.is_timestamp(kind)
    )
