"""For tests: the `Driver`, the points at which it can crash, and a checker of what steps emit."""

from headrace.testing.deltas import Deltas, check_deltas
from headrace.testing.driver import Driver
from headrace.testing.faults import POINTS, Crash

__all__ = ["POINTS", "Crash", "Deltas", "Driver", "check_deltas"]
