"""The first row of each key."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from headrace.base.time import show_duration
from headrace.plan.nodes.node import Description
from headrace.plan.nodes.stateful import Keyed

if TYPE_CHECKING:
    from headrace.plan.nodes.node import Node


@dataclass(frozen=True, eq=False, kw_only=True)
class Dedupe(Keyed):
    """The first row of each key; later ones are dropped while the key is kept: `within` microseconds, and longer."""

    verb = "dedupe"
    kernel = "dedupe.Dedupe"

    within: int

    @property
    def detects_late(self) -> bool:
        """Yes: a row is late when a key first seen at its time would be forgotten by now."""
        return True

    @property
    def arrival_inputs(self) -> tuple[Node, ...] | None:
        """As the step above: it passes rows on as they are."""
        return (self.up,)

    @property
    def not_null(self) -> frozenset[str]:
        """As the step above."""
        return self.up.not_null

    @property
    def event_time_column(self) -> str | None:
        """As the step above."""
        return self.up.event_time_column

    @property
    def late_reason(self) -> str:
        """No window closes."""
        return "rows that came too late"

    def parameters(self) -> dict[str, Any]:
        """Return how long a key is kept."""
        return {"within": self.within}

    def identity(self) -> dict[str, Any]:
        """Return how long a key is kept."""
        return {"within": show_duration(self.within)}

    def describe(self) -> Description:
        """Return the keys, and how long they are kept."""
        keys, within = ", ".join(self.keys), show_duration(self.within)
        return Description(
            detail=f"first row per ({keys}) within {within}",
            state=f"a row per ({keys}), kept until the watermark passes its first row by {within}",
        )
