"""The first row of each key."""

from __future__ import annotations

from dataclasses import dataclass

from headrace.plan.nodes.stateful import Keyed


@dataclass(frozen=True, eq=False, kw_only=True)
class Dedupe(Keyed):
    """The first row of each key; later ones are dropped while the key is kept: `within` microseconds, and longer."""

    verb = "dedupe"

    within: int

    @property
    def detects_late(self) -> bool:
        """A row is too late when a key first seen at its time would be forgotten by now."""
        return True

    @property
    def not_null(self) -> frozenset[str]:
        """As the step above."""
        return self.up.not_null
