"""What a step did in an epoch, for the status."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass
class Counts:
    """Rows of one step in one epoch: read, given out, late, and why others went nowhere."""

    rows_in: int = 0
    rows_out: int = 0
    late: int = 0
    partly_late: int = 0
    dead: int = 0
    lost: int = 0
    too_old: int = 0

    def __iadd__(self, other: Counts) -> Counts:  # noqa: PYI034 -- no one subclasses it
        for name in vars(self):
            setattr(self, name, getattr(self, name) + getattr(other, name))
        return self
