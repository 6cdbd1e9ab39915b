"""One row a group."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from headrace.base.schema import type_name
from headrace.expressions import calls_of
from headrace.expressions.identity import call_identity, typed_identity
from headrace.plan.nodes.node import Description
from headrace.plan.nodes.windowed import Windowed
from headrace.plan.windows import AlignedWindow, SlidingWindow

if TYPE_CHECKING:
    from headrace.expressions import Aggregates


@dataclass(frozen=True, eq=False, kw_only=True)
class Aggregate(Windowed):
    """One row for each group, or each group and window."""

    verb = "agg"
    kernel = "groups.merge.Merge"

    aggregates: Aggregates

    @property
    def key(self) -> tuple[str, ...] | None:
        """Group and window."""
        return (*self.keys, *self.bounds)

    @property
    def sealed(self) -> frozenset[str]:
        """Results that pass a private value on; a key is never sealed."""
        return self.aggregates.sealed

    @property
    def not_null(self) -> frozenset[str]:
        """The keys that are not null above, and the bounds of its windows."""
        return (self.up.not_null & frozenset(self.keys)) | frozenset(self.bounds)

    @property
    def delta_is_net(self) -> bool:
        """It is, unless functions of the user's are called with its results: then one may stay as it was."""
        return not calls_of(result for _, result in self.aggregates.results)

    @property
    def reads(self) -> tuple[frozenset[str], ...]:
        """The keys, the columns of its arguments and filters, and of a table the time that chooses a window."""
        read = {name for call in self.aggregates.calls for value in call.arguments for name in value.columns}
        read |= {name for call in self.aggregates.calls if call.where for name in call.where.columns}
        time = set() if self.window is None or self.up.time_column is None else {self.up.time_column}
        return (frozenset({*self.keys, *read, *time} & set(self.up.schema.names)),)

    def reads_for(self, wanted: frozenset[str]) -> tuple[frozenset[str], ...]:
        """Return what it reads; where whole rows wait for a window, or a function of the user's, all."""
        arguments = [value for call in self.aggregates.calls for value in (*call.arguments, call.where) if value]
        whole = isinstance(self.window, SlidingWindow) or calls_of(arguments)
        return super().reads_for(wanted) if whole else self.reads

    @property
    def keeps_values(self) -> bool:
        """Whether groups keep how many different values they have, or the least or greatest of values that may go.

        A window of several panes has to look at its values.
        """
        w = self.window
        whole = w is None or (isinstance(w, AlignedWindow) and w.pane == w.size == w.every)
        kept = {(function, True) for function in ("count", "min", "max")}  # of different values
        if not self.up.append_only:
            kept |= {("min", False), ("max", False)}
        return whole and any((call.function, call.distinct) in kept for call in self.aggregates.calls)

    @property
    def holds_rows(self) -> bool:
        """Whether rows may wait for a sliding window; those of a table come and go, and do not wait."""
        return isinstance(self.window, SlidingWindow) and self.up.append_only

    @property
    def kept_order(self) -> tuple[tuple[str, ...], ...]:
        """The columns of rows that may wait, with their types, which `identity` does not have."""
        columns = tuple(f"{field.name} {type_name(field.type)}" for field in self.up.schema)
        return (columns,) if self.holds_rows else ()

    def identity(self) -> dict[str, Any]:
        """Return the window, what is computed, whether rows may be withdrawn, and if results of values are kept."""
        values = {"results of values": "kept"} if self.keeps_values else {}
        return {
            "window": str(self.window) if self.window else None,
            "emit": self.emit,
            "withdrawals": not self.up.append_only,
            "aggregates": [call_identity(call) for call in self.aggregates.calls],
            "results": {name: typed_identity(result) for name, result in self.aggregates.results},
            **values,
        }

    def describe(self) -> Description:
        """Return the results, the window, and a row of the state."""
        group = ", ".join(self.keys) or "one group"
        return Description(
            detail=", ".join(f"{result.text} AS {name}" for name, result in self.aggregates.results),
            window=str(self.window) if self.window else None,
            emit=self.emit,
            state=self.window.state_row(group) if self.window else f"a row per ({group}), kept for ever",
        )
