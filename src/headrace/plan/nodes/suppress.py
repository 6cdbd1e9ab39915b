"""A table whose changes come out less often."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from headrace.base.schema import type_name
from headrace.base.time import show_duration
from headrace.plan.nodes.node import Description
from headrace.plan.nodes.stateful import Keeps, Keyed


@dataclass(frozen=True, eq=False, kw_only=True)
class Suppress(Keyed):
    """The last change of each key in every period of event time; earlier, where more than `size` keys wait in a shard.

    `every` is in microseconds, None for no period. `early`: it is a part of a window's `emit`.
    """

    verb = "suppress"
    kernel = "suppress.Suppress"

    every: int | None
    size: int | None
    early: bool = False

    @property
    def is_table(self) -> bool:
        """Yes: rows replace each other."""
        return True

    @property
    def append_only(self) -> bool:
        """No: a row that changed is withdrawn."""
        return False

    @property
    def keeps_output(self) -> Keeps:
        """All of it: what has come out is kept."""
        return "all"

    @property
    def delta_is_net(self) -> bool:
        """A row that is as it was does not come out."""
        return True

    @property
    def emits_on_watermark(self) -> bool:
        """Yes: changes wait for the end of their period."""
        return True

    @property
    def not_null(self) -> frozenset[str]:
        """As the step above."""
        return self.up.not_null

    @property
    def event_time_column(self) -> str | None:
        """As the step above."""
        return self.up.event_time_column

    @property
    def keeps_time(self) -> bool:
        """As the step above, of which a row keeps its time."""
        return self.up.keeps_time

    def parameters(self) -> dict[str, Any]:
        """Return the period and the size."""
        return {"every": self.every, "size": self.size}

    def identity(self) -> dict[str, Any]:
        """Return the columns, the period and the size."""
        return {
            "columns": {field.name: type_name(field.type) for field in self.schema},
            "every": None if self.every is None else show_duration(self.every),
            "size": self.size,
        }

    def describe(self) -> Description:
        """Return how often changes come out."""
        often = [] if self.every is None else [f"every {show_duration(self.every)}"]
        often += [] if self.size is None else [f"when more than {self.size} keys wait in a shard"]
        return Description(
            detail=f"the last change of each key, {' or '.join(often)}",
            state="the rows that have come out, and the changes that wait",
        )
