"""Event sourcing: the events of many streams in one topic of the embedded log, appended with a version check.

from headrace import events

store = events.EventStore("shop/log")
answer = store.append("seat-12A", [events.Event("SeatTaken", {"by": "ann"})], expected_version=0)
"""

from headrace.events.aggregate import Aggregate, ConflictsRemain
from headrace.events.event import Appended, Conflict, Event, Recorded
from headrace.events.store import EventStore

__all__ = ["Aggregate", "Appended", "Conflict", "ConflictsRemain", "Event", "EventStore", "Recorded"]
