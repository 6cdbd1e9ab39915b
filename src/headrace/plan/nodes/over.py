"""Each row of a stream with aggregates over the rows of its key before it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

from headrace.base.schema import type_name
from headrace.base.time import show_duration
from headrace.expressions.identity import call_identity, typed_identity
from headrace.plan.nodes.node import Description
from headrace.plan.nodes.stateful import Keeps, Keyed

if TYPE_CHECKING:
    from headrace.expressions import Aggregates
    from headrace.plan.nodes.windowed import Emit


@dataclass(frozen=True, slots=True, kw_only=True)
class Rows:
    """Which rows of a key count for a row.

    "all": all up to it. "rows": from `first` to `last` rows before it. "range": those of the `first` microseconds
    before it, and of its own time.
    """

    kind: Literal["all", "rows", "range"] = "all"
    first: int = 0
    last: int = 0

    def __str__(self) -> str:
        if self.kind == "range":
            return f"the rows of the last {show_duration(self.first)}"
        if self.kind == "all":
            return "all rows up to it"
        if self.last == 0:
            return f"the last {self.first + 1} rows"
        return f"the rows from {self.first} to {self.last} before it"


@dataclass(frozen=True, eq=False, kw_only=True)
class Over(Keyed):
    """Rows with aggregates over the rows before them, in the order of event time: final, or corrected."""

    verb = "over"
    kernel = "over.Over"

    rows: Rows
    emit: Emit
    aggregates: Aggregates

    @property
    def key(self) -> tuple[str, ...] | None:
        """As the step above; a stream has none."""
        return self.up.key

    @property
    def is_table(self) -> bool:
        """Whether results are corrected."""
        return self.emit == "changes"

    @property
    def append_only(self) -> bool:
        """Whether results are emitted once, when they are final."""
        return self.emit == "final"

    @property
    def keeps_output(self) -> Keeps:
        """All over a table; of a stream the rows that may still be corrected. Final ones are gone."""
        if self.emit == "final":
            return "nothing"
        return "open windows" if self.up.append_only else "all"

    @property
    def detects_late(self) -> bool:
        """Whether rows become final: rows of a table never do."""
        return self.up.append_only

    @property
    def emits_on_watermark(self) -> bool:
        """Whether results are emitted when the watermark has passed them."""
        return self.emit == "final"

    @property
    def late_reason(self) -> str:
        """No window closes."""
        return "rows behind the watermark: rows after them are final"

    @property
    def not_null(self) -> frozenset[str]:
        """As the step above."""
        return self.up.not_null

    @property
    def event_time_column(self) -> str | None:
        """As the step above."""
        return self.up.event_time_column

    @property
    def sealed(self) -> frozenset[str]:
        """Those of the step above, and results that pass a private value on."""
        return (self.up.sealed | self.aggregates.sealed) & frozenset(self.schema.names)

    @property
    def ahead(self) -> int:
        """How many rows a row looks ahead."""
        return max((int(call.at[0]) for call in self.aggregates.calls if call.function == "lead"), default=0)

    @property
    def behind(self) -> int:
        """How many of the last rows of a key later rows need."""
        looks_back = [int(call.at[0]) for call in self.aggregates.calls if call.function == "lag"]
        counts = any(call.function == "row_number" for call in self.aggregates.calls) or self.rows.kind == "all"
        return max([*looks_back, int(counts), self.rows.first if self.rows.kind == "rows" else 0])

    @property
    def reads_time(self) -> bool:
        """Over a table: its rows are in the order of their times."""
        return not self.up.append_only

    @property
    def kept_order(self) -> tuple[tuple[str, ...], ...]:
        """The columns of its rows."""
        return (tuple(self.up.schema.names),)

    def identity(self) -> dict[str, Any]:
        """Return the columns, which rows count, what is computed, and whether rows may be withdrawn."""
        return {
            "columns": {field.name: type_name(field.type) for field in self.up.schema},
            "rows": [self.rows.kind, self.rows.first, self.rows.last],
            "emit": self.emit,
            "withdrawals": not self.up.append_only,
            "aggregates": [call_identity(call) for call in self.aggregates.calls],
            "results": {name: typed_identity(result) for name, result in self.aggregates.results},
        }

    def describe(self) -> Description:
        """Return the results, which rows count, and what is kept."""
        results = ", ".join(f"{result.text} AS {name}" for name, result in self.aggregates.results)
        by = f" per ({', '.join(self.keys)})" if self.keys else ""
        if not self.up.append_only:
            state = f"all rows{by}, kept until they are withdrawn"
        else:
            kept = [f"the last {self.behind}{by}, for ever"] if self.behind else []
            kept += [f"those of the last {show_duration(self.rows.first)}"] if self.rows.kind == "range" else []
            state = " and ".join(["the rows that the watermark has not passed", *kept])
        return Description(detail=f"{results}, over {self.rows}{by}", emit=self.emit, state=state)
