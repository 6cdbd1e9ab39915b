"""Seats that buyers race for, and accounts, as aggregates."""

from __future__ import annotations

from headrace import events


class Taken(Exception):
    """Somebody else has the seat."""


class Seat(events.Aggregate):
    """A seat is free, or taken by somebody."""

    snapshot_every = 4

    def initial(self):
        return {"by": None, "times": 0}

    def apply(self, state, event):
        by = event.data["by"] if event.type == "SeatTaken" else None
        return {"by": by, "times": state["times"] + 1}

    def handle(self, state, command):
        verb, who = command
        if verb == "take":
            if state["by"] not in (None, who):
                raise Taken(state["by"])
            return [] if state["by"] == who else [events.Event("SeatTaken", {"by": who})]
        return [events.Event("SeatFreed", {"by": who})] if state["by"] == who else []
