"""Seeded simulation: random apps, inputs and misfortunes, compared with the batch query over all that was sent."""

from headrace.testing.simulation.case import Case, Output, Step
from headrace.testing.simulation.drawing import draw
from headrace.testing.simulation.play import Failure, Outcome, check, outcome_of
from headrace.testing.simulation.simulating import Finding, simulate

__all__ = ["Case", "Failure", "Finding", "Outcome", "Output", "Step", "check", "draw", "outcome_of", "simulate"]
