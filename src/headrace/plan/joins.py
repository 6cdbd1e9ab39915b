"""Joins as values: which rows meet, and what is known of those that meet none."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

from headrace.base.schema import duckdb_type
from headrace.plan.nodes import Node, Stateful
from headrace.plan.not_null import not_null

if TYPE_CHECKING:
    import pyarrow as pa

    from headrace.expressions import Scalar

How = Literal["inner", "left", "right", "full", "semi", "anti"]


@dataclass(frozen=True, slots=True, kw_only=True)
class JoinColumn:
    """A column of two rows that met: of the left one, of the right one, or of both (a shared key)."""

    name: str
    type: pa.DataType
    left: str | None = None
    right: str | None = None


@dataclass(frozen=True, eq=False, kw_only=True)
class Join(Stateful):
    """Rows of two steps that agree in `on` (pairs of a left and a right column) and meet the condition.

    `columns` are those of both sides as `where` sees them; the schema has those that are given out: of a semi or an
    anti join the left side's alone. Null agrees with nothing.
    """

    verb = "join"

    left: Node
    right: Node
    on: tuple[tuple[str, str], ...]
    how: How
    columns: tuple[JoinColumn, ...]
    where: Scalar | None

    @property
    def ups(self) -> tuple[Node, ...]:
        """Left and right."""
        return (self.left, self.right)

    @property
    def partition_keys(self) -> tuple[tuple[str, ...], ...]:
        """By the columns in which rows agree."""
        return (tuple(left for left, _ in self.on), tuple(right for _, right in self.on))

    def partition_keys_after(self, at: tuple[int, ...]) -> tuple[str, ...] | None:
        """By the side that every row has; by shared columns where neither is sure; else nobody knows."""
        pairs = [self.on[i] for i in at]
        if self.how == "full":
            names = tuple(self.named(left=left) for left, _ in pairs)
            return names if names == tuple(self.named(right=right) for _, right in pairs) else None
        if self.how == "right":
            return tuple(self.named(right=right) for _, right in pairs)
        return tuple(self.named(left=left) for left, _ in pairs)

    def named(self, *, left: str | None = None, right: str | None = None) -> str:
        """Return what a column of a side is called among the columns of both."""
        return next(
            column.name
            for column in self.columns
            if (left is not None and column.left == left) or (right is not None and column.right == right)
        )

    def inside(self, column: JoinColumn) -> str:
        """Return the SQL of a column of both over the columns inside: left ones are `l0…`, right ones `r0…`.

        `where` is said over them; a shared column is that of the side that has a row.
        """
        left = None if column.left is None else f"l{self.left.schema.get_field_index(column.left)}"
        right = None if column.right is None else f"r{self.right.schema.get_field_index(column.right)}"
        if left is None or right is None:
            return str(left or right)
        return f"coalesce({left}, {right})::{duckdb_type(column.type)}"

    @property
    def sealed(self) -> frozenset[str]:
        """The private columns of both sides."""
        left, right = self.left.sealed, self.right.sealed
        sealed = {column.name for column in self.columns if column.left in left or column.right in right}
        return frozenset(sealed) & frozenset(self.schema.names)

    @property
    def late_schema(self) -> pa.Schema:
        """As its own rows: of the side that the row is not of, everything is null."""
        return self.schema

    @property
    def late_sealed(self) -> frozenset[str]:
        """Those of its own rows."""
        return self.sealed

    def late_partition_keys(self, own: tuple[str, ...] | None) -> tuple[str, ...] | None:
        """By columns that both sides have; others are null in the late rows of one side."""
        shared = {column.name for column in self.columns if column.left is not None and column.right is not None}
        return own if own is not None and shared.issuperset(own) else None

    @property
    def late_before_exchange(self) -> bool:
        """No: a late row may still come out, unmatched."""
        return False


@dataclass(frozen=True, eq=False, kw_only=True)
class StreamJoin(Join):
    """Rows of two streams whose times are near: right time - left time is in `[low, high]`, in microseconds."""

    low: int
    high: int
    grace: int

    @property
    def detects_late(self) -> bool:
        """A row more than `grace` behind the watermark is late."""
        return True

    @property
    def emits_on_watermark(self) -> bool:
        """Rows come out alone once nothing can meet them any more."""
        return self.how != "inner"

    @property
    def hold(self) -> int:
        """`grace`, and for rows that meet none as long as a partner may still come."""
        if self.how == "inner":
            return self.grace
        return self.grace + max(self.high if self.how != "right" else 0, -self.low if self.how != "left" else 0, 0)


@dataclass(frozen=True, eq=False, kw_only=True)
class LookupJoin(Join):
    """Rows of a stream, each with the row of a table as it is when it arrives; changes of the table trigger nothing."""

    @property
    def append_only(self) -> bool:
        """What was looked up stays."""
        return self.left.append_only


@dataclass(frozen=True, eq=False, kw_only=True)
class AsOfJoin(Join):
    """Rows of a stream, each with the row of a table that was valid at the row's time `at`, known `grace` later.

    Its right side are the records that the table is made of, upserts and deletes of rows by `identity`: the table
    itself does not tell what was written late and had been valid before. Old versions stay for `history` longer.
    """

    at: str
    identity: tuple[str, ...]
    grace: int
    history: int

    @property
    def append_only(self) -> bool:
        """A row waits until its answer is final."""
        return self.left.append_only

    @property
    def detects_late(self) -> bool:
        """A row more than `grace` behind the watermark is late."""
        return True

    @property
    def emits_on_watermark(self) -> bool:
        """Rows wait for their answer."""
        return True

    @property
    def hold(self) -> int:
        """Rows wait as long as the table may still change before their time."""
        return self.grace


@dataclass(frozen=True, eq=False, kw_only=True)
class TableJoin(Join):
    """Rows of two tables, kept up to date under every change of either side."""

    @property
    def is_table(self) -> bool:
        """What no longer meets is withdrawn."""
        return True

    @property
    def append_only(self) -> bool:
        """No: rows are withdrawn."""
        return False

    @property
    def key(self) -> tuple[str, ...] | None:
        """The columns that tell its rows apart, or None where none do.

        The shared key where both sides are joined on their whole keys; the left one where the right side is joined on
        its whole key and every row has a left side; both otherwise. A full join needs more: see
        `_distinguishable`.
        """
        left, right = self.left.key, self.right.key
        if left is None or (right is None and self.how not in ("semi", "anti")):
            return None
        ours = tuple(self.named(left=name) for name in left)
        if right is None or self.how in ("semi", "anti"):
            return ours
        theirs = tuple(self.named(right=name) for name in right)
        by_left, by_right = self.partition_keys
        same = ours and set(left) == set(by_left) and set(right) == set(by_right) and set(ours) == set(theirs)
        if self.how == "full" and not self._distinguishable(left, right, same=bool(same)):
            return None
        if same or (set(right) <= set(by_right) and self.how in ("inner", "left")):
            return ours
        return tuple(dict.fromkeys([*ours, *theirs]))

    def _distinguishable(self, left: tuple[str, ...], right: tuple[str, ...], *, same: bool) -> bool:
        """Whether a left row alone and a right row alone never look alike in the keys of both.

        Of one shared key they would if both had the same null in it, or if only `where` kept them apart.
        """
        if same:
            return self.where is None and (set(left) <= not_null(self.left) or set(right) <= not_null(self.right))
        shared = {name for name, other in self.on if name == other}
        return bool((set(left) - shared) & not_null(self.left) or (set(right) - shared) & not_null(self.right))


@not_null.register
def _not_null_of_join(node: Join) -> frozenset[str]:
    """Return what a side that is always there has, and of pairs the columns in which they agree."""
    left, right = (
        not_null(up) | (frozenset(columns) if sure else frozenset())
        for up, columns, sure in zip(
            node.ups, node.partition_keys, (node.how in ("inner", "semi"), node.how == "inner"), strict=True
        )
    )
    always = {"inner": (True, True), "right": (False, True), "full": (False, False)}.get(node.how, (True, False))
    made = set()
    for column in node.columns:
        sides = (column.left in left, column.right in right)
        if all(sides) or (always[0] and sides[0]) or (always[1] and sides[1]):
            made.add(column.name)
    return frozenset(made) & frozenset(node.schema.names)
