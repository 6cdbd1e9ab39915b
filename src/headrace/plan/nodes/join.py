"""What all joins share: which rows match, and the columns of a match."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar, Literal

from headrace.base.schema import duckdb_type, type_name
from headrace.expressions.identity import sql_identity
from headrace.plan.nodes.stateful import Stateful

if TYPE_CHECKING:
    import pyarrow as pa

    from headrace.expressions import Scalar
    from headrace.plan.nodes.node import Node

How = Literal["inner", "left", "right", "full", "semi", "anti"]


@dataclass(frozen=True, slots=True, kw_only=True)
class JoinColumn:
    """A column of a match: from the left row, from the right row, or from both (a shared key)."""

    name: str
    type: pa.DataType
    left: str | None = None
    right: str | None = None


@dataclass(frozen=True, eq=False, kw_only=True)
class Join(Stateful):
    """Rows of two steps that agree in `on` (pairs of a left and a right column) and meet the condition.

    `columns` are those of both sides, which `where` can read. The schema has the columns of the output: for a semi or
    an anti join only those of the left side. Null is equal to nothing.
    """

    verb = "join"
    kind: ClassVar[str]
    """What its identity calls it, in what is stored: it outlives the name of the class."""

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
        """The columns in which rows agree."""
        return (tuple(left for left, _ in self.on), tuple(right for _, right in self.on))

    def partition_keys_after(self, at: tuple[int, ...]) -> tuple[str, ...] | None:
        """The columns of a side that every row has; the shared columns if there is no such side; else None."""
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

    def inside_names(self, side: int) -> dict[str, str]:
        """Return what the columns of a side are called inside: `l0…` of the left (0), `r0…` of the right one (1)."""
        return {name: f"{'lr'[side]}{i}" for i, name in enumerate(self.ups[side].schema.names)}

    def inside(self, column: JoinColumn) -> str:
        """Return the SQL of a column of both over the columns inside: left ones are `l0…`, right ones `r0…`.

        `where` reads them; a shared column is that of the side that has a row.
        """
        left = None if column.left is None else f"l{self.left.schema.get_field_index(column.left)}"
        right = None if column.right is None else f"r{self.right.schema.get_field_index(column.right)}"
        if left is None or right is None:
            return str(left or right)
        return f"coalesce({left}, {right})::{duckdb_type(column.type)}"

    @property
    def kept_order(self) -> tuple[tuple[str, ...], ...]:
        """The columns of both sides."""
        return tuple(tuple(up.schema.names) for up in self.ups)

    @property
    def sealed(self) -> frozenset[str]:
        """The private columns of both sides."""
        left, right = self.left.sealed, self.right.sealed
        sealed = {column.name for column in self.columns if column.left in left or column.right in right}
        return frozenset(sealed) & frozenset(self.schema.names)

    @property
    def late_schema(self) -> pa.Schema:
        """Its own columns: those of the other side are null."""
        return self.schema

    @property
    def late_sealed(self) -> frozenset[str]:
        """Those of its own rows."""
        return self.sealed

    @property
    def late_reason(self) -> str:
        """A join has no windows."""
        return "rows more than grace behind the watermark"

    def late_partition_keys(self, own: tuple[str, ...] | None) -> tuple[str, ...] | None:
        """Return columns that both sides have; others are null in the late rows of one side."""
        shared = {column.name for column in self.columns if column.left is not None and column.right is not None}
        return own if own is not None and shared.issuperset(own) else None

    @property
    def late_before_exchange(self) -> bool:
        """No: a late row may still be emitted, without a match."""
        return False

    @property
    def not_null(self) -> frozenset[str]:
        """Columns of a side that every row has, and of pairs the columns in which they agree."""
        left, right = (
            up.not_null | (frozenset(columns) if sure else frozenset())
            for up, columns, sure in zip(
                self.ups, self.partition_keys, (self.how in ("inner", "semi"), self.how == "inner"), strict=True
            )
        )
        always = {"inner": (True, True), "right": (False, True), "full": (False, False)}.get(self.how, (True, False))
        names = set()
        for column in self.columns:
            sides = (column.left in left, column.right in right)
            if all(sides) or (always[0] and sides[0]) or (always[1] and sides[1]):
                names.add(column.name)
        return frozenset(names) & frozenset(self.schema.names)

    def identity(self) -> dict[str, Any]:
        """Return the kind, the columns of a match, and its condition."""
        return {
            "how": self.how,
            "kind": self.kind,
            "columns": {column.name: type_name(column.type) for column in self.columns},
            "where": None if self.where is None else sql_identity(self.where),
            "withdrawals": [not up.append_only for up in self.ups],
        }

    def grows(self, side: int) -> bool:
        """Whether a side has no key, and only gets rows: none is ever withdrawn."""
        return self.ups[side].key is None and self.ups[side].append_only

    def shown_growth(self, *sides: int) -> str:
        """Return which of the kept sides grow without bound, since none of their rows is ever withdrawn, for people."""
        growing = [
            name
            for side, name in enumerate(("left", "right"))
            if side in sides and self.ups[side].append_only and not self.ups[side].is_constant
        ]
        return f"; unbounded: the {' and the '.join(growing)} side only grows" if growing else ""

    def shown_match(self, time: str = "") -> str:
        """Return what rows match by, for people; `time` is what their times have to do with it."""
        on = " and ".join(f"{left} = {right}" if left != right else left for left, right in self.on)
        where = f", where {self.where.text}" if self.where is not None else ""
        return f"{self.how}, on {on}{time}{where}"
