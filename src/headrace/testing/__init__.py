"""For tests: the `Driver`, crash points, a checker of deltas, contract kits for connectors, and simulated cases."""

from headrace.testing.connectors import check_feed, check_sink, check_source
from headrace.testing.deltas import Deltas, check_deltas
from headrace.testing.driver import Driver
from headrace.testing.faults import POINTS, Crash
from headrace.testing.simulation import simulate

__all__ = [
    "POINTS",
    "Crash",
    "Deltas",
    "Driver",
    "check_deltas",
    "check_feed",
    "check_sink",
    "check_source",
    "simulate",
]
