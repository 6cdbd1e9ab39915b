"""What every step is: a frozen value that holds the steps above it and has a schema."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

if TYPE_CHECKING:
    from collections.abc import Iterator

    import pyarrow as pa


ROW_TIME = "_time"
"""The column inside an app with the event time of each row; of a withdrawal: the time of the change that caused it."""
ARRIVED = "_headrace_arrived"
"""The column with the time at which a row was stored in its topic, where a lookup below needs it."""
CORRECTED = f"make_timestamp({ROW_TIME})"
"""SQL for the event time of a row, as its source emits it."""

Partition = tuple[str, ...] | None
"""The columns whose values decide the shard of a row; None: a row may be in any shard."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Description:
    """What `explain` says of a step: what it does, its window, when it emits, and the state that it keeps."""

    detail: str = ""
    window: str | None = None
    emit: str | None = None
    state: str | None = None


@dataclass(frozen=True, eq=False, kw_only=True)
class Node(ABC):
    """A step. `name` is what `.named` gave, or None.

    A kind of node says all that the planner needs to know of it: no other file asks what kind a node is to describe it.
    """

    verb: ClassVar[str]
    stateful: ClassVar[bool] = False

    schema: pa.Schema
    name: str | None = None

    @abstractmethod
    def describe(self) -> Description:
        """Return what `explain` says of the step."""

    @property
    def shown_verb(self) -> str:
        """The verb that the user wrote."""
        return self.verb

    @property
    def ups(self) -> tuple[Node, ...]:
        """The steps that feed this one, left to right."""
        return ()

    @property
    def watermark_inputs(self) -> tuple[Node, ...]:
        """The steps whose watermarks its own watermark depends on."""
        return self.ups

    @property
    def arrival_inputs(self) -> tuple[Node, ...] | None:
        """The steps whose rows it passes on with the time at which they arrived; None: its rows have no such time."""
        return None

    @property
    def key(self) -> tuple[str, ...] | None:
        """The columns that identify a row of a table; None for streams, and for tables that lost their key."""
        return None

    @property
    def is_table(self) -> bool:
        """Whether rows may be withdrawn or replaced: a table, or an append-only stream."""
        return False

    @property
    def delta_is_net(self) -> bool:
        """Whether its rows of an epoch are its net change: none of them cancel out."""
        return not self.is_table

    @property
    def append_only(self) -> bool:
        """Whether its output is append-only: no row is ever withdrawn."""
        return all(up.append_only for up in self.ups)

    @property
    def is_constant(self) -> bool:
        """Whether its rows are constants of the program: all of them are there before anything else arrives."""
        return not self.stateful and bool(self.ups) and all(up.is_constant for up in self.ups)

    @property
    def detects_late(self) -> bool:
        """Whether rows can be late for it: then it has late rows."""
        return False

    @property
    def emits_on_watermark(self) -> bool:
        """Whether it emits rows when only its watermark moves, without new input."""
        return False

    @property
    def emits_ahead(self) -> bool:
        """Whether it emits in an epoch what is final by the watermark that the epoch's own input reaches."""
        return False

    @property
    def sealed(self) -> frozenset[str]:
        """The columns with private values, which the app keeps sealed."""
        above = frozenset[str]().union(*(up.sealed for up in self.ups))
        return above & frozenset(self.schema.names)

    @property
    def not_null(self) -> frozenset[str]:
        """The columns that have a value in every row, as far as the plan knows; others may have one, too."""
        return frozenset()

    @property
    def time_column(self) -> str | None:
        """The column with the time of each row, None where nobody knows.

        A withdrawal has the time of the change that caused it in `_time`. A window over a table must take a row away
        where it has put it, so it goes by the time that the row itself has.
        """
        return ROW_TIME if self.keeps_time else self.event_time_column

    @property
    def keeps_time(self) -> bool:
        """Whether a row is withdrawn with the `_time` that it was inserted with, or never withdrawn."""
        return self.append_only

    @property
    def event_time_column(self) -> str | None:
        """The column that has the event time of the source at this step; None where that is gone or unknown."""
        return None

    def reads_for(self, wanted: frozenset[str]) -> tuple[frozenset[str], ...]:  # noqa: ARG002 -- for those that override it
        """Return for each step above the columns that are read of it where only `wanted` of its own are: here all."""
        return tuple(frozenset(up.schema.names) for up in self.ups)

    def partition_after(self, above: Partition) -> Partition:  # noqa: ARG002 -- what is known only to those that override it
        """Return the columns that a stateless step's rows are spread by, when the rows above are by `above`."""
        return None

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
