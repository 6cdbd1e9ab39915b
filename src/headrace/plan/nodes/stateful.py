"""What every step with state is: how its rows are spread over the shards, and which are late."""

from __future__ import annotations

from abc import abstractmethod
from dataclasses import dataclass
from typing import Any, ClassVar, Literal

import pyarrow as pa

from headrace.plan.nodes.node import Description, Node, OneInput

CHANGE_TYPE = "_change_type"
"""The column that says what happened to a row of a table."""

Keeps = Literal["all", "open windows", "nothing"]
"""How much of what a step has emitted, and not withdrawn, can be computed again from its state."""


@dataclass(frozen=True, eq=False, kw_only=True)
class Stateful(Node):
    """A step that keeps state, partitioned over the shards by columns of its input."""

    stateful = True
    kernel: ClassVar[str]
    """The operator that runs it: its file in the kernels' room and its class there, such as "dedupe.Dedupe"."""

    to_all_shards: ClassVar[bool] = False
    """Whether the rows of its first input go to all shards; those of the second are in the shards of their key."""

    renamed_from: str | None = None
    """The name under which its state was kept before, if `.named` gave one."""

    def parameters(self) -> dict[str, Any]:
        """Return what the operator is told besides its rows and keys: plain values by the names of its fields."""
        return {}

    @abstractmethod
    def identity(self) -> dict[str, Any]:
        """Return what must stay equal for its kept state to be right, besides its verb, keys and sources.

        It is stored and compared at every start: what a released version wrote must come out the same, as JSON.
        """

    @property
    @abstractmethod
    def partition_keys(self) -> tuple[tuple[str, ...], ...]:
        """For each step above, the columns that partition its rows: rows that belong together agree in them."""

    @property
    def reads(self) -> tuple[frozenset[str], ...]:
        """For each step above, the columns that its kept rows and its output depend on."""
        return tuple(frozenset(up.schema.names) for up in self.ups)

    @property
    def kept_order(self) -> tuple[tuple[str, ...], ...]:
        """For each step above, the columns of the rows that are kept by their places: in another order they are others.

        It is stored beside `identity`, and compared where it was.
        """
        return ()

    @property
    def reads_time(self) -> bool:
        """Whether a row that is withdrawn is looked for by its time (`Node.time_column`)."""
        return False

    @property
    def works_in_place(self) -> bool:
        """Whether it takes rows in the shards where they are, if they are partitioned at all."""
        return False

    @property
    def keeps_output(self) -> Keeps:
        """How much of its current output its state has: what a step or a view that is new below it is filled with.

        Rows of streams are passed on and forgotten; the results of windows are kept until these close.
        """
        return "nothing"

    @property
    def versions(self) -> Node | None:
        """The step above whose records it reads as versions: it must have seen them from the first one on."""
        return None

    @property
    def name_suffix(self) -> str:
        """What follows its sources in a derived name: the verb and the keys."""
        by = self.partition_keys[0]
        return "_".join([self.verb, "by", *by]) if by else self.verb

    def partition_keys_after(self, at: tuple[int, ...]) -> tuple[str, ...] | None:
        """Return the columns that its own rows are spread by, when those above are by the columns at these indexes."""
        return tuple(self.partition_keys[0][i] for i in at)

    @property
    def hold(self) -> int:
        """How far behind its watermark a result may still carry its event time, in microseconds."""
        return 0

    @property
    def late_schema(self) -> pa.Schema:
        """The columns of its late rows: those of its input, and for a table the kind of change."""
        up = self.ups[0]
        return up.schema if up.append_only else up.schema.append(pa.field(CHANGE_TYPE, pa.string()))

    @property
    def late_sealed(self) -> frozenset[str]:
        """The columns of its late rows with private values."""
        above = frozenset[str]().union(*(up.sealed for up in self.ups))
        return above & frozenset(self.late_schema.names)

    def late_partition_keys(self, own: tuple[str, ...] | None) -> tuple[str, ...] | None:
        """Return the columns that its late rows are spread by, where its own rows, or those above, are by `own`."""
        return own

    @property
    def late_reason(self) -> str:
        """Why a row is late, for people."""
        return "rows after their windows closed"

    @property
    def late_before_exchange(self) -> bool:
        """Whether late rows are found before the exchange, where they are still the rows of the input."""
        return True


@dataclass(frozen=True, eq=False, kw_only=True)
class Keyed(Stateful, OneInput):
    """A step with one input, partitioned by its keys."""

    keys: tuple[str, ...]

    @property
    def partition_keys(self) -> tuple[tuple[str, ...], ...]:
        """By its keys."""
        return (self.keys,)


@dataclass(frozen=True, eq=False, kw_only=True)
class Late(Node):
    """The late rows of a step, as they arrived."""

    verb = "late"

    of: Stateful

    @property
    def ups(self) -> tuple[Node, ...]:
        """The step that found them late."""
        return (self.of,)

    @property
    def watermark_inputs(self) -> tuple[Node, ...]:
        """Those above that step: late rows are passed on before the step works with its watermark."""
        return self.of.ups

    @property
    def append_only(self) -> bool:
        """They are facts: that a row, or its withdrawal, was late."""
        return True

    @property
    def sealed(self) -> frozenset[str]:
        """As that step says."""
        return self.of.late_sealed & frozenset(self.schema.names)

    def describe(self) -> Description:
        """Return why the rows are late."""
        return Description(detail=self.of.late_reason)
