"""What every step is: a frozen value that holds the steps above it and has a schema."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

if TYPE_CHECKING:
    from collections.abc import Iterator

    import pyarrow as pa


@dataclass(frozen=True, eq=False, kw_only=True)
class Node:
    """A step. `name` is what `.named` gave, or None."""

    verb: ClassVar[str]
    stateful: ClassVar[bool] = False

    schema: pa.Schema
    name: str | None = None

    @property
    def ups(self) -> tuple[Node, ...]:
        """The steps that feed this one, left to right."""
        return ()

    @property
    def key(self) -> tuple[str, ...] | None:
        """The columns that identify a row of a table; None for streams, and for tables that lost their key."""
        return None

    @property
    def is_table(self) -> bool:
        """Whether rows may be withdrawn or replaced: a table, or an append-only stream."""
        return False

    @property
    def append_only(self) -> bool:
        """Whether every row that comes out stays: nothing is ever withdrawn."""
        return all(up.append_only for up in self.ups)

    @property
    def detects_late(self) -> bool:
        """Whether a row can come too late for it, so that it has late rows."""
        return False

    @property
    def emits_on_watermark(self) -> bool:
        """Whether time alone makes it give something out: without a row, once its watermark has moved."""
        return False

    @property
    def sealed(self) -> frozenset[str]:
        """The columns with private values, which are sealed as long as the app has them."""
        above = frozenset[str]().union(*(up.sealed for up in self.ups))
        return above & frozenset(self.schema.names)

    @property
    def not_null(self) -> frozenset[str]:
        """The columns that have a value in every row, as far as the plan knows; others may have one, too."""
        return frozenset()

    def walk(self) -> Iterator[Node]:
        """Yield the steps that lead here and this one, each once, sources first."""
        seen: set[int] = set()

        def visit(node: Node) -> Iterator[Node]:
            if id(node) not in seen:
                seen.add(id(node))
                for up in node.ups:
                    yield from visit(up)
                yield node

        return visit(self)


@dataclass(frozen=True, eq=False, kw_only=True)
class OneInput(Node):
    """A step over one other."""

    up: Node

    @property
    def ups(self) -> tuple[Node, ...]:
        """The one step above."""
        return (self.up,)

    @property
    def key(self) -> tuple[str, ...] | None:
        """The key of the step above."""
        return self.up.key

    @property
    def is_table(self) -> bool:
        """As the step above."""
        return self.up.is_table
