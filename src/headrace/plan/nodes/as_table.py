"""A stream read as a table that grows: a bag of its rows."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from headrace.base.schema import type_name
from headrace.base.time import show_duration
from headrace.plan.nodes.node import Description, Partition
from headrace.plan.nodes.stateful import Keeps, Keyed
from headrace.plan.nodes.stateless import Stateless

if TYPE_CHECKING:
    from collections.abc import Sequence

    from headrace.plan.nodes.meaning import Meaning


@dataclass(frozen=True, eq=False, kw_only=True)
class AsTable(Stateless):
    """The rows of a stream as a table: none ever leaves, and a row that is there twice counts twice."""

    verb = "as_table"

    @property
    def key(self) -> tuple[str, ...] | None:
        """None: the whole row is its identity."""
        return None

    @property
    def is_table(self) -> bool:
        """Yes, though none of its rows is ever withdrawn."""
        return True

    @property
    def delta_is_net(self) -> bool:
        """Yes: rows are only added."""
        return True

    @property
    def not_null(self) -> frozenset[str]:
        """As the step above."""
        return self.up.not_null

    @property
    def event_time_column(self) -> str | None:
        """As the step above."""
        return self.up.event_time_column

    def partition_after(self, above: Partition) -> Partition:
        """Return `above`: the rows stay as they are."""
        return above

    def reads_for(self, wanted: frozenset[str]) -> tuple[frozenset[str], ...]:
        """Return those."""
        return (wanted,)

    def meaning(self, above: Sequence[Meaning]) -> Meaning:
        """Return the rows above."""
        return above[0]

    def describe(self) -> Description:
        """Return that steps below keep all of it."""
        return Description(detail="a bag that grows, unbounded: what keeps its rows keeps them for ever")


@dataclass(frozen=True, eq=False, kw_only=True)
class Keep(Keyed):
    """The rows of a stream as a table, each until the watermark has passed its time by more than `keep` microseconds.

    It is spread by `keys` so that shards have equal parts; any columns would do.
    """

    verb = "as_table"
    kernel = "keep.Keep"

    keep: int

    @staticmethod
    def spread_by(schema: pa.Schema) -> tuple[str, ...]:
        """Return the columns that spread rows over the shards: all whose values have one form."""
        return tuple(field.name for field in schema if not (_is_real(field.type) or field.type.num_fields))

    @property
    def key(self) -> tuple[str, ...] | None:
        """None: the whole row is its identity."""
        return None

    @property
    def name_suffix(self) -> str:
        """The verb: the columns that it is spread by are no keys of the user's."""
        return self.verb

    @property
    def is_table(self) -> bool:
        """Yes: rows leave."""
        return True

    @property
    def append_only(self) -> bool:
        """No: a row that leaves is withdrawn."""
        return False

    @property
    def keeps_output(self) -> Keeps:
        """All of it: its state is the table."""
        return "all"

    @property
    def detects_late(self) -> bool:
        """Yes: a row is late that would leave at once."""
        return True

    @property
    def emits_on_watermark(self) -> bool:
        """Yes: rows leave by time."""
        return True

    @property
    def late_reason(self) -> str:
        """No window closes."""
        return "rows that came after they would have left"

    @property
    def not_null(self) -> frozenset[str]:
        """As the step above."""
        return self.up.not_null

    @property
    def event_time_column(self) -> str | None:
        """As the step above."""
        return self.up.event_time_column

    def parameters(self) -> dict[str, Any]:
        """Return how long rows stay."""
        return {"keep": self.keep}

    def identity(self) -> dict[str, Any]:
        """Return the columns, and how long rows stay."""
        columns = {field.name: type_name(field.type) for field in self.schema}
        return {"columns": columns, "keep": show_duration(self.keep)}

    def describe(self) -> Description:
        """Return how long rows stay."""
        keep = show_duration(self.keep)
        return Description(
            detail=f"the rows of the last {keep}, in event time",
            state=f"a row each, withdrawn when the watermark has passed its time by more than {keep}",
        )


def _is_real(kind: pa.DataType) -> bool:
    return bool(pa.types.is_floating(kind))
