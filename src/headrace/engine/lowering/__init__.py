"""From the plan to the program: each node becomes operations of its level."""

from __future__ import annotations

from typing import TYPE_CHECKING

from headrace.engine.lowering import joins, stateful, stateless
from headrace.engine.lowering.walk import Lowering

if TYPE_CHECKING:
    from headrace.kernels.program import Program
    from headrace.plan.plan import Plan

__all__ = ["joins", "lower", "stateful", "stateless"]


def lower(plan: Plan, shards: int) -> Program:
    """Return the program that computes a plan on so many shards."""
    return Lowering(plan, shards).program()
