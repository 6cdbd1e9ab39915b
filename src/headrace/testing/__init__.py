"""For tests: the `Driver` and the points at which it can crash."""

from headrace.testing.driver import Driver
from headrace.testing.faults import POINTS, Crash

__all__ = ["POINTS", "Crash", "Driver"]
