"""Rows of a key, one after the other, that match a pattern."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

from headrace.base.schema import type_name
from headrace.base.time import show_duration
from headrace.expressions.identity import call_identity, typed_identity
from headrace.plan.nodes.node import Description
from headrace.plan.nodes.stateful import Keyed

if TYPE_CHECKING:
    from headrace.expressions import Aggregates
    from headrace.plan.patterns import Pattern

After = Literal["past last row", "next row"]
MATCH_ROW, MATCH_SYMBOL = "_headrace_row", "_headrace_symbol"
"""What measures read besides the columns: the number of a row in its match, and that of the symbol that it met."""


@dataclass(frozen=True, eq=False, kw_only=True)
class Match(Keyed):
    """A row for each match: the keys, when it began and ended, and what `measures` compute of its rows.

    `conditions` has a result for each symbol that is defined, over the columns and earlier rows; `within` is in
    microseconds.
    """

    verb = "match"
    kernel = "match.Match"

    pattern: Pattern
    conditions: Aggregates
    within: int
    after: After
    measures: Aggregates

    @property
    def append_only(self) -> bool:
        """Yes: a match is emitted once, when it is final."""
        return True

    @property
    def is_table(self) -> bool:
        """No: matches are facts."""
        return False

    @property
    def key(self) -> tuple[str, ...] | None:
        """Matches have none."""
        return None

    @property
    def detects_late(self) -> bool:
        """Yes: the rows after a late one may be in matches that are final."""
        return True

    @property
    def emits_on_watermark(self) -> bool:
        """Yes: a row is matched when the watermark has passed it."""
        return True

    @property
    def late_reason(self) -> str:
        """No window closes."""
        return "rows behind the watermark: rows after them are matched"

    @property
    def event_time_column(self) -> str | None:
        """When a match ended."""
        return "match_end"

    @property
    def not_null(self) -> frozenset[str]:
        """The keys that are above, and when a match began and ended."""
        return (self.up.not_null & frozenset(self.keys)) | {"match_start", "match_end"}

    @property
    def sealed(self) -> frozenset[str]:
        """The keys and measures that pass a private value on."""
        return (self.up.sealed & frozenset(self.keys)) | self.measures.sealed

    @property
    def behind(self) -> int:
        """How many rows before a row its conditions read."""
        return max((int(call.at[0]) for call in self.conditions.calls), default=0)

    @property
    def measured(self) -> frozenset[str]:
        """The columns that the measures read."""
        read = (a.columns for call in self.measures.calls for a in call.arguments)
        where = (call.where.columns for call in self.measures.calls if call.where)
        return frozenset[str]().union(*read, *where) & frozenset(self.up.schema.names)

    @property
    def kept_order(self) -> tuple[tuple[str, ...], ...]:
        """The columns of its rows."""
        return (tuple(self.up.schema.names),)

    def identity(self) -> dict[str, Any]:
        """Return the columns, the pattern with its conditions, how long a match lasts, and what is computed of it."""
        return {
            "columns": {field.name: type_name(field.type) for field in self.up.schema},
            "pattern": self.pattern.text,
            "earlier": [call_identity(call) for call in self.conditions.calls],
            "define": {name: typed_identity(result) for name, result in self.conditions.results},
            "within": show_duration(self.within),
            "after": self.after,
            "aggregates": [call_identity(call) for call in self.measures.calls],
            "results": {name: typed_identity(result) for name, result in self.measures.results},
        }

    def describe(self) -> Description:
        """Return the pattern, the measures, and what is kept."""
        within = show_duration(self.within)
        by = f" per ({', '.join(self.keys)})" if self.keys else ""
        define = ", ".join(f"{name} AS {result.text}" for name, result in self.conditions.results)
        measures = ", ".join(f"{result.text} AS {name}" for name, result in self.measures.results)
        parts = [f"({self.pattern.text}) within {within}{by}", *([f"define {define}"] if define else [])]
        parts += [*([measures] if measures else []), f"after a match: {self.after}"]
        state = f"the rows that the watermark has not passed; those{by} since the first that may still begin a match, "
        state += f"{within} long at most"
        kept = f"; the last {self.behind}{by}, for ever" if self.behind else ""
        return Description(detail="; ".join(parts), emit="final", state=state + kept)
