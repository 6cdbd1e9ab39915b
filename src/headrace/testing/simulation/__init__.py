"""Seeded simulation: random apps, inputs and misfortunes, compared with the batch query over all that was sent."""

from headrace.testing.simulation.case import Case, Output, Step
from headrace.testing.simulation.drawing import draw
from headrace.testing.simulation.play import Failure, check
from headrace.testing.simulation.simulating import Finding, simulate

__all__ = ["Case", "Failure", "Finding", "Output", "Step", "check", "draw", "simulate"]
